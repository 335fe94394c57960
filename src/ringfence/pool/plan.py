"""Decides what a pool should do next. Pure: times are given, nothing is done here.

Refilling is paced, so that it never takes the machine from those who work: so many starts at once, so many per second,
and after failures a pause that doubles. Members made for a caller who waits are not planned here; the pool makes them
at once.

A member is renewed before it is too old: from `RENEW_SHARE` of its age on it no longer counts as kept ready, so that
its replacement is made while it can still be handed out; it goes when the replacement stands, or when its time is over.
"""

import math
from dataclasses import fields
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument

RENEW_SHARE: Final = 0.9
"""Of the age limit. Refilling is a matter of seconds, the limit one of minutes: a tenth of it is enough."""
FIRST_PAUSE_SECONDS: Final = 0.1
"""After one failure; the second try comes before a person has noticed, for faults that pass by themselves."""
LONGEST_PAUSE_SECONDS: Final = 30.0
"""A machine that was put right is used again within this time."""
SHORTEST_WAIT_SECONDS: Final = 0.001
"""Between two looks that nothing asked for: a rest that rounding leaves must not become a busy loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """How many members are kept, for how long, and how fast they are made.

    Raises:
        InvalidArgument: a value that cannot be.
    """

    min_instances: int = 2
    """Idle members kept ready."""
    max_instances: int = 10
    """Members in all: idle, starting, acquiring, busy, and those that are not closed yet."""
    max_age_seconds: float = 600
    """An idle member older than this is replaced."""
    starts_per_second: float = 20
    """How fast refilling begins starts; what a caller waits for is begun at once."""
    starts_at_once: int = 1
    """How many starts refilling has under way."""
    acquire_timeout_seconds: float = 300
    """How long a caller waits for a member; longer than a command may take unless somebody says otherwise (120 s)."""
    waiting_max: int | None = None
    """Callers who may wait while all members are taken; the next one is refused at once. None: all who come."""
    close_timeout_seconds: float = 30
    """A member that has not closed by then is given up, with a note, and no longer counted."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "waiting_max":
                continue
            _check(field.name, value, whole=field.type is not float, zero=field.name in _MAY_BE_ZERO)
        if self.min_instances > self.max_instances:
            raise InvalidArgument(
                f"min_instances is {self.min_instances}, more than max_instances, {self.max_instances}",
                hint="raise max_instances",
            )


_MAY_BE_ZERO = frozenset({"min_instances", "waiting_max"})  # nothing kept ready; nobody waits


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """What a plan is made from. Times are on the pool's clock."""

    born: tuple[float, ...]
    """When each idle member was made, in the order in which they will be handed out."""
    refilling: int = 0
    """Starts under way that no caller waits for."""
    members: int
    """All that count towards the maximum."""
    refilled_at: float = -math.inf
    """When refilling last began a start."""
    failures_in_a_row: int = 0
    failed_at: float = -math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """What to do now, and when to look again if nothing happens before."""

    start: int = 0
    retire: tuple[int, ...] = ()
    """Positions in the snapshot's `born`."""
    wait_seconds: float = math.inf


def plan(snapshot: PoolSnapshot, config: PoolConfig, now: float) -> PoolPlan:
    """What keeps the pool as it is configured, starting from how it is."""
    renew_seconds = config.max_age_seconds * RENEW_SHARE
    ages = [now - born for born in snapshot.born]
    expired = [position for position, age in enumerate(ages) if age >= config.max_age_seconds]
    ageing = [position for position, age in enumerate(ages) if renew_seconds <= age < config.max_age_seconds]
    ageing.sort(key=lambda position: snapshot.born[position])
    fresh = len(ages) - len(expired) - len(ageing)
    spare = len(ages) - len(expired) - config.min_instances
    retire = (*expired, *ageing[: max(spare, 0)])

    wanted = min(
        config.min_instances - fresh - snapshot.refilling,
        config.starts_at_once - snapshot.refilling,
        config.max_instances - snapshot.members,
    )
    interval_seconds = 1 / config.starts_per_second
    may_start_at = max(
        snapshot.refilled_at + interval_seconds, snapshot.failed_at + pause_seconds(snapshot.failures_in_a_row)
    )
    start = 1 if wanted > 0 and now >= may_start_at else 0

    look_again = [
        (renew_seconds if age < renew_seconds else config.max_age_seconds) - age
        for position, age in enumerate(ages)
        if position not in retire
    ]
    if wanted > start:
        look_again.append(interval_seconds if start else may_start_at - now)
    wait_seconds = max(min(look_again, default=math.inf), SHORTEST_WAIT_SECONDS)
    return PoolPlan(start=start, retire=retire, wait_seconds=wait_seconds)


def pause_seconds(failures_in_a_row: int) -> float:
    """How long refilling rests after the last of so many failures."""
    if failures_in_a_row == 0:
        return 0.0
    doublings = min(failures_in_a_row - 1, 16)  # far beyond the longest pause, far below what a float holds
    return min(FIRST_PAUSE_SECONDS * 2.0**doublings, LONGEST_PAUSE_SECONDS)


def _check(name: str, value: object, *, whole: bool, zero: bool) -> None:
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise InvalidArgument(f"{name} is {value!r}", hint=f"give a {'whole ' if whole else ''}number")
    if not (value >= 0 if zero else value > 0):  # so that a NaN is refused too
        raise InvalidArgument(f"{name} is {value!r}", hint=f"give {'zero or more' if zero else 'more than zero'}")
