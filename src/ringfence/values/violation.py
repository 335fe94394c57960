"""Something that a rule refused: its type, how grave it is, and everything that is known about it (requirement C7)."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self


class Severity(StrEnum):
    """How much a violation matters."""

    LOW = "low"
    """For information."""
    MEDIUM = "medium"
    """May be a problem."""
    HIGH = "high"
    """A security problem."""
    CRITICAL = "critical"
    """Must never pass."""

    @property
    def rank(self) -> int:
        """0 for the mildest; severities are texts, whose own order means nothing."""
        return _RANKS[self]


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


class ViolationType(StrEnum):
    """What a violation is about: the ten types of the requirement, and limits."""

    HEREDOC_INJECTION = "heredoc_injection"
    SHELL_METACHARACTER_ABUSE = "shell_metacharacter_abuse"
    VARIABLE_INJECTION = "variable_injection"
    DANGEROUS_PATTERN = "dangerous_pattern"
    CRITICAL_PATH_REMOVAL = "critical_path_removal"
    SENSITIVE_FILE_ACCESS = "sensitive_file_access"
    PATH_ACCESS_DENIED = "path_access_denied"
    COMMAND_BLOCKED = "command_blocked"
    DISALLOWED_TEMP_WRITE = "disallowed_temp_write"
    NETWORK_VIOLATION = "network_violation"
    RESOURCE_LIMIT = "resource_limit"
    """Ours: more of something was used than is granted."""

    # Shorter names of the same.
    PATH = PATH_ACCESS_DENIED
    COMMAND = COMMAND_BLOCKED
    NETWORK = NETWORK_VIOLATION
    LIMIT = RESOURCE_LIMIT


ViolationKind = ViolationType

USUAL_SEVERITY: Final = {
    ViolationType.HEREDOC_INJECTION: Severity.HIGH,  # hides a program in what looks like data
    ViolationType.SHELL_METACHARACTER_ABUSE: Severity.MEDIUM,  # often only clumsy quoting
    ViolationType.VARIABLE_INJECTION: Severity.HIGH,  # what would run cannot be read from the text
    ViolationType.DANGEROUS_PATTERN: Severity.HIGH,
    ViolationType.CRITICAL_PATH_REMOVAL: Severity.CRITICAL,  # cannot be undone
    ViolationType.SENSITIVE_FILE_ACCESS: Severity.HIGH,  # keys and passwords
    ViolationType.PATH_ACCESS_DENIED: Severity.MEDIUM,  # mostly a wrong guess about where files are
    ViolationType.COMMAND_BLOCKED: Severity.MEDIUM,
    ViolationType.DISALLOWED_TEMP_WRITE: Severity.LOW,  # harmless: /tmp inside is the box's own
    ViolationType.NETWORK_VIOLATION: Severity.HIGH,  # how data would leave
    ViolationType.RESOURCE_LIMIT: Severity.MEDIUM,
}
"""How grave each type is, where nothing more is known."""


LEFTOVER_RULE = "leftover "
"""How rules begin that are about what a command left behind, and that stopped nothing while it ran."""


class Operation(StrEnum):
    """What was tried."""

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    RENAME = "rename"
    LINK = "link"
    CHMOD = "chmod"
    CHOWN = "chown"
    TRUNCATE = "truncate"
    EXEC = "exec"
    CONNECT = "connect"
    BIND = "bind"
    SEND = "send"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Violation:
    """What was refused, by which rule, and what would allow it."""

    kind: ViolationType
    severity: Severity
    what: str
    """One sentence for a person or an agent."""
    rule: str
    allow_by: str = ""
    operation: Operation | None = None
    target: str = ""
    """The path or address, or the stretch of the command, that it is about."""
    place: str = ""
    """Where the rule is written: `policy.yaml:12`; empty for a built-in one."""
    at: float = 0.0
    """Seconds since the epoch; 0 if that is not known."""
    pid: int | None = None
    """As the host sees it."""
    program: str = ""
    count: int = 1
    """How often the same was tried."""

    @property
    def rule_and_place(self) -> str:
        if not self.place:
            return self.rule
        return f"{self.rule} at {self.place}" if ":" in self.place else f"{self.rule} ({self.place})"

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        tail = f"; to allow it: {self.allow_by}" if self.allow_by else ""
        return f"{self.what}{times} [rule: {self.rule_and_place}]{tail}"

    def as_record(self) -> dict[str, Any]:
        """For the journal and for JSON: what is known, under plain names."""
        known = {"type": str(self.kind), "severity": str(self.severity), "what": self.what, "rule": self.rule}
        more = {
            "allow_by": self.allow_by,
            "operation": str(self.operation) if self.operation is not None else "",
            "target": self.target,
            "place": self.place,
            "at": self.at,
            "pid": self.pid,
            "program": self.program,
        }
        return known | {name: value for name, value in more.items() if value} | {"count": self.count}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """What `as_record` gave.

        Raises:
            ValueError: it is no such record.
        """
        try:
            operation = record.get("operation")
            pid = record.get("pid")
            return cls(
                ViolationType(record["type"]),
                Severity(record["severity"]),
                str(record["what"]),
                str(record["rule"]),
                str(record.get("allow_by", "")),
                Operation(operation) if operation else None,
                str(record.get("target", "")),
                str(record.get("place", "")),
                float(record.get("at", 0.0)),
                int(pid) if pid is not None else None,
                str(record.get("program", "")),
                int(record.get("count", 1)),
            )
        except (KeyError, TypeError) as fault:
            raise ValueError(f"not the record of a violation: {fault}") from fault
