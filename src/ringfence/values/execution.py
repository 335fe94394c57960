"""What `SandboxManager` takes and gives: one request for one execution, whatever it is, and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ringfence.values.outcome import OutputFile, Result
from ringfence.values.request import OnOutput
from ringfence.values.rich import Rich


class SandboxType(StrEnum):
    """Which kind of engine ran it."""

    SUBPROCESS = "subprocess"
    """A bare process with limits; only code that was found to be harmless, and only where that was asked for."""
    NATIVE = "native"
    DOCKER = "docker"
    AIO = "aio"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """One piece of code, or one command line. Exactly one of `code` and `command` is set."""

    code: str | None = None
    language: str = "python"
    command: str | None = None
    timeout: float | None = None
    """Seconds, if less than the policy's limit."""
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    """Written into the workspace before it runs, by their path in it."""
    session_id: str | None = None
    """The session that keeps its state; the manager's own if not given; none if that has none either."""
    context: str | None = None
    """Which interpreter, or shell, of the session."""
    stdin: bytes | None = None
    collect: bool | None = None
    """Whether files that it made are in the result; by default only without a session, where they are gone
    afterwards."""
    on_output: OnOutput | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """How it went: the questions that most callers ask, and behind them everything that is known."""

    full: Result
    sandbox_type: SandboxType
    session_id: str | None = None

    @property
    def success(self) -> bool:
        return self.full.ok

    @property
    def stdout(self) -> str:
        return self.full.stdout

    @property
    def stderr(self) -> str:
        return self.full.stderr

    @property
    def exit_code(self) -> int:
        return self.full.exit_code

    @property
    def error(self) -> str | None:
        """Why it did not succeed, in one line; None if it did."""
        if self.full.ok:
            return None
        return str(self.full.error) if self.full.error is not None else str(self.full.ending)

    @property
    def results(self) -> tuple[Rich, ...]:
        return self.full.results

    @property
    def files(self) -> tuple[OutputFile, ...]:
        return self.full.files

    @property
    def blocked(self) -> bool:
        return self.full.blocked
