"""Makes the fields of a commit's record: which shadow, and what of it was carried over to the project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ringfence.audit.redact import Redactor
    from ringfence.values.change import Committed
    from ringfence.values.principal import Principal

EVENT: Final = "workspace_commit"
_FILES_MAX: Final = 1000
"""Names that a record keeps of each kind; how many there were is beside them."""


def committing(shadow_id: str, project: Path, who: Principal, redact: Redactor) -> dict[str, Any]:
    """What is known before it."""
    return {
        "event_type": EVENT,
        "session_id": who.session_id,
        "agent_id": who.agent_id,
        "org_id": who.org_id,
        "sandbox_id": who.sandbox_id,
        "tool": EVENT,
        "command": f"commit of shadow {shadow_id}",
        "workspace": redact.name(os.fspath(project)),
        "pid": os.getpid(),
    }


def committed(done: Committed, redact: Redactor) -> dict[str, Any]:
    """What is known after it."""
    names = [redact.name(f"{change.kind} {change.path}") for change in done.applied]
    refused = [redact.name(str(refusal)) for refusal in (*done.conflicts, *done.refused)]
    return {
        "result": "success" if done.is_done else "refused",
        "error": None if done.is_done else f"{len(done.conflicts)} conflicts with the host's own changes",
        "files_written": names[:_FILES_MAX],
        "files_written_count": len(names),
        "merged": [redact.name(path) for path in done.merged[:_FILES_MAX]],
        "left_out": refused[:_FILES_MAX],
        "left_out_count": len(refused),
    }
