"""How risky a piece of code looks: levels, findings, and how much weight they carry. Advice, never the wall."""

from enum import IntEnum, StrEnum

from ringfence.dataclass import dataclass
from ringfence.values.guarantee import Guarantee


class Risk(IntEnum):
    """Ordered, so that the risk of the whole is the `max()` of its parts."""

    SAFE = 0
    """Made only of parts that are known to be harmless: it computes and prints. Says nothing about time and memory."""
    LOW = 1
    """Looks around, or asks: its input, the clock, names of files, files of the workspace."""
    MEDIUM = 2
    """Changes files of the workspace, or uses a library that can."""
    HIGH = 3
    """Talks to the network, removes, runs code that is not seen here, or cannot be understood."""
    CRITICAL = 4
    """Starts programs, touches raw memory, climbs out of the language, or is too much to be read."""


@dataclass(frozen=True, slots=True)
class RiskFinding:
    """One pattern in the code, and where; lines and columns count from 1, in characters."""

    risk: Risk
    pattern: str
    why: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.pattern}: {self.why} [{self.risk.name.lower()}]"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What static analysis says of a piece of code. Whoever wrote the code can mislead it: advice, never the wall."""

    risk: Risk
    findings: tuple[RiskFinding, ...]
    language: str

    @property
    def patterns(self) -> tuple[str, ...]:
        """Each pattern once, the riskiest first."""
        ranked = sorted(self.findings, key=lambda finding: -finding.risk)
        return tuple(dict.fromkeys(finding.pattern for finding in ranked))


class SecurityMode(StrEnum):
    """How much the advice may change."""

    PERMISSIVE = "permissive"
    """For development: what looks risky is isolated."""
    STRICT = "strict"
    """For production: whatever is not known to be harmless is isolated."""


class Route(IntEnum):
    """Where code runs, ordered by how much is between it and the host."""

    DIRECT = 0
    """The lightest wall that is still one: host files hidden, network off, never root, the process tree dies."""
    WALLED = 1
    """The wall that the policy asks for."""
    ISOLATED = 2
    """A wall that also gives what the policy wants for such code (`isolation_requires`), if anything."""


@dataclass(frozen=True, slots=True)
class RouteDecision:
    """Where one piece of code goes, and why."""

    route: Route
    why: str
    """The route, the risk, what was found and where, and the mode."""
    needs: frozenset[Guarantee] = frozenset()
    """What its wall has to guarantee because of that, beyond what is required anyway."""
    source: str = ""
    """The policy's file, and the line in it, that says so."""
    line: int | None = None

    @property
    def is_isolated(self) -> bool:
        return self.route is Route.ISOLATED
