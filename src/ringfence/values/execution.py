"""What `SandboxManager` takes: one request for one execution, whatever it is."""

from collections.abc import Mapping

from ringfence.dataclass import dataclass, field
from ringfence.values.request import OnOutput
from ringfence.values.sizes import Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRequest:
    """One piece of code, or one command line. Exactly one of `code` and `command` is set."""

    code: str | None = None
    language: str = "python"
    command: str | None = None
    timeout: Duration | None = None
    """Seconds, or such as `30s`; up to the policy's limit."""
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    """Written into the workspace before it runs, by their path in it."""
    session_id: str | None = None
    """The session that keeps its state; the manager's own if not given; none if that has none either."""
    context: str | None = None
    """Which interpreter, or shell, of the session."""
    stdin: str | bytes | None = None
    collect: bool | None = None
    """Whether files that it made are in the result; by default only without a session, where they are gone
    afterwards."""
    on_output: OnOutput | None = field(default=None, compare=False, repr=False)
