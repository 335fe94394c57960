"""Watches a running command for what the kernel does not hold by itself: memory, CPU time, growth on disk."""

import asyncio
import time
from collections.abc import Callable

from ringfence.limits.base import Holder, Reading
from ringfence.limits.disk import DiskWatch
from ringfence.values.limits import Limit, Limits

_FASTEST = 0.005
_SLOWEST = 0.1
_FIRST = 0.02
"""Most commands are over before the first look."""
_BYTES_PER_SECOND = 8 * 1024**3
"""How fast a tree might fill memory; decides how soon to look again."""


class Watch:
    def __init__(self, holder: Holder, limits: Limits, roots: tuple[str, ...], first_pid: int) -> None:
        self._holder = holder
        self._limits = limits
        self._pid = first_pid
        self._disk = DiskWatch(roots, disk_bytes=limits.disk_bytes, files=limits.files, started=time.time())
        self.before: Reading = holder.read(first_pid)

    async def run(self, stop: Callable[[Limit], None]) -> None:
        """Look, again and again, until cancelled; call `stop` once with the limit that was passed."""
        await asyncio.sleep(_FIRST)
        while True:
            reading = self._holder.read(self._pid)
            over = self._over(reading) or self._disk.exceeded()
            if over is not None:
                stop(over)
                return
            room = self._limits.memory_bytes - reading.memory_bytes
            await asyncio.sleep(min(_SLOWEST, max(_FASTEST, room / _BYTES_PER_SECOND)))

    def _over(self, reading: Reading) -> Limit | None:
        if Limit.MEMORY not in self._holder.enforces and reading.memory_bytes > self._limits.memory_bytes:
            return Limit.MEMORY
        if reading.cpu_seconds - self.before.cpu_seconds > self._limits.cpu_seconds:
            return Limit.CPU
        return None
