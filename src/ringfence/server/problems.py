"""What went wrong, as the body and the status of an answer (RFC 9457), by one table.

Each error of the family has its status here; a test proves the table total. What only HTTP knows (a body that is no
JSON, a method that is not there) is an `HttpFault` with a code of its own.
"""

from __future__ import annotations

import errno
from typing import Any

from ringfence import errors
from ringfence.server.wire import Problem
from ringfence.values.faults import plain_fault

STATUS: dict[type[errors.RingfenceError], int] = {
    errors.RingfenceError: 500,
    errors.InvalidArgument: 400,
    errors.WrongType: 400,
    errors.InvalidConfig: 422,
    errors.CommandNotAllowed: 403,
    errors.NetworkAccessDenied: 403,
    errors.PathAccessDenied: 403,
    errors.PathTraversalError: 403,
    errors.FileError: 409,
    errors.NotFound: 404,
    errors.AlreadyExists: 409,
    errors.IsADirectory: 409,
    errors.NotADirectory: 409,
    errors.PermissionDenied: 403,
    errors.Closed: 410,
    errors.Unreachable: 502,
    errors.Busy: 409,
    errors.PoolExhausted: 503,
    errors.Damaged: 500,
    errors.BundleRefused: 422,
    errors.InitializationFailed: 503,
    errors.NotInstalled: 501,
    errors.SpawnFailed: 422,
    errors.Timeout: 504,
    errors.ResourceLimitExceeded: 422,
    errors.CommandFailed: 422,
    errors.BrowserError: 409,
    errors.BrowserGone: 502,
    errors.BrowserTimeout: 504,
    errors.ElementNotFound: 404,
    errors.StaleRef: 409,
    errors.ElementBlocked: 409,
    errors.NavigationFailed: 422,
    errors.QuestionNotOpen: 409,
    errors.Unauthenticated: 401,
    errors.NotPermitted: 403,
    errors.QuotaExceeded: 429,
    errors.SessionLost: 410,
    errors.Internal: 500,
}
_BY_ERRNO = {errno.ENOSPC: 507, errno.EDQUOT: 507, errno.EFBIG: 413, errno.ENAMETOOLONG: 400}
_OWN = frozenset({"code", "message", "hint", "violations"})
"""Fields that the problem has under names of its own."""
_WORTH_REPEATING = frozenset({errors.Busy.code, errors.PoolExhausted.code, errors.QuotaExceeded.code})
RETRY_SECONDS = 1


class HttpFault(Exception):
    """A request that is wrong as HTTP, whatever it asks for."""

    def __init__(self, status: int, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint


HTTP_CODES: dict[str, int] = {
    "malformed_request": 400,
    "no_such_route": 404,
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "deadline_exceeded": 504,
    "key_reused": 422,
    "key_in_use": 409,
    "outcome_unknown": 409,
    "body_too_large": 413,
    "body_too_slow": 408,
    "unsupported_media_type": 415,
    "range_not_satisfiable": 416,
    "misdirected_request": 421,
    "origin_not_allowed": 403,
    "csrf_token_missing": 403,
    "too_many_attempts": 429,
    "headers_too_large": 431,
    "upgrade_required": 426,
    "bad_gateway": 502,
    "shutting_down": 503,
}
"""Codes besides those of the family, and the status of each."""


def http_fault(code: str, message: str, *, hint: str = "") -> HttpFault:
    return HttpFault(HTTP_CODES[code], code, message, hint=hint)


def status_of(fault: errors.RingfenceError) -> int:
    if type(fault) is errors.FileError and fault.errno in _BY_ERRNO:
        return _BY_ERRNO[fault.errno]
    return STATUS[type(fault)]


def problem_of(fault: BaseException, request_id: str = "") -> Problem:
    """What the caller is told. Of a fault that is none of ours, no more than that there was one."""
    if isinstance(fault, HttpFault):
        return Problem(
            status=fault.status, code=fault.code, title=fault.message, hint=fault.hint, request_id=request_id
        )
    if not isinstance(fault, errors.RingfenceError):
        return Problem(
            status=500,
            code=errors.Internal.code,
            title="a fault of the server",
            hint="the server's log has it under the request's id",
            request_id=request_id,
        )
    violations = [violation.as_record() for violation in fault.violations]
    return Problem(
        status=status_of(fault),
        code=fault.code,
        title=fault.message,
        hint=fault.hint,
        request_id=request_id,
        fields=_fields(fault),
        violations=violations,
    )


def is_worth_repeating(problem: Problem) -> bool:
    return problem.code in _WORTH_REPEATING or problem.status == 503


def _fields(fault: errors.RingfenceError) -> dict[str, Any]:
    """What else the error carries, by the names that its class has for it: a client makes the same error of it."""
    return {name: value for name, value in plain_fault(fault).items() if name not in _OWN}
