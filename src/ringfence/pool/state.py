"""What can be seen of a pool."""

from enum import StrEnum

from ringfence.dataclass import dataclass


class SessionState(StrEnum):
    """Whether a session has a box of the pool."""

    IDLE = "idle"
    """None is bound to it."""
    ACQUIRING = "acquiring"
    BUSY = "busy"


class Phase(StrEnum):
    """A pool's life, in order; there is no way back."""

    NEW = "new"
    OPEN = "open"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool at one moment: where its members are, and what has been since it was started."""

    phase: Phase
    max_instances: int
    idle: int
    starting: int
    """Being made to be kept ready."""
    acquiring: int
    """Being made for a caller, or on the way to one."""
    busy: int
    closing: int
    waiting: int
    """Callers for whom there is no room to make a member."""
    hits: int
    """Calls that found a member ready."""
    misses: int
    """Calls that did not."""
    made: int
    crashed: int
    """Members that were lost before anybody had them."""
    replaced_for_age: int
    failures: int
    """Times that no member could be made."""
    failures_in_a_row: int
    unclosed: int
    """Members whose close failed or was given up; something of them may be left."""
    last_fault: str
    """Of making, asking or closing a member; empty if there was none."""

    @property
    def members(self) -> int:
        """All that count towards the maximum."""
        return self.idle + self.starting + self.acquiring + self.busy + self.closing

    @property
    def hit_rate(self) -> float:
        """The share of calls that found a member ready; 0 before the first call."""
        calls = self.hits + self.misses
        return self.hits / calls if calls else 0.0

    def __str__(self) -> str:
        parts = [f"idle={self.idle}"]
        parts += [
            f"{name}={count}"
            for name, count in (("starting", self.starting), ("acquiring", self.acquiring), ("busy", self.busy))
            if count
        ]
        parts += [f"closing={self.closing}"] if self.closing else []
        text = f"{' '.join(parts)} of {self.max_instances}"
        if self.phase is not Phase.OPEN:
            text = f"{self.phase}, {text}"
        if self.waiting:
            text += f", {self.waiting} waiting"
        if self.hits or self.misses:
            text += f", hits {self.hit_rate:.0%}"
        if self.failures_in_a_row:
            text += f", failed {self.failures_in_a_row} times in a row: {self.last_fault}"
        elif self.last_fault:
            text += f", last fault: {self.last_fault}"
        return text
