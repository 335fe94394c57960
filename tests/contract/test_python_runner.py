"""The helper in Python behind each wall: the whole suite of boxes, and that nothing differs from the helper in C."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringfence.engines.base import Box
from ringfence.engines.boxes import helper
from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.boxes.protocol import VERSION
from ringfence.engines.native.facts import helper_fact
from ringfence.errors import InitializationFailed, SpawnFailed
from ringfence.values.grant import Explain, Grant
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited, Result, Signalled
from ringfence.values.request import Request
from tests.contract.test_boxes import *  # noqa: F403  # its tests run here again, with the fixtures below
from tests.contract.test_boxes import WALLS as ALL_WALLS
from tests.contract.test_boxes import Bench, _bench

WALLS = [wall for wall in ALL_WALLS if wall != "gvisor"]
"""gVisor is reached by the helper in C only, and says so."""
_NONE = SimpleNamespace(params={})
BUILDING = [wall for wall in WALLS if wall != "landlock"]
"""Those with a pid namespace and a file system of their own."""


@pytest.fixture(autouse=True)
def runner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "gvisor" in getattr(request.node, "callspec", _NONE).params.values():
        pytest.skip("gVisor is reached by the helper in C only; that it says so is tested below")
    monkeypatch.setenv(helper.VARIABLE, "python")


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterable[str]:
    """Each helper in turn, the one in C first."""

    def each() -> Iterable[str]:
        for name in ("c", "python"):
            monkeypatch.setenv(helper.VARIABLE, name)
            yield name

    if not os.access(helper._NATIVE, os.X_OK):
        pytest.skip("the helper in C was not built: nothing to compare with")
    return each()


@pytest.fixture(params=WALLS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


@pytest.fixture(params=WALLS)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


@pytest.fixture(params=BUILDING)
def building(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


# --- it is what runs, and the same ------------------------------------------------------------------------------------


def test_pid_1_is_an_interpreter_and_doctor_says_so(bench: Bench) -> None:
    assert "python" in bench.run("tr '\\0' ' ' < /proc/$PPID/cmdline").stdout
    assert helper_fact()[1:3] == (True, f"pure Python, protocol {VERSION} (RINGFENCE_HELPER=python)")


def test_without_a_built_helper_it_is_used_unasked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(helper.VARIABLE)
    monkeypatch.setattr(helper, "_NATIVE", str(tmp_path / "not-built"))

    assert "python" in bench.run("tr '\\0' ' ' < /proc/$PPID/cmdline").stdout
    assert helper_fact()[2] == f"pure Python, protocol {VERSION} (no compiler was there when Ringfence was built)"


SURROUNDINGS = {
    "environment": "tr '\\0' '\\n' < /proc/self/environ",
    "status": "grep -E '^(Uid|Gid|Groups|Umask|Sig(Ign|Blk|Cgt)|Cap|NoNewPrivs|Seccomp)' /proc/self/status",
    "limits": "cat /proc/self/limits; ulimit -a",
    "descriptors": "for fd in /proc/self/fd/*; do readlink $fd; done | sed 's/[0-9][0-9]*//g'",
    "mounts": "cut -d' ' -f4-6 /proc/self/mountinfo; sed 's/^.* - //; s/[ug]id=[0-9]*//g' /proc/self/mountinfo",
    "root": "find / /dev /etc -maxdepth 1 -printf '%M %u %g %p %l\\n' | sort",
    "session": "ps -o sid=,pgid= -p $$ | sed 's/[0-9][0-9]*/N/g'; hostname; id; grep -o '^ *[0-9]*' /proc/self/uid_map",
    "network": "cat /proc/net/dev | cut -d: -f1; cat /sys/class/net/lo/operstate 2>&1",
    "pipes": "yes | head -1; echo ${PIPESTATUS[0]}",
    "a program without an interpreter": "printf 'echo by sh' > script; chmod +x script; ./script; rm script",
}


@pytest.mark.req("A5", "B6")
def test_a_command_finds_the_same_surroundings_as_with_the_helper_in_c(bench: Bench, both: Iterable[str]) -> None:
    off = replace(Grant(workspace=bench.workspace), explain=Explain.OFF)  # only the one in C can look

    async def one(command: str) -> str:
        box = await bench.engine.open(off)
        try:
            return (await box.run(Request(command=command))).stdout
        finally:
            await box.close()

    seen = [{name: asyncio.run(one(command)) for name, command in SURROUNDINGS.items()} for _ in both]

    for name in SURROUNDINGS:
        assert seen[0][name] == seen[1][name], name
    ignored = int(re.findall(r"SigIgn:\t(\w+)", seen[1]["status"])[0], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1), "what an interpreter ignores"
    assert seen[1]["pipes"] == "y\n141\n"


@pytest.mark.parametrize(
    "argv", [("no-such-program",), ("/",), ("/etc/hostname",), ("/dev/null",), ("true", "x" * 200_000), ("sub",), ("",)]
)
def test_a_program_fails_to_start_with_the_same_words_as_with_the_helper_in_c(
    building: Bench, both: Iterable[str], argv: tuple[str, ...]
) -> None:
    async def work(box: Box) -> str:
        with pytest.raises(SpawnFailed) as caught:
            await box.run(Request(argv=argv))
        assert (await box.run(Request(command="echo fine"))).stdout == "fine\n"
        return str(caught.value)

    words = [building.use(work) for _ in both]

    assert words[0] == words[1]


def test_a_command_that_is_longer_than_an_argument_and_a_message_runs(bench: Bench) -> None:
    assert len(bench.run(f"echo {'x' * 200_000}").stdout) == 200_001
    assert len(bench.run("printenv LONG", env=(("LONG", "x" * 100_000),)).stdout) == 100_001


# --- limits and usage -------------------------------------------------------------------------------------------------


@pytest.mark.req("B6", "C9")
def test_limits_are_set_on_each_command(bench: Bench) -> None:
    limits = Limits(cpu_seconds=10, open_files=77, file_bytes=1024 * 1024)

    assert bench.run("ulimit -t; ulimit -n; ulimit -f", limits=limits).stdout == "16\n77\n1024\n"


def test_an_interpreter_that_serves_many_calls_has_no_limit_on_its_cpu_time(building: Bench) -> None:
    async def work(box: Box) -> Result:
        return await box.run(Request(code="import resource; print(resource.getrlimit(resource.RLIMIT_CPU)[0])"))

    assert building.use(work, limits=Limits(cpu_seconds=10)).stdout == "-1\n"


def test_what_children_and_orphans_used_is_counted(bench: Bench) -> None:
    burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    result = bench.run(f"bash -c '{burn}' & wait; (setsid bash -c '{burn}; sleep 60' &); sleep 1")

    alone = bench.run("sleep 1")
    assert result.usage is not None and alone.usage is not None
    assert result.usage.cpu_seconds > alone.usage.cpu_seconds + 0.05


# --- side by side -----------------------------------------------------------------------------------------------------


def test_commands_run_side_by_side_and_one_ends_without_the_other(bench: Bench) -> None:
    async def work(box: HelperBox) -> None:
        first = await box.start(Request(command="sleep 60 & sleep 61 & wait"))
        second = await box.start(Request(command="cat; exit 7"))
        await asyncio.sleep(0.2)
        first.kill()
        ended = await first.wait(10)
        assert ended is not None and ended.ending == Signalled(9)
        assert second.alive and (await box.run(Request(command="echo between"))).stdout == "between\n"
        await second.write(b"told")
        second.close_input()
        result = await second.wait(10)
        assert result is not None and result.ending == Exited(7)
        assert second.read() == (b"told", b"")

    bench.use(work)  # type: ignore[arg-type]  # these boxes are native


@pytest.mark.req("B6")
def test_orphans_of_a_command_die_with_it_and_those_of_another_do_not(bench: Bench) -> None:
    orphan = "(setsid sh -c 'sleep 0.8; touch {}' &)"

    async def work(box: HelperBox) -> None:
        other = await box.start(Request(command=f"{orphan.format('kept')}; sleep 60"))
        for _ in range(3):
            await box.run(Request(command=orphan.format("survived")))
        await asyncio.sleep(1.2)
        other.kill()
        await other.wait(10)

    bench.use(work)  # type: ignore[arg-type]

    assert (bench.workspace / "kept").exists()
    assert not (bench.workspace / "survived").exists()


def test_who_forks_faster_than_it_is_killed_takes_the_box_s_commands_along_and_the_box_lives_on(
    building: Bench,
) -> None:
    # The loop's number of processes is bounded, and each one leaves a successor before it dies.
    storm = 'f() { (setsid bash -c "$(declare -f f); f" &); }; for i in 1 2 3 4 5 6; do f; done; sleep 0.3'

    async def work(box: HelperBox) -> Result:
        other = await box.start(Request(command="sleep 60"))
        await asyncio.wait_for(box.run(Request(command=storm)), 10)
        other.kill()
        await asyncio.wait_for(other.wait(), 10)
        return await box.run(Request(command="ls /proc | grep -c '^[0-9]'"))

    result = building.use(work, limits=Limits(processes=100))  # type: ignore[arg-type]

    assert int(result.stdout) <= 6  # PID 1, this command, and a shell that waits


def test_a_shell_that_waits_serves_the_next_command(bench: Bench) -> None:
    async def work(box: HelperBox) -> list[str]:
        await box.warm()
        await asyncio.sleep(0.3)
        assert box._shell is not None and box._shell.alive
        waiting = box._shell.job.id
        said = [(await box.run(Request(command="echo $BASH_EXECUTION_STRING"))).stdout]
        assert box._shell is None or box._shell.job.id != waiting
        return said

    assert bench.use(work) == ["echo $BASH_EXECUTION_STRING\n"]  # type: ignore[arg-type]


def test_a_signal_reaches_the_whole_group(bench: Bench) -> None:
    async def work(box: HelperBox) -> Result | None:
        process = await box.start(
            Request(command="trap 'echo heard; exit 3' USR1; echo up; while :; do sleep 0.1; done")
        )
        said = b""
        while b"up" not in said:
            await asyncio.sleep(0.02)
            said += process.read()[0]
        process.signal(signal.SIGUSR1)
        result = await process.wait(10)
        assert process.read()[0].endswith(b"heard\n")
        return result

    result = bench.use(work)  # type: ignore[arg-type]
    assert result is not None and result.ending == Exited(3)


def test_a_command_on_a_terminal_has_one_of_its_own(building: Bench) -> None:
    command = (
        "tty; stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all; read line; echo got $line; ps -o tty= -p $$"
    )

    async def work(box: HelperBox) -> bytes:
        process = await box.start(Request(command=f"sleep 0.3; {command}"), terminal=(33, 99))
        await process.write(b"typed\n")
        result = await process.wait(10)
        assert result is not None and result.ending == Exited(0)
        return process.read()[0]

    said = building.use(work).decode()  # type: ignore[arg-type]

    assert re.search(r"/dev/pts/\d+\r\n33 99\r\nall\r\n", said)
    assert "got typed\r\n" in said and "pts/" in said.splitlines()[-1]


# --- what the inside can do to PID 1 ----------------------------------------------------------------------------------


@pytest.mark.req("A5", "B6")
@pytest.mark.parametrize("file", ["mem", "environ", "maps", "auxv", "stack", "syscall", "fd/", "cwd/", "root/"])
def test_pid_1_cannot_be_looked_into(bench: Bench, file: str) -> None:
    look = "ls" if file.endswith("/") else "head -c 1"

    assert bench.run(f"{look} /proc/$PPID/{file}").exit_code != 0


@pytest.mark.parametrize("file", ["environ", "maps", "auxv", "fd/", "cwd/"])
def test_a_process_of_one_s_own_can_be(bench: Bench, file: str) -> None:
    look = "ls" if file.endswith("/") else "head -c 1"

    assert bench.run(f"{look} /proc/$$/{file}").exit_code == 0


@pytest.mark.req("B6")
def test_pid_1_cannot_be_written_to(bench: Bench) -> None:
    tries = "for f in mem oom_score_adj comm; do printf 0 > /proc/$PPID/$f && echo wrote $f; done; echo tried"

    assert bench.run(f"{{ {tries}; }} 2> /dev/null").stdout == "tried\n"


@pytest.mark.req("B6")
def test_no_command_has_the_control_socket_nor_anything_else_of_pid_1(bench: Bench) -> None:
    async def work(box: Box) -> list[str]:
        listing = "for fd in /proc/self/fd/*; do readlink $fd; done"
        requests = (
            Request(command=listing),
            Request(argv=("bash", "-c", listing)),
            Request(command=listing, stdin=b""),
        )
        return [(await box.run(request)).stdout for request in requests]

    for listing in bench.use(work):
        assert "socket" not in listing and "memfd" not in listing and "landlock" not in listing
        assert "signalfd" not in listing and "children" not in listing


@pytest.mark.req("B6")
def test_no_signal_from_inside_does_anything_to_pid_1(building: Bench) -> None:
    """An interpreter installs handlers; the kernel would let such signals through."""

    async def work(box: Box) -> Result:
        # Not SIGKILL to everybody: `kill -1` from inside spares PID 1 but not the shell that says so.
        await box.run(
            Request(command="for n in $(seq 1 64); do kill -$n 1; done; for n in 2 10 15 17; do kill -$n 1; done")
        )
        await box.run(Request(command="kill -9 -1"))
        return await box.run(Request(command="cut -d' ' -f1,2 /proc/1/stat; grep SigCgt /proc/1/status"))

    result = building.use(work)

    assert result.stdout.startswith("1 (python")
    assert result.stdout.endswith("SigCgt:\t0000000000000000\n")


# --- it fails closed --------------------------------------------------------------------------------------------------


def test_a_box_that_shows_no_interpreter_is_not_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = str(bench.workspace / "python3")
    monkeypatch.setattr(helper, "_interpreters", lambda view, path: iter([inside, "/nowhere/python3"]))
    os.symlink("/usr/bin/python3", inside)

    with pytest.raises(InitializationFailed, match="no Python") as caught:
        bench.run("true")

    assert caught.value.hint


def packet(kind: int, body: bytes, *, version: int = 2, length: int | None = None) -> bytes:
    return struct.pack("=IIII", version, kind, 1, len(body) if length is None else length) + body


def start(*words: str, passed: list[int]) -> subprocess.Popen[bytes]:
    chosen = helper.choose()
    program = chosen.open()
    try:
        return subprocess.Popen(
            [*chosen.argv(program), *words],
            pass_fds=[program, *passed],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
        )
    finally:
        os.close(program)


def init(data: bytes, descriptors: int) -> tuple[int, bytes, bytes]:
    """Exit code of a PID 1 that gets this message, what it answered, and what it said."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    null = os.open("/dev/null", os.O_RDWR)
    with ours:
        with theirs:
            child = start("init", str(theirs.fileno()), passed=[theirs.fileno()])
        socket.send_fds(ours, [data], [null] * descriptors)
        ours.settimeout(10)
        try:
            answer = ours.recv(256)
        except ConnectionResetError:
            answer = b""
    os.close(null)
    _, said = child.communicate(timeout=10)
    return child.returncode, answer, said


