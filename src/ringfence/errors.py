"""Every exception that Ringfence raises.

What a command did is *returned* in its result; what the caller or the machine did wrong is *raised*, as one of these:

    RingfenceError
    ├── ResourceLimitExceeded     a limit was hit, and the caller asked for `result.check()`
    ├── PathAccessDenied          a path that the grant does not cover
    │   └── PathTraversalError    a path that leads out of the workspace
    ├── CommandNotAllowed         a command that cannot be, or may not be, run
    ├── NetworkAccessDenied       a host that no rule grants
    ├── Timeout                   the wall-clock limit passed, and the caller asked for `result.check()`
    ├── CommandFailed             a non-zero ending, and the caller asked for `result.check()`
    ├── InitializationFailed      the wall cannot be built on this machine
    ├── SpawnFailed               the wall stands, the program in it could not be started
    ├── PoolExhausted             every box of the pool is in use, and waiting for one did not help
    ├── InvalidConfig             a setting, file or argument that makes no sense
    ├── QuestionNotOpen           an answer to a question that nobody waits for
    ├── PermissionDenied          the operating system refused us something that we need
    └── Internal                  a fault of our own

Each class has a stable `code` (for logs, HTTP and scripts), a message that says what happened and a `hint` that says
what to do about it. Codes never change once released.
"""

from typing import ClassVar


class RingfenceError(Exception):
    """Base of the family; never raised itself."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ResourceLimitExceeded(RingfenceError):
    code = "resource_limit_exceeded"

    def __init__(self, limit: str, allowed: float, *, hint: str = "") -> None:
        super().__init__(f"the {limit} limit of {allowed:g} was hit", hint=hint or f"raise the {limit} limit")
        self.limit = limit
        self.allowed = allowed


class PathAccessDenied(RingfenceError):
    code = "path_access_denied"

    def __init__(self, path: str, why: str, *, rule: str = "", hint: str = "") -> None:
        super().__init__(f"{path!r}: {why}" + (f" [rule: {rule}]" if rule else ""), hint=hint)
        self.path = path
        self.rule = rule


class PathTraversalError(PathAccessDenied):
    code = "path_traversal"


class CommandNotAllowed(RingfenceError):
    code = "command_not_allowed"

    def __init__(self, why: str, *, command: str = "", rule: str = "", hint: str = "") -> None:
        super().__init__(why + (f" [rule: {rule}]" if rule else ""), hint=hint)
        self.command = command
        self.rule = rule


class NetworkAccessDenied(RingfenceError):
    code = "network_access_denied"

    def __init__(self, host: str, why: str, *, rule: str = "", hint: str = "") -> None:
        super().__init__(f"{host}: {why}" + (f" [rule: {rule}]" if rule else ""), hint=hint)
        self.host = host
        self.rule = rule


class Timeout(RingfenceError):
    code = "timeout"

    def __init__(self, seconds: float, *, hint: str = "give it a longer timeout") -> None:
        super().__init__(f"still running after {seconds:g} s, so it was ended", hint=hint)
        self.seconds = seconds


class CommandFailed(RingfenceError):
    code = "command_failed"

    def __init__(self, what: str, exit_code: int, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.exit_code = exit_code


class InitializationFailed(RingfenceError):
    code = "initialization_failed"


class SpawnFailed(RingfenceError):
    code = "spawn_failed"

    def __init__(self, program: str, why: str, *, hint: str = "") -> None:
        super().__init__(f"could not start {program!r}: {why}", hint=hint)
        self.program = program
        self.why = why


class PoolExhausted(RingfenceError):
    code = "pool_exhausted"


class InvalidConfig(RingfenceError):
    code = "invalid_config"

    def __init__(
        self, message: str, *, source: str = "", line: int | None = None, column: int | None = None, hint: str = ""
    ) -> None:
        place = source + "".join(f":{part}" for part in (line, column) if part is not None)
        super().__init__(f"{place}: {message}" if place else message, hint=hint)
        self.source = source
        self.line = line
        self.column = column


class QuestionNotOpen(RingfenceError):
    code = "question_not_open"

    def __init__(self, question_id: str, *, hint: str = "list the open questions again") -> None:
        super().__init__(f"no question {question_id!r} waits for an answer", hint=hint)
        self.question_id = question_id


class PermissionDenied(RingfenceError):
    code = "permission_denied"


class Internal(RingfenceError):
    code = "internal"
