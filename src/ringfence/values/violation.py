"""Something that a rule refused."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a violation matters."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class ViolationKind(StrEnum):
    """What a violation is about."""

    PATH = "path"
    COMMAND = "command"
    NETWORK = "network"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Violation:
    """What was refused, by which rule, and what would allow it."""

    kind: ViolationKind
    severity: Severity
    what: str
    rule: str
    allow_by: str = ""

    def __str__(self) -> str:
        tail = f"; to allow it: {self.allow_by}" if self.allow_by else ""
        return f"{self.what} [rule: {self.rule}]{tail}"
