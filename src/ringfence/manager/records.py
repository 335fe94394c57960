"""Reads what the journal holds. The one place that knows where the records lie and what they call things."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from ringfence.audit.files import lines, take_snapshot
from ringfence.audit.violations import RecordedViolation
from ringfence.values.violation import Violation

EXECUTION = b'"event_type":"sandbox_execution"'
"""What the line of a record of a run holds; the others are of commits and of the log itself."""
_HAS_VIOLATIONS = b'"violations":[{'


def records(state: Path, *, having: bytes = b"") -> Iterator[dict[str, Any]]:
    """The records, the oldest first; lines that are none, such as a torn last one, are passed over.

    Args:
        having: what a line has to hold to be looked at; cheaper than reading all of them.
    """
    with suppress(OSError), take_snapshot(state) as snapshot:
        for _, line in (each for part in snapshot.parts for each in lines(part)):
            if having and having not in line:
                continue
            with suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def recorded_violations(state: Path) -> Iterator[RecordedViolation]:
    """Every violation in the journal, the oldest first."""
    return violations_of(records(state, having=_HAS_VIOLATIONS))


def violations_of(found: Iterable[dict[str, Any]]) -> Iterator[RecordedViolation]:
    """The violations in these records."""
    for record in found:
        for part in record.get("violations") or ():
            with suppress(ValueError, TypeError, AttributeError):
                violation = Violation.from_record(part)
                yield RecordedViolation(
                    violation,
                    violation.at or recorded_at(record),
                    str(record.get("session_id") or record.get("session") or ""),
                    str(record.get("tool") or ""),
                    str(record.get("run") or ""),
                )


def recorded_at(record: dict[str, Any]) -> float:
    """When the run began, in seconds since the epoch; 0 if the record does not say."""
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(str(record.get("timestamp"))).timestamp()
    return 0.0
