"""Rules about hosts: names with wildcards, addresses, networks, ports.

A host is brought to one spelling first, so that `0x7f.1`, `2130706433`, `[::ffff:127.0.0.1]` and `LOCALHOST.` are what
a connection would make of them. In a name, `*` as a whole label stands for one or more labels (`*.example.com` is every
host below, not example.com itself), and as part of a label for any characters of it. A row of digits and stars, such as
`10.*`, means addresses.

What this does not protect against: a name that resolves to a forbidden address. Whoever makes the connection has to ask
again with the address that it got.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Self

from ringfence.dataclass import dataclass

if TYPE_CHECKING:
    from ringfence.policy.document import Mark
    from ringfence.values.network import NetworkRule

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME: Final = re.compile(r"[a-z0-9_*]([a-z0-9_*-]*[a-z0-9_*])?(\.[a-z0-9_*]([a-z0-9_*-]*[a-z0-9_*])?)*")
_PATTERN: Final = re.compile(r"(\d{1,3}|\*)(\.(\d{1,3}|\*)){0,3}")


def normal_host(host: str) -> str:
    """The one spelling of a host name or address."""
    text = host.strip().strip("[]").partition("%")[0].rstrip(".").lower()
    address = _address(text)
    if address is not None:
        mapped = getattr(address, "ipv4_mapped", None)
        return str(mapped or address)
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        return text


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return _old_address(text)


def _old_address(text: str) -> ipaddress.IPv4Address | None:
    """An IPv4 address in the spellings of inet_aton(3), which curl and ping accept: `127.1`, `0x7f.0.1`."""
    parts = text.split(".")
    if not 1 <= len(parts) <= 4:
        return None
    numbers: list[int] = []
    for part in parts:
        if not re.fullmatch(r"0x[0-9a-f]{1,8}|\d{1,11}", part):
            return None
        base = 16 if part.startswith("0x") else 8 if part.startswith("0") and len(part) > 1 else 10
        try:
            numbers.append(int(part, base))
        except ValueError:
            return None
    *heads, last = numbers
    if any(head > 255 for head in heads) or last >= 256 ** (5 - len(parts)):
        return None
    value = last
    for index, head in enumerate(heads):
        value += head << (24 - 8 * index)
    return ipaddress.IPv4Address(value)


@dataclass(frozen=True, slots=True)
class HostRule:
    written: str
    mark: Mark
    why: str = ""
    port: int | None = None
    network: Network | None = None
    pattern: str = ""
    """A regular expression; of an address, if `network` is None and `addresses` is set."""
    addresses: bool = False
    allow: NetworkRule | None = None
    """What may be done there, where the rule says more than a host: ports, methods, paths and so on."""
    preset: str = ""
    """The preset that it comes from."""

    @classmethod
    def parse(cls, text: str, mark: Mark, why: str = "") -> Self:
        """A rule such as `*.example.com`, `api.example.com:443`, `10.0.0.0/8` or `192.168.*`.

        Raises:
            InvalidConfig: it can be no host.
        """
        bare, port = _split_port(text.strip().lower(), mark)
        if "://" in text:
            raise mark.fault(f"{text!r} is a URL", "write the host alone, or host:port")
        try:
            return cls(text, mark, why, port, ipaddress.ip_network(bare.strip("[]"), strict=False))
        except ValueError:
            pass
        if _PATTERN.fullmatch(bare) and bare != "*":
            pattern = r"\.".join(r"\d+(?:\.\d+)*" if part == "*" else part for part in bare.split("."))
            return cls(text, mark, why, port, None, pattern, addresses=True)
        try:
            name = ".".join(
                part if "*" in part else part.encode("idna").decode() for part in bare.rstrip(".").split(".")
            )
        except UnicodeError:
            name = ""
        if not _NAME.fullmatch(name):
            raise mark.fault(
                f"{text!r} is neither a host name nor an address", "write it as *.example.com or 10.0.0.0/8"
            )
        labels = (r"[^.]+(?:\.[^.]+)*" if part == "*" else _label(part) for part in name.split("."))
        return cls(text, mark, why, port, None, r"\.".join(labels))

    @property
    def ports(self) -> tuple[int, ...]:
        """Those that it names; none is every one."""
        if self.allow is not None:
            return self.allow.ports
        return () if self.port is None else (self.port,)

    @property
    def bare(self) -> str:
        """The host alone, in small letters, without a port."""
        return _split_port(self.written.strip().lower(), self.mark)[0]

    @property
    def matches_everything(self) -> bool:
        if self.network is not None:
            return self.network.prefixlen == 0
        return not re.sub(r"[*.]", "", self.written)

    def matches(self, host: str, port: int | None, *, surely: bool) -> bool:
        """Whether it means this host, given in its normal spelling; a port that is not known may be any."""
        if self.ports and port not in self.ports and (surely or port is not None):
            return False
        try:
            address: Address | None = ipaddress.ip_address(host)
        except ValueError:
            address = None
        if self.network is not None:
            return address is not None and address.version == self.network.version and address in self.network
        if self.addresses and address is None:
            return False
        if self.written.strip().lower() == "localhost" and address is not None:
            return address.is_loopback or address.is_unspecified
        return re.fullmatch(self.pattern, host) is not None


def first_host_rule(rules: Iterable[HostRule], host: str, port: int | None, *, surely: bool = False) -> HostRule | None:
    """The first rule that means the host; with `surely`, whatever the port turns out to be."""
    normal = normal_host(host)
    return next((rule for rule in rules if rule.matches(normal, port, surely=surely)), None)


def _split_port(text: str, mark: Mark) -> tuple[str, int | None]:
    if text.count(":") > 1 and not text.startswith("["):
        return text, None  # an IPv6 address
    head, colon, tail = text.rpartition(":")
    if not colon or (text.startswith("[") and not head.endswith("]")):
        return text, None
    if not tail.isdigit() or not 0 < int(tail) < 65536:
        if "://" in text:
            return text, None
        raise mark.fault(f"{tail!r} is not a port", "write a number from 1 to 65535")
    return head, int(tail)


def _label(part: str) -> str:
    return "[^.]*".join(re.escape(piece) for piece in part.split("*"))
