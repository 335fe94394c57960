"""How a command ended, what it used, what it said: the result."""

import json
import signal
from collections.abc import Iterable, Mapping
from typing import Any, Self, assert_never

from ringfence.dataclass import dataclass
from ringfence.errors import (
    CommandFailed,
    CommandNotAllowed,
    NetworkAccessDenied,
    PathAccessDenied,
    ResourceLimitExceeded,
    RingfenceError,
    Timeout,
)
from ringfence.values import plain, showing
from ringfence.values.annotate import annotate
from ringfence.values.display import CodeError, DisplayData
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limit, show_limit
from ringfence.values.sandbox_type import SandboxType
from ringfence.values.violation import LEFTOVER_RULE, Severity, Violation, ViolationType

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
    capped_by: str = ""
    """What allows no more; empty if a longer timeout would have helped."""

    def __str__(self) -> str:
        most = f", the most that {self.capped_by} allows" if self.capped_by else ""
        return f"timed out: still running after {self.seconds:g} s{most}"


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
class FileState:
    """Which file it is, and since when it is as it is. Nobody in a box can set `ctime_ns` back."""

    device: int
    inode: int
    mode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Touched:
    """A name that a call which changes something was about, whatever came of it."""

    path: str
    before: FileState | None
    """As it was when the first such call was made; None if nothing had that name."""
    operations: frozenset[str] = frozenset()
    """What the calls were: `write`, `create`, `delete`, `rename`, `link`, `chmod`, `chown`."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of a command's doings from outside while it ran; names as the box has them."""

    written: tuple[str, ...] = ()
    """What was made, changed or removed: attempts that failed are not here."""
    touched: tuple[Touched, ...] = ()
    """What it may have made, changed or removed, with how it was before: for whoever compares."""
    read: tuple[str, ...] | None = None
    """None: reads were not looked at."""
    executed: tuple[str, ...] = ()
    is_complete: bool = True
    """Whether all of it is here. More than fits is not kept, and some paths cannot be found out from outside."""


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that a run made or changed."""

    path: str
    """Below the workspace."""
    size_bytes: int
    data: bytes | None = None
    """Its content, if it was asked for and not too large."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """How a command, or a piece of code, ended, what it said and used, and behind which wall.

    Whatever ran it, and wherever it ran, the result is of this type.
    """

    ending: Ending
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    usage: Usage = Usage()
    violations: tuple[Violation, ...] = ()
    wall: Wall | None = None
    audit: SandboxAudit | None = None
    inner_audits: tuple[SandboxAudit, ...] = ()
    """What was wrapped in it, from the outside in, where a runner stands behind the wall."""
    run_id: str = ""
    results: tuple[DisplayData, ...] = ()
    """What code showed: the value of its last expression, figures, tables."""
    exception: CodeError | None = None
    """The exception that ended it, as the interpreter tells it."""
    state_kept: bool = True
    """False: what earlier calls left in the interpreter, or shell, was lost before this one or by it."""
    observed: Observed | None = None
    """None: nobody looked."""
    files: tuple[OutputFile, ...] = ()
    """What it wrote into the workspace, where that is collected."""
    overlapped: int = 0
    """How many other calls and background processes of the same box ran beside it. If any did, what the box is held to
    as a whole (memory, disk) was theirs too, and `usage` counts its own processes only."""
    sandbox_type: SandboxType | None = None
    """Which kind of engine ran it; None if none did."""
    session_id: str | None = None
    """The session of a `SandboxManager` that it was part of."""

    @property
    def stdout(self) -> str:
        """Output as text; bytes that are no UTF-8 become U+FFFD here and are whole in `stdout_bytes`."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def sandbox_audits(self) -> tuple[SandboxAudit, ...]:
        """Every wrapper that it ran in, from the outside in; none if nothing ran."""
        return () if self.audit is None else (self.audit, *self.inner_audits)

    @property
    def annotated_stderr(self) -> str:
        """stderr as text, and after it, for an agent, what was refused, by which rule, and what would allow it."""
        return annotate(self.stderr, self.violations)

    @property
    def error(self) -> str | None:
        """Why it did not succeed, in one line; None if it did."""
        if self.ok:
            return None
        return str(self.exception if self.exception is not None else self.ending)

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
        """Whether it ran and exited with 0."""
        return self.ending == Exited(0)

    @property
    def success(self) -> bool:
        """The same as `ok`."""
        return self.ok

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
            case TimedOut(seconds, capped_by):
                raise Timeout(seconds, hint=f"raise {capped_by}") if capped_by else Timeout(seconds)
            case LimitHit(limit, allowed):
                raise ResourceLimitExceeded(
                    limit, allowed, current=self._used_of(limit), shown=show_limit(limit, allowed)
                )
            case Refused():
                raise self._refusal(self.ending)
            case _:
                assert_never(self.ending)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, ready for JSON; what is bytes and not UTF-8 stands in base64 beside its text."""
        return plain.plain(self)

    def to_json(self, *, indent: int | None = None) -> str:
        """The same as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """The result that `to_dict` was called on.

        Raises:
            InvalidArgument: it is no such object; says what is missing or wrong.
        """
        return cls(**plain.parts(given, _KINDS))

    def __repr__(self) -> str:
        return showing.line(self)

    def _repr_html_(self) -> str:
        return showing.page(self)

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None
    ) -> dict[str, str]:
        """What a notebook shows, in each form that it may choose from."""
        forms = {"text/plain": showing.line(self), "text/html": showing.page(self)}
        wanted = set(forms) if include is None else set(include)
        return {mime: form for mime, form in forms.items() if mime in wanted - set(exclude or ())}

    def _used_of(self, limit: Limit) -> float | None:
        match limit:
            case Limit.MEMORY:
                return self.usage.peak_memory_bytes or None
            case Limit.CPU:
                return self.usage.cpu_seconds or None
            case Limit.WALL:
                return self.usage.wall_seconds or None
            case Limit.OUTPUT:
                return max(len(self.stdout_bytes) + self.stdout_dropped, len(self.stderr_bytes) + self.stderr_dropped)
            case _:
                return None  # not counted beyond the limit, where the kernel holds it

    def _refusal(self, refused: Refused) -> RingfenceError:
        """The error of the family that says what was refused: a host, a path, or else the command."""
        about = self.violations[0] if self.violations else None
        kind, target = (about.kind, about.target) if about is not None else (ViolationType.COMMAND, "")
        options = {"rule": refused.rule, "hint": refused.allow_by}
        match kind:
            case ViolationType.NETWORK_VIOLATION if target:
                return NetworkAccessDenied(target, refused.why, **options)
            case ViolationType.PATH_ACCESS_DENIED | ViolationType.SENSITIVE_FILE_ACCESS if target:
                return PathAccessDenied(target, refused.why, **options)
            case _:
                return CommandNotAllowed(refused.why, command=target, **options)


# What `plain` cannot import from here, since we import it.
_KINDS: dict[str, type] = {
    **{kind.__name__.lower(): kind for kind in (Exited, Signalled, TimedOut, LimitHit, Refused)},
    "usage": Usage,
    "audit": SandboxAudit,
    "observed": Observed,
    "touched": Touched,
    "state": FileState,
    "file": OutputFile,
}


def _is_refusal(violation: Violation) -> bool:
    """What was found afterwards stopped nothing, however grave it is."""
    return violation.severity is not Severity.LOW and not violation.rule.startswith(LEFTOVER_RULE)
