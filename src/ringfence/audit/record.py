"""Makes the fields of a record: from values to plain data, without secrets. Measured values only.

What was not observed is null, and `not_observed` says why; nothing is ever filled in by guessing.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, assert_never

from ringfence.audit.redact import NAME_MAX, TEXT_MAX, Redactor, is_secret_name
from ringfence.dataclass import dataclass
from ringfence.errors import RingfenceError
from ringfence.values.guarantee import Guarantee
from ringfence.values.outcome import Ending, Exited, LimitHit, Refused, Result, Signalled, TimedOut, Usage
from ringfence.values.principal import Principal
from ringfence.values.verdict import Decision, Verdict
from ringfence.version import VERSION

if TYPE_CHECKING:
    from ringfence.values.request import Request
    from ringfence.values.violation import Violation

_VOTES_MAX: Final = 20
"""Votes that a record keeps; a command of thousands of parts must not fill the disk."""
_VIOLATIONS_MAX: Final = 20
_VARIABLES_MAX: Final = 50
_FILES_MAX: Final = 100
"""Names of files that a record keeps; how many there were is beside them."""
_MEGABYTE: Final = 1024 * 1024

CLOSING: Final = "sandbox_closed"
"""The type of a record that tells what was left behind when a box was closed."""

_OBSERVED: Final = (
    "execution_time_ms",
    "cpu_time_ms",
    "memory_used_mb",
    "network_bytes_sent",
    "network_bytes_recv",
    "files_read",
    "files_written",
)
_NO_SUPERVISOR: Final = "nobody looked while it ran"
_READS_NOT_LOOKED_AT: Final = "reads are looked at with trace=full only"
_NOT_COLLECTED: Final = "the workspace was not compared"
_NO_MEASURE: Final = "nothing measured the run"
_NETWORK_OPEN: Final = "each request to the network has a record of its own"


def opened(
    request: Request,
    decision: Decision,
    cwd: Path,
    who: Principal,
    redact: Redactor,
    variables: tuple[tuple[str, str], ...] = (),
) -> dict[str, Any]:
    """What is known before the run.

    Args:
        variables: which its caller has set for all requests, besides those of this one.
    """
    shown, reason = request.shown, decision.deciding
    return {
        "session_id": who.session_id,
        "agent_id": who.agent_id,
        "org_id": who.org_id,
        "sandbox_id": who.sandbox_id,
        "tool": who.tool,
        "language": _language(request),
        "code_hash": code_hash(shown),
        "command": redact.text(shown),
        "cwd": redact.name(os.fspath(cwd)),
        "workspace": redact.name(os.fspath(decision.grant.workspace)),
        "verdict": reason.verdict.name.lower(),
        "rule": redact.name(reason.place),
        "why": redact.name(reason.why),
        "votes": [
            redact.name(str(vote)) for vote in decision.reasons[: _VOTES_MAX * 10] if vote.verdict is not Verdict.ALLOW
        ][:_VOTES_MAX],
        "pid": os.getpid(),
        "ringfence_version": VERSION,
        **_given(request, redact, {**dict(variables), **dict(request.env)}),
    }


def _given(request: Request, redact: Redactor, variables: dict[str, str]) -> dict[str, Any]:
    """Standard input, variables, and that what it leaves running goes on: absent where there is nothing of it."""
    fields: dict[str, Any] = {}
    if variables:
        shown = sorted(variables.items())[:_VARIABLES_MAX]
        fields["env"] = {redact.name(name): _value(name, value, redact) for name, value in shown}
        fields["env_count"] = len(variables)
    if isinstance(request.stdin, bytes):
        beginning = request.stdin[: 2 * TEXT_MAX].decode("utf-8", "replace")
        fields |= {
            "stdin": redact.text(beginning),
            "stdin_bytes": len(request.stdin),
            "stdin_hash": "sha256:" + hashlib.sha256(request.stdin).hexdigest(),
        }
    elif request.stdin is not None or request.live_input:
        fields["stdin"] = None
        fields["stdin_stream"] = True
    if request.keep_background:
        fields["keep_background"] = True
    return fields


def _value(name: str, value: str, redact: Redactor) -> str:
    """A variable's value; the name may say that it is a secret."""
    if is_secret_name(name):
        return "[redacted: by its name]"
    return redact.text(f"{name}={value}", NAME_MAX).removeprefix(f"{name}=")


