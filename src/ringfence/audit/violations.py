"""Keeps the last violations of a process, and counts all of them (requirement C7).

Bounded: when it is full, the oldest goes, and the counts stay right, because they are kept apart. May be used from any
thread.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument
from ringfence.values.violation import Severity, Violation, ViolationType

MOST_KEPT = 1000
"""About half a megabyte: enough to see what an agent has been at, and no way to fill the memory."""


@dataclass(frozen=True, slots=True)
class RecordedViolation:
    """A violation, and in whose run it happened."""

    violation: Violation
    at: float
    """Seconds since the epoch."""
    session: str = ""
    tool: str = ""
    run_id: str = ""

    def as_record(self) -> dict[str, Any]:
        """For JSON."""
        return self.violation.as_record() | {
            "at": self.at,
            "session": self.session,
            "tool": self.tool,
            "run": self.run_id,
        }


class ViolationStore:
    """The last violations, with counts of all that ever were.

    sandbox.violations.counts_by_type()
    sandbox.violations.query(at_least=Severity.HIGH, text=".ssh")
    """

    def __init__(self, max_violations: int = MOST_KEPT) -> None:
        if max_violations < 1:
            raise InvalidArgument(f"a store for {max_violations!r} violations keeps none", hint="give one or more")
        self._lock = threading.Lock()
        self._kept: deque[RecordedViolation] = deque(maxlen=max_violations)
        self._by_type: Counter[ViolationType] = Counter()
        self._by_severity: Counter[Severity] = Counter()

    def record(
        self, violations: Violation | Iterable[Violation], *, session: str = "", tool: str = "", run_id: str = ""
    ) -> None:
        """Keep them, in the order in which they come."""
        now = time.time()
        given = (violations,) if isinstance(violations, Violation) else violations
        entries = [RecordedViolation(each, each.at or now, session, tool, run_id) for each in given]
        self.add(entries)

    def add(self, entries: Iterable[RecordedViolation]) -> None:
        """Keep what was recorded elsewhere, such as in the journal."""
        with self._lock:
            for entry in entries:
                self._kept.append(entry)
                self._by_type[entry.violation.kind] += entry.violation.count
                self._by_severity[entry.violation.severity] += entry.violation.count

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    @property
    def total(self) -> int:
        """How many there ever were."""
        with self._lock:
            return self._by_type.total()

    def count_by_type(self, kind: ViolationType) -> int:
        """How many of this type there ever were."""
        with self._lock:
            return self._by_type[kind]

    def counts_by_type(self) -> dict[ViolationType, int]:
        """How many of each type there ever were; types without any are left out."""
        with self._lock:
            return {kind: self._by_type[kind] for kind in ViolationType if self._by_type[kind]}

    def count_by_severity(self, severity: Severity) -> int:
        """How many of this severity there ever were."""
        with self._lock:
            return self._by_severity[severity]

    def counts_by_severity(self) -> dict[Severity, int]:
        """How many of each severity there ever were; severities without any are left out."""
        with self._lock:
            return {severity: self._by_severity[severity] for severity in Severity if self._by_severity[severity]}

    def recent(self, count: int = 10) -> tuple[RecordedViolation, ...]:
        """The last ones that are kept, the newest first."""
        with self._lock:
            kept = tuple(self._kept)
        return kept[::-1][: max(count, 0)]

    def high_severity(self) -> tuple[RecordedViolation, ...]:
        """Those kept that are high or critical, the newest first."""
        return self.query(at_least=Severity.HIGH)

    get_high_severity = high_severity
    """The name that the design document gives it."""

    def query(
        self,
        *,
        session: str | None = None,
        kind: ViolationType | None = None,
        at_least: Severity = Severity.LOW,
        since: float | None = None,
        until: float | None = None,
        text: str | None = None,
    ) -> tuple[RecordedViolation, ...]:
        """Those kept that fit everything that is given, the newest first.

        Args:
            since, until: seconds since the epoch, both included.
            text: a part of what was refused, its target, its rule or its program, in upper or lower case.
        """
        with self._lock:
            kept = tuple(self._kept)
        wanted = text.casefold() if text is not None else None
        return tuple(
            entry
            for entry in reversed(kept)
            if (session is None or entry.session == session)
            and (kind is None or entry.violation.kind is kind)
            and entry.violation.severity.rank >= at_least.rank
            and (since is None or entry.at >= since)
            and (until is None or entry.at <= until)
            and (wanted is None or wanted in _text_of(entry.violation))
        )

    def clear(self) -> None:
        """Forget all of them, and the counts."""
        with self._lock:
            self._kept.clear()
            self._by_type.clear()
            self._by_severity.clear()

    def __repr__(self) -> str:
        return f"<ViolationStore {self.total} in all, {len(self)} kept>"


def _text_of(violation: Violation) -> str:
    parts = (violation.what, violation.target, violation.rule_and_place, violation.program)
    return "\n".join(parts).casefold()
