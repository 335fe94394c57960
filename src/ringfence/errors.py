"""Every exception that Ringfence raises.

What a command did is *returned* in its result; what the caller or the machine did wrong is *raised*, as one of these.
On the right, the builtin that each of them also is, so that `except FileNotFoundError` works as everywhere in Python:

    RingfenceError
    ├── InvalidArgument           an argument whose value makes no sense                            ValueError
    ├── WrongType                 an argument of a type that is not taken                           TypeError
    ├── InvalidConfig             a configuration file, policy or environment setting that makes no sense
    ├── CommandNotAllowed         a command that cannot be, or may not be, run
    ├── NetworkAccessDenied       a host that no rule grants
    ├── PathAccessDenied          a path that the grant or a rule does not cover                    PermissionError
    │   └── PathTraversalError    a path that leads out of the workspace
    ├── FileError                 a file or directory with which this cannot be done (see `errno`)  OSError
    │   ├── NotFound              there is no such file, shadow, snapshot, session ...              FileNotFoundError
    │   ├── AlreadyExists         the name is taken                                                 FileExistsError
    │   ├── IsADirectory          a directory where a file is needed                                IsADirectoryError
    │   ├── NotADirectory         something else where a directory is needed                        NotADirectoryError
    │   └── PermissionDenied      the operating system refused us something that we need            PermissionError
    ├── Closed                    the sandbox, pool or file is closed, or was not started           RuntimeError
    ├── Unreachable               a server that does not answer, or no longer                       ConnectionError
    ├── Busy                      something else uses it now; later it may work
    │   └── PoolExhausted         every box of the pool is in use, and waiting for one did not help
    ├── Damaged                   a file of Ringfence's own state that cannot be believed
    ├── InitializationFailed      the wall cannot be built on this machine
    ├── BundleRefused             a tool's bundle that is not trusted, not whole or not what it says (see `reason`)
    ├── NotInstalled              an optional package is missing                                    ImportError
    ├── SpawnFailed               the wall stands, the program in it could not be started           OSError
    ├── Timeout                   the wall-clock limit passed, and the caller asked for `check()`   TimeoutError
    ├── ResourceLimitExceeded     a limit was hit, and the caller asked for `result.check()`
    ├── CommandFailed             a non-zero ending, and the caller asked for `result.check()`
    ├── BrowserError              a browser, or a page in it, with which something cannot be done
    │   ├── BrowserGone           it has ended, crashed, was never there, or says what no browser says
    │   ├── BrowserTimeout        it, or the page, did not do it in time                            TimeoutError
    │   ├── ElementNotFound       nothing on the page is what was named                             LookupError
    │   ├── StaleRef              a ref of a snapshot whose element is gone                         LookupError
    │   ├── ElementBlocked        an element that is covered, moving, hidden or disabled
    │   └── NavigationFailed      an address that may not be, or could not be, opened
    ├── QuestionNotOpen           an answer to a question that nobody waits for                     LookupError
    ├── Unauthenticated           a server does not know who asks                                   PermissionError
    ├── NotPermitted              a server knows who asks, and does not let them                    PermissionError
    ├── QuotaExceeded             a tenant of a server has used what it may use
    ├── SessionLost               the box of a server's session went with the server that had it    RuntimeError
    └── Internal                  a fault of our own

Each class has a stable `code` (for logs, HTTP and scripts), a message that says what happened and a `hint` that says
what to do about it. Codes never change once released. Those that are an OSError carry its `errno` and `filename`.
"""

import errno
import os
from typing import Any, ClassVar


