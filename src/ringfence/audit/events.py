"""What happens, as values, for whoever wants to be told: metrics, traces, one's own systems.

An observer is called with each event, at once and from the event loop that runs the sandbox. It must be quick and must
not wait. What it raises is logged and goes no further: no execution fails because somebody watches it.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, assert_never

from ringfence.dataclass import dataclass
from ringfence.values.outcome import Exited, LimitHit, Refused, Result, Signalled, TimedOut, Usage


class Status(StrEnum):
    """How an execution went, in one word of a closed set."""

    SUCCESS = "success"
    FAILED = "failed"
    """It exited with another code than 0."""
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    LIMIT_HIT = "limit_hit"
    REFUSED = "refused"
    FAULT = "fault"
    """It could not be run: the request, the configuration or the machine is at fault."""
    ABANDONED = "abandoned"
    """Whoever asked for it went away."""


class Outcome(StrEnum):
    """What came of asking a person."""

    GRANTED = "granted"
    REMEMBERED = "remembered"
    """Granted by an earlier answer of the session; nobody was asked."""
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    FAILED = "failed"
    """Nobody could be asked."""
    ABANDONED = "abandoned"
    """Whoever wanted it run went away before there was an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionEnded:
    """One execution, run or refused or failed."""

    run_id: str
    """As in the journal."""
    session: str
    sandbox_id: str
    tool: str
    language: str
    """A language of the registry; `bash` for a command line, `program` for a program without a shell."""
    verdict: str
    rule: str
    started_at: float
    """Seconds since the epoch."""
    seconds: float
    """From the request to the result, without the time that a person took to answer."""
    result: Result | None
    """None if it could not be run."""
    fault: str = ""
    """The code of the error then; `abandoned` if it was cancelled."""

    @property
    def status(self) -> Status:
        if self.result is None:
            return Status.ABANDONED if self.fault == Status.ABANDONED else Status.FAULT
        match self.result.ending:
            case Exited(code):
                return Status.SUCCESS if code == 0 else Status.FAILED
            case Signalled():
                return Status.SIGNALLED
            case TimedOut():
                return Status.TIMED_OUT
            case LimitHit():
                return Status.LIMIT_HIT
            case Refused():
                return Status.REFUSED
            case _:
                assert_never(self.result.ending)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAsked:
    """A person is being asked; an `ApprovalEnded` of the same run follows."""

    run_id: str
    tool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalEnded:
    run_id: str
    tool: str
    outcome: Outcome
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOpened:
    """A sandbox has its box. `usage` may be asked from any thread until it is closed."""

    sandbox_id: str
    session: str
    usage: Callable[[], Usage]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxClosed:
    sandbox_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxMade:
    """A pool has made a box ahead of time."""

    seconds: float


class PoolCounts(Protocol):
    """Where a pool's boxes are, and what has been since it was started (`PoolState`)."""

    @property
    def idle(self) -> int: ...
    @property
    def starting(self) -> int: ...
    @property
    def acquiring(self) -> int: ...
    @property
    def busy(self) -> int: ...
    @property
    def closing(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def max_instances(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def misses(self) -> int: ...
    @property
    def made(self) -> int: ...
    @property
    def crashed(self) -> int: ...
    @property
    def replaced_for_age(self) -> int: ...
    @property
    def failures(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSeen:
    """How a pool is, told once a second while it lives. The last one has no counts: the pool is gone."""

    pool_id: str
    counts: tuple[PoolCounts, ...]
    """One for each kind of box that it keeps."""


Event = ExecutionEnded | ApprovalAsked | ApprovalEnded | SandboxOpened | SandboxClosed | BoxMade | PoolSeen


class Observer(Protocol):
    """Whoever is told what happens: a function of one event, such as `print`. See `ringfence.audit.events`."""

    def __call__(self, event: Event, /) -> object: ...