MESSAGES = [
    (packet(1, b"umask\x0018\0"), 0),
    (packet(1, b"umask\x0018\0"), 6),
    (packet(1, b"umask\x0018\0reaper\0rlimit\x004\x000\0cpu\x005\0"), 0),
    (b"", 0),
    (b"\1\0\0", 0),
    (packet(1, b""), 0),
    (packet(1, b"umask\x0018\0", version=1), 0),
    (packet(1, b"umask\0x\0"), 0),
    (packet(1, b"umask\0"), 0),
    (packet(1, b"umask"), 0),
    (packet(1, b"unknown\0"), 0),
    (packet(1, b"filter\0"), 0),
    (packet(1, b"filter\0"), 1),
    (packet(1, b"restrict\0"), 0),
    (packet(1, b"beneath\x001\0/\0"), 0),
    (packet(1, b"landlock\x0024\x00999999999\x000\x000\0"), 0),
    (packet(1, b"umask\x0018\0", length=3), 0),
    (packet(1, b"", length=60_000), 0),
    (packet(1, b"", length=60_000), 1),
    (packet(1, b"umask\x0018\0"), 40),
    (packet(2, b"0\0/\x001\x000\0/bin/true\0"), 3),
    (packet(99, b""), 0),
]


@pytest.mark.req("B6")
@pytest.mark.parametrize(("data", "descriptors"), MESSAGES)
def test_a_message_is_answered_or_ends_the_box_as_with_the_helper_in_c(
    both: Iterable[str], data: bytes, descriptors: int
) -> None:
    (in_c, answer_in_c, _), (code, answer, said) = (init(data, descriptors) for _ in both)

    assert (code, answer) == (in_c, answer_in_c)
    assert said.startswith(b"ringfence-box: ") if code else not said


