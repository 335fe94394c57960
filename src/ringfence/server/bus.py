"""What happens in a tenant, as it happens, for whoever looks on: questions, executions and their output, sessions,
violations.

Each listener has a bounded queue. Who reads too slowly loses events, is told how many, and then asks for what there is;
questions are kept in any case until they are answered (`questions.py`), so that none is lost by it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ringfence.dataclass import dataclass, field
from ringfence.server.streaming import output_event

if TYPE_CHECKING:
    from ringfence.server.executions import Piece

_MOST_WAITING: Final = 1000
_OUTPUT_BYTES: Final = 1024 * 1024
"""Output that waits for one listener; more is dropped, and the listener is told how much."""
OUTPUT: Final = "execution.output"


@dataclass(frozen=True, slots=True)
class Happening:
    """One event: such as `question.asked`, with what there is to know about it."""

    kind: str
    data: Any
    output_bytes: int = 0


@dataclass(slots=True, eq=False)
class _Listener:
    waiting: deque[Happening] = field(default_factory=deque)
    lost: int = 0
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    output_bytes: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Bytes of output, by execution, that this listener was too slow for."""

    def take(self, happening: Happening) -> None:
        if len(self.waiting) >= _MOST_WAITING:
            self.output_bytes -= self.waiting.popleft().output_bytes
            self.lost += 1
        self.waiting.append(happening)
        self.output_bytes += happening.output_bytes
        self.wake.set()

    def take_output(self, ident: str, happening: Happening) -> None:
        size = happening.output_bytes
        if self.output_bytes + size > _OUTPUT_BYTES or len(self.waiting) >= _MOST_WAITING // 2:
            self.dropped[ident] = self.dropped.get(ident, 0) + size
            return
        if dropped := self.dropped.pop(ident, 0):
            self.take(Happening(OUTPUT, {"id": ident, "dropped_bytes": dropped}))
        self.take(happening)

    def next(self) -> Happening:
        happening = self.waiting.popleft()
        self.output_bytes -= happening.output_bytes
        return happening


class Bus:
    def __init__(self) -> None:
        self._listeners: dict[str, set[_Listener]] = {}
        self._is_closed = False

    def close(self) -> None:
        """The server ends: so does whoever listens."""
        self._is_closed = True
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.wake.set()

    def tell(self, tenant: str, kind: str, make: Callable[[], Any]) -> None:
        """From the service's loop.

        Args:
            make: what there is to know about it; called only if somebody listens.
        """
        listeners = self._listeners.get(tenant)
        if listeners:
            data = make()
            for listener in listeners:
                listener.take(Happening(kind, data))

    def tell_output(self, tenant: str, ident: str, piece: Piece) -> None:
        """What an execution says, to those who look on just now."""
        listeners = self._listeners.get(tenant)
        if listeners:
            data = {"id": ident, **msgspec.to_builtins(output_event(piece))}
            for listener in listeners:
                listener.take_output(ident, Happening(OUTPUT, data, len(piece.data)))

    async def listen(self, tenant: str) -> AsyncIterator[Happening]:
        """From now on, until the server ends."""
        listener = _Listener()
        self._listeners.setdefault(tenant, set()).add(listener)
        try:
            while True:
                await listener.wake.wait()
                listener.wake.clear()
                if listener.lost:
                    lost, listener.lost = listener.lost, 0
                    yield Happening("gap", {"lost": lost})
                while listener.waiting:
                    yield listener.next()
                if self._is_closed:
                    return
        finally:
            self._listeners[tenant].discard(listener)

    def listeners(self, tenant: str) -> int:
        return len(self._listeners.get(tenant, ()))
