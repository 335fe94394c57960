"""An error of the family as plain values, for JSON, and back: the same class, with the same fields.

What crosses is what `errors.py` says that a class has, and no more: whoever answers cannot set anything else.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ringfence import errors
from ringfence.errors import Internal, InvalidConfig, RingfenceError
from ringfence.values.violation import Violation

FIELDS: Final[dict[type[RingfenceError], tuple[str, ...]]] = {
    errors.InvalidArgument: ("argument", "source", "line", "column"),
    errors.WrongType: ("argument", "takes"),
    errors.InvalidConfig: ("source", "line", "column"),
    errors.CommandNotAllowed: ("command", "rule"),
    errors.NetworkAccessDenied: ("host", "rule"),
    errors.PathAccessDenied: ("path", "rule"),
    errors.FileError: ("path",),
    errors.Damaged: ("source",),
    errors.BundleRefused: ("reason", "source"),
    errors.SpawnFailed: ("program", "why"),
    errors.Timeout: ("seconds",),
    errors.BrowserTimeout: ("seconds",),
    errors.StaleRef: ("ref",),
    errors.NavigationFailed: ("url",),
    errors.ResourceLimitExceeded: ("resource", "limit", "current"),
    errors.CommandFailed: ("exit_code",),
    errors.QuestionNotOpen: ("question_id",),
    errors.NotPermitted: ("scope",),
    errors.QuotaExceeded: ("quota", "limit"),
    errors.SessionLost: ("session_id",),
}
"""What each class, and those below it, holds besides message, hint and violations. Single numbers and texts."""
_OF_SYSTEM: Final = ("errno", "strerror", "filename")


def plain_fault(fault: RingfenceError) -> dict[str, Any]:
    """All that it holds."""
    out: dict[str, Any] = {"code": fault.code, "message": fault.message, "hint": fault.hint}
    out |= {name: getattr(fault, name) for name in _fields(type(fault))}
    if isinstance(fault, OSError):
        out |= {name: getattr(fault, name) for name in _OF_SYSTEM}
    if isinstance(fault, InvalidConfig) and fault.faults:
        out["faults"] = [plain_fault(each) for each in fault.faults]
    if fault.violations:
        out["violations"] = [violation.as_record() for violation in fault.violations]
    return out


def revived_fault(given: Mapping[str, Any]) -> RingfenceError:
    """The error that `plain_fault` was given. One with a code that is not known here is an `Internal` that says so."""
    code, message = str(given.get("code", "")), str(given.get("message", ""))
    kind = _by_code().get(code)
    if kind is None:
        return Internal(message or "an error without a message", hint=f"its code, {code!r}, is of another version")
    fault = kind.__new__(kind)
    fault.args = (message,)
    fault.message, fault.hint = message, str(given.get("hint", ""))
    fault.violations = tuple(Violation.from_record(record) for record in given.get("violations", ()))
    for name in _fields(kind):
        setattr(fault, name, _single(given.get(name)))
    if isinstance(fault, OSError):
        for name in _OF_SYSTEM:
            setattr(fault, name, _single(given.get(name)))
    if isinstance(fault, InvalidConfig):
        revived = map(revived_fault, given.get("faults", ()))
        fault.faults = tuple(each for each in revived if isinstance(each, InvalidConfig))
    return fault


def family(kind: type[RingfenceError] = RingfenceError) -> Iterator[type[RingfenceError]]:
    """Every class of it."""
    yield kind
    for below in kind.__subclasses__():
        yield from family(below)


def _by_code() -> dict[str, type[RingfenceError]]:
    return {kind.code: kind for kind in family() if kind.__module__ == errors.__name__}


def _fields(kind: type[RingfenceError]) -> tuple[str, ...]:
    return next((FIELDS[above] for above in kind.__mro__ if above in FIELDS), ())


def _single(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"a field of an error is of type {type(value).__name__}")
