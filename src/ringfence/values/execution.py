"""What `SandboxManager` takes: one request for one execution, whatever it is."""

from collections.abc import AsyncIterable, Mapping, Sequence

from ringfence.dataclass import dataclass, field
from ringfence.values.request import OnOutput, Overflow
from ringfence.values.sizes import Duration, Size


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """One piece of code, one command line, or one program. Exactly one of `code`, `command` and `argv` is set."""

    code: str | None = None
    language: str = "python"
    command: str | None = None
    argv: Sequence[str] | None = None
    """A program and its arguments, without a shell."""
    cwd: str | None = None
    """Where it runs; the workspace if not given."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables for this call; not for `code`, whose interpreter has its own."""
    timeout: Duration | None = None
    """Seconds, or such as `30s`; up to the policy's limit."""
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    """Written into the workspace before it runs, by their path in it."""
    session_id: str | None = None
    """The session that keeps its state; the manager's own if not given; none if that has none either."""
    context: str | None = None
    """Which interpreter, or shell, of the session."""
    stdin: str | bytes | AsyncIterable[bytes] | None = None
    collect: bool | None = None
    """Whether files that it made are in the result; by default only without a session, where they are gone
    afterwards."""
    overflow: Overflow = Overflow.STOP
    output_limit: Size | None = None
    """Bytes kept of each stream, if less than the sandbox's limit."""
    keep_background: bool = False
    """Whether what a command leaves running lives on until the sandbox is closed."""
    on_output: OnOutput | None = field(default=None, compare=False, repr=False)

    @property
    def is_one_thing(self) -> bool:
        """Whether it says what runs, once."""
        return sum(given is not None for given in (self.code, self.command, self.argv)) == 1
