"""One request that a box made to the network, as it is recorded."""

from ringfence.dataclass import dataclass
from ringfence.values.network import NetworkDoor
from ringfence.values.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkEvent:
    """What the box asked for, before any secret was put in, and what came of it."""

    box: str
    door: NetworkDoor
    host: str
    port: int
    verdict: Verdict
    reason: str
    """One sentence; for a refusal, what the client is told."""
    rule: str = ""
    place: str = ""
    allow_by: str = ""
    """The narrowest rule that would allow it."""
    address: str = ""
    """Which one was dialled, or asked for."""
    method: str = ""
    path: str = ""
    """Without the query."""
    query_sha256: str = ""
    secrets: tuple[str, ...] = ()
    """Names of those that were put in."""
    canary: str = ""
    """The secret whose placeholder was sent where it may not go."""
    status: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    started_at: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    approval: str = ""
    """Who said yes or no, and how."""
    inspected: bool = False
    parent: str = ""
    """The parent proxy that carried it on, as host and port; the address is its own then."""
    number: int = 0
    """Of one that was told already when it began, and so is told twice; 0 if it was not."""
