"""What lives on when a call is over is held to the limits as the call was, and nobody has to wait for it.

A thread of a kept interpreter, a child of a kept shell, a process in the background: each goes on between calls, when
no call is there whose watch would see it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ringfence import LimitHit, Limits, Sandbox
from ringfence.values.limits import Limit
from tests.integration.stage import Place

pytestmark = pytest.mark.req("B6", "C9")

MIB = 1024 * 1024
SECONDS = 20.0
"""How long a watch that works would never take, on a machine however crowded."""

WRITING = """
import threading, time
def go_on():
    for number in range(400):
        open(f"part-{number}", "wb").write(bytes(1 << 20))
        time.sleep(0.02)
"""
MANY_FILES = """
import os, threading, time
def go_on():
    for number in range(20_000):
        open(f"f-{number}", "w").close()
"""
BURNING = """
import threading
def go_on():
    while True: pass
"""
FORKING = """
import os, threading
def go_on():
    while True:
        if not os.fork():
            for _ in range(3_000_000): pass
            os._exit(0)
        os.wait()
"""
START = "\nthreading.Thread(target=go_on, daemon=True).start()"


async def comes(claim: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS
    while not claim() and time.monotonic() < until:
        await asyncio.sleep(0.02)
    return claim()


def taken(workspace: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in workspace.iterdir() if path.is_file())


@pytest.mark.parametrize(
    ("code", "limits", "limit"),
    [
        (WRITING, Limits(disk_bytes=20 * MIB), Limit.DISK),
        (MANY_FILES, Limits(files=200), Limit.FILES),
        (BURNING, Limits(cpu_seconds=1), Limit.CPU),
        (FORKING, Limits(cpu_seconds=1), Limit.CPU),
    ],
    ids=["disk", "files", "cpu", "cpu of children"],
)
def test_a_thread_that_goes_on_after_its_call_is_held_to_the_limits(
    place: Place, code: str, limits: Limits, limit: Limit
) -> None:
    async def work(box: Sandbox) -> None:
        assert (await box.python("kept = 1" + code + START)).ok
        assert await comes(lambda: not box.contexts())
        after = await box.python("kept")

        assert not after.state_kept
        assert [violation.rule for violation in after.violations] == [f"limits.{limit}"]
        assert "between two calls" in after.violations[0].what
        assert taken(place.workspace) < 200 * MIB

    place.in_box(work, limits=limits)


def test_a_child_of_a_kept_shell_is_held_to_the_limits(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        line = "(for n in $(seq 400); do head -c 1M /dev/zero > part-$n; sleep 0.02; done) > /dev/null 2>&1 &"
        assert (await box.shell(line, context="kept")).ok
        assert await comes(lambda: not box.contexts())
        assert taken(place.workspace) < 200 * MIB

    place.in_box(work, limits=Limits(disk_bytes=20 * MIB))


def test_short_waits_between_many_calls_are_no_way_around_the_cpu_limit(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python(BURNING + START)
        until = time.monotonic() + SECONDS
        while box.contexts() and time.monotonic() < until:
            await asyncio.sleep(0.3)
            if box.contexts():
                await box.python("1")
        assert time.monotonic() < until

    place.in_box(work, limits=Limits(cpu_seconds=2))


def test_a_process_in_the_background_that_forks_is_held_to_the_cpu_limit(place: Place) -> None:
    """The kernel counts each process for itself; a thousand short ones are held by nobody but us."""

    async def work(box: Sandbox) -> None:
        process = await box.start("while :; do (for i in $(seq 2000); do :; done); done")
        done = await process.wait(SECONDS)

        assert done is not None
        assert done.ending == LimitHit(Limit.CPU, 1)

    place.in_box(work, limits=Limits(cpu_seconds=1))


def test_what_calls_use_does_not_count_for_what_lives_on(place: Place) -> None:
    """The twin: as much in calls, each within its limit, is nobody's business between them."""

    async def work(box: Sandbox) -> None:
        for number in range(4):
            code = f"import time\nkept = {number}\nopen('f{number}', 'wb').write(bytes(8 << 20))\n"
            code += "until = time.process_time() + 0.6\nwhile time.process_time() < until: pass"
            assert (await box.python(code)).ok
            await box.shell("for i in $(seq 20000); do :; done")
            await asyncio.sleep(0.3)
        after = await box.python("kept")
        assert after.state_kept
        assert after.results[0].text == "3"
        assert not after.violations

    place.in_box(work, limits=Limits(disk_bytes=20 * MIB, cpu_seconds=1.5))


