"""Makes the fields of a network request's record: who asked for what, by which rule, and what came of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from ringfence.values.verdict import Verdict

if TYPE_CHECKING:
    from ringfence.audit.redact import Redactor
    from ringfence.values.network_event import NetworkEvent
    from ringfence.values.principal import Principal

EVENT: Final = "network_request"


def asked(event: NetworkEvent, who: Principal, redact: Redactor) -> dict[str, Any]:
    """What the box wanted, and what the rules said. Records of the box's calls have the same `box`."""
    target = f"{event.host}:{event.port}" if event.port else event.host
    fields: dict[str, Any] = {
        "event_type": EVENT,
        "session_id": who.session_id,
        "agent_id": who.agent_id,
        "org_id": who.org_id,
        "sandbox_id": who.sandbox_id,
        "tool": who.tool,
        "command": redact.text(f"{event.method} {target}{event.path}".strip()),
        "box": event.box,
        "door": str(event.door),
        "host": redact.name(event.host),
        "port": event.port,
        "address": event.address,
        "method": event.method,
        "path": redact.text(event.path),
        "query_sha256": event.query_sha256,
        "verdict": event.verdict.name.lower(),
        "why": redact.name(event.reason),
        "rule": redact.name(f"{event.rule} at {event.place}" if event.place else event.rule),
        "pid": os.getpid(),
    }
    return {name: value for name, value in fields.items() if value not in ("", None) or name in _ALWAYS}


_ALWAYS: Final = frozenset({"session_id", "agent_id", "org_id", "sandbox_id", "host", "port"})


def cut_off(why: str) -> dict[str, Any]:
    """What is known of a connection that began, and of whose end nobody told."""
    return {"result": "interrupted", "error": why}


def answered(event: NetworkEvent, redact: Redactor, begun: NetworkEvent | None = None) -> dict[str, Any]:
    """What came of it. Values of secrets are in no event; their names are.

    Args:
        begun: as it was recorded when it began.
    """
    refused = event.verdict is not Verdict.ALLOW
    fields: dict[str, Any] = {
        "result": "refused" if refused else "success",
        "error": redact.name(event.reason) if refused else None,
        "status": event.status,
        "network_bytes_sent": event.bytes_out,
        "network_bytes_recv": event.bytes_in,
        "execution_time_ms": round(event.seconds * 1000, 3),
        "inspected": event.inspected,
    }
    if event.parent:
        fields["parent_proxy"] = event.parent
    if begun is not None and event.address and not begun.address:
        fields["address"] = event.address
    if begun is not None and event.verdict is not begun.verdict:  # refused after it had begun: no rule was against it
        fields["final_verdict"] = event.verdict.name.lower()
    if event.secrets:
        fields["secrets"] = list(event.secrets)
    if event.canary:
        fields["canary"] = event.canary
    if event.approval:
        fields["network_approval"] = event.approval
    if refused and event.allow_by:
        fields["allow_by"] = redact.name(event.allow_by)
    return fields
