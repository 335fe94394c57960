"""Watches a running command for what the kernel does not hold by itself: memory, CPU time, growth on disk."""

import asyncio
import time
from collections.abc import Callable

from ringfence.limits.base import Holder, Reading
from ringfence.limits.disk import DiskWatch, free_space
from ringfence.values.limits import Limit, Limits

_FIRST = 0.01
"""Most commands are over before the first look."""
_FASTEST = 0.005
_SLOWEST = 0.1
_BYTES_PER_SECOND = 8 * 1024**3
"""How fast a tree might fill memory or a disk's cache; decides how soon to look again."""


class Watch:
    """Looks, again and again, until cancelled; calls `stop` once with the limit that was passed."""

    def __init__(
        self,
        holder: Holder,
        limits: Limits,
        roots: tuple[str, ...],
        first_pid: int,
        stop: Callable[[Limit], None],
        *,
        looks_at_cpu: bool = True,
    ) -> None:
        self._holder = holder
        self._limits = limits
        self._pid = first_pid
        self._looks_at_cpu = looks_at_cpu
        self._stop = stop
        # Made at the first look, which most commands do not live to see; what is free is asked now.
        self._disk: DiskWatch | None = None
        self._free = tuple((root, *free_space(root)) for root in roots)
        self._started = time.time()
        self._before: Reading | None = None
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(_FIRST, self._look)

    def cancel(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        limits = self._limits
        disk = self._disk = self._disk or DiskWatch(
            self._free, disk_bytes=limits.disk_bytes, files=limits.files, started=self._started, first_pid=self._pid
        )
        reading = self._holder.read(self._pid)
        over = self._over(reading) or disk.exceeded()
        if over is not None:
            self._stop(over)
            return
        room = min(limits.memory_bytes - reading.memory_bytes, disk.room_bytes)
        pause = min(_SLOWEST, max(_FASTEST, room / _BYTES_PER_SECOND))
        self._timer = self._loop.call_later(pause, self._look)

    def _over(self, reading: Reading) -> Limit | None:
        # What commands before this one used is in the first reading; what this one used before it is lost, and little.
        before = self._before = self._before or reading
        if Limit.MEMORY not in self._holder.enforces and reading.memory_bytes > self._limits.memory_bytes:
            return Limit.MEMORY
        if self._looks_at_cpu and reading.cpu_seconds - before.cpu_seconds > self._limits.cpu_seconds:
            return Limit.CPU
        return None
