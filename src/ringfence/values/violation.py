"""Something that a rule refused: its type, how grave it is, and everything that is known about it (requirement C7)."""

from enum import StrEnum
from typing import Any, Final, Self

from ringfence.dataclass import dataclass
from ringfence.values.remedy import ALLOW_OPTION, Access, Door, Need, allowing, raising


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
        """0 for the mildest."""
        return _RANKS[self]

    # Severities are texts, and the order of texts (critical < high < low) would mean nothing.

    def __lt__(self, other: str) -> bool:
        return self.rank < Severity(other).rank

    def __le__(self, other: str) -> bool:
        return self.rank <= Severity(other).rank

    def __gt__(self, other: str) -> bool:
        return self.rank > Severity(other).rank

    def __ge__(self, other: str) -> bool:
        return self.rank >= Severity(other).rank


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


_FOR_AGENTS: Final = {
    ViolationType.SENSITIVE_FILE_ACCESS: "do without it: what it holds is hidden from everything that runs here",
    ViolationType.NETWORK_VIOLATION: "do without the network; ask the operator for what is needed from there",
    ViolationType.RESOURCE_LIMIT: "use less of it, or take smaller steps; only the operator can raise it",
}
"""What an agent is told where no grant would help."""

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
    need: Need | None = None
    """The grant that would allow it, if one would."""

    def remedy(self, door: Door) -> str:
        """What would allow it, as whoever came through this door can do it; for an agent, what to do instead."""
        if self.need is not None:
            return self.need.said(door)
        if self.kind is ViolationType.RESOURCE_LIMIT and self.allow_by == raising(self._limit, Door.LIBRARY):
            return raising(self._limit, door)
        if self.kind is ViolationType.NETWORK_VIOLATION and self.allow_by.startswith(ALLOW_OPTION):
            return allowing(self.allow_by.removeprefix(ALLOW_OPTION), door)
        if door is not Door.AGENT:
            return self.allow_by
        if self.kind in _FOR_AGENTS:
            return _FOR_AGENTS[self.kind]
        # A rule that somebody wrote is theirs to change; the built-in checks say how to write the command otherwise.
        return "find another way; only the operator can change this rule" if ":" in self.place else self.allow_by

    @property
    def _limit(self) -> str:
        return self.rule.removeprefix("limits.")

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
            "need": {"access": str(self.need.access), "path": self.need.path} if self.need is not None else None,
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
                _need(record.get("need")),
            )
        except (KeyError, TypeError) as fault:
            raise ValueError(f"not the record of a violation: {fault}") from fault


def _need(record: Any) -> Need | None:
    return Need(Access(record["access"]), str(record["path"])) if isinstance(record, dict) else None
