"""Room for descriptors: what takes many of them waits until there are enough, instead of failing half-way.

An ordinary login may have 1,024 open files; a box takes up to thirty of them, so that five hundred callers at once
cannot all have theirs. Who comes when there is no room waits for its turn, first come, first served, and is told so if
that takes too long. Waiting is bounded by time and never by how many wait. Where no call runs, so that only whoever
holds the room could make some, it is bounded by a short time: who holds all sandboxes and opens one more waits for
himself.

What is held is an estimate that errs on the high side, and what the process really has open is counted too, once that
comes near the limit: the program that we are a part of opens files of its own. Whoever asks while nobody holds
anything is never made to wait, since nobody could make room; the kernel has the last word then.

Callers may be in any thread and on any loop. A forked child begins anew.
"""

import asyncio
import os
import resource
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ringfence.dataclass import dataclass, field
from ringfence.errors import Busy

WAIT_SECONDS = 300.0
"""Longer than a command may take unless somebody says otherwise (120 s), so that the next wave is waited for."""
QUIET_SECONDS = 10.0
"""How long nothing may have run, and nobody given anything back, until waiting is in vain."""
TO_MAKE_A_BOX: Final = 30
"""What one takes at the moment when it is made, with its journal."""
OF_A_BOX: Final = 12
"""What it keeps. A shell and an interpreter that wait in it take up to eight more: counted when room is short."""
OF_A_CALL: Final = 6
"""Three pipes, and the ends of them that are on their way to PID 1."""
_SPARE: Final = 64
"""Left for what is open for a moment: a file that is read, a process that is started."""


def _limit() -> int:
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def _count_open() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0  # where nobody can count, the estimate alone has to do


@dataclass(slots=True, eq=False)
class _Waiter:
    count: int
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[None]
    is_served: bool = False


@dataclass(slots=True, eq=False)
class Hold:
    """Descriptors that somebody may have open. Give it back, at the latest by forgetting it."""

    count: int
    _room: "DescriptorRoom"
    _is_over: bool = field(default=False, init=False)

    def give_back(self) -> None:
        """All of it; more than once does no harm."""
        if not self._is_over:
            self._is_over = True
            self._room.give(self.count)

    def shrink(self, count: int) -> None:
        """Keep only so many."""
        if not self._is_over and count < self.count:
            less, self.count = self.count - count, count
            self._room.give(less)

    def __del__(self) -> None:
        self.give_back()


class DescriptorRoom:
    def __init__(self, limit: Callable[[], int] = _limit, count_open: Callable[[], int] = _count_open) -> None:
        self._limit = limit
        self._count_open = count_open
        self._lock = threading.RLock()  # a hold may be forgotten, and so given back, in the middle of anything
        self._held = 0
        self._others = 0
        """What the process had open when nobody held anything."""
        self._waiters: deque[_Waiter] = deque()
        self._calls = 0
        """How many run, whose end may make room."""
        self._moved = time.monotonic()
        """When something last ended or was given back."""

    def __repr__(self) -> str:
        return f"<DescriptorRoom {self._held} of {self._limit()} held, {len(self._waiters)} waiting>"

    @property
    def held(self) -> int:
        return self._held

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def call_begins(self) -> None:
        with self._lock:
            self._calls += 1

    def call_ends(self) -> None:
        with self._lock:
            self._calls -= 1
            self._moved = time.monotonic()

    async def take(self, count: int, what: str, *, seconds: float | None = None) -> Hold:
        """Wait until so many may be opened.

        Args:
            what: for whom, in the words of the error.
            seconds: how long to wait at most; `WAIT_SECONDS` if not given.

        Raises:
            Busy: there was no room in that time, or nothing runs that would make some.
        """
        hold = self.take_now(count)
        return hold if hold is not None else await self._wait(count, what, WAIT_SECONDS if seconds is None else seconds)

    def take_now(self, count: int) -> Hold | None:
        """The same for who does not wait: None if there is no room, or others wait for it."""
        with self._lock:
            if self._waiters or not self._fits(count):
                return None
            self._held += count
        return Hold(count, self)

    def give(self, count: int) -> None:
        """Somebody has closed that many; those who waited longest get them."""
        with self._lock:
            self._held -= count
            if count:
                self._moved = time.monotonic()
            while self._waiters and self._fits(self._waiters[0].count):
                waiter = self._waiters.popleft()
                with suppress(RuntimeError):  # its loop is closed: nobody waits any more
                    waiter.loop.call_soon_threadsafe(_wake, waiter.answer)
                    waiter.is_served = True
                    self._held += waiter.count

    def _fits(self, count: int) -> bool:
        if self._held == 0:
            self._others = self._count_open()
            return True
        limit = self._limit()
        used = self._others + self._held
        if used + count > limit // 2:
            used = max(used, self._count_open())
        return used + count <= limit - min(_SPARE, limit // 8)

    async def _wait(self, count: int, what: str, seconds: float) -> Hold:
        loop = asyncio.get_running_loop()
        waiter = _Waiter(count, loop, loop.create_future())
        with self._lock:
            self._waiters.append(waiter)
            self.give(0)  # somebody may have given back since we asked
        try:
            in_vain = await self._answered(waiter, seconds)
        except BaseException:
            self._give_up(waiter)
            raise
        if in_vain:
            self._give_up(waiter)
            raise Busy(
                f"no room for {what} within {in_vain}: this process may have {self._limit()} open files, and what "
                "is there has them",
                hint="close sandboxes that are no longer needed, raise `ulimit -n`, or do less at once",
            )
        return Hold(count, self)

    def _give_up(self, waiter: _Waiter) -> None:
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self.give(waiter.count if waiter.is_served else 0)  # the next one may want less

    async def _answered(self, waiter: _Waiter, seconds: float) -> str:
        """Wait for the answer. Returns how long it was waited for in vain: all the time that there is, or while nothing
        ran whose end could have been the answer."""
        began = time.monotonic()
        while True:
            now = time.monotonic()
            left = began + seconds - now
            still = QUIET_SECONDS if self._calls else max(self._moved, began) + QUIET_SECONDS - now
            if left <= 0:
                return f"{seconds:g} s"
            if still <= 0:
                return f"{QUIET_SECONDS:g} s in which nothing ran"
            done, _ = await asyncio.wait((waiter.answer,), timeout=min(left, still))
            if done:
                return ""


def _wake(answer: "asyncio.Future[None]") -> None:
    if not answer.done():
        answer.set_result(None)


_room = DescriptorRoom()


def descriptor_room() -> DescriptorRoom:
    """The process's own."""
    return _room


def _begin_anew() -> None:
    global _room
    _room = DescriptorRoom()


os.register_at_fork(after_in_child=_begin_anew)
