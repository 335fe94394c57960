"""PID 1 of a box, behind each wall of the native engine: limits, side by side, what the inside can do to it."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from ringfence.engines.base import Box
from ringfence.engines.boxes import helper
from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.boxes.protocol import VERSION
from ringfence.engines.native.facts import helper_fact
from ringfence.errors import InitializationFailed
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited, Result, Signalled
from ringfence.values.request import Request
from tests.contract.test_boxes import WALLS as ALL_WALLS
from tests.contract.test_boxes import Bench, _bench

WALLS = [wall for wall in ALL_WALLS if wall != "gvisor"]
BUILDING = [wall for wall in WALLS if wall != "landlock"]
"""Those with a pid namespace and a file system of their own."""


@pytest.fixture(params=WALLS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


@pytest.fixture(params=BUILDING)
def building(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


# --- the helper itself ------------------------------------------------------------------------------------------------


def test_doctor_says_which_protocol_the_helper_speaks() -> None:
    assert helper_fact() == ("native helper", True, f"protocol {VERSION}", "")


def test_without_the_helper_nothing_runs_and_doctor_says_what_to_do(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(helper, "_NATIVE", str(tmp_path / "not-built"))

    with pytest.raises(InitializationFailed, match="helper is missing"):
        bench.run("true")

    _, is_well, found, hint = helper_fact()
    assert not is_well and "missing" in found and "install" in hint


def test_a_helper_of_another_architecture_is_found_by_doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    foreign = tmp_path / "ringfence-box"
    foreign.write_bytes(b"\x7fELF" + bytes(60))
    foreign.chmod(0o755)
    monkeypatch.setattr(helper, "_NATIVE", str(foreign))

    _, is_well, found, hint = helper_fact()

    assert not is_well and "does not run" in found and "architecture" in hint


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
        assert box._commands._shell is not None and box._commands._shell.alive
        waiting = box._commands._shell.job.id
        said = [(await box.run(Request(command="echo $BASH_EXECUTION_STRING"))).stdout]
        assert box._commands._shell is None or box._commands._shell.job.id != waiting
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
    """It installs no handlers: the kernel would let such signals through."""

    async def work(box: Box) -> Result:
        # Not SIGKILL to everybody: `kill -1` from inside spares PID 1 but not the shell that says so.
        await box.run(
            Request(command="for n in $(seq 1 64); do kill -$n 1; done; for n in 2 10 15 17; do kill -$n 1; done")
        )
        await box.run(Request(command="kill -9 -1"))
        return await box.run(Request(command="cut -d' ' -f1,2 /proc/1/stat; grep SigCgt /proc/1/status"))

    result = building.use(work)

    assert result.stdout.startswith("1 (")
    assert result.stdout.endswith("SigCgt:\t0000000000000000\n")
