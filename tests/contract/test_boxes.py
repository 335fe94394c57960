"""One suite for every box: the native engine behind each of its walls, Docker, a server's by HTTP, and the fake."""

import asyncio
import os
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.confinement.choose import confiners
from ringfence.confinement.linux import seccomp
from ringfence.engines.base import Box, Engine, Process
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.native.engine import NativeEngine
from ringfence.errors import Internal, SpawnFailed
from ringfence.values.grant import Grant
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import Exited, LimitHit, Result, Signalled, TimedOut
from ringfence.values.request import Overflow, Request, Stream
from tests.support import docker
from tests.support.fakes import FakeEngine
from tests.support.remote_boxes import server_of_boxes

WALLS = ["bwrap", "unshare", "gvisor", *(["landlock"] if os.geteuid() != 0 else [])]
"""Landlock alone cannot be used by root, as its probe says; tests/contract/test_confiners.py shows that."""
DOCKER = {"docker": docker.settings, "docker-gvisor": docker.gvisor_settings}
WALLED = [*WALLS, *DOCKER]
THROUGH = [*WALLED, "server"]
"""And a box of another process, behind its usual wall, by the client."""
ALL = [*THROUGH, "fake"]
SECRET = "hunter2"
ENVIRON = {"PATH": "/usr/bin:/bin", "TOKEN": SECRET}


_server: list[Engine] = []


@pytest.fixture(scope="module", autouse=True)
def server_for_boxes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Before any test of the module, since it is no test's to leave it running."""
    with server_of_boxes(tmp_path_factory.mktemp("server"), SECRET) as engine:
        _server[:] = [engine]
        yield
        _server.clear()


class Bench:
    """One kind of box, ready to be opened in an event loop."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        self.wall = confiners()[0].name if kind == "server" else kind
        self.workspace = root / "work"
        (self.workspace / "sub").mkdir(parents=True)
        self.home = root / "home"
        self.home.mkdir()

    @property
    def engine(self) -> Engine:
        if self.kind == "fake":
            return FakeEngine()
        if self.kind in DOCKER:
            return DockerEngine(DOCKER[self.kind]())
        if self.kind == "server":
            assert _server, "the module has no fixture `server_for_boxes`"
            return _server[0]
        return NativeEngine(confiners(), ENVIRON, str(self.home), only=self.kind)

    def use(self, work: Callable[[Box], Awaitable[Any]], **grant: Any) -> Any:
        """Open a box, do something with it, close it."""

        async def main() -> Any:
            async with asyncio.timeout(30):
                box = await self.engine.open(Grant(workspace=self.workspace, **grant))
                try:
                    return await work(box)
                finally:
                    await box.close()

        return asyncio.run(main())

    def run(self, command: str, *, limits: Limits | None = None, **parts: Any) -> Result:
        """One command in a box of its own."""
        result = self.use(
            lambda box: box.run(Request(command=command, **parts)), limits=limits or Limits(), env=(("MINE", "box"),)
        )
        assert isinstance(result, Result)
        return result


def _bench(kind: str, root: Path) -> Bench:
    if kind in WALLS:
        (confiner,) = (confiner for confiner in confiners() if confiner.name == kind)
        if not confiner.probe().usable:
            pytest.skip(f"{kind}: {confiner.probe().missing}")
    if kind in DOCKER:
        DOCKER[kind]()
    return Bench(kind, root)


@pytest.fixture(params=ALL)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


@pytest.fixture(params=THROUGH)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Those that start processes."""
    return _bench(request.param, tmp_path)


# --- endings ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("B2", "D3")
@pytest.mark.parametrize("code", [0, 1, 3, 255])
def test_an_exit_code_is_the_command_s_own(bench: Bench, code: int) -> None:
    assert bench.run(f"exit {code}").ending == Exited(code)


@pytest.mark.parametrize("number", [9, 15, 11])
def test_a_signal_is_told_from_an_exit_code(bench: Bench, number: int) -> None:
    result = bench.run(f"kill -{number} $$")

    assert (result.ending, result.exit_code) == (Signalled(number), 128 + number)


