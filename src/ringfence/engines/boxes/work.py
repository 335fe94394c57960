"""One piece of work that a box does for a caller: a command from start to end, or one call of an interpreter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass, field, replace
from ringfence.engines.streams import Capture, Reader
from ringfence.values.limits import Limit, Limits
from ringfence.values.request import Request, Stream

if TYPE_CHECKING:
    from ringfence.engines.boxes.context import Cell, Context
    from ringfence.engines.boxes.control import Control, Job
    from ringfence.engines.boxes.protocol import Reply
    from ringfence.engines.boxes.standby import WaitingShell
    from ringfence.engines.boxes.watch import Watch


def limits_of(request: Request, limits: Limits) -> Limits:
    """What holds for one request: it may ask for more time, where nobody has said how much there is, and for less
    output to be kept than the grant allows."""
    if request.timeout is not None:
        limits = limits.raised_to(request.timeout)
    if request.output_limit is None or request.output_limit >= limits.output_bytes:
        return limits
    return replace(limits, output_bytes=request.output_limit)


@dataclass(slots=True, eq=False)
class Work:
    job: Job
    request: Request
    limits: Limits
    """The grant's; after `__post_init__`, as this request may use them."""
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
    lost_for: Limit | None = None
    """Why we had ended the one before it, between two calls."""
    watch: Watch | None = None
    """Who holds it to its limits, if it takes longer than a moment."""
    met: int = 0
    """How many others have run beside it so far."""
    is_shared: bool = False
    """Whether it was stopped for what it and others had used together."""
    kills: int = 0
    """How often the kernel had killed for memory before it."""
    began: float = 0.0
    readers: list[Reader] = field(default_factory=list)
    captures: list[Capture] = field(default_factory=list)
    """What was said on each stream."""

    def __post_init__(self) -> None:
        self.limits = limits_of(self.request, self.limits)

    @property
    def timeout(self) -> float:
        """Wall-clock seconds that it may take."""
        wall = self.limits.wall_seconds
        return min(self.request.timeout or wall, wall)

    @property
    def over(self) -> asyncio.Future[Reply] | asyncio.Future[int | None]:
        return self.job.over if self.cell is None else self.cell.over

    def listen(
        self,
        outputs: tuple[int, int],
        stop: Callable[[Work, Limit], None],
        fail: Callable[[Work, BaseException], None],
    ) -> None:
        """Read the two streams, at the latest when it is over; as they come, from `hear_out` on. Takes the descriptors
        over."""
        for stream, descriptor in zip(Stream, outputs, strict=True):
            capture = Capture(self.limits.output_bytes, self.request.overflow)
            over, fault = partial(stop, self, Limit.OUTPUT), partial(fail, self)
            self.captures.append(capture)
            self.readers.append(Reader(descriptor, stream, capture, self.request.on_output, over, fault))

    def hear_out(self) -> None:
        """It takes longer than a moment: have its streams read as they come."""
        for reader in self.readers:
            reader.listen()

    def listen_to(
        self,
        context: Context,
        stop: Callable[[Work, Limit], None],
        fail: Callable[[Work, BaseException], None],
    ) -> None:
        """The same for an interpreter, whose pipes stay its own."""
        over, fault = partial(stop, self, Limit.OUTPUT), partial(fail, self)
        for reader in context.readers:
            capture = Capture(self.limits.output_bytes, self.request.overflow)
            self.captures.append(capture)
            reader.drain()  # what threads of an earlier call have said since
            reader.point(capture, self.request.on_output, over, fault)

    def hang_up(self) -> None:
        """Take what is still in the pipes, and let them go, unless what it has left running has them."""
        has_left = self.job.runs and self.cell is None
        for reader in self.readers:
            reader.drain()
            if not has_left:
                reader.close()
        if self.context is not None:
            self.context.hush()

    def abandon(self, control: Control) -> None:
        """Nobody waits for it any more: what it may have left running is ended, too."""
        if self.cell is None and self.job.runs:
            control.kill(self.job)
            for reader in self.readers:
                reader.close()