class RingfenceError(Exception):
    """Base of the family; never raised itself."""

    code: ClassVar[str] = "error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.violations: tuple[Any, ...] = ()
        """What was refused to a command that came to no result, and what it left behind (`values.Violation`)."""

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by what it holds: the constructors take other arguments than `args`."""
        of_system = (self.errno, self.strerror, self.filename) if isinstance(self, OSError) else None
        return _revived, (type(self), self.args, self.__dict__, of_system)


def _revived(
    kind: type[RingfenceError], args: tuple[Any, ...], state: dict[str, Any], of_system: tuple[Any, ...] | None
) -> RingfenceError:
    fault = kind.__new__(kind)
    fault.args = args
    fault.__dict__.update(state)
    if of_system is not None and isinstance(fault, OSError):
        fault.errno, fault.strerror, fault.filename = of_system
    return fault


class InvalidArgument(RingfenceError, ValueError):
    code = "invalid_argument"

    def __init__(
        self,
        message: str,
        *,
        argument: str = "",
        source: str = "",
        line: int | None = None,
        column: int | None = None,
        hint: str = "",
    ) -> None:
        """
        Args:
            argument: the parameter's name.
            source: what the value is, where it is long, such as a path or `typescript`; with line and column in it.
        """
        super().__init__(_placed(message, source, line, column), hint=hint)
        self.argument = argument
        self.source = source
        self.line = line
        self.column = column


class WrongType(RingfenceError, TypeError):
    code = "wrong_type"

    def __init__(self, argument: str, given: object, takes: str, *, hint: str = "") -> None:
        """
        Args:
            takes: what it has to be, such as `a number of seconds`.
        """
        kind = type(given).__name__
        shown = "" if given is None else f", {_short(given)}"
        super().__init__(f"{argument} is of type {kind}{shown}; it takes {takes}", hint=hint)
        self.argument = argument
        self.takes = takes


class InvalidConfig(RingfenceError):
    code = "invalid_config"

    def __init__(
        self,
        message: str,
        *,
        source: str = "",
        line: int | None = None,
        column: int | None = None,
        hint: str = "",
        faults: tuple["InvalidConfig", ...] = (),
    ) -> None:
        """
        Args:
            faults: each of several errors in one file, in the order of their lines.
        """
        super().__init__(_placed(message, source, line, column), hint=hint)
        self.source = source
        self.line = line
        self.column = column
        self.faults = faults

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *(f"  {fault}" for fault in self.faults)))


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


class PathAccessDenied(RingfenceError, PermissionError):
    code = "path_access_denied"

    def __init__(self, path: str, why: str, *, rule: str = "", hint: str = "") -> None:
        super().__init__(f"{path!r}: {why}" + (f" [rule: {rule}]" if rule else ""), hint=hint)
        self.path = self.filename = path
        self.rule = rule
        self.errno = errno.EACCES
        self.strerror = why


class PathTraversalError(PathAccessDenied):
    code = "path_traversal"


class FileError(RingfenceError, OSError):
    """Also raised itself, for what no class below stands for: no space, not empty, too many links."""

    code = "file_error"
    usual: ClassVar[int] = errno.EIO
    """The errno that is meant where none is given."""

    def __init__(self, message: str, *, path: str = "", number: int | None = None, hint: str = "") -> None:
        """
        Args:
            number: the system's errno.
        """
        super().__init__(_placed(message, repr(path) if path else "", None, None), hint=hint)
        self.path = path
        self.errno = self.usual if number is None else number
        self.strerror = message
        self.filename = path or None

    @classmethod
    def of(cls, number: int, path: str = "", message: str = "", *, hint: str = "") -> "FileError":
        """The class of the family that stands for this errno."""
        kind = _BY_ERRNO.get(number, FileError)
        return kind(message or os.strerror(number), path=path, number=number, hint=hint)


class NotFound(FileError, FileNotFoundError):
    code = "not_found"
    usual = errno.ENOENT


class AlreadyExists(FileError, FileExistsError):
    code = "already_exists"
    usual = errno.EEXIST


class IsADirectory(FileError, IsADirectoryError):
    code = "is_a_directory"
    usual = errno.EISDIR


class NotADirectory(FileError, NotADirectoryError):
    code = "not_a_directory"
    usual = errno.ENOTDIR


class PermissionDenied(FileError, PermissionError):
    code = "permission_denied"
    usual = errno.EACCES


_BY_ERRNO: dict[int, type[FileError]] = {
    errno.ENOENT: NotFound,
    errno.EEXIST: AlreadyExists,
    errno.EISDIR: IsADirectory,
    errno.ENOTDIR: NotADirectory,
    errno.EACCES: PermissionDenied,
    errno.EPERM: PermissionDenied,
    errno.EROFS: PermissionDenied,
}


class Closed(RingfenceError, RuntimeError):
    code = "closed"


class Unreachable(RingfenceError, ConnectionError):
    code = "unreachable"


class Busy(RingfenceError):
    code = "busy"


class PoolExhausted(Busy):
    code = "pool_exhausted"


class Damaged(RingfenceError):
    code = "damaged"

    def __init__(self, message: str, *, source: str = "", hint: str = "") -> None:
        super().__init__(_placed(message, source, None, None), hint=hint)
        self.source = source


class InitializationFailed(RingfenceError):
    code = "initialization_failed"


class BundleRefused(RingfenceError):
    code = "bundle_refused"

    def __init__(self, reason: str, message: str, *, source: str = "", hint: str = "") -> None:
        """
        Args:
            reason: one of `ringfence.bundles.reasons.Reason`, for scripts: `unsigned`, `tampered`, `downgrade` ...
        """
        super().__init__(f"{_placed(message, source, None, None)} [{reason}]", hint=hint)
        self.reason = str(reason)
        self.source = source


class NotInstalled(RingfenceError, ImportError):
    code = "not_installed"


CANNOT_RUN_CODE = 126
NO_PROGRAM_CODE = 127
"""What every shell exits with when a program cannot be run, and when there is none."""


class SpawnFailed(RingfenceError, OSError):
    code = "spawn_failed"

    def __init__(self, program: str, why: str, *, number: int | None = None, hint: str = "") -> None:
        """
        Args:
            number: the system's errno; None where the system was not asked, or did not say.
        """
        super().__init__(f"could not start {program!r}: {why}", hint=hint)
        self.program = program
        self.why = why
        self.errno = number
        self.strerror = why
        self.filename = program

    @property
    def exit_code(self) -> int:
        """As a shell would say it: 127 for a program that is not there, else 126."""
        return NO_PROGRAM_CODE if self.errno == errno.ENOENT else CANNOT_RUN_CODE


class Timeout(RingfenceError, TimeoutError):
    code = "timeout"

    def __init__(self, seconds: float, *, hint: str = "give it a longer timeout") -> None:
        super().__init__(f"still running after {seconds:g} s, so it was ended", hint=hint)
        self.seconds = seconds
        self.errno = errno.ETIMEDOUT
        self.strerror = self.message


class ResourceLimitExceeded(RingfenceError):
    code = "resource_limit_exceeded"

    def __init__(
        self, resource: str, limit: float, *, current: float | None = None, shown: str = "", hint: str = ""
    ) -> None:
        """
        Args:
            current: how much was used, in the unit of `limit`; None if nobody measured it.
            shown: the limit for people, such as `64 MiB`.
        """
        super().__init__(
            f"the {resource} limit of {shown or format(limit, 'g')} was hit", hint=hint or f"raise the {resource} limit"
        )
        self.resource = resource
        self.limit = limit
        self.current = current


class CommandFailed(RingfenceError):
    code = "command_failed"

    def __init__(self, what: str, exit_code: int, *, hint: str = "") -> None:
        super().__init__(what, hint=hint)
        self.exit_code = exit_code


class BrowserError(RingfenceError):
    """Also raised itself, for what the browser refused or a script of the page threw."""

    code = "browser_error"


class BrowserGone(BrowserError):
    code = "browser_gone"


class BrowserTimeout(BrowserError, TimeoutError):
    code = "browser_timeout"

    def __init__(self, what: str, seconds: float, *, hint: str = "give it a longer timeout") -> None:
        super().__init__(f"{what}: not within {seconds:g} s", hint=hint)
        self.seconds = seconds
        self.errno = errno.ETIMEDOUT
        self.strerror = self.message


class ElementNotFound(BrowserError, LookupError):
    code = "element_not_found"


class StaleRef(BrowserError, LookupError):
    code = "stale_ref"

    def __init__(self, ref: str, why: str, *, hint: str = "take a new snapshot, and use a ref of that") -> None:
        super().__init__(f"the ref {ref!r} is stale: {why}", hint=hint)
        self.ref = ref


class ElementBlocked(BrowserError):
    code = "element_blocked"


class NavigationFailed(BrowserError):
    code = "navigation_failed"

    def __init__(self, url: str, why: str, *, hint: str = "") -> None:
        super().__init__(f"{url}: {why}", hint=hint)
        self.url = url


class QuestionNotOpen(RingfenceError, LookupError):
    code = "question_not_open"

    def __init__(self, question_id: str, *, hint: str = "list the open questions again") -> None:
        super().__init__(f"no question {question_id!r} waits for an answer", hint=hint)
        self.question_id = question_id


class Unauthenticated(RingfenceError, PermissionError):
    code = "unauthenticated"


class NotPermitted(RingfenceError, PermissionError):
    code = "not_permitted"

    def __init__(self, message: str, *, scope: str = "", hint: str = "") -> None:
        """
        Args:
            scope: what the token would have to have.
        """
        super().__init__(message, hint=hint)
        self.scope = scope


class QuotaExceeded(RingfenceError):
    code = "quota_exceeded"

    def __init__(self, message: str, *, quota: str = "", limit: float = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.quota = quota
        self.limit = limit


class SessionLost(RingfenceError, RuntimeError):
    code = "session_lost"

    def __init__(self, message: str, *, session_id: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.session_id = session_id


class Internal(RingfenceError):
    code = "internal"


def _placed(message: str, source: str, line: int | None, column: int | None) -> str:
    place = source + "".join(f":{part}" for part in (line, column) if part is not None)
    return f"{place}: {message}" if place else message


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 3] + "..."


_SHOWN_MAX = 60
