"""One look at what a box uses, without making the event loop wait for it.

A control group is read at once. A process tree may be long, and a workspace large: those are gone through in a thread.
These threads are few and nobody else's: a box that makes them work for minutes delays the looks at other boxes, and
nothing else of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING

from ringfence.limits.base import ResourceController, UsageReading
from ringfence.values.limits import Limit

if TYPE_CHECKING:
    from ringfence.limits.disk import DiskWatch

_THREADS = 2

Judge = Callable[[UsageReading, Limit | None], None]


class Looking:
    def __init__(self, holder: ResourceController, first_pid: int) -> None:
        self._holder = holder
        self._pid = first_pid
        self._reads_at_once = Limit.MEMORY in holder.enforces  # by a control group
        self._loop = asyncio.get_running_loop()

    def look(self, disk: DiskWatch, judge: Judge) -> None:
        """Measure; `judge` is told, at once or later, what was read and which limit on disk is passed."""
        if not self._reads_at_once:
            self._in_thread(partial(self._measure, disk), judge)
            return
        reading = self._holder.read(self._pid)
        if disk.trips():
            self._in_thread(lambda: (reading, disk.walk()), judge)
        else:
            judge(reading, None)

    def _measure(self, disk: DiskWatch) -> tuple[UsageReading, Limit | None]:
        return self._holder.read(self._pid), disk.exceeded()

    def _in_thread(self, step: Callable[[], tuple[UsageReading, Limit | None]], judge: Judge) -> None:
        def told(done: asyncio.Future[tuple[UsageReading, Limit | None]]) -> None:
            if not done.cancelled():  # the loop is ending
                judge(*done.result())

        self._loop.run_in_executor(_threads(), step).add_done_callback(told)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="ringfence-watch")


os.register_at_fork(after_in_child=_threads.cache_clear)  # no thread goes along into a child
