"""What a process that serves calls of the command line has done before a call came, and leaves for after it.

A child of a keeper may open a box for a call like its last one (`prepare`). When the call comes, all of it is looked at
and decided anew; only where a box would be opened, the one that waits is taken, if it is what a new one would be now.
And a box that a call is done with is closed when its caller has been answered (`call_is_over`).

A process that does neither, such as every other than a keeper's child, has no `Ahead`.
"""

from __future__ import annotations

import asyncio
import warnings
from typing import TYPE_CHECKING, TypeVar, cast

from ringfence.manager.parts import SandboxParts

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ringfence.engines.base import Box, BoxAhead, Engine, MakesAhead
    from ringfence.manager.options import SandboxOptions
    from ringfence.manager.sandbox import Sandbox
    from ringfence.values.grant import Grant

T = TypeVar("T")


class Ahead:
    """One loop for all: a box belongs to the loop in which it was opened."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._runner.get_loop()  # with its descriptors, before any of a caller's is there
        self._waits: BoxAhead | None = None
        self._left: list[Box] = []
        self._taken: Box | None = None
        self._can_be_ahead = False
        self._is_over = False

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self._runner.run(work)

    def prepare(self, options: SandboxOptions) -> bool:
        """Open a box for a call with these options; False if none can be made ahead.

        Raises:
            RingfenceError: as the call would.
        """
        with warnings.catch_warnings(action="ignore"):  # the call itself says them
            assembly = SandboxParts.of(options, once=True).assembly
        if not _makes_ahead(assembly.engine):
            return False
        engine = cast("MakesAhead", assembly.engine)
        self._waits = self.run(engine.open_ahead(assembly.grant))
        return self._waits is not None

    def wait(self, descriptor: int) -> bool:
        """Wait until there is something to read; False if the box was lost first."""
        return self.run(self._wait(descriptor))

    async def _wait(self, descriptor: int) -> bool:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[bool] = loop.create_future()

        def end(*, well: bool) -> None:
            if not ended.done():
                ended.set_result(well)

        if self._waits is not None:
            self._waits.box.when_lost(lambda: end(well=False))
        loop.add_reader(descriptor, lambda: end(well=True))
        try:
            return await ended
        finally:
            loop.remove_reader(descriptor)

    async def open(self, engine: Engine, grant: Grant) -> Box:
        """The box that waits, if the engine would make just that one now; else a new one.

        Raises:
            RingfenceError: as `Engine.open`.
        """
        ahead, self._waits = self._waits, None
        self._can_be_ahead = _makes_ahead(engine) and grant.network is None and grant.shadow is None
        if ahead is None:
            return await engine.open(grant)
        is_same = _makes_ahead(engine) and cast("MakesAhead", engine).can_take(ahead, grant)
        ahead.let_go()
        if is_same:
            self._taken = ahead.box
            return ahead.box
        self._left.append(ahead.box)
        return await engine.open(grant)

    def call_is_over(self, sandbox: Sandbox, *, may_stand: bool) -> None:
        """The call has come to a result.

        Args:
            may_stand: whether nothing of it lives on in its box, so that a box that was made ahead may stand until the
                caller has been answered. Another may have placeholders, which are gone when a call ends.
        """
        self._is_over = True
        if may_stand and self._taken is not None and sandbox.give_away(self._taken):
            self._left.append(self._taken)

    @property
    def is_repeatable(self) -> bool:
        """Whether the call came to a result in a box of a kind that can be made ahead, so that another may follow."""
        return self._is_over and self._can_be_ahead

    def close(self) -> None:
        """End what is left; returns when nothing of it is there any more."""
        if self._waits is not None:
            self._waits.let_go()
            self._left.append(self._waits.box)
            self._waits = None
        left, self._left = self._left, []
        self._taken, self._is_over, self._can_be_ahead = None, False, False
        self.run(_close(left))


def _makes_ahead(engine: Engine) -> bool:
    return hasattr(engine, "open_ahead")


async def _close(boxes: list[Box]) -> None:
    for box in boxes:
        await box.close()


_own: Ahead | None = None


def begin() -> Ahead:
    """From now on this process has one."""
    global _own
    _own = Ahead()
    return _own


def current() -> Ahead | None:
    return _own
