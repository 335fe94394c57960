"""The proxy of the person's own network, through which everything has to go out that is not exempt from it."""

import ipaddress

from ringfence.dataclass import dataclass, field
from ringfence.values.hosts import Host


@dataclass(frozen=True, slots=True)
class ParentProxy:
    """One that takes CONNECT."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)
    """The value of Proxy-Authorization; empty without credentials. In no message, record or box."""

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentProxies:
    https: ParentProxy | None = None
    """For TLS, and for everything else that is no plain HTTP."""
    http: ParentProxy | None = None
    exempt: tuple[str, ...] = ()
    """Hosts that are reached without it, as NO_PROXY has them."""

    def of(self, host: Host, port: int, *, is_plain: bool) -> ParentProxy | None:
        """Through which one a host is reached; None: directly. Decided by its name alone, as clients do."""
        parent = self.http if is_plain else self.https
        if parent is None or any(_means(row, host, port) for row in self.exempt):
            return None
        return parent


def _means(row: str, host: Host, port: int) -> bool:
    """Whether a row of NO_PROXY is about a host: itself and what is below it, an address, a network, or all (`*`)."""
    if row == "*":
        return True
    try:
        network = ipaddress.ip_network(row.strip("[]"), strict=False)
    except ValueError:
        name, colon, number = row.rpartition(":")
        if colon and number.isdecimal():
            return int(number) == port and _means(name, host, port)
        name = row.lower().removeprefix("*").strip(".")
        return bool(name) and host.address is None and (host.text == name or host.text.endswith(f".{name}"))
    return host.address is not None and host.address.version == network.version and host.address in network
