"""One execution as the service keeps it: what it says, to whoever listens, and how it ends.

Output goes into a window of bounded size. A listener who *holds* (the one who started it and reads its stream) makes
the command wait when the window is full of what it has not read; all others (a console that looks on) are told how
much they missed. Without anybody who holds, nothing waits: the oldest goes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Literal

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument
from ringfence.server import wire
from ringfence.server.problems import problem_of
from ringfence.values.request import Stream

if TYPE_CHECKING:
    from ringfence.manager.sandbox import Process
    from ringfence.values.outcome import Result

WINDOW_BYTES = 1024 * 1024
"""What is kept for listeners who come late or read slowly; the result keeps its own, up to the output limit."""
STALL_SECONDS = 60.0
"""How long a listener who holds may read nothing, before it counts as gone."""

Kind = Literal["command", "argv", "code"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Output, as it came. `end` is how much the execution had said after it, in bytes, on both streams."""

    end: int
    stream: Stream
    data: bytes


@dataclass(frozen=True, slots=True)
class Gap:
    """So much this listener was too late for."""

    end: int
    dropped_bytes: int


@dataclass(frozen=True, slots=True)
class Ended:
    end: int


Event = Piece | Gap | Ended


class Execution:
    """
    Args:
        session_id: None for one without a session.
    """

    def __init__(self, *, tenant: str, session_id: str | None, kind: Kind, shown: str, is_background: bool) -> None:
        self.id = f"x-{os.urandom(12).hex()}"
        self.tenant = tenant
        self.session_id = session_id
        self.kind = kind
        self.shown = shown
        self.is_background = is_background
        self.started_at = time.time()
        self.ended_at: float | None = None
        self.process: Process | None = None
        self.has_terminal = False
        self.is_typed_by_person = False
        """Whether what is written to it is not judged, since only a person writes."""
        self.result: Result | None = None
        self.fault: BaseException | None = None
        self._window: deque[Piece] = deque()
        self._begin = 0
        """How much was said before the window; what is in it begins there."""
        self._said = 0
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._holders: set[_Place] = set()
        self._room: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self.on_piece: Callable[[Piece], None] | None = None
        """Told each piece of output, whoever listens besides."""

    # --- running ------------------------------------------------------------------------------------------------------

    def run(self, work: Callable[[], Awaitable[Result]]) -> None:
        """Begin; `wait` waits for the end, `cancel` brings it about."""
        self._task = asyncio.get_running_loop().create_task(self._run(work))

    async def _run(self, work: Callable[[], Awaitable[Result]]) -> None:
        try:
            self.result = await work()
        except asyncio.CancelledError as fault:
            self.fault = fault
        except Exception as fault:  # the caller is told, by `answer`
            self.fault = fault
        finally:
            self.ended_at = time.time()
            self._let_go()
            self._wake()

    def when_ended(self, tell: Callable[[], None]) -> None:
        """Have somebody told, once, when it has ended."""
        assert self._task is not None, "it runs"
        self._task.add_done_callback(lambda _: tell())

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    async def wait(self) -> None:
        """Until it has ended. A waiter who is cancelled leaves it running."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def cancel(self) -> None:
        """End it, and wait until nothing of it runs."""
        if self.process is not None and self.process.alive:
            self.process.kill()
            await self.wait()
        elif self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    @property
    def takes_input(self) -> bool:
        return self.process is not None and self.process.alive

    def running_process(self) -> Process:
        """
        Raises:
            InvalidArgument: it takes neither input nor signals, or has ended.
        """
        if self.process is None or not self.process.alive:
            raise InvalidArgument(
                f"the execution {self.id!r} takes no input and no signals",
                hint="start it with interactive, terminal or background; and while it runs",
            )
        return self.process

    # --- output -------------------------------------------------------------------------------------------------------

    def hear(self, stream: Stream, data: bytes) -> asyncio.Future[None] | None:
        """Take a piece of output; a future if whoever writes has to wait."""
        self._said += len(data)
        piece = Piece(self._said, stream, data)
        self._window.append(piece)
        if self.on_piece is not None:
            self.on_piece(piece)
        self._forget_down_to(WINDOW_BYTES)
        self._wake()
        if self._holders and self._said - self._begin > WINDOW_BYTES:
            if self._room is None or self._room.done():
                self._room = asyncio.get_running_loop().create_future()
            return self._room
        return None

    async def events(self, after: int = 0, *, holds: bool = False) -> AsyncGenerator[Event, None]:
        """What it said from there on, as it comes, and at last that it has ended; see `batches`."""
        async with aclosing(self.batches(after, holds=holds)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self, after: int = 0, *, holds: bool = False) -> AsyncGenerator[tuple[Event, ...], None]:
        """The same, all that there is at each time: whoever sends it on does so at once.

        Args:
            after: the `end` of the last piece that the listener has.
            holds: whether the command waits for this listener.
        """
        place = _Place(min(max(0, after), self._said))
        if holds:
            self._holders.add(place)
        try:
            while True:
                changed = self._changed
                batch = self._since(place.end)
                if batch:
                    place.end = batch[-1].end  # what comes while it is sent may take its place
                    self._forget_down_to(WINDOW_BYTES // 2)
                    yield batch
                    continue
                if not self.is_running:
                    yield (Ended(self._said),)
                    return
                if changed is self._changed:
                    await asyncio.wait((changed,))
        finally:
            self._holders.discard(place)
            self._forget_down_to(WINDOW_BYTES)

    def _since(self, end: int) -> tuple[Event, ...]:
        """What was said from there on, as far as it is still here."""
        found: list[Event] = []
        if end < self._begin:
            found.append(Gap(self._begin, self._begin - end))
            end = self._begin
        for piece in self._window:
            if piece.end > end:
                unread = piece.data[len(piece.data) - (piece.end - end) :]
                found.append(piece if len(unread) == len(piece.data) else Piece(piece.end, piece.stream, unread))
                end = piece.end
        return tuple(found)

    def _forget_down_to(self, size: int) -> None:
        """Forget the oldest of more than so many bytes, as far as nobody who holds needs it; then let the command write
        on, if there is room."""
        needed = min((place.end for place in self._holders), default=self._said)
        while self._said - self._begin > size and len(self._window) > 1 and self._window[0].end <= needed:
            self._begin = self._window.popleft().end
        if not self._holders or self._said - self._begin <= WINDOW_BYTES // 2 or needed == self._said:
            self._let_go()

    def _let_go(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        if not changed.done():
            changed.set_result(None)

    # --- as it is told ------------------------------------------------------------------------------------------------

    def answer(self, *, with_output: bool = True) -> wire.Execution:
        result = None
        if self.result is not None:
            result = self.result.to_dict()
            if not with_output:
                for name in ("stdout", "stderr", "stdout_base64", "stderr_base64", "results", "files", "observed"):
                    result.pop(name, None)
        problem = None
        if isinstance(self.fault, asyncio.CancelledError):
            problem = wire.Problem(
                status=499, code="ended", title="it was ended", hint="by its caller, or with its session"
            )
        elif self.fault is not None:
            problem = problem_of(self.fault)
        return wire.Execution(
            id=self.id,
            session_id=self.session_id,
            state="running" if self.is_running else "ended",
            kind=self.kind,
            shown=self.shown,
            started_at=self.started_at,
            ended_at=self.ended_at,
            is_background=self.is_background,
            has_terminal=self.has_terminal,
            takes_input=self.takes_input,
            result=result,
            problem=problem,
        )


class _Place:
    """How far a listener has read."""

    __slots__ = ("end",)

    def __init__(self, end: int) -> None:
        self.end = end


async def finish_all(executions: list[Execution]) -> None:
    """End them, side by side."""
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*(execution.cancel() for execution in executions))