@pytest.mark.req("B6")
@pytest.mark.parametrize(
    "words",
    [
        [],
        ["wall"],
        ["wall", "exec", "/bin/true"],
        ["lifeline"],
        ["lifeline", "x", "wall"],
        ["unknown", "wall"],
        ["lifeline", "0", "wall"],
        ["lifeline", "0", "wall", "unknown"],
        ["lifeline", "0", "wall", "exec"],
        ["lifeline", "0", "wall", "exec", "/nowhere"],
        ["lifeline", "0", "wall", "exec", "/bin/true"],
        ["lifeline", "0", "wall", "exec", "/bin/false"],
        ["lifeline", "0", "wall", "exec", "/bin/sh", "-c", "kill -9 $$"],
        ["lifeline", "0", "wall", "show", "7", "/x"],
        ["lifeline", "0", "wall", "take", "/nowhere/at/all"],
        ["lifeline", "0", "wall", "take", "/proc/self/exe"],
        ["lifeline", "0", "wall", "join", "/nowhere/cgroup.procs", "exec", "/bin/true"],
        ["lifeline", "0", "wall", "private", "area", "dir", "/a/../b", "exec", "/bin/true"],
        ["lifeline", "0", "wall", "private", "area", "dir", "relative", "exec", "/bin/true"],
        ["lifeline", "0", "wall", "private", "area", "link", "/a", "/etc", "dir", "/a/b", "exec", "/bin/true"],
        ["lifeline", "0", "wall", "private", "area", "tmpfs", "/t", "x", "y", "1", "2", "exec", "/bin/true"],
        ["lifeline", "0", "wall", "private", "area", "dir", "/w", "hide", "/w", "gone", "exec", "/bin/true"],
    ],
)
def test_a_plan_ends_as_with_the_helper_in_c(both: Iterable[str], words: list[str]) -> None:
    ends = []
    for _ in both:
        plan = os.memfd_create("plan")
        os.write(plan, b"".join(word.encode() + b"\0" for word in words))
        child = start("launch", str(plan), str(os.getpid()), passed=[plan])
        os.close(plan)
        said, complaint = child.communicate(timeout=20)
        ends.append((child.returncode, said, complaint.rpartition(b": ")[0]))  # C libraries word an errno differently

    assert ends[1] == ends[0]


@pytest.mark.parametrize("words", [(), ("launch",), ("init", "x"), ("init", "-1"), ("version", "2"), ("other",)])
def test_wrong_arguments_end_it(words: tuple[str, ...]) -> None:
    child = start(*words, passed=[])

    _, said = child.communicate(timeout=10)
    assert (child.returncode, said[:22]) == (125, b"ringfence-box: usage: ")


def test_gvisor_says_that_it_needs_the_helper_in_c(tmp_path: Path) -> None:
    bench = _bench("gvisor", tmp_path)

    with pytest.raises(InitializationFailed, match="helper in C"):
        bench.run("true")
