"""Each limit really holds, the result says which one was hit and by what it is held, and what was used is plausible.

As root the tree is held by control groups, as an ordinary user by resource limits and by looking; both are run, by
running the suite as both.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from ringfence import Exited, Limit, LimitHit, Limits, RingfenceError, Sandbox, Signalled, TimedOut
from ringfence.limits.choose import describe
from tests.integration.stage import Place

pytestmark = pytest.mark.req("B6", "C9")

MIB = 1024 * 1024
PYTHON = "/usr/bin/python3"


def hit(limit: Limit, allowed: float) -> LimitHit:
    return LimitHit(limit, allowed)


def test_the_result_says_by_what_the_limits_are_held(place: Place) -> None:
    done = place.run("true")

    assert done.wall is not None and done.wall.limits_by == (describe(),)
    if os.geteuid() != 0:
        assert "cgroup v1" not in done.wall.limits_by


# --- time -------------------------------------------------------------------------------------------------------------


def test_wall_time_is_bounded(place: Place) -> None:
    done = place.run("sleep 60", limits=Limits(wall_seconds=0.5), timeout=None)

    assert done.ending == TimedOut(0.5, "limits.wall_seconds of the caller")
    assert 0.4 < done.usage.wall_seconds < 10
    assert done.usage.cpu_seconds < 0.5


def test_cpu_time_of_one_process_is_bounded(place: Place) -> None:
    done = place.run("while :; do :; done", limits=Limits(cpu_seconds=1))

    assert done.ending == hit(Limit.CPU, 1)
    assert done.exit_code == 123
    assert 0.8 < done.usage.cpu_seconds < 5
    assert "cpu" in (done.blocked_reason or "")


def test_cpu_time_of_the_whole_tree_is_bounded(place: Place) -> None:
    """Each process alone would be below the limit."""
    done = place.run("for i in 1 2 3 4; do (while :; do :; done) & done; wait", limits=Limits(cpu_seconds=1))

    assert done.ending == hit(Limit.CPU, 1)


def test_cpu_time_of_many_short_processes_is_bounded(place: Place) -> None:
    done = place.run(
        "while :; do (i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done); done", limits=Limits(cpu_seconds=1)
    )

    assert done.ending == hit(Limit.CPU, 1)


def test_cpu_time_is_counted_anew_for_each_command(place: Place) -> None:
    burn = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo done"

    async def work(box: Sandbox) -> list[object]:
        return [(await box.shell(burn)).ending for _ in range(6)]

    assert place.in_box(work, limits=Limits(cpu_seconds=2)) == [Exited(0)] * 6


def test_a_command_that_sends_itself_sigxcpu_has_not_hit_the_limit(place: Place) -> None:
    assert place.run("kill -XCPU $$").ending == Signalled(signal.SIGXCPU)


# --- memory -----------------------------------------------------------------------------------------------------------

GROW = {
    "anonymous": "x = []\nfor _ in range(60): x.append(bytearray(b'x' * (16 << 20))); time.sleep(0.005)",
    "memfd": "d = os.memfd_create('x')\nfor _ in range(60): os.write(d, b'x' * (16 << 20)); time.sleep(0.005)",
    "shared mapping": (
        "m = mmap.mmap(-1, 960 << 20)\nfor n in range(60): m[n << 24:(n + 1) << 24] = b'x' * (1 "
        "<< 24); time.sleep(0.005)"
    ),
}


def python(program: str) -> list[str]:
    return [PYTHON, "-c", f"import mmap, os, time\n{program}\nprint('had it all')"]


@pytest.mark.parametrize("program", GROW.values(), ids=GROW.keys())
def test_memory_is_bounded(place: Place, program: str) -> None:
    done = place.run(python(program), limits=Limits(memory_bytes=192 * MIB), timeout=60)

    assert "had it all" not in done.stdout
    assert done.ending == hit(Limit.MEMORY, 192 * MIB)
    assert done.usage.peak_memory_bytes > 64 * MIB
    assert "memory" in (done.blocked_reason or "")


def test_memory_of_the_whole_tree_is_bounded(place: Place) -> None:
    """Each process alone is below the limit. A control group kills one or more of them, a look at the tree all."""
    program = (
        "children = []\n"
        "for _ in range(12):\n"
        "    children.append(os.fork())\n"
        "    if children[-1] == 0:\n"
        "        x = bytearray(b'x' * (32 << 20)); time.sleep(2); os._exit(0)\n"
        "    time.sleep(0.01)\n"
        "assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)"
    )

    held = place.run(python(program), limits=Limits(memory_bytes=192 * MIB))
    free = place.run(python(program), limits=Limits(memory_bytes=1024 * MIB))

    assert "had it all" not in held.stdout
    assert held.blocked and "memory" in (held.blocked_reason or "")
    assert free.stdout == "had it all\n", free


def test_the_same_memory_within_the_limit_is_given(place: Place) -> None:
    program = "x = bytearray(b'x' * (100 << 20))"

    done = place.run(python(program), limits=Limits(memory_bytes=512 * MIB))

    assert (done.ending, done.stdout) == (Exited(0), "had it all\n")
    assert 100 * MIB <= done.usage.peak_memory_bytes < 512 * MIB


def test_a_child_that_is_killed_for_memory_is_reported_though_the_command_goes_on(place: Place) -> None:
    line = f"{PYTHON} -c 'x = bytearray(b\"x\" * (900 << 20))'; echo went on with $?"

    done = place.run(line, limits=Limits(memory_bytes=192 * MIB))

    assert done.blocked and "memory" in (done.blocked_reason or "")
    if "cgroup" in " ".join(done.wall.limits_by):  # type: ignore[union-attr]
        assert done.stdout == "went on with 137\n"


def test_memory_in_tmpfs_is_bounded_by_its_size(place: Place) -> None:
    line = "for d in /tmp /dev/shm ~; do head -c 100M /dev/zero > $d/x; stat -c %s $d/x; rm $d/x; done"

    done = place.run(line, limits=Limits(tmp_bytes=8 * MIB))

    assert done.stdout.split() == [str(8 * MIB)] * 3
    assert done.stderr.count("No space left on device") == 3


def test_a_box_is_usable_after_its_memory_ran_out(place: Place) -> None:
    async def work(box: Sandbox) -> tuple[object, str]:
        first = await box.exec(python(GROW["anonymous"]))
        return first.ending, (await box.shell("echo next")).stdout

    assert place.in_box(work, limits=Limits(memory_bytes=192 * MIB)) == (hit(Limit.MEMORY, 192 * MIB), "next\n")


# --- processes, descriptors, files ------------------------------------------------------------------------------------

FORKS = """
import os, time
made = 0
try:
    for _ in range(300):
        if os.fork() == 0: time.sleep(60); os._exit(0)
        made += 1
