"""Makes the fields of a record about a file operation that whoever owns a sandbox asked for, not a command in it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from ringfence.errors import PathAccessDenied, RingfenceError

if TYPE_CHECKING:
    from ringfence.audit.redact import Redactor
    from ringfence.values.principal import Principal

EVENT: Final = "file_operation"


def beginning(what: str, paths: tuple[str, ...], who: Principal, workspace: str, redact: Redactor) -> dict[str, Any]:
    """What is known before it.

    Args:
        what: the operation, such as `read`.
    """
    return {
        "event_type": EVENT,
        "session_id": who.session_id,
        "agent_id": who.agent_id,
        "org_id": who.org_id,
        "sandbox_id": who.sandbox_id,
        "tool": "file_read" if what == "read" else "file_write",
        "command": redact.text(" ".join((what, *paths))),
        "workspace": redact.name(workspace),
        "pid": os.getpid(),
    }


def done(what: str, places: tuple[str, ...], redact: Redactor) -> dict[str, Any]:
    """What is known after it: where the paths really led."""
    names = [redact.name(place) for place in places]
    is_read = what == "read"
    return {
        "result": "success",
        "error": None,
        "files_read": names if is_read else [],
        "files_written": [] if is_read else names,
    }


def failed(fault: BaseException, redact: Redactor) -> dict[str, Any]:
    """It came to nothing, because of a rule, of what the box's kernel said, or of a fault."""
    is_refused = isinstance(fault, PathAccessDenied)
    message = fault.message if isinstance(fault, RingfenceError) else type(fault).__name__
    fields = {"result": "refused" if is_refused else "failure", "error": redact.text(message)}
    if isinstance(fault, RingfenceError):
        fields["error_code"] = fault.code
    return fields | {"files_read": [], "files_written": []}
