"""The client against a real server: the same faces, the same errors, and what happens when the connection or the server
goes away. The suites for boxes run through it, too (tests/contract)."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

import ringfence
from ringfence import (
    Closed,
    CommandNotAllowed,
    ExecutionRequest,
    Exited,
    InvalidArgument,
    Limits,
    NotFound,
    Output,
    PathAccessDenied,
    Refused,
    Request,
    Result,
    SessionLost,
    Unauthenticated,
    Unreachable,
    Verdict,
    ViolationType,
    WrongType,
    sync,
)
from ringfence.client import sandbox as sandbox_module
from ringfence.client.problems import OF_HTTP
from ringfence.server.problems import HTTP_CODES
from tests.integration.stage import eventually, processes_with
from tests.support.certificates import TestAuthority
from tests.support.serving import RunningServer, running_server

T = TypeVar("T")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def mark() -> str:
    return f"mark-{time.monotonic_ns()}"


def with_box(server: RunningServer, work: Callable[[Any], Awaitable[T]], **options: Any) -> T:
    """Do something in a sandbox of the server, by its socket; bounded in time."""

    async def whole() -> T:
        async with (
            asyncio.timeout(60),
            ringfence.connect(f"unix://{server.socket}") as there,
            there.Sandbox(**options) as box,
        ):
            return await work(box)

    return asyncio.run(whole())


# --- the faces --------------------------------------------------------------------------------------------------------

PAIRS = [
    (ringfence.RemoteSandbox, ringfence.Sandbox),
    (ringfence.RemoteManager, ringfence.SandboxManager),
    (ringfence.RemoteFiles, ringfence.BoxFiles),
    (ringfence.RemoteProcess, ringfence.Process),
]
OWN = {"who", "session_id", "server", "save_snapshot", "restore_snapshot", "execution_id", "was_waited_for", "forget"}
"""What only those on a server have."""
ELSEWHERE = {"for_one_call", "give_away", "network_authority", "network_refusals"}
"""`Server.for_one_call`; and what the keeper and the browser do with a box of this machine."""


@pytest.mark.parametrize(("remote", "local"), PAIRS, ids=lambda kind: kind.__name__)
def test_a_face_on_a_server_has_every_name_and_every_argument_of_the_library_s(remote: type, local: type) -> None:
    for name, member in inspect.getmembers(local):
        if name.startswith("_") or name in ELSEWHERE:
            continue
        other = inspect.getattr_static(remote, name, None)
        assert other is not None or name in ("violations", "who", "origin", "session_id", "security_mode"), name
        if inspect.isfunction(member):
            mine, theirs = inspect.signature(other), inspect.signature(member)
            assert list(mine.parameters) == list(theirs.parameters), name
            assert inspect.iscoroutinefunction(other) == inspect.iscoroutinefunction(member), name
    extra = {name for name in vars(remote) if not name.startswith("_") and not hasattr(local, name)}
    assert extra <= OWN


def test_every_code_of_http_is_an_error_of_the_family_here() -> None:
    assert set(HTTP_CODES) <= set(OF_HTTP)


@pytest.mark.req("X3")
def test_a_sandbox_on_a_server_runs_shell_programs_and_code_and_keeps_files(server: RunningServer) -> None:
    async def work(box: ringfence.RemoteSandbox) -> None:
        done = await box.shell("echo out; echo err >&2; exit 3")
        assert (done.ending, done.stdout, done.stderr) == (Exited(3), "out\n", "err\n")
        assert done.wall is not None and done.wall.guarantees and done.audit is not None and done.run_id
        assert (await box.exec(["printf", "%s", "a b"])).stdout == "a b"
        await box.python("x = 6 * 7")
        assert (await box.python("x")).results[0].text == "42"
        failed = await box.python("1 / 0")
        assert failed.exception is not None and failed.exception.type == "ZeroDivisionError"
        assert (await box.code("bash", "echo $0")).ok
        await box.write_file("a/b.txt", "hello")
        assert await box.read_file("a/b.txt") == b"hello"
        parts = [{}, {"offset": 1}, {"offset": 1, "size": 3}, {"offset": 9}, {"size": 0}]
        read = [b"".join([piece async for piece in box.files.stream("a/b.txt", **part)]) for part in parts]
        assert read == [b"hello", b"ello", b"ell", b"", b""]
        executed = await box.execute(
            ExecutionRequest(command="cat in; echo x > made", files={"in": b"\xff"}, collect=True)
        )
        assert executed.stdout_bytes == b"\xff"
        assert [(file.path, file.data) for file in executed.files] == [("made", b"x\n")]
        pieces = [piece async for piece in box.stream("echo one; echo two >&2")]
        assert pieces[:-1] and all(isinstance(piece, Output) for piece in pieces[:-1])
        assert isinstance(pieces[-1], Result) and pieces[-1].ok

    with_box(server, work)


def test_what_a_sandbox_says_about_itself_is_what_stands_on_the_server(server: RunningServer, tmp_path: Path) -> None:
    async def work(box: ringfence.RemoteSandbox) -> None:
        assert box.workspace == tmp_path and box.options.workspace == tmp_path
        assert box.resource_limits.memory_bytes == 64 << 20 and box.resource_limits.may_rise
        assert box.wall is None and not box.is_active
        await box.open()
        assert box.is_active and box.wall is not None and box.wall.guarantees
        assert box.name == "native" and box.id and box.who.session_id == box.session_id
        assert box.current_usage().cpu_seconds >= 0 and box.idle_seconds >= 0 and box.published == {}
        assert box.check_path("/etc/shadow").verdict is Verdict.DENY
        assert box.check_path("made", write=True).verdict is Verdict.ALLOW
        assert box.check_network("example.com").verdict is Verdict.DENY
        decision = box.decide(Request(command="cat /etc/shadow"))
        assert decision.grant.workspace == tmp_path and decision.reasons
        assert box.refused_inside(Request(command="cat /etc/shadow"))

    with_box(server, work, workspace=tmp_path, limits=Limits(memory_bytes=64 << 20))


def test_errors_are_those_of_the_library_with_their_fields(server: RunningServer, tmp_path: Path) -> None:
    async def work(box: ringfence.RemoteSandbox) -> None:
        with pytest.raises(NotFound) as missing:
            await box.files.read("none")
        assert missing.value.path.endswith("/none") and missing.value.errno == 2
        with pytest.raises(PathAccessDenied) as denied:
            await box.files.read("/etc/shadow")
        assert denied.value.rule and denied.value.violations
        assert box.violations.count_by_type(denied.value.violations[0].kind) == 1
        with pytest.raises(ringfence.SpawnFailed) as failed:
            await box.exec(["no-such-program"])
        assert failed.value.program == "no-such-program" and failed.value.exit_code == 127
        with pytest.raises(InvalidArgument, match="unknown language"):
            await box.code("klingon", "x")
        with pytest.raises(WrongType):
            await box.shell(["ls"])  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="called where the box is"):
            await box.shell("ls", prepare=lambda: None)  # type: ignore[arg-type,return-value]

    with_box(server, work)


def test_a_policy_s_refusal_is_a_result_and_its_violations_are_kept(server: RunningServer, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policies: {tools: {shell_exec: {denied_commands: [curl]}}}")

    async def work(box: ringfence.RemoteSandbox) -> None:
        refused = await box.shell("curl example.com")
        assert isinstance(refused.ending, Refused)
        assert box.violations.count_by_type(ViolationType.COMMAND_BLOCKED) == 1
        assert box.check_command("curl example.com").verdict is Verdict.DENY
        assert (await box.shell("echo fine")).ok

    with_box(server, work, policy=policy)


def test_what_cannot_leave_this_process_is_refused_before_anything_is_sent(server: RunningServer) -> None:
    there = ringfence.connect("unix:///nowhere.sock")
    for options in (
        {"observers": [object()]},
        {"confirmation": ringfence.DenyAllConfirmationService()},
        {"agent_id": "me"},
        {"network": ringfence.Network(secrets=["A=env:A@example.com"])},
        {"network": ringfence.Network(reach=[80])},
    ):
        with pytest.raises(InvalidArgument):
            there.Sandbox(**options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="did you mean"):
        there.Sandbox(worksapce=".")  # type: ignore[call-arg]


@pytest.mark.req("X3", "E1")
def test_a_manager_on_a_server_has_sessions_and_fresh_boxes(tmp_path: Path) -> None:
    async def whole(server: RunningServer) -> None:
        async with ringfence.connect(f"unix://{server.socket}") as there, there.SandboxManager() as manager:
            done = await manager.execute_code("python", "print(6 * 7)")
            assert (done.stdout, done.session_id) == ("42\n", None) and done.sandbox_type is not None
            made = await manager.execute_shell("cat given > made", files={"given": "x"})
            assert [file.path for file in made.files] == ["made"]
            for session in ("a", "b"):
                await manager.execute_shell(f"echo {session} > file", session_id=session)
            for session in ("a", "b"):
                kept = await manager.execute_shell("cat file", session_id=session)
                assert (kept.stdout, kept.session_id) == (f"{session}\n", session)
            assert {info.id for info in manager.sessions()} == {"a", "b"}
            async with manager.in_session(session_id="a") as box:
                assert await box.files.read_text("file") == "a\n"
            await manager.save_snapshot("before", session_id="a")
            await manager.execute_shell("echo other > file", session_id="a")
            await manager.restore_snapshot("before", session_id="a")
            await manager.fork_session("before", "c")
            for session in ("a", "c"):
                assert (await manager.execute_shell("cat file", session_id=session)).stdout == "a\n"
            with pytest.raises(ringfence.AlreadyExists):
                await manager.fork_session("before", "a")
            with pytest.raises(NotFound):
                await manager.restore_snapshot("none", session_id="a")
            await manager.cleanup("c")
            await manager.cleanup("a")
            assert {info.id for info in manager.sessions()} == {"b"}
        async with there.SandboxManager(limits=Limits(output_bytes=10)) as small:
            assert isinstance((await small.execute_shell("yes")).ending, ringfence.LimitHit)
        await there.close()

    with running_server(tmp_path) as running:  # its own: a box of its pool waits from then on, which is no test's
        asyncio.run(whole(running))


@pytest.mark.req("X2", "X3")
def test_the_blocking_face_is_the_same(server: RunningServer) -> None:
    with sync.connect(f"unix://{server.socket}") as there:
        with there.Sandbox() as box:
            assert box.shell("echo hi").stdout == "hi\n"
            box.files.write("a", "b")
            assert box.files.read_text("a") == "b" and [entry.name for entry in box.files.list()] == ["a"]
            assert box.check_command("ls").verdict is Verdict.ALLOW and box.contexts() == ()
            assert [type(piece).__name__ for piece in box.stream("echo x")] == ["Output", "Result"]
            process = box.start("cat")
            assert process.alive and process.write(b"typed\n")
            process.close_input()
            ended = process.wait(20)
            assert ended is not None and ended.stdout == "typed\n" and not process.alive
        with there.SandboxManager(session_id="s") as manager:
            manager.execute_code("python", "x = 1")
            assert manager.execute_code("python", "print(x)").stdout == "1\n"
        with pytest.raises(Closed):
            box.shell("echo late")


def test_a_session_lives_as_long_as_its_client_and_not_much_longer(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox_module, "_TTL_SECONDS", 1.2)

    async def work(box: ringfence.RemoteSandbox) -> str:
        await box.shell("echo kept > file")
        await asyncio.sleep(3)  # longer than a session of that time lives
        assert (await box.shell("cat file")).stdout == "kept\n"
        box._keeping.cancel()  # type: ignore[union-attr]  # as if its client had died
        return box.session_id

    def gone(session: str) -> bool:
        with server.owner() as owner:
            return owner.get(f"/v1/sessions/{session}").status_code == 404

    async def abandoned() -> str:
        async with ringfence.connect(f"unix://{server.socket}") as there:
            return await work(await there.Sandbox().__aenter__())

    session = asyncio.run(abandoned())
    assert eventually(lambda: gone(session))


# --- who asks ---------------------------------------------------------------------------------------------------------


def test_by_loopback_a_token_is_needed_and_host_paths_are_the_owner_s(server: RunningServer, tmp_path: Path) -> None:
    async def whole() -> None:
        async with ringfence.connect(server.url, server.token) as there:
            async with there.Sandbox() as box:
                assert (await box.shell("echo hi")).stdout == "hi\n"
            with pytest.raises(PathAccessDenied, match="may not use it as a workspace"):
                await there.Sandbox(tmp_path).__aenter__()
            with pytest.raises(ringfence.NotPermitted, match="only the server's owner"):
                await there.Sandbox(read=["/etc"]).__aenter__()
        for token in (None, "rf_wrong"):
            async with ringfence.connect(server.url, token) as stranger:
                with pytest.raises(Unauthenticated):
                    await stranger.Sandbox().__aenter__()

    asyncio.run(whole())


class Between:
    """Stands between a client and a server, and can break what passes."""

    def __init__(self, server: RunningServer, tls: ssl.SSLContext | None = None) -> None:
        self._socket = server.socket
        self._tls = tls
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._pass, "127.0.0.1", 0, ssl=self._tls)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://localhost:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listener.close()
        self.break_all()
        await asyncio.sleep(0.05)

    def break_all(self) -> None:
        for writer in self._writers:
            if not writer.is_closing():
                writer.transport.abort()
        self._writers.clear()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward, back = await asyncio.open_unix_connection(self._socket)
        self._writers += (writer, back)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(65536):
                    target.write(data)
                    await target.drain()
            target.close()

        await asyncio.gather(copy(reader, back), copy(onward, writer))


def test_by_tls_the_certificate_has_to_be_signed_by_whom_one_trusts(server: RunningServer, tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def whole() -> None:
        async with Between(server, authority.server_context("localhost")) as between:
            async with ringfence.connect(between.url, ca_file=authority.bundle) as there, there.Sandbox() as box:
                assert (await box.shell("echo hi")).stdout == "hi\n"
                reason = await asyncio.to_thread(box.check_path, "/etc/shadow")
                assert reason.verdict is Verdict.DENY
            async with ringfence.connect(between.url) as stranger:
                with pytest.raises(Unreachable, match="TLS"):
                    await stranger.Sandbox().__aenter__()

    asyncio.run(whole())


# --- what goes away ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
def test_a_cancelled_call_ends_its_command_on_the_server(server: RunningServer, mark: str, streams: bool) -> None:
    async def work(box: ringfence.RemoteSandbox) -> None:
        heard = (lambda *piece: None) if streams else None
        call = asyncio.ensure_future(box.shell(f"echo {mark}; exec -a {mark} sleep 60", on_output=heard))
        while not await asyncio.to_thread(processes_with, mark):
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(eventually, lambda: not processes_with(mark))
        assert (await box.shell("echo next")).stdout == "next\n"

    with_box(server, work)


def test_a_client_that_is_killed_ends_its_command_on_the_server(server: RunningServer, mark: str) -> None:
    code = (
        "import asyncio, ringfence, sys\n"
        "async def main():\n"
        "    async with ringfence.connect(sys.argv[1]) as there, there.Sandbox() as box:\n"
        "        await box.shell(sys.argv[2])\n"
        "asyncio.run(main())\n"
    )
    words = [sys.executable, "-c", code, f"unix://{server.socket}", f"exec -a {mark} sleep 60"]
    with subprocess.Popen(words) as client:
        assert eventually(lambda: any(pid != client.pid for pid in processes_with(mark)), 30)
        client.send_signal(signal.SIGKILL)
        client.wait()
    assert eventually(lambda: not processes_with(mark))
    with server.owner() as owner:  # sessions outlive their clients, until their time is over
        (left,) = owner.get("/v1/sessions").json()["items"]
        assert owner.delete(f"/v1/sessions/{left['id']}").status_code == 204


def test_a_reader_who_is_slow_holds_the_command_up_and_not_the_memory(server: RunningServer) -> None:
    async def work(box: ringfence.RemoteSandbox) -> None:
        assert server.process is not None
        read = 0
        before = _resident(server.process.pid)
        call = {"overflow": ringfence.Overflow.KEEP_ENDS, "output_limit": 1000}
        async for piece in box.stream("head -c 150000000 /dev/zero", **call):
            if isinstance(piece, Output):
                if not read:
                    await asyncio.sleep(1.0)  # the command could have said all of it by now
                    assert _resident(server.process.pid) - before < 60 << 20
                read += len(piece.data)
            else:
                assert piece.ok
        assert read == 150_000_000, "nothing was dropped meanwhile"

    with_box(server, work)


def _resident(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_server_that_is_killed_and_started_again_says_that_the_session_is_lost(tmp_path: Path) -> None:
    with running_server(tmp_path) as running:

        async def whole() -> None:
            async with ringfence.connect(f"unix://{running.socket}") as there:
                box = await there.Sandbox().__aenter__()
                await box.write_file("kept", "x")
                waiting = asyncio.ensure_future(box.shell("sleep 60"))
                process = await box.start("sleep 60")
                await asyncio.sleep(0.5)
                running.stop(signal.SIGKILL)
                restarting = asyncio.to_thread(running.start)
                # Sent again with its key, it is not run again: either nobody listened, or the session is known as lost,
                # or the outcome as unknown.
                with pytest.raises((Unreachable, SessionLost, ringfence.Internal)):
                    await waiting
                await restarting
                with pytest.raises((SessionLost, NotFound, Unreachable)):
                    await process.wait(30)
                with pytest.raises(SessionLost) as lost:
                    await box.shell("echo x")
                assert lost.value.session_id == box.session_id
                await box.close()
                async with there.Sandbox() as anew:  # the same client goes on
                    assert (await anew.shell("echo x")).stdout == "x\n"

        asyncio.run(whole())


def test_a_process_is_followed_again_after_the_connection_broke(server: RunningServer) -> None:
    async def heard(process: ringfence.RemoteProcess, wanted: bytes) -> bytes:
        said = b""
        while wanted not in said:
            await asyncio.sleep(0.01)
            said += process.read()[0]
        return said

    async def whole() -> None:
        async with (
            asyncio.timeout(60),
            Between(server) as between,
            ringfence.connect(between.url) as there,
            there.Sandbox() as box,
        ):
            process = await box.start('while read x; do echo "<$x>"; done')
            await process.write(b"one\n")
            assert await heard(process, b"<one>") == b"<one>\n"
            between.break_all()
            await asyncio.sleep(0.1)
            await process.write(b"two\n")
            assert await heard(process, b"<two>") == b"<two>\n", "neither lost nor said twice"
            await asyncio.to_thread(process.close_input)
            ended = await process.wait(20)
            assert ended is not None and ended.stdout == "<one>\n<two>\n"

    asyncio.run(whole())


def test_a_call_whose_connection_breaks_is_not_run_a_second_time(server: RunningServer, tmp_path: Path) -> None:
    async def whole() -> None:
        async with (
            asyncio.timeout(60),
            Between(server) as between,
            ringfence.connect(between.url) as there,
            there.Sandbox(tmp_path) as box,
        ):
            call = asyncio.ensure_future(box.shell("echo ran >> log; sleep 60"))
            log = tmp_path / "log"
            while not (log.exists() and log.read_text()):
                await asyncio.sleep(0.01)
            between.break_all()
            with pytest.raises(ringfence.Internal, match="its answer is not known"):
                await call
            assert log.read_text() == "ran\n"
            assert (await box.shell("echo next")).stdout == "next\n", "and the client connects anew"

    asyncio.run(whole())


# --- the command line -------------------------------------------------------------------------------------------------


def command_line(server: RunningServer, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "RINGFENCE_URL": f"unix://{server.socket}", **environ}
    return subprocess.run(
        [sys.executable, "-m", "ringfence.cli.app", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.req("X3")
def test_the_command_line_speaks_to_the_server_that_is_named(server: RunningServer, tmp_path: Path) -> None:
    ran = command_line(server, "run", "-w", str(tmp_path), "pwd; echo err >&2; exit 3")
    assert (ran.returncode, ran.stdout, ran.stderr) == (3, f"{tmp_path}\n", "err\n")
    shown = command_line(server, "run", "--json", "-l", "python", "6 * 7")
    assert '"text/plain": "42"' in shown.stdout
    checked = command_line(server, "check", "-w", str(tmp_path), "ls")
    assert checked.returncode == 0 and "decided by unix://" in checked.stdout


def test_what_runs_there_is_in_the_server_s_record_and_not_in_ours(
    server: RunningServer, tmp_path: Path, mark: str
) -> None:
    command_line(server, "run", "-w", str(tmp_path), f"echo {mark}", HOME=str(tmp_path))

    assert not any(mark in file.read_text(errors="replace") for file in tmp_path.rglob("*.jsonl"))
    assert any(mark in file.read_text(errors="replace") for file in server.home.rglob("*.jsonl"))


def test_a_command_that_is_of_this_machine_says_so(server: RunningServer) -> None:
    refused = command_line(server, "audit", "tail")
    assert refused.returncode == 125 and "RINGFENCE_URL names a server" in refused.stderr
    assert command_line(server, "audit", "--help").returncode == 0
    assert command_line(server, "run", "--shadow", "ls").returncode == 125


def test_a_token_comes_from_the_environment_or_a_private_file_and_is_never_shown(
    server: RunningServer, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(server.token)
    file.chmod(0o600)
    by_file = command_line(server, "run", "echo hi", RINGFENCE_URL=server.url, RINGFENCE_TOKEN_FILE=str(file))
    assert (by_file.returncode, by_file.stdout) == (0, "hi\n")
    by_variable = command_line(server, "run", "echo hi", RINGFENCE_URL=server.url, RINGFENCE_TOKEN=server.token)
    assert by_variable.stdout == "hi\n"
    for wrong in ({"RINGFENCE_URL": server.url}, {"RINGFENCE_URL": "unix:///nowhere.sock"}):
        failed = command_line(server, "run", "echo hi", **wrong)
        assert failed.returncode == 125 and failed.stdout == "" and server.token not in failed.stderr


def test_a_command_the_policy_refuses_is_not_allowed_to_start(server: RunningServer, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policies: {tools: {shell_exec: {denied_commands: [curl]}}}")

    async def work(box: ringfence.RemoteSandbox) -> None:
        with pytest.raises(CommandNotAllowed):
            await box.start("curl example.com")

    with_box(server, work, policy=policy)
    refused = command_line(server, "run", "--policy", str(policy), "curl example.com")
    assert refused.returncode == 122
