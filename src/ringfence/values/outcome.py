"""How a command ended, what it used, what it said: the result."""

import signal
from dataclasses import dataclass
from typing import Self, assert_never

from ringfence.errors import CommandFailed, CommandNotAllowed, ResourceLimitExceeded, Timeout
from ringfence.values.annotate import annotate
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limit, show_limit
from ringfence.values.rich import CodeError, Rich
from ringfence.values.violation import LEFTOVER_RULE, Severity, Violation

# Exit codes for endings that are not the command's own. 124 is what timeout(1) uses; 122 and 123 are unused by shells.
REFUSED_CODE = 122
LIMIT_CODE = 123
TIMEOUT_CODE = 124
SIGNAL_BASE = 128


@dataclass(frozen=True, slots=True)
class Exited:
    """It ended by itself, with this code."""

    code: int

    def __str__(self) -> str:
        return f"exited with {self.code}"


@dataclass(frozen=True, slots=True)
class Signalled:
    """A signal ended it, that was neither ours nor a limit's."""

    signal: int

    def __str__(self) -> str:
        try:
            return f"ended by {signal.Signals(self.signal).name}"
        except ValueError:
            return f"ended by signal {self.signal}"


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Its time was up, so it was ended."""

    seconds: float

    def __str__(self) -> str:
        return f"timed out: still running after {self.seconds:g} s"


@dataclass(frozen=True, slots=True)
class LimitHit:
    """It used more of something than it may, so it was ended."""

    limit: Limit
    allowed: float

    def __str__(self) -> str:
        return f"hit its {self.limit} limit of {show_limit(self.limit, self.allowed)}"


@dataclass(frozen=True, slots=True)
class Refused:
    """It did not run."""

    why: str
    rule: str
    allow_by: str = ""

    def __str__(self) -> str:
        tail = f"; to allow it: {self.allow_by}" if self.allow_by else ""
        return f"refused: {self.why} [rule: {self.rule}]{tail}"


Ending = Exited | Signalled | TimedOut | LimitHit | Refused


@dataclass(frozen=True, slots=True)
class Usage:
    """What the whole process tree of a command used, and how we know."""

    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    measured_by: str = "nothing"


@dataclass(frozen=True, slots=True)
class SandboxAudit:
    """How the command was wrapped; paths of the host are redacted."""

    wrapper: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of a command's doings from outside while it ran; names as the box has them."""

    written: tuple[str, ...] = ()
    read: tuple[str, ...] | None = None
    """None: reads were not looked at."""
    executed: tuple[str, ...] = ()
    is_complete: bool = True
    """Whether all of it is here; more than fits is not kept."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that a run made or changed."""

    path: str
    """Below the workspace."""
    size_bytes: int
    data: bytes | None = None
    """Its content, if it was asked for and not too large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a command ended, what it said and used, and behind which wall."""

    ending: Ending
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    usage: Usage = Usage()
    violations: tuple[Violation, ...] = ()
    wall: Wall | None = None
    audit: SandboxAudit | None = None
    run_id: str = ""
    results: tuple[Rich, ...] = ()
    """What code showed: the value of its last expression, figures, tables."""
    error: CodeError | None = None
    """The exception that ended it, as the interpreter tells it."""
    state_kept: bool = True
    """False: what earlier calls left in the interpreter, or shell, was lost before this one or by it."""
    observed: Observed | None = None
    """None: nobody looked."""
    files: tuple[OutputFile, ...] = ()
    """What it wrote into the workspace, where that is collected."""

    @property
    def stdout(self) -> str:
        """Output as text; bytes that are no UTF-8 become U+FFFD here and are whole in `stdout_bytes`."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def annotated_stderr(self) -> str:
        """stderr as text, and after it, for an agent, what was refused, by which rule, and what would allow it."""
        return annotate(self.stderr, self.violations)

    @property
    def exit_code(self) -> int:
        """The command's own code, or the conventional one for an ending that is not its own."""
        match self.ending:
            case Exited(code):
                return code
            case Signalled(number):
                return SIGNAL_BASE + number
            case TimedOut():
                return TIMEOUT_CODE
            case LimitHit():
                return LIMIT_CODE
            case Refused():
                return REFUSED_CODE
            case _:
                assert_never(self.ending)

    @property
    def ok(self) -> bool:
        return self.ending == Exited(0)

    @property
    def blocked(self) -> bool:
        """Whether the policy, and not the command, is why it did not do its work."""
        return isinstance(self.ending, Refused) or any(map(_is_refusal, self.violations))

    @property
    def blocked_reason(self) -> str | None:
        """The refusal, or the gravest of the violations."""
        if isinstance(self.ending, Refused):
            return str(self.ending)
        gravest = max(filter(_is_refusal, self.violations), key=lambda violation: violation.severity.rank, default=None)
        return str(gravest) if gravest is not None else None

    def check(self) -> Self:
        """Return the result if the command exited with 0, else raise what happened."""
        match self.ending:
            case Exited(0):
                return self
            case Exited() | Signalled():
                tail = self.stderr.strip().splitlines()[-1:] or [""]
                raise CommandFailed(f"the command {self.ending}", self.exit_code, hint=tail[0])
            case TimedOut(seconds):
                raise Timeout(seconds)
            case LimitHit(limit, allowed):
                raise ResourceLimitExceeded(limit, allowed)
            case Refused(why, rule, allow_by):
                raise CommandNotAllowed(why, rule=rule, hint=allow_by)
            case _:
                assert_never(self.ending)


def _is_refusal(violation: Violation) -> bool:
    """What was found afterwards stopped nothing, however grave it is."""
    return violation.severity is not Severity.LOW and not violation.rule.startswith(LEFTOVER_RULE)
