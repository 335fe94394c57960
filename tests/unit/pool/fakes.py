"""A loop whose time passes by itself, and members that are made, lost and closed as a test says."""

import asyncio
import gc
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Skipping(selectors.SelectSelector):
    """Never waits: where a loop would, its clock is set forward."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everybody waits, and nothing will ever happen")
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run in virtual time; fails if a task's or a future's exception was seen by nobody."""
    unseen: list[str] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: unseen.append(str(context)))
        result = runner.run(main)
        gc.collect()
    assert unseen == []
    return result


class FakeMember:
    def __init__(self, number: int, close_seconds: float = 0.0) -> None:
        self.number = number
        self.alive = True
        self.stands = True
        self.closed = 0
        self.close_seconds = close_seconds
        self.close_fault: Exception | None = None
        self.ignores_cancel = False
        self._tell: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<FakeMember {self.number} alive={self.alive} closed={self.closed}>"

    def probe(self) -> bool:
        return self.stands and self.alive

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def lose(self) -> None:
        if self.alive:
            self.alive = False
            self._tell()

    async def close(self) -> None:
        while True:
            try:
                await asyncio.sleep(self.close_seconds)
                break
            except asyncio.CancelledError:
                if not self.ignores_cancel:
                    raise
        self.alive = False
        self.closed += 1
        if self.close_fault is not None:
            raise self.close_fault


class Maker:
    """Makes members: how long it takes and whether it works can be set at any time."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.seconds = seconds
        self.close_seconds = 0.0
        self.fault: Exception | None = None
        self.calls = 0
        self.made: list[FakeMember] = []
        self.under_way = 0
        self.most_alive = 0
        self.most_under_way = 0

    @property
    def unclosed(self) -> list[FakeMember]:
        return [member for member in self.made if member.closed != 1]

    async def __call__(self) -> FakeMember:
        self.calls += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.most_alive = max(self.most_alive, self.under_way + len(self.unclosed))
        try:
            await asyncio.sleep(self.seconds)
            if self.fault is not None:
                raise self.fault
            self.made.append(member := FakeMember(len(self.made), self.close_seconds))
            return member
        finally:
            self.under_way -= 1
