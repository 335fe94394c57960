"""Which addresses are never dialled, or only where a rule opens their network.

Listed here rather than asked of `ipaddress.is_global`, whose answers changed between Python's versions; that is asked
too, for what will be reserved one day. An IPv6 address that carries an IPv4 one is judged by both.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass

if TYPE_CHECKING:
    from ringfence.values.hosts import Address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
NOTHING_OF_OURS: Final[frozenset[Address]] = frozenset()


@dataclass(frozen=True, slots=True)
class Why:
    sentence: str
    may_be_opened: bool
    """Whether `private` of a rule may open it."""


_NEVER: Final = (
    # Addresses of the machine itself, of its cloud's metadata, and of no one machine: no rule opens them.
    ("0.0.0.0/8", "no address of a host"),
    ("::/128", "no address of a host"),
    ("127.0.0.0/8", "the machine itself"),
    ("::1/128", "the machine itself"),
    ("169.254.0.0/16", "link-local, where clouds have their metadata"),
    ("fe80::/10", "link-local, where clouds have their metadata"),
    ("fec0::/10", "site-local"),
    ("100.100.100.200/32", "metadata of Alibaba Cloud"),
    ("168.63.129.16/32", "metadata of Azure"),
    ("192.0.0.192/32", "metadata of Oracle Cloud"),
    ("fd00:ec2::/32", "metadata of AWS"),
    ("fd20:ce::/32", "metadata of Google Cloud"),
    ("224.0.0.0/4", "multicast"),
    ("ff00::/8", "multicast"),
    ("255.255.255.255/32", "broadcast"),
    ("198.18.0.0/15", "an address that stands for a name inside boxes"),
    ("2002::/16", "6to4, which carries another address"),
    ("2001::/32", "Teredo, which carries another address"),
    ("64:ff9b:1::/48", "a translated address"),
    ("::ffff:0:0:0/96", "a translated address"),
    ("::/96", "an IPv4 address in a form that is no longer used"),
)
_NOT_GLOBAL: Final = (
    ("10.0.0.0/8", "private"),
    ("172.16.0.0/12", "private"),
    ("192.168.0.0/16", "private"),
    ("100.64.0.0/10", "shared with the provider"),
    ("192.0.0.0/24", "reserved"),
    ("192.0.2.0/24", "for documentation"),
    ("198.51.100.0/24", "for documentation"),
    ("203.0.113.0/24", "for documentation"),
    ("192.88.99.0/24", "reserved"),
    ("240.0.0.0/4", "reserved"),
    ("fc00::/7", "private"),
    ("100::/64", "discarded"),
    ("2001::/23", "reserved"),
    ("2001:db8::/32", "for documentation"),
    ("3fff::/20", "for documentation"),
    ("5f00::/16", "reserved"),
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP: Final = 0x5EFE


def _table(rows: tuple[tuple[str, str], ...]) -> tuple[tuple[Network, str], ...]:
    return tuple((ipaddress.ip_network(text), what) for text, what in rows)


_NEVER_NETWORKS: Final = _table(_NEVER)
_CLOSED_NETWORKS: Final = _table(_NOT_GLOBAL)


def why_address_is_refused(address: Address, private: tuple[str, ...], own: frozenset[Address]) -> Why | None:
    """Why it may not be dialled; None if it may.

    Args:
        private: networks that the rule opens.
        own: addresses of this machine's interfaces.
    """
    for each in readings(address):
        if each in own:
            return Why("an address of this machine", may_be_opened=False)
        for network, what in _NEVER_NETWORKS:
            if each.version == network.version and each in network:
                return Why(what, may_be_opened=False)
        if any(each.version == opened.version and each in opened for opened in map(_network, private)):
            continue
        for network, what in _CLOSED_NETWORKS:
            if each.version == network.version and each in network:
                return Why(f"{what}, and the rule does not open it", may_be_opened=True)
        if not each.is_global and each not in _NAT64:
            return Why("no address of the public network", may_be_opened=True)
    return None


def readings(address: Address) -> tuple[Address, ...]:
    """The address, and the one that it carries."""
    if isinstance(address, ipaddress.IPv4Address):
        return (address,)
    if address.scope_id is not None:
        address = ipaddress.IPv6Address(int(address))
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64 or (int(address) >> 32) & 0xFDFFFFFF == _ISATAP:
        return (address, low)
    return (address,)


@lru_cache(maxsize=1024)
def _network(text: str) -> Network:
    return ipaddress.ip_network(text.strip(), strict=False)
