"""Watches what lives on when a call is over: threads of a kept interpreter, children of a kept shell, processes in the
background.

While a call runs, its own watch looks at the whole box. Between calls this one does, for as long as anything lives that
has run code of the caller's. It asks how much of the machine was taken *outside* calls:

- CPU time: what the box has used, less what its calls have. That sum is never forgotten, so that many short waits are
  no way around it.
- Growth on disk, in bytes and files, from the beginning of the last call on. If something was at work between two
  calls, what it has taken so far is carried over to the next wait; a box that was quiet starts anew.
- Memory, where no control group holds it.

A box that does nothing is looked at less and less often, at last once in a second; one that does something as often as
a running command is.

What this does not protect against: what is filled between two looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.engines.boxes.looking import Looking
from ringfence.engines.boxes.watch import CPUS, pause_for
from ringfence.limits.disk import DiskWatch, free_space
from ringfence.values.limits import Limit, Limits

if TYPE_CHECKING:
    from ringfence.limits.base import ResourceController, UsageReading

_FIRST = 0.1
_SLOWEST = 1.0
_QUIET_CPU_SECONDS = 0.05
"""Less than this between two calls is nobody's work: a shell that is started ahead of time takes some of it."""
_SHELL_CPU_SECONDS = 0.05
"""What starting a shell ahead of time may take; it is our doing."""


class Standing:
    """Looks from `wake` on, until nothing lives any more; calls `stop` with each limit that is passed."""

    def __init__(
        self,
        holder: ResourceController,
        limits: Limits,
        roots: tuple[str, ...],
        *,
        first_pid: Callable[[], int],
        is_busy: Callable[[], bool],
        living: Callable[[], int],
        stop: Callable[[Limit], None],
    ) -> None:
        """
        Args:
            is_busy: whether a call runs, which is watched by itself.
            living: how many things live on that have run code of the caller's.
        """
        self._holder = holder
        self._limits = limits
        self._roots = roots
        self._first_pid = first_pid
        self._is_busy = is_busy
        self._living = living
        self._stop = stop
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._looking: Looking | None = None
        self._disk: DiskWatch | None = None
        self._pause = _FIRST
        self._called_at = 0.0
        """When the last call began, by the clock of file times."""
        self._was_called = True
        self._ours = 0.0
        """CPU seconds that are accounted for: by calls, and by what we start ourselves."""
        self._before: float | None = None
        """What the box had used, beyond that, when it was first looked at."""
        self._between = 0.0
        """CPU seconds that were used between calls, as of the last look."""
        self._quiet_at = 0.0
        """What had been used between calls when the growth on disk was last counted from."""
        self._is_closed = False

    # --- what the box tells -------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Something lives that will go on after its call."""
        if self._timer is None and not self._is_closed:
            self._pause = _FIRST
            self._timer = self._loop.call_later(_FIRST, self._look)

    def call_began(self) -> None:
        self._called_at = time.time()
        self._was_called = True

    def call_ended(self, cpu_seconds: float) -> None:
        """A call has used so much, all that it started included; rather more than less."""
        self._ours += cpu_seconds

    def shell_started(self) -> None:
        self._ours += _SHELL_CPU_SECONDS

    def interpreter_started(self) -> None:
        """How much that takes nobody knows: count anew from the next look on."""
        self._before = None

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._disk is not None:
            self._disk.end()

    # --- looking ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._timer = None
        if self._is_closed or not self._living():
            return  # whoever comes next wakes us
        if self._is_busy():
            self._was_called = True
            self._again(_FIRST)
            return
        if self._was_called:
            self._begin_wait()
        assert self._disk is not None
        looking = self._looking = self._looking or Looking(self._holder, self._first_pid())
        looking.look(self._disk, self._judge)

    def _begin_wait(self) -> None:
        """A call has come and gone since the last look."""
        self._was_called = False
        self._pause = _FIRST
        if self._disk is not None and self._between > self._quiet_at + _QUIET_CPU_SECONDS:
            self._disk.forgive()
            return
        self._quiet_at = self._between
        limits = self._limits
        self._disk = DiskWatch(
            tuple((root, *free_space(root)) for root in self._roots),
            disk_bytes=limits.disk_bytes,
            files=limits.files,
            started=self._called_at or time.time(),
            first_pid=self._first_pid(),
        )

    def _judge(self, reading: UsageReading, over: Limit | None) -> None:
        if self._is_closed:
            return
        if self._is_busy() or self._was_called:  # while we looked: what was seen may be the call's
            self._again(_FIRST)
            return
        unaccounted = reading.cpu_seconds - self._ours
        if self._before is None:
            self._before = unaccounted - self._between
        used, self._between = self._between, max(self._between, unaccounted - self._before)
        over = self._over(reading) or over
        if over is not None:
            self._stop(over)
            self._was_called = True  # what is left, if anything, is looked at afresh
            self._before, self._between, self._quiet_at = None, 0.0, 0.0
            self._again(_FIRST)
            return
        if self._between > used:
            self._pause = pause_for(self._limits, reading, self._disk)
        self._again(self._pause)
        self._pause = min(_SLOWEST, self._pause * 2)

    def _over(self, reading: UsageReading) -> Limit | None:
        if Limit.MEMORY not in self._holder.enforces and reading.memory_bytes > self._limits.memory_bytes:
            return Limit.MEMORY
        if self._between > self._limits.cpu_seconds * max(1, self._living()):
            return Limit.CPU
        return None

    def _again(self, pause: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(pause, self._look)


def could_use(wall_seconds: float) -> float:
    """CPU seconds that a call of that length can have used at most."""
    return wall_seconds * CPUS