def test_a_thread_within_the_limits_goes_on(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        code = "import threading, time\nseen = []\ndef go_on():\n while True: seen.append(1); time.sleep(0.01)"
        await box.python(code + START)
        await asyncio.sleep(1.5)
        after = await box.python("len(seen) > 50")
        assert after.results[0].text == "True"

    place.in_box(work, limits=Limits(cpu_seconds=5))


# --- nobody waits -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def own_cpu() -> AsyncIterator[list[float]]:
    """How much of a processor this process takes meanwhile."""
    begin, used = time.monotonic(), time.process_time()
    share: list[float] = []
    yield share
    share.append((time.process_time() - used) / (time.monotonic() - begin))


FLOODS = {
    "frames": "import os\ndef go_on():\n while True: os.write(9, b'display 0\\n')",
    "output": "import os\ndef go_on():\n while True: os.write(1, bytes(65536))",
}


@pytest.mark.alone
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_between_calls_costs_the_manager_nothing_and_the_box_still_answers(place: Place, kind: str) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("import threading\n" + FLOODS[kind] + START)
        async with own_cpu() as share:
            await asyncio.sleep(3)
        assert share[0] < 0.1
        after = await box.python("print('still here')")
        assert after.ok
        assert "still here" in after.stdout
        assert after.wall is not None
        assert any("made to wait" in note for note in after.wall.notes)

    place.in_box(work, limits=Limits(output_bytes=64 * MIB))


def test_a_thread_that_logs_between_calls_does_not_stand_still(place: Place) -> None:
    """The twin: what is said is dropped, and whoever says it goes on."""

    async def work(box: Sandbox) -> None:
        code = "import threading, time\nlines = 0\ndef go_on():\n global lines\n"
        code += " while lines < 300: print('x' * 1000, flush=True); lines += 1; time.sleep(0.001)"
        await box.python(code + START)
        for _ in range(100):
            await asyncio.sleep(0.1)
            if (await box.python("lines")).results[0].text == "300":
                return
        pytest.fail("it waits for somebody to read")

    place.in_box(work)


def test_what_was_shown_between_two_calls_is_not_taken_for_the_next_one_s(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        code = "import threading, time\ndef go_on():\n time.sleep(0.3); display('stale')"
        await box.python(code + START)
        await asyncio.sleep(1)
        after = await box.python("2")
        assert [shown.text for shown in after.results] == ["2"]

    place.in_box(work)


async def longest_step(work: Awaitable[object]) -> float:
    """The longest time for which the event loop could do nothing else meanwhile, in seconds."""
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            begin = time.monotonic()
            await asyncio.sleep(0.002)
            longest = max(longest, time.monotonic() - begin - 0.002)

    beating = asyncio.ensure_future(beat())
    await asyncio.sleep(0.01)
    try:
        await work
    finally:
        beating.cancel()
    return longest


@pytest.mark.alone
def test_a_box_over_many_directories_makes_nobody_wait(place: Place) -> None:
    """Against the time that the walk takes: in one piece it would be all of it."""
    for first in range(200):
        for second in range(100):
            os.makedirs(place.workspace / str(first) / str(second))
    small = place.top / "small"
    small.mkdir()

    async def open_over(workspace: Path) -> None:
        async with place.box(workspace=workspace) as box:
            await box.shell("true")

    async def whole() -> tuple[float, float, float]:
        await open_over(small)  # what is imported and tried the first time
        usual = await longest_step(open_over(small))
        begin = time.monotonic()
        longest = await longest_step(open_over(place.workspace))
        return usual, longest, time.monotonic() - begin

    usual, longest, took = asyncio.run(whole())

    assert took > 0.1, "the workspace is too small to show anything"
    assert longest < max(0.02, 3 * usual, took / 3)


@pytest.mark.alone
def test_counting_what_a_command_has_written_makes_nobody_wait(place: Place) -> None:
    """As soon as more has gone than a box may use, all files are looked at, of which there are many."""
    for first in range(100):
        os.makedirs(place.workspace / str(first))
        for second in range(300):
            (place.workspace / str(first) / str(second)).touch()

    async def work(box: Sandbox) -> tuple[float, bool]:
        await box.shell("true")
        longest = 0.0
        hit = False

        async def fill() -> None:
            nonlocal hit
            done = await box.shell("head -c 30M /dev/zero > big; sleep 20")
            hit = isinstance(done.ending, LimitHit)

        longest = await longest_step(fill())
        return longest, hit

    longest, hit = place.in_box(work, limits=Limits(disk_bytes=20 * MIB))

    assert hit
    assert longest < 0.08
