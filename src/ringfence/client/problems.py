"""What a server says went wrong, as the error that the library raises for it.

An error of the family comes as problem+json with its code and its fields, and is made anew from these. What only HTTP
knows (a body that is too large, a server that stops) has codes of its own; each is an error of the family here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from ringfence.errors import (
    Busy,
    Closed,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    RingfenceError,
    Unreachable,
)
from ringfence.values.faults import revived_fault

_Made = Callable[..., RingfenceError]

OF_HTTP: Final[Mapping[str, _Made]] = {
    "malformed_request": InvalidArgument,
    "no_such_route": NotFound,
    "method_not_allowed": InvalidArgument,
    "not_acceptable": InvalidArgument,
    "deadline_exceeded": Unreachable,
    "key_reused": InvalidArgument,
    "key_in_use": Busy,
    "outcome_unknown": Internal,
    "body_too_large": InvalidArgument,
    "body_too_slow": Unreachable,
    "unsupported_media_type": InvalidArgument,
    "range_not_satisfiable": InvalidArgument,
    "misdirected_request": PermissionDenied,
    "origin_not_allowed": PermissionDenied,
    "csrf_token_missing": PermissionDenied,
    "too_many_attempts": Busy,
    "headers_too_large": InvalidArgument,
    "upgrade_required": InvalidArgument,
    "shutting_down": Busy,
    "bad_gateway": Unreachable,
    "ended": Closed,
}
"""The codes that a server has besides those of the family, and what each is here."""


def fault_of(status: int, body: bytes) -> RingfenceError:
    """The error that an answer with this status and body is about."""
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "code" not in problem:
        return Internal(
            f"something else than a Ringfence server answered, with status {status}", hint="look at the URL"
        )
    return revived_problem(problem)


def revived_problem(problem: Mapping[str, Any]) -> RingfenceError:
    """The error that a problem (RFC 9457) of a server tells of."""
    code, title, hint = (str(problem.get(name, "")) for name in ("code", "title", "hint"))
    if code in OF_HTTP:
        return OF_HTTP[code](title, hint=hint)
    fields = problem.get("fields") or {}
    known = {"code": code, "message": title, "hint": hint, "violations": problem.get("violations") or ()}
    try:
        return revived_fault({**fields, **known})
    except (TypeError, ValueError, KeyError):
        return Internal(title, hint=f"the server's {code!r} was not understood; are both of one version?")
