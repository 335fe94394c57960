"""Watches a running command for what the kernel does not hold by itself: memory, CPU time, growth on disk.

What is looked at is the box's, which is the command's own as long as nothing runs beside it. Where something does:

- CPU time and growth on disk: a command is stopped for what it has used by itself (`overlap.py`), and at the latest
  when all that ran side by side have used as much together as so many commands may.
- Files: only the sum is known.
- Memory, where no control group holds it: the one that uses most is stopped.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

from ringfence.dataclass import dataclass
from ringfence.engines.boxes.looking import Looking
from ringfence.limits.disk import DiskWatch, free_space
from ringfence.values.limits import Limit, Limits

if TYPE_CHECKING:
    from ringfence.limits.base import ResourceController, UsageReading

_FIRST = 0.01
"""Most commands are over before the first look."""
_FASTEST = 0.005
_SLOWEST = 0.1
_BYTES_PER_SECOND = 8 * 1024**3
"""How fast a tree might fill memory or a disk's cache; decides how soon to look again."""
_UNDECIDED_MAX = 40
"""How often in a row it may be unknown which of several uses most memory: what was stopped takes some looks to end."""
CPUS = os.cpu_count() or 1


class Use(Protocol):
    """What a command uses by itself."""

    @property
    def cpu_seconds(self) -> float: ...

    @property
    def written_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Share:
    """What is a command's own of all that is used in its box.

    Args:
        others: how many have run beside it so far.
        measure: what it uses by itself; None if that cannot be known.
        is_largest: whether it uses more memory than any other; None if that cannot be told at the moment.
        admit: called before it is stopped for what it and others have used together.
        has_history: whether its processes have been there before it, and have used something: an interpreter's.
    """

    others: Callable[[], int]
    measure: Callable[[], Awaitable[Use | None]]
    is_largest: Callable[[], Awaitable[bool | None]]
    admit: Callable[[], None]
    has_history: bool = False


class Watch:
    """Looks, again and again, until cancelled; calls `stop` once with the limit that was passed."""

    def __init__(
        self,
        holder: ResourceController,
        limits: Limits,
        roots: tuple[str, ...],
        first_pid: int,
        stop: Callable[[Limit], None],
        *,
        looks_at_cpu: bool = True,
        share: Share | None = None,
    ) -> None:
        self._holder = holder
        self._limits = limits
        self._pid = first_pid
        self._looks_at_cpu = looks_at_cpu
        self._stop = stop
        self._share = share
        self._own_before: Use | None = None
        self._judging: asyncio.Task[None] | None = None
        self._undecided = 0
        self._was_largest = False
        # Made at the first look, which most commands do not live to see; what is free is asked now.
        self._disk: DiskWatch | None = None
        self._free = tuple((root, *free_space(root)) for root in roots)
        self._started = time.time()
        self._before: UsageReading | None = None
        self._last: UsageReading | None = None
        self._looked = time.monotonic()
        self._looking = Looking(holder, first_pid)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_FIRST, self._look)
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._timer.cancel()
        if self._judging is not None:
            self._judging.cancel()
        if self._disk is not None:
            self._disk.end()

    def cpu_seconds_at_most(self) -> float:
        """CPU time of the whole box since it began: what was seen, and what all processors could have done unseen."""
        unseen = time.monotonic() - self._looked
        if self._before is None or self._last is None:
            return unseen * CPUS
        return max(0.0, self._last.cpu_seconds - self._before.cpu_seconds) + (unseen + _FIRST) * CPUS

    def _look(self) -> None:
        limits = self._limits
        disk = self._disk = self._disk or DiskWatch(
            self._free, disk_bytes=limits.disk_bytes, files=limits.files, started=self._started, first_pid=self._pid
        )
        self._looking.look(disk, self._judge)

    def _judge(self, reading: UsageReading, over: Limit | None) -> None:
        if self._cancelled:
            return
        self._last, self._looked = reading, time.monotonic()
        is_first = self._before is None
        suspected = (
            self._over(reading) or over or (Limit.DISK if self._disk is not None and self._disk.shares > 1 else None)
        )
        share = self._share
        if suspected is not Limit.MEMORY:
            self._was_largest = False
        if share is not None and (suspected or (is_first and share.has_history)) and (share.others() or is_first):
            self._judging = self._loop.create_task(
                self._judge_share(share, suspected, reading, has_tripped=over is not None)
            )
        elif suspected is not None:
            self._stop(suspected)
        else:
            self._again(reading)

    async def _judge_share(self, share: Share, over: Limit | None, reading: UsageReading, *, has_tripped: bool) -> None:
        own = await share.measure()
        if self._own_before is None and share.has_history:
            self._own_before = own
        is_guilty = over is not None and not share.others()
        if over is not None and not is_guilty:
            is_guilty = await self._is_guilty(share, over, own, reading, has_tripped=has_tripped)
        if self._cancelled:
            return
        if is_guilty and over is not None:
            self._stop(over)
        else:
            self._again(reading)

    async def _is_guilty(
        self, share: Share, over: Limit, own: Use | None, reading: UsageReading, *, has_tripped: bool
    ) -> bool:
        before, limits, shares = self._own_before, self._limits, 1 + share.others()
        assert self._before is not None
        match over:
            case Limit.MEMORY:
                return await self._is_largest(share)
            case Limit.CPU:
                used = 0.0 if own is None else own.cpu_seconds - (before.cpu_seconds if before is not None else 0.0)
                if used > limits.cpu_seconds:
                    return True
                is_beyond = reading.cpu_seconds - self._before.cpu_seconds > shares * limits.cpu_seconds
            case _:
                written = 0 if own is None else own.written_bytes - (before.written_bytes if before is not None else 0)
                if over is Limit.DISK and written > limits.disk_bytes:
                    return True
                assert self._disk is not None
                is_beyond = has_tripped and self._disk.shares >= shares
                self._disk.shares = shares
        if is_beyond:
            share.admit()
        return is_beyond

    async def _is_largest(self, share: Share) -> bool:
        """Of several the largest goes, and then the box is looked at anew. If nobody can tell for a while, all go.

        By two looks in a row: what the first has seen may be that of a call which has ended meanwhile.
        """
        is_largest = await share.is_largest()
        was_largest, self._was_largest = self._was_largest, bool(is_largest)
        self._undecided = self._undecided + 1 if is_largest is None else 0
        return (was_largest and self._was_largest) or self._undecided > _UNDECIDED_MAX

    def _again(self, reading: UsageReading) -> None:
        self._timer = self._loop.call_later(pause_for(self._limits, reading, self._disk), self._look)

    def _over(self, reading: UsageReading) -> Limit | None:
        # What commands before this one used is in the first reading; what this one used before it is lost, and little.
        before = self._before = self._before or reading
        if Limit.MEMORY not in self._holder.enforces and reading.memory_bytes > self._limits.memory_bytes:
            return Limit.MEMORY
        if self._looks_at_cpu and reading.cpu_seconds - before.cpu_seconds > self._limits.cpu_seconds:
            return Limit.CPU
        return None


def pause_for(limits: Limits, reading: UsageReading, disk: DiskWatch | None) -> float:
    """How soon to look again: before what is left could be filled."""
    room = limits.memory_bytes - reading.memory_bytes
    if disk is not None:
        room = min(room, disk.room_bytes)
    return min(_SLOWEST, max(_FASTEST, room / _BYTES_PER_SECOND))