def without_secrets(who: Principal, redact: Redactor) -> Principal:
    """The same names, once and for all requests of a sandbox."""

    def clean(name: str | None) -> str | None:
        return name and _clean(name, redact)

    return Principal(
        session_id=clean(who.session_id),
        agent_id=clean(who.agent_id),
        org_id=clean(who.org_id),
        sandbox_id=clean(who.sandbox_id),
        tool=_clean(who.tool, redact),
    )


@lru_cache(maxsize=64)
def _clean(name: str, redact: Redactor) -> str:
    return redact.text(name, len(name))


def ended(result: Result, redact: Redactor, *, files_collected: bool, workspace: str = "") -> dict[str, Any]:
    """What is known after it, of a run or a refusal."""
    wall, usage = result.wall, result.usage
    not_observed: dict[str, str] = {}
    fields: dict[str, Any] = {
        "result": outcome(result.ending),
        "ending": redact.name(str(result.ending)),
        "exit_code": result.exit_code,
        "error": _error(result, redact),
        **_measured(usage, not_observed, ran=not isinstance(result.ending, Refused)),
        **_touched(_Named(redact, workspace), result, not_observed, files_collected=files_collected),
        "stdout_bytes": len(result.stdout_bytes) + result.stdout_dropped,
        "stderr_bytes": len(result.stderr_bytes) + result.stderr_dropped,
        "wall": wall.name if wall is not None else None,
        "limits_by": list(wall.limits_by) if wall is not None else [],
        **_refused(result.violations, redact),
    }
    if result.audit is not None:
        fields["wrapped"] = _wrapped(result.audit.command, redact)
    if not_observed:
        fields["not_observed"] = not_observed
    return fields


def _refused(violations: Sequence[Violation], redact: Redactor) -> dict[str, Any]:
    dropped = len(violations) - _VIOLATIONS_MAX
    kept = {"violations": [_violation(found, redact) for found in violations[:_VIOLATIONS_MAX]]}
    return kept | ({"violations_dropped": dropped} if dropped > 0 else {})


def _violation(found: Violation, redact: Redactor) -> dict[str, Any]:
    return {name: redact.name(value) if isinstance(value, str) else value for name, value in found.as_record().items()}


def failed(fault: BaseException, redact: Redactor, violations: Sequence[Violation] = ()) -> dict[str, Any]:
    """What is known when it ended without a result: our own fault, or somebody called it off."""
    return _failed(fault, redact) | _refused(violations, redact)


def _failed(fault: BaseException, redact: Redactor) -> dict[str, Any]:
    if isinstance(fault, RingfenceError):
        error = redact.text(fault.message)
        known = _nothing_known("it ended without a result", result="fault", ending="fault", error=error)
        return known | {"error_code": fault.code}
    error = redact.text(type(fault).__name__)
    return _nothing_known("it was cancelled", result="interrupted", ending="abandoned", error=error)


def closing(workspace: str, who: Principal, redact: Redactor) -> dict[str, Any]:
    """Of a look at what was left when a box was closed."""
    return {
        "event_type": CLOSING,
        "session_id": who.session_id,
        "agent_id": who.agent_id,
        "org_id": who.org_id,
        "sandbox_id": who.sandbox_id,
        "tool": who.tool,
        "command": "look at what was left behind",
        "workspace": redact.name(workspace),
        "pid": os.getpid(),
    }


def left_behind(found: Sequence[Violation], redact: Redactor) -> dict[str, Any]:
    """What it found."""
    return {"result": "success", "error": None, **_refused(found, redact)}


def interrupted() -> dict[str, Any]:
    """What is known when the process that ran it died."""
    return _nothing_known("its writer died", result="interrupted", ending="interrupted", error="its writer died")


