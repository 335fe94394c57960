"""The watch: looks until a limit is passed, says so once, and leaves to the kernel what the kernel holds."""

import asyncio
import time
from pathlib import Path

import pytest

from ringfence.engines.boxes.watch import Watch
from ringfence.limits.base import UsageReading
from ringfence.values.limits import Limit, Limits
from tests.support.fakes import FakeHolder

LIMITS = Limits(memory_bytes=1000, cpu_seconds=5)


def watched(holder: FakeHolder, root: Path, *, seconds: float = 0.2) -> list[Limit]:
    """What a watch says within some time."""
    said: list[Limit] = []

    async def work() -> None:
        watch = Watch(holder, LIMITS, (str(root),), 1, said.append)
        until = time.monotonic() + seconds
        while not said and time.monotonic() < until:
            await asyncio.sleep(0.005)
        watch.cancel()
        await asyncio.sleep(0.02)  # a look that was under way, in a thread, is the last
        looks = holder.looks
        await asyncio.sleep(0.02)
        assert holder.looks == looks

    asyncio.run(work())
    return said


@pytest.mark.req("B6", "C9")
def test_memory_above_its_limit_is_said_once(tmp_path: Path) -> None:
    holder = FakeHolder([UsageReading(0, 10), UsageReading(0, 999), UsageReading(0, 1001)])

    assert watched(holder, tmp_path) == [Limit.MEMORY]


def test_memory_that_the_kernel_holds_is_left_to_it(tmp_path: Path) -> None:
    holder = FakeHolder([UsageReading(0, 5000)], enforces=frozenset({Limit.MEMORY}))

    assert watched(holder, tmp_path) == []
    assert holder.looks > 1


@pytest.mark.req("B6", "C9")
def test_cpu_time_counts_from_the_beginning_of_the_command(tmp_path: Path) -> None:
    assert watched(FakeHolder([UsageReading(100, 0), UsageReading(104.9, 0)]), tmp_path) == []
    assert watched(FakeHolder([UsageReading(100, 0), UsageReading(105.1, 0)]), tmp_path) == [Limit.CPU]


def test_a_tree_that_is_near_its_limit_is_looked_at_more_often(tmp_path: Path) -> None:
    def looks(memory: int) -> int:
        holder = FakeHolder([UsageReading(0, memory)])
        limits = Limits(memory_bytes=8 << 30)

        async def work() -> None:
            watch = Watch(holder, limits, (), 1, lambda limit: None)
            await asyncio.sleep(0.3)
            watch.cancel()

        asyncio.run(work())
        return holder.looks

    assert looks((8 << 30) - 1) > 2 * looks(0)
