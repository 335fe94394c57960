"""One piece of work that a box does for a caller: a command from start to end, or one call of an interpreter."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ringfence.engines.boxes.context import Cell, Context
from ringfence.engines.boxes.control import Job
from ringfence.engines.boxes.protocol import Reply
from ringfence.engines.boxes.standby import WaitingShell
from ringfence.engines.streams import Capture, Reader
from ringfence.values.limits import Limit
from ringfence.values.request import Request, Stream


@dataclass(slots=True, eq=False)
class Work:
    job: Job
    shell: WaitingShell | None = None
    """The shell that had waited for it."""
    context: Context | None = None
    cell: Cell | None = None
    killed_for: Limit | None = None
    """Why we stopped it; the first reason counts."""
    fault: BaseException | None = None
    """What the caller's own callback or stream raised."""
    state_was_lost: bool = False
    """Whether the interpreter had to be started anew for it."""
    readers: list[Reader] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)
    """What was said on each stream."""

    @property
    def over(self) -> "asyncio.Future[Reply] | asyncio.Future[int | None]":
        return self.job.ended if self.cell is None else self.cell.over

    def listen(
        self,
        outputs: tuple[int, int],
        request: Request,
        limit_bytes: int,
        stop: Callable[["Work", Limit], None],
        fail: Callable[["Work", BaseException], None],
    ) -> None:
        """Read the two streams, at the latest when it is over; as they come, from `hear_out` on. Takes the descriptors
        over."""
        for stream, descriptor in zip(Stream, outputs, strict=True):
            capture = Capture(limit_bytes, request.overflow)
            over, fault = partial(stop, self, Limit.OUTPUT), partial(fail, self)
            self.captures.append(capture)
            self.readers.append(Reader(descriptor, stream, capture, request.on_output, over, fault))

    def hear_out(self) -> None:
        """It takes longer than a moment: have its streams read as they come."""
        for reader in self.readers:
            reader.listen()

    def listen_to(
        self,
        context: Context,
        request: Request,
        limit_bytes: int,
        stop: Callable[["Work", Limit], None],
        fail: Callable[["Work", BaseException], None],
    ) -> None:
        """The same for an interpreter, whose pipes stay its own."""
        over, fault = partial(stop, self, Limit.OUTPUT), partial(fail, self)
        for reader in context.readers:
            capture = Capture(limit_bytes, request.overflow)
            self.captures.append(capture)
            reader.drain()  # what threads of an earlier call have said since
            reader.point(capture, request.on_output, over, fault)

    def hang_up(self) -> None:
        """Take what is still in the pipes, and let them go."""
        for reader in self.readers:
            reader.drain()
            reader.close()
        if self.context is not None:
            self.context.hush()