def _nothing_known(why: str, *, result: str, ending: str, error: str) -> dict[str, Any]:
    return {
        "result": result,
        "ending": ending,
        "exit_code": None,
        "error": error,
        **dict.fromkeys(_OBSERVED),
        "not_observed": dict.fromkeys(_OBSERVED, why),
    }


def outcome(ending: Ending) -> str:
    """The one word for how it went: success, failure, refused, timeout or limit."""
    match ending:
        case Exited(0):
            return "success"
        case Exited() | Signalled():
            return "failure"
        case TimedOut():
            return "timeout"
        case LimitHit():
            return "limit"
        case Refused():
            return "refused"
        case _:
            assert_never(ending)


def code_hash(text: str) -> str:
    """Of the whole text with its secrets, so that an auditor can match what they have."""
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _language(request: Request) -> str | None:
    if request.language is not None:
        return request.language
    return "bash" if request.command is not None else None


def _error(result: Result, redact: Redactor) -> str | None:
    if result.exception is not None:
        return redact.text(str(result.exception))
    return None if isinstance(result.ending, Exited) else redact.text(str(result.ending))


def _measured(usage: Usage, not_observed: dict[str, str], *, ran: bool) -> dict[str, Any]:
    is_known = not ran or usage.measured_by != "nothing"
    if not is_known:
        not_observed["execution_time_ms"] = not_observed["cpu_time_ms"] = _NO_MEASURE
        not_observed["memory_used_mb"] = _NO_MEASURE
    return {
        "execution_time_ms": round(usage.wall_seconds * 1000, 3) if is_known else None,
        "cpu_time_ms": round(usage.cpu_seconds * 1000, 3) if is_known else None,
        "memory_used_mb": round(usage.peak_memory_bytes / _MEGABYTE, 3) if is_known else None,
        "measured_by": usage.measured_by,
    }


@dataclass(frozen=True, slots=True)
class _Named:
    """How files are called in a record: what lies in the workspace by its name inside, and no secret in any name."""

    redact: Redactor
    workspace: str

    def __call__(self, name: str) -> str:
        if self.workspace and name.startswith(self.workspace + "/"):
            name = "/workspace" + name[len(self.workspace) :]
        return self.redact.name(name)


def _touched(named: _Named, result: Result, not_observed: dict[str, str], *, files_collected: bool) -> dict[str, Any]:
    """Files and network: nothing, if it did not run."""
    if isinstance(result.ending, Refused):
        return {"network_bytes_sent": 0, "network_bytes_recv": 0, "files_read": [], "files_written": []}
    fields: dict[str, Any] = {"files_read": None, "files_written": None}
    seen = result.observed
    if seen is not None and seen.read is not None:
        fields["files_read"] = [named(name) for name in seen.read[:_FILES_MAX]]
        fields["files_read_count"] = len(seen.read)
    else:
        not_observed["files_read"] = _NO_SUPERVISOR if seen is None else _READS_NOT_LOOKED_AT
    if seen is not None:
        fields["files_written"] = [named(name) for name in seen.written[:_FILES_MAX]]
        fields["files_written_count"] = len(seen.written)
        fields["programs"] = [named(name) for name in seen.executed[:_FILES_MAX]]
        if not seen.is_complete:
            not_observed["files"] = "there were more than are kept"
    elif files_collected:
        fields["files_written"] = [named(f"/workspace/{file.path}") for file in result.files[:_FILES_MAX]]
        fields["files_written_count"] = len(result.files)
    else:
        not_observed["files_written"] = _NOT_COLLECTED
    is_closed = result.wall is not None and Guarantee.NETWORK_OFF in result.wall.guarantees
    fields["network_bytes_sent"] = fields["network_bytes_recv"] = 0 if is_closed else None
    if not is_closed:
        not_observed["network_bytes_sent"] = not_observed["network_bytes_recv"] = _NETWORK_OPEN
    return fields


@lru_cache(maxsize=64)
def _wrapped(command: tuple[str, ...], redact: Redactor) -> str:
    """The same for every command of a box."""
    return redact.text(" ".join(command))
