"""Closes members in the background, and gives up those that do not end."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Generic

from ringfence.errors import Internal
from ringfence.pool.records import MemberT, PoolSlot, SlotPlace


class Closing(Generic[MemberT]):
    """The members that are being closed. `gone` is called after each; `note` with what went wrong, if anything did."""

    def __init__(self, timeout_seconds: float, gone: Callable[[], None], note: Callable[[BaseException], None]) -> None:
        self.unclosed = 0
        self._timeout_seconds = timeout_seconds
        self._gone = gone
        self._note = note
        self._under_way: dict[PoolSlot[MemberT], asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # those given up too, so that none is collected before its end

    def __len__(self) -> int:
        return len(self._under_way)

    def __repr__(self) -> str:
        return f"<Closing {len(self)}, unclosed {self.unclosed}>"

    def now(self) -> frozenset[PoolSlot[MemberT]]:
        return frozenset(self._under_way)

    def begin(self, slot: PoolSlot[MemberT]) -> None:
        slot.place = SlotPlace.CLOSING
        loop = asyncio.get_running_loop()
        task = loop.create_task(slot.member.close())
        self._tasks.add(task)
        self._under_way[slot] = loop.call_later(self._timeout_seconds, self._give_up, slot, task)
        task.add_done_callback(partial(self._ended, slot))

    def _ended(self, slot: PoolSlot[MemberT], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        fault = Internal("it was cancelled") if task.cancelled() else task.exception()
        if slot in self._under_way:  # else it was given up before, which is noted
            self._remove(slot, fault)

    def _give_up(self, slot: PoolSlot[MemberT], task: asyncio.Task[None]) -> None:
        task.cancel()
        self._remove(slot, Internal(f"not done after {self._timeout_seconds:g} s, so it was given up"))

    def _remove(self, slot: PoolSlot[MemberT], fault: BaseException | None) -> None:
        self._under_way.pop(slot).cancel()
        if fault is not None:
            self.unclosed += 1
            self._note(fault)
        self._gone()
