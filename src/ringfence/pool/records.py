"""What a pool writes down: its members, the starts under way, the callers who wait."""

import asyncio
from enum import Enum, auto
from typing import Generic, TypeVar

from ringfence.dataclass import dataclass, field
from ringfence.pool.base import PoolMember

MemberT = TypeVar("MemberT", bound=PoolMember)


class SlotPlace(Enum):
    """Where a member is."""

    MADE = auto()
    IDLE = auto()
    HANDED = auto()
    """Given to a caller who has not woken up to take it, and may still go away."""
    BUSY = auto()
    CLOSING = auto()


@dataclass(slots=True, eq=False)
class PoolSlot(Generic[MemberT]):
    """One member that has been made."""

    member: MemberT
    born: float
    expires_at: float
    place: SlotPlace = SlotPlace.MADE
    lost: bool = False


@dataclass(slots=True, eq=False)
class Start(Generic[MemberT]):
    """One member that is being made."""

    making: asyncio.Future[MemberT]
    waiter: "Waiter[MemberT] | None"
    """Who is told if it fails; nobody, if it is made to be kept ready."""
    fault: BaseException | None = None
    given_up: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class Waiter(Generic[MemberT]):
    """A caller's place in the queue."""

    answer: asyncio.Future[PoolSlot[MemberT]]
    start: Start[MemberT] | None = None
    late: asyncio.TimerHandle | None = field(default=None, repr=False)


def serve_by(start: Start[MemberT], waiter: Waiter[MemberT]) -> None:
    """Let a start serve this waiter, no matter for whom it was begun: that one gets the waiter's own start instead."""
    own, other = waiter.start, start.waiter
    if own is not start:
        if own is not None:
            own.waiter = other
        if other is not None:
            other.start = own
    waiter.start = start.waiter = None