@pytest.mark.req("B6", "C9")
def test_a_command_that_takes_too_long_is_ended_and_its_output_kept(bench: Bench) -> None:
    begin = time.monotonic()
    result = bench.run("echo before; sleep 60; echo after", timeout=0.4)

    assert result.ending == TimedOut(0.4)
    assert result.stdout == "before\n"
    assert time.monotonic() - begin < 10


def test_a_command_that_ends_in_time_is_not(bench: Bench) -> None:
    assert bench.run("echo before; sleep 0.01; echo after", timeout=20).stdout == "before\nafter\n"


def test_the_grant_s_time_cannot_be_exceeded_by_a_request(bench: Bench) -> None:
    result = bench.run("sleep 60", timeout=50, limits=Limits(wall_seconds=0.3))

    assert result.ending == TimedOut(0.3)


@pytest.mark.req("B6", "C9")
def test_a_command_that_says_too_much_is_stopped_at_exactly_the_limit(bench: Bench) -> None:
    result = bench.run("yes", limits=Limits(output_bytes=1000))

    assert result.ending == LimitHit(Limit.OUTPUT, 1000)
    assert result.stdout == "y\n" * 500


@pytest.mark.req("C9")
def test_both_ends_of_a_long_output_can_be_kept(real: Bench) -> None:
    result = real.run("seq 100000", limits=Limits(output_bytes=100), overflow=Overflow.KEEP_ENDS)

    assert result.ending == Exited(0)
    assert result.stdout.startswith("1\n2\n3\n") and result.stdout.endswith("99999\n100000\n")
    assert len(result.stdout_bytes) == 100
    assert len(result.stdout_bytes) + result.stdout_dropped == 588_895


def test_a_program_that_is_not_there_is_a_fault_and_the_box_lives_on(bench: Bench) -> None:
    async def work(box: Box) -> Result:
        with pytest.raises(SpawnFailed, match="no-such-program"):
            await box.run(Request(argv=("no-such-program", "x")))
        assert box.alive
        return await box.run(Request(command="echo still here"))

    assert bench.use(work).stdout == "still here\n"


def test_more_arguments_than_a_message_holds_are_a_fault_and_the_box_lives_on(near: Bench) -> None:
    """A server asks a person first, since they look critical."""

    async def work(box: Box) -> Result:
        with pytest.raises(SpawnFailed):
            await box.run(Request(argv=("true", *["x" * 100_000] * 200)))
        assert box.alive
        return await box.run(Request(command="echo still here"))

    assert near.use(work).stdout == "still here\n"


# --- input, output, surroundings --------------------------------------------------------------------------------------


@pytest.mark.req("X2")
def test_output_and_errors_are_kept_apart_and_heard_as_they_come(bench: Bench) -> None:
    heard: dict[Stream, bytes] = {stream: b"" for stream in Stream}

    def listen(stream: Stream, piece: bytes) -> None:
        heard[stream] += piece

    result = bench.run("echo out; echo err >&2; echo more", on_output=listen)

    assert (result.stdout, result.stderr) == ("out\nmore\n", "err\n")
    assert heard == {Stream.STDOUT: b"out\nmore\n", Stream.STDERR: b"err\n"}


def test_output_is_heard_while_the_command_still_runs(real: Bench) -> None:
    async def work(box: Box) -> None:
        heard = asyncio.Event()
        request = Request(command="echo now; cat", stdin=_after(heard), on_output=lambda *piece: heard.set())
        assert (await box.run(request)).stdout == "now\nheard\n"

    real.use(work)


async def _after(event: asyncio.Event) -> AsyncIterator[bytes]:
    await event.wait()
    yield b"heard\n"


def test_a_fault_of_whoever_listens_reaches_the_caller(real: Bench) -> None:
    def listen(stream: Stream, piece: bytes) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        real.run("echo x; sleep 5", on_output=listen)


