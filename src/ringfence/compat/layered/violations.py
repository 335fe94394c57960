"""Violations by the document's names: views of `ringfence.Violation` and `ringfence.ViolationStore`."""

from enum import StrEnum
from typing import Self

from ringfence.audit.violations import MOST_KEPT
from ringfence.audit.violations import ViolationStore as OurStore
from ringfence.compat.layered.ordered import OrderedWords
from ringfence.dataclass import dataclass
from ringfence.values.violation import Severity
from ringfence.values.violation import Violation as OurViolation
from ringfence.values.violation import ViolationType as OurType


class ViolationType(StrEnum):
    """The ten types; the last one is ours."""

    HeredocInjection = OurType.HEREDOC_INJECTION
    ShellMetacharacterAbuse = OurType.SHELL_METACHARACTER_ABUSE
    VariableInjection = OurType.VARIABLE_INJECTION
    DangerousPattern = OurType.DANGEROUS_PATTERN
    CriticalPathRemoval = OurType.CRITICAL_PATH_REMOVAL
    SensitiveFileAccess = OurType.SENSITIVE_FILE_ACCESS
    PathAccessDenied = OurType.PATH_ACCESS_DENIED
    CommandBlocked = OurType.COMMAND_BLOCKED
    DisallowedTempWrite = OurType.DISALLOWED_TEMP_WRITE
    NetworkViolation = OurType.NETWORK_VIOLATION
    ResourceLimit = OurType.RESOURCE_LIMIT


class ViolationSeverity(OrderedWords):
    """Ordered: `violation.severity >= ViolationSeverity.High`."""

    Low = Severity.LOW
    Medium = Severity.MEDIUM
    High = Severity.HIGH
    Critical = Severity.CRITICAL

    LOW = Low
    MEDIUM = Medium
    HIGH = High
    CRITICAL = Critical


@dataclass(frozen=True, slots=True)
class Violation:
    """What was refused."""

    violation_type: ViolationType
    severity: ViolationSeverity
    message: str = ""
    rule: str = ""

    @classmethod
    def of(cls, violation: OurViolation) -> Self:
        return cls(ViolationType(violation.kind), ViolationSeverity(violation.severity), violation.what, violation.rule)


class ViolationStore:
    """The last violations: of its own, or of a sandbox (`ViolationStore.of(sandbox.violations)`)."""

    def __init__(self, max_violations: int = MOST_KEPT) -> None:
        self._store = OurStore(max_violations)

    @classmethod
    def of(cls, store: OurStore) -> Self:
        """A view of a store of ours."""
        view = cls.__new__(cls)
        view._store = store
        return view

    def record(self, violation: Violation | OurViolation) -> None:
        """Keep it; when the store is full, the oldest goes."""
        if isinstance(violation, Violation):
            violation = OurViolation(
                OurType(violation.violation_type), Severity(violation.severity), violation.message, violation.rule
            )
        self._store.record(violation)

    def count_by_type(self, violation_type: ViolationType) -> int:
        """How many of this type there ever were, also those that are no longer kept."""
        return self._store.count_by_type(OurType(violation_type))

    def get_high_severity(self) -> list[Violation]:
        """Those kept that are high or critical, in the order in which they came."""
        return [Violation.of(entry.violation) for entry in reversed(self._store.high_severity())]

    def __len__(self) -> int:
        return len(self._store)
