"""Calls that run side by side in one box: none can make another look ended, limited or refused.

They are one agent's: each may signal the other's processes, and all share the files, the memory and the room on disk.
What is tested here is that results say whose doing something was, or that this is not known.
"""

import asyncio
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import Limits, Result, Sandbox
from ringfence.values.limits import Limit
from ringfence.values.outcome import Exited, LimitHit, Signalled

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable

MIB = 1024 * 1024


def use(workspace: Path, work: Callable[[Sandbox], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60), Sandbox(workspace=workspace, **options) as box:
            await box.shell("true")
            return await work(box)

    return asyncio.run(main())


def beside(
    workspace: Path, hostile: str, quiet: str = "sleep 1.5; echo whole", **options: Any
) -> tuple[Result, Result]:
    """What comes of both."""

    async def work(box: Sandbox) -> tuple[Result, Result]:
        other = asyncio.create_task(box.shell(quiet))
        await asyncio.sleep(0.1)
        return await box.shell(hostile), await other

    found: tuple[Result, Result] = use(workspace, work, **options)
    return found


def is_untouched(result: Result) -> bool:
    return (result.ending, result.stdout, result.violations) == (Exited(0), "whole\n", ())


# --- ended ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("C2")
@pytest.mark.parametrize(
    "bomb",
    [
        "f() { f & }; f; sleep 0.2",
        "f() { f & f & }; f; sleep 0.2",
        'python3 -c "import os\nwhile True:\n if os.fork(): os._exit(0)\n os.setsid()"',
        "trap '' TERM HUP INT; (setsid sh -c 'while :; do (:) & done' &) ; sleep 0.2",
    ],
    ids=["chain", "tree", "sessions", "shells"],
)
def test_a_call_that_forks_without_end_takes_nobody_with_it(tmp_path: Path, bomb: str) -> None:
    async def work(box: Sandbox) -> tuple[Result, Result]:
        other = asyncio.create_task(box.shell("sleep 3; echo whole"))
        await asyncio.sleep(0.1)
        return await box.shell(bomb, timeout=2), await other

    _, other = use(tmp_path, work, limits=Limits(processes=100))

    assert is_untouched(other)


def test_a_call_that_kills_its_neighbour_does_not_make_it_look_limited(tmp_path: Path) -> None:
    """It has the kernel kill for memory, which is counted for the box, and kills the other by itself."""
    eat = "python3 -c 'x = bytearray(600 << 20)'; kill -9 $(pgrep -f '[s]leep 8')"
    hostile, other = beside(tmp_path, eat, "exec sleep 8", limits=Limits(memory_bytes=256 * MIB))

    assert hostile.wall is not None
    if "cgroup" not in hostile.wall.limits_by[0]:  # then we look, and stop the call that uses most
        assert hostile.ending == LimitHit(Limit.MEMORY, 256 * MIB)
        assert other.ending == Exited(0)
        return
    assert isinstance(hostile.ending, Exited)
    assert other.ending == Signalled(9), "that is what happened to it"
    assert ["not known" in violation.what for violation in other.violations] == [True]


def test_cancelling_a_call_that_forks_leaves_the_others_alone(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> Result:
        other = asyncio.create_task(box.shell("sleep 1.5; echo whole"))
        bomb = asyncio.create_task(box.shell("f() { f & f & }; f; sleep 60"))
        await asyncio.sleep(0.4)
        bomb.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bomb
        return await other

    assert is_untouched(use(tmp_path, work, limits=Limits(processes=100)))


# --- limited ----------------------------------------------------------------------------------------------------------


@pytest.mark.req("C9")
def test_the_cpu_time_of_one_call_is_not_another_s(tmp_path: Path) -> None:
    hostile, other = beside(tmp_path, "while :; do :; done", "sleep 3; echo whole", limits=Limits(cpu_seconds=0.8))

    assert hostile.ending == LimitHit(Limit.CPU, 0.8)
    assert is_untouched(other)
    assert other.overlapped == 1


@pytest.mark.req("C9")
def test_calls_side_by_side_may_each_use_their_own_cpu_time(tmp_path: Path) -> None:
    busy = "i=0; t=$(date +%s%N); while [ $(($(date +%s%N) - t)) -lt 700000000 ]; do i=$((i+1)); done; echo whole"

    async def work(box: Sandbox) -> list[Result]:
        return await asyncio.gather(*(box.shell(busy) for _ in range(2)))

    results = use(tmp_path, work, limits=Limits(cpu_seconds=1.2))

    assert [result.stdout for result in results] == ["whole\n", "whole\n"]


@pytest.mark.req("C9")
def test_what_one_call_writes_is_not_another_s(tmp_path: Path) -> None:
    fill = "dd if=/dev/zero of=big bs=1M count=400 status=none; sleep 5"
    hostile, other = beside(tmp_path, fill, "sleep 3; echo whole", limits=Limits(disk_bytes=64 * MIB))

    assert hostile.ending == LimitHit(Limit.DISK, 64 * MIB)
    assert is_untouched(other)


@pytest.mark.req("C9")
def test_the_memory_of_one_call_ends_it_and_no_small_one(tmp_path: Path) -> None:
    eat = "exec python3 -c 'import time; x = bytearray(600 << 20); time.sleep(5)'"
    hostile, other = beside(tmp_path, eat, limits=Limits(memory_bytes=256 * MIB))

    assert hostile.ending == LimitHit(Limit.MEMORY, 256 * MIB)
    assert other.ending == Exited(0)
    assert other.stdout == "whole\n"


def test_a_process_in_the_background_is_not_ended_for_what_a_call_writes(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> tuple[Result, bool]:
        server = await box.start("sleep 60")
        done = await box.shell("dd if=/dev/zero of=big bs=1M count=400 status=none; sleep 5")
        return done, server.alive

    done, lives = use(tmp_path, work, limits=Limits(disk_bytes=64 * MIB))

    assert done.ending == LimitHit(Limit.DISK, 64 * MIB)
    assert lives


def test_a_daemon_that_was_left_is_held_to_the_limits(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> Result | None:
        await box.shell(
            "(sleep 0.5; dd if=/dev/zero of=big bs=1M count=400 status=none; sleep 60) & :", keep_background=True
        )
        (daemon,) = box.processes()
        return await daemon.wait(20)

    result = use(tmp_path, work, limits=Limits(disk_bytes=64 * MIB))

    assert result is not None
    assert result.ending == LimitHit(Limit.DISK, 64 * MIB)


# --- refused, and recorded --------------------------------------------------------------------------------------------


@pytest.mark.req("C12")
def test_a_refusal_and_what_was_written_are_the_call_s_that_did_it(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET=1\n")
    hostile, other = beside(tmp_path, "echo x > mine; echo y > .env", "sleep 0.5; echo x > other; sleep 1; echo whole")

    assert any(".env" in violation.what for violation in hostile.violations)
    assert is_untouched(other)
    assert hostile.observed is not None and other.observed is not None
    assert [Path(name).name for name in hostile.observed.written] == ["mine"]
    assert [Path(name).name for name in other.observed.written] == ["other"]


@pytest.mark.req("C12")
def test_a_call_cannot_have_its_doings_counted_for_another(tmp_path: Path) -> None:
    """Its number lies in limits that can be lowered: it can spoil its own, and the other's, and become nobody else."""
    (tmp_path / ".env").write_text("SECRET=1\n")
    spoil = (
        "for pid in $$ $(pgrep -f '[s]leep 1.5'); do for n in locks rttime; do prlimit --pid $pid --$n=5; done; done; "
        "echo x > mine; echo y > .env"
    )
    hostile, other = beside(tmp_path, spoil)

    assert is_untouched(other)
    said = " ".join(violation.what for violation in hostile.violations)
    assert ".env" in said and "earlier" not in said
    assert hostile.observed is not None
    assert [Path(name).name for name in hostile.observed.written] == ["mine"]


@pytest.mark.req("C12")
@pytest.mark.parametrize(
    "then",
    [
        "work()",
        "one = threading.Thread(target=work); one.start(); one.join()",
        "os.fork() or (os.fork() or work(), os._exit(0)); os.wait(); time.sleep(0.5)",
        "os.environ['AGAIN'] = '1'; os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])",
    ],
    ids=["itself", "in a thread", "in an orphan", "in another program"],
)
def test_a_call_cannot_hide_its_doings_by_spoiling_its_number(tmp_path: Path, then: str) -> None:
    """The first process has no ancestor that would still have it."""
    (tmp_path / ".env").write_text("SECRET=1\n")
    code = f"""
import os, resource, sys, threading, time
def work():
    open('mine', 'w').close()
    try:
        open('.env', 'w')
    except OSError:
        pass
for limit in (10, 15):
    resource.prlimit(0, limit, (5, 5))
if 'AGAIN' in os.environ:
    work()
else:
    {then}
"""

    async def work(box: Sandbox) -> tuple[Result, Result]:
        done = await box.exec([PYTHON, "-c", code])
        return done, await box.shell("echo x > other")

    done, after = use(tmp_path, work)

    (refused,) = done.violations
    assert ".env" in refused.what and "earlier" not in refused.what
    assert done.observed is not None and after.observed is not None
    assert [Path(name).name for name in done.observed.written] == ["mine"]
    assert [Path(name).name for name in after.observed.written] == ["other"]
    assert after.violations == ()


def test_a_call_cannot_speak_with_its_neighbour_s_voice(tmp_path: Path) -> None:
    forge = (
        "for pid in $(pgrep -f '[s]leep 1.5'); do for n in 1 2; do "
        "echo forged > /proc/$pid/fd/$n; done; done 2>/dev/null; echo tried"
    )
    hostile, other = beside(tmp_path, forge)

    assert hostile.stdout == "tried\n"
    assert is_untouched(other)


def test_what_was_left_running_is_told_from_what_a_call_does(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SECRET=1\n")

    async def work(box: Sandbox) -> tuple[Result, Result | None]:
        await box.shell("(sleep 0.3; echo y > .env; echo x > daemon; sleep 1) & :", keep_background=True)
        (daemon,) = box.processes()
        done = await box.shell("sleep 0.8; echo x > mine")
        return done, await daemon.wait(10)

    done, daemon = use(tmp_path, work)

    assert done.violations == ()
    assert daemon is not None
    assert any(".env" in violation.what for violation in daemon.violations)
    assert [Path(name).name for name in done.observed.written] == ["mine"]


def test_a_leftover_of_a_daemon_is_found_by_the_next_call(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> Result:
        await box.shell(
            "(sleep 0.3; git init -q sub; cd sub/.git/hooks; echo x > pre-commit; chmod +x pre-commit; sleep 30) & :",
            keep_background=True,
        )
        await asyncio.sleep(1.5)
        return await box.shell("true")

    result = use(tmp_path, work)

    assert any("pre-commit" in violation.what for violation in result.violations)
    assert not (tmp_path / "sub" / ".git" / "hooks" / "pre-commit").exists(), "it was disarmed"


def test_closing_a_sandbox_ends_every_call_and_daemon_in_it(tmp_path: Path) -> None:
    async def main() -> None:
        box = Sandbox(workspace=tmp_path)
        await box.shell("(while sleep 0.1; do date +%s%N > beat; done) & :", keep_background=True)
        calls = [asyncio.create_task(box.shell("sleep 60")) for _ in range(3)]
        await asyncio.sleep(0.3)
        await box.close()
        for call in calls:
            with pytest.raises(ringfence.RingfenceError):
                await call

    asyncio.run(main())

    last = (tmp_path / "beat").read_text()
    time.sleep(0.4)
    assert (tmp_path / "beat").read_text() == last