except BlockingIOError: pass
print(made)
"""
THREADS = (
    "import threading, time\nmade = 0\ntry:\n    for _ in range(300): "
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); made += 1\nexcept "
    "RuntimeError: pass\nprint(made, flush=True); import os; os._exit(0)"
)


@pytest.mark.parametrize("program", [FORKS, THREADS], ids=["processes", "threads"])
def test_processes_and_threads_are_bounded(place: Place, program: str) -> None:
    held = place.run([PYTHON, "-c", program], limits=Limits(processes=40))
    free = place.run([PYTHON, "-c", program], limits=Limits(processes=400))

    assert 20 <= int(held.stdout) <= 40
    assert int(free.stdout) == 300


def test_a_fork_bomb_ends_with_its_command_and_the_box_is_usable(place: Place) -> None:
    async def work(box: Sandbox) -> tuple[object, str]:
        bomb = await box.shell("b() { b | b & }; b; sleep 1; exit 3", timeout=5)
        return bomb.ending, (await box.shell("echo next", timeout=10)).stdout

    begin = time.monotonic()
    ending, after = place.in_box(work, limits=Limits(processes=60))

    assert ending in (Exited(3), TimedOut(5)) or isinstance(ending, Exited)
    assert after == "next\n"
    assert time.monotonic() - begin < 30


def test_the_process_limit_of_one_box_is_not_used_up_by_another(place: Place) -> None:
    async def work(box: Sandbox) -> str:
        async with place.box(limits=Limits(processes=30)) as other:
            task_line = "for i in $(seq 25); do sleep 60 & done; echo up; wait"
            pieces = other.stream(task_line, timeout=30)
            async for _ in pieces:
                break
            out = (await box.shell("for i in $(seq 20); do sleep 0.1 & done; wait; echo fine")).stdout
            await pieces.aclose()  # type: ignore[attr-defined]
            return out

    assert place.in_box(work, limits=Limits(processes=30)) == "fine\n"


def test_open_files_are_bounded(place: Place) -> None:
    program = (
        "import os\nopened = 0\ntry:\n    while True: os.open('/dev/null', 0); opened += "
        "1\nexcept OSError as fault: print(opened, fault.errno)"
    )

    count, number = place.run([PYTHON, "-c", program], limits=Limits(open_files=100)).stdout.split()

    assert 80 < int(count) < 100
    assert int(number) == 24  # EMFILE


def test_limits_cannot_be_raised_from_inside(place: Place) -> None:
    done = place.run(
        "ulimit -n 5000; ulimit -u 5000; ulimit -f unlimited; ulimit -t unlimited; ulimit -c unlimited; ulimit -n -u",
        limits=Limits(open_files=100, processes=50),
    )

    assert done.stderr.count("cannot modify limit") >= 4
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["100", "50"]


def test_the_size_of_one_file_is_bounded(place: Place) -> None:
    done = place.run(
        "head -c 20M /dev/zero > big; echo $?; stat -c %s big; truncate -s 1T sparse; echo $?",
        limits=Limits(file_bytes=MIB),
    )

    assert (place.workspace / "big").stat().st_size == MIB
    assert done.stdout.split()[1] == str(MIB)
    assert done.stdout.split()[0] != "0" and done.stdout.split()[2] != "0"
    assert not (place.workspace / "sparse").exists() or (place.workspace / "sparse").stat().st_size == 0


def test_a_command_that_dies_of_the_file_size_says_so(place: Place) -> None:
    done = place.run(["/usr/bin/head", "-c", "20M", "/dev/zero"], limits=Limits(file_bytes=MIB, output_bytes=64 * MIB))
    assert done.ending == Exited(0), "pipes have no size"

    done = place.run("exec head -c 20M /dev/zero > big", limits=Limits(file_bytes=MIB))

    assert done.ending == Signalled(signal.SIGXFSZ)  # a command could send it too: no more is said


def test_output_is_bounded(place: Place) -> None:
    assert place.run("yes", limits=Limits(output_bytes=4096)).ending == hit(Limit.OUTPUT, 4096)


# --- disk -------------------------------------------------------------------------------------------------------------


def test_growth_on_disk_is_bounded(place: Place) -> None:
    line = "for i in $(seq 100); do head -c 8M /dev/urandom > f$i; sleep 0.02; done; sync"

    done = place.run(line, limits=Limits(disk_bytes=32 * MIB), timeout=60)

    assert done.ending == hit(Limit.DISK, 32 * MIB)
    assert sum(path.stat().st_size for path in place.workspace.iterdir()) < 512 * MIB


def test_growth_in_any_writable_directory_counts(place: Place) -> None:
    other = place.top / "other"
    other.mkdir()

    done = place.run(
        f"for i in $(seq 100); do head -c 8M /dev/urandom > {other}/f$i; sleep 0.02; done",
        write=[other],
        limits=Limits(disk_bytes=32 * MIB),
        timeout=60,
    )

    assert done.ending == hit(Limit.DISK, 32 * MIB)


def test_growth_within_the_limit_and_what_was_there_before_do_not_count(place: Place) -> None:
    (place.workspace / "old").write_bytes(os.urandom(64 * MIB))
    os.utime(place.workspace / "old", (1, 1))
    time.sleep(1.1)  # what changed within a second before the start is counted, to be on the safe side

    done = place.run("head -c 8M /dev/urandom > f; sleep 0.3", limits=Limits(disk_bytes=32 * MIB))

    assert done.ending == Exited(0)


def test_the_number_of_new_files_is_bounded(place: Place) -> None:
    if os.statvfs(place.workspace).f_files == 0:
        pytest.skip("this file system does not count its files")

    done = place.run(
        "for d in $(seq 100); do mkdir $d; for i in $(seq 100); do : > $d/$i; done; done; sleep 5",
        limits=Limits(files=1000),
        timeout=60,
    )

    assert done.ending == hit(Limit.FILES, 1000)
    assert len(place.names()) < 10_100


# --- what was used ----------------------------------------------------------------------------------------------------


def test_what_was_used_is_plausible(place: Place) -> None:
    idle = place.run("sleep 0.3").usage
    busy = place.run(f"{PYTHON} -c 'sum(i * i for i in range(3_000_000))'").usage
    large = place.run(f"{PYTHON} -c 'x = bytearray(b\"x\" * (80 << 20))'").usage

    assert 0.3 <= idle.wall_seconds < 5
    assert 0 < idle.cpu_seconds < 0.3 <= 30 * busy.cpu_seconds
    assert busy.cpu_seconds > idle.cpu_seconds
    assert 0 < idle.peak_memory_bytes < 64 * MIB
    assert 80 * MIB < large.peak_memory_bytes < 256 * MIB
    assert idle.measured_by.startswith(describe())


def test_usage_of_a_box_grows_with_its_commands(place: Place) -> None:
    async def work(box: Sandbox) -> tuple[float, float]:
        before = box.current_usage().cpu_seconds
        await box.shell(f"{PYTHON} -c 'sum(i * i for i in range(2_000_000))'")
        return before, box.current_usage().cpu_seconds

    before, after = place.in_box(work)

    assert after > before + 0.02


def test_the_peak_is_the_commands_own_and_not_the_boxes(place: Place) -> None:
    async def work(box: Sandbox) -> tuple[int, int]:
        large = await box.exec([PYTHON, "-c", "x = bytearray(b'x' * (80 << 20))"])
        small = await box.shell("true")
        return large.usage.peak_memory_bytes, small.usage.peak_memory_bytes

    large, small = place.in_box(work)

    assert large > 80 * MIB
    if describe() != "cgroup v2":  # its peak cannot be reset before kernel 6.12
        assert small < 64 * MIB


def test_what_a_limit_hit_raises_on_demand(place: Place) -> None:
    with pytest.raises(RingfenceError) as caught:
        place.run("yes", limits=Limits(output_bytes=4096)).check()

    assert caught.value.code == "resource_limit_exceeded"
    assert "raise the output limit" in caught.value.hint


def test_no_core_file_is_left_by_a_crash(place: Place) -> None:
    done = place.run("ulimit -c; kill -SEGV $$")

    assert done.stdout == "0\n"
    assert done.ending == Signalled(signal.SIGSEGV)
    assert not list(Path(place.workspace).glob("core*"))