@pytest.mark.req("X2")
@pytest.mark.parametrize("size", [0, 5, 300_000])
def test_input_arrives_whole(bench: Bench, size: int) -> None:
    given = os.urandom(size)

    assert bench.run("cat", stdin=given).stdout_bytes == given


@pytest.mark.req("X2")
def test_input_may_be_a_stream(bench: Bench) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one\n", b"two\n"):
            await asyncio.sleep(0.01)
            yield piece

    assert bench.run("cat", stdin=pieces()).stdout == "one\ntwo\n"


def test_without_input_a_command_reads_nothing_and_does_not_wait(bench: Bench) -> None:
    assert bench.run("cat; echo done", timeout=5).stdout == "done\n"


def test_input_that_nobody_reads_is_no_fault(real: Bench) -> None:
    assert real.run("exec 0<&-; echo done", stdin=b"x" * 1_000_000).ending == Exited(0)


def test_a_command_starts_in_the_workspace_or_where_it_is_told(bench: Bench) -> None:
    assert bench.run("pwd").stdout == f"{bench.workspace}\n"
    assert bench.run("pwd", cwd=bench.workspace / "sub").stdout == f"{bench.workspace}/sub\n"


def test_variables_of_the_box_and_of_the_request_are_there(bench: Bench) -> None:
    assert bench.run("printenv MINE").stdout == "box\n"
    assert bench.run("printenv MINE", env=(("MINE", "request"),)).stdout == "request\n"
    assert bench.run("printenv ODD", env=(("ODD", "a\nb ' \" $x"),)).stdout == "a\nb ' \" $x\n"


@pytest.mark.req("A4")
def test_the_caller_s_environment_is_not_there(bench: Bench) -> None:
    result = bench.run("printenv TOKEN")

    assert result.stdout == ""


def test_bytes_that_are_no_text_survive(real: Bench) -> None:
    assert real.run(r"printf '\377\000\376'").stdout_bytes == b"\xff\x00\xfe"


# --- one after the other ----------------------------------------------------------------------------------------------


@pytest.mark.req("C2")
def test_commands_run_one_after_the_other_and_do_not_mix(bench: Bench) -> None:
    async def work(box: Box) -> list[Result]:
        requests = [Request(command=f"echo {number}; sleep 0.02; echo {number}; exit {number}") for number in range(5)]
        return await asyncio.gather(*map(box.run, requests))

    results = bench.use(work)

    assert [result.stdout for result in results] == [f"{number}\n{number}\n" for number in range(5)]
    assert [result.exit_code for result in results] == list(range(5))


def test_a_box_goes_on_after_every_way_to_end(bench: Bench) -> None:
    async def work(box: Box) -> list[str]:
        said = []
        for command in ("exit 3", "kill -9 $$", "sleep 60", "yes"):
            said.append(type((await box.run(Request(command=command, timeout=0.3))).ending).__name__)
            assert (await box.run(Request(command="echo fine"))).stdout == "fine\n"
        return said

    assert bench.use(work, limits=Limits(output_bytes=1000)) == ["Exited", "Signalled", "TimedOut", "LimitHit"]


def test_files_of_the_workspace_stay_for_the_next_command(real: Bench) -> None:
    async def work(box: Box) -> Result:
        await box.run(Request(command="echo kept > file"))
        return await box.run(Request(command="cat file"))

    assert real.use(work).stdout == "kept\n"
    assert (real.workspace / "file").read_text() == "kept\n"


def test_what_a_command_leaves_running_does_not_hold_its_end_up(real: Bench) -> None:
    begin = time.monotonic()

    assert real.run("sleep 60 & echo started").stdout == "started\n"
    assert time.monotonic() - begin < 10


def test_a_cancelled_command_is_dead_before_the_cancellation_goes_on(real: Bench) -> None:
    async def work(box: Box) -> None:
        task = asyncio.create_task(box.run(Request(command="sleep 0.5; touch survived")))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await box.run(Request(command="echo next"))).stdout == "next\n"
        await asyncio.sleep(0.6)

    real.use(work)

    assert not (real.workspace / "survived").exists()


def test_left_alone_the_same_command_does_its_work(real: Bench) -> None:
    real.run("sleep 0.1; touch survived")

    assert (real.workspace / "survived").exists()


# --- life -------------------------------------------------------------------------------------------------------------


def test_a_closed_box_takes_no_command_and_can_be_closed_again(bench: Bench) -> None:
    async def work(box: Box) -> None:
        assert box.alive
        await box.close()
        assert not box.alive
        with pytest.raises(Internal):
            await box.run(Request(command="echo x"))
        await box.close()

    bench.use(work)


def test_closing_ends_what_runs_and_tells_its_caller(bench: Bench) -> None:
    async def work(box: Box) -> None:
        task = asyncio.create_task(box.run(Request(command="sleep 60")))
        await asyncio.sleep(0.1)
        await box.close()
        with pytest.raises(Internal):
            await asyncio.wait_for(task, 5)

    bench.use(work)


@pytest.mark.req("D6")
def test_every_result_says_which_wall_it_ran_behind(bench: Bench) -> None:
    result = bench.run("echo x")

    assert result.wall is not None and result.audit is not None
    assert result.wall.name == result.audit.wrapper == bench.wall
    assert result.wall.limits_by
    assert str(bench.workspace) not in str(result.audit)


def test_every_wall_but_the_fake_s_guarantees_something(bench: Bench) -> None:
    result = bench.run("echo x")

    assert result.wall is not None
    assert bool(result.wall.guarantees) is (bench.kind in THROUGH)


def test_usage_can_be_asked_at_any_time(bench: Bench) -> None:
    async def work(box: Box) -> None:
        assert box.usage().cpu_seconds >= 0
        await box.run(Request(command="echo x"))
        assert box.usage().measured_by

    bench.use(work)


# --- what goes on -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=THROUGH)
def walled(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Those with a wall, which alone keep interpreters and processes."""
    return _bench(request.param, tmp_path)


@pytest.fixture(params=WALLED)
def near(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    """Those of them whose PID 1 this process knows."""
    return _bench(request.param, tmp_path)


@pytest.fixture(params=["fake"])
def wall_less(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


async def _said(process: Process, wanted: bytes) -> bytes:
    said = b""
    async with asyncio.timeout(20):
        while wanted not in said:
            await asyncio.sleep(0.005)
            said += process.read()[0]
    return said


@pytest.mark.req("X2")
def test_an_interpreter_keeps_its_state_and_each_name_has_its_own(walled: Bench) -> None:
    async def work(box: Box) -> None:
        assert "python" in box.interprets
        assert (await box.run(Request(code="x = 1", language="python"))).ok
        await box.run(Request(code="x = 2", language="python", context="b"))
        for context, value in ((None, "1"), ("b", "2")):
            done = await box.run(Request(code="print(x); x", language="python", context=context))
            assert (done.stdout, done.results[-1].text, done.state_kept) == (f"{value}\n", value, True)
        await box.run(Request(command="y=3; cd sub", context="s"))
        kept = await box.run(Request(command="echo $y ${PWD##*/}", context="s"))
        assert kept.stdout == "3 sub\n"
        assert set(box.contexts()) == {("python", "main"), ("python", "b"), ("shell", "s")}
        await box.restart("b", "python")
        assert ("python", "b") not in box.contexts()
        failed = await box.run(Request(code="x", language="python", context="b"))
        assert failed.exception is not None and failed.exception.type == "NameError"

    walled.use(work)


def test_an_interpreter_that_leaves_ends_with_its_own_code_and_the_next_is_new(walled: Bench) -> None:
    async def work(box: Box) -> None:
        gone = await box.run(Request(code="x = 1\nimport os; os._exit(7)", language="python"))
        assert (gone.ending, gone.state_kept) == (Exited(7), False)
        killed = await box.run(Request(code="import os; os.kill(os.getpid(), 9)", language="python"))
        assert (killed.ending, killed.state_kept) == (Signalled(9), False)
        assert (await box.run(Request(code="print('x' in globals())", language="python"))).stdout == "False\n"

    walled.use(work)


def test_an_interrupt_ends_the_call_and_not_the_interpreter(walled: Bench) -> None:
    async def work(box: Box) -> None:
        assert not box.interrupt("main", "python")
        heard = asyncio.Event()
        code = "x = 5\nprint('up', flush=True)\nimport time; time.sleep(60)"
        request = Request(code=code, language="python", on_output=lambda *piece: heard.set())
        call = asyncio.ensure_future(box.run(request))
        await asyncio.wait_for(heard.wait(), 20)
        assert box.interrupt("main", "python")
        done = await asyncio.wait_for(call, 20)
        assert done.exception is not None and done.exception.type == "KeyboardInterrupt" and done.state_kept
        assert (await box.run(Request(code="print(x)", language="python"))).stdout == "5\n"

    walled.use(work)


def test_a_call_of_an_interpreter_has_the_limits_of_a_command(walled: Bench) -> None:
    async def work(box: Box) -> None:
        late = await box.run(Request(code="while True: pass", language="python", timeout=0.3))
        assert late.ending == TimedOut(0.3)
        loud = await box.run(Request(code="while True: print('y')", language="python"))
        assert loud.ending == LimitHit(Limit.OUTPUT, 1000) and loud.stdout == "y\n" * 500
        assert (await box.run(Request(code="print('fine')", language="python"))).stdout == "fine\n"

    walled.use(work, limits=Limits(output_bytes=1000))


@pytest.mark.req("X2")
def test_a_process_goes_on_beside_commands_until_it_is_ended(walled: Bench) -> None:
    async def work(box: Box) -> None:
        process = await box.start(Request(command='while read x; do echo "<$x>"; done; exit 3'))
        assert process.alive and process.ending is None and box.processes() == (process,)
        assert (await box.run(Request(command="echo beside"))).stdout == "beside\n"
        assert await process.write(b"one\n")
        assert await _said(process, b"<one>") == b"<one>\n"
        assert await process.wait(0.01) is None
        process.close_input()
        ended = await process.wait(20)
        assert ended is not None and ended.ending == Exited(3) == process.ending
        assert not await process.write(b"late") and process.seconds > 0
        deaf = await box.start(Request(command="trap '' TERM INT; echo up; sleep 60; sleep 60"))
        await _said(deaf, b"up")
        deaf.signal(15)
        assert await deaf.wait(0.05) is None
        deaf.kill()
        killed = await deaf.wait(20)
        assert killed is not None and killed.ending == Signalled(9)
        assert killed.wall is not None and killed.wall.name == walled.wall

    walled.use(work)


def test_a_process_may_have_a_terminal(walled: Bench) -> None:
    async def refused(box: Box) -> None:
        with pytest.raises(SpawnFailed, match="no terminals behind this wall"):
            await box.start(Request(command="tty"), terminal=(30, 90))
        assert (await box.run(Request(command="echo lives"))).stdout == "lives\n"

    if walled.kind == "landlock":  # it may not open the terminal's own end, and says so
        walled.use(refused)
        return

    async def work(box: Box) -> None:
        process = await box.start(Request(command="read x; stty size; read x; stty size"), terminal=(30, 90))
        await process.write(b"\n")
        await _said(process, b"30 90")
        process.resize(40, 100)
        await process.write(b"\n")
        await _said(process, b"40 100")
        ended = await process.wait(20)
        assert ended is not None and ended.ok

    walled.use(work)


@pytest.mark.parametrize("terminal", [None, (24, 80)])
def test_a_process_whose_program_is_not_there_is_a_fault_and_the_box_lives_on(
    walled: Bench, terminal: tuple[int, int] | None
) -> None:
    async def work(box: Box) -> Result:
        with pytest.raises(SpawnFailed, match="no-such-program"):
            await (await box.start(Request(argv=("no-such-program",)), terminal=terminal)).wait(20)
        return await box.run(Request(command="echo still here"))

    assert walled.use(work).stdout == "still here\n"


def test_without_a_wall_nothing_goes_on_and_no_state_is_kept_and_it_says_so(wall_less: Bench) -> None:
    async def work(box: Box) -> None:
        assert box.interprets == frozenset() and box.contexts() == () and box.processes() == ()
        for terminal in (None, (24, 80)):
            with pytest.raises(SpawnFailed):
                await box.start(Request(command="echo x"), terminal=terminal)
        assert not box.interrupt("main", "python")
        await box.restart("main", "python")
        await box.warm()
        assert box.probe() and box.processes() == ()
        assert (await box.run(Request(command="echo fine"))).stdout == "fine\n"

    wall_less.use(work)


def test_a_program_is_found_by_the_first_of_its_names_that_is_there(real: Bench) -> None:
    async def work(box: Box) -> tuple[str | None, str | None]:
        return box.find_program(("no-such-program", "bash", "sh")), box.find_program(("no-such-program",))

    found, missing = real.use(work)
    assert found is not None and os.path.basename(found) == "bash" and missing is None


# --- made ahead of time -----------------------------------------------------------------------------------------------


def test_a_warmed_box_gives_what_a_cold_one_gives(bench: Bench) -> None:
    async def work(box: Box) -> None:
        for _ in range(3):
            await box.warm()
            done = await box.run(Request(command="echo out; echo err >&2; exit 3"))
            assert (done.ending, done.stdout, done.stderr) == (Exited(3), "out\n", "err\n")
        await box.warm()
        await box.warm()

    if bench.kind == "fake":
        pytest.skip("the fake has no shell that could say something on stderr")
    bench.use(work)


def test_a_box_that_is_lost_is_known_at_once_and_told_once(near: Bench) -> None:
    async def work(box: Any) -> None:
        told: list[int] = []
        box.when_lost(lambda: told.append(1))
        assert box.probe() and box.alive and told == []
        waiting = await box.start(Request(command="sleep 60"))
        pid = box._inside.control.first_pid
        os.kill(pid, 9)
        async with asyncio.timeout(20):
            while box.probe():
                await asyncio.sleep(0.001)
        assert told == [1] and not box.alive
        with pytest.raises(Internal):
            await waiting.wait(20)
        with pytest.raises(Internal):
            await box.run(Request(command="echo x"))
        with pytest.raises(Internal):
            await box.start(Request(command="echo x"))
        with pytest.raises(Internal):
            await box.warm()

    near.use(work)


def test_closing_a_box_is_not_a_loss(bench: Bench) -> None:
    async def work(box: Box) -> list[int]:
        told: list[int] = []
        box.when_lost(lambda: told.append(1))
        await box.warm()
        await box.close()
        assert not box.probe() and not box.alive
        await asyncio.sleep(0.05)
        return told

    assert bench.use(work) == []


# --- more than one layer ----------------------------------------------------------------------------------------------

ALLOW_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
"""A filter of one instruction."""


@pytest.mark.req("A9", "D4")
@pytest.mark.parametrize("kind", ["bwrap", "unshare"])
def test_no_further_user_namespace_can_be_made_even_if_the_filter_let_it_pass(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = _bench(kind, tmp_path / "refused").run("unshare --user true")
    monkeypatch.setattr(seccomp, "assemble", lambda profile: ALLOW_ALL)
    without = _bench(kind, tmp_path / "without").run("unshare --user true; unshare --help >/dev/null && echo there")

    assert "Operation not permitted" in refused.stderr
    assert "No space left on device" in without.stderr and without.stdout == "there\n"
    outside = subprocess.run(["unshare", "--user", "true"], capture_output=True, check=False)
    assert outside.returncode == 0, "the same works where no box is around it"
