"""Which rules of a grant mean a host: patterns read once, an index by name, and what is wrong with a rule.

The judge (`policy/reach.py`) decides by what is found here. Rules that name a host outright are found before wildcards.
"""

import ipaddress
import re
from collections import OrderedDict
from functools import lru_cache
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidConfig
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.policy.reach_addresses import readings
from ringfence.values.hosts import Address, BadHost, Host, canonical_host
from ringfence.values.network import GIT_PUSH, GIT_READ, WEB_PORTS, DenyRule, NetworkGrant, NetworkRule
from ringfence.values.web_path import BadPath, path_pattern

ANY_PORT: Final = 0
"""Of a look-up: which port the name is wanted for is not known yet."""
_TRUSTED_INSIDE: Final = {
    # Names that stand for the machine itself, or for who it is: no wildcard is written with them in mind.
    "localhost.localdomain": "the machine itself",
    "ip6-localhost": "the machine itself",
    "ip6-loopback": "the machine itself",
    "metadata": "the cloud's metadata service",
    "metadata.google.internal": "the cloud's metadata service",
    "metadata.goog": "the cloud's metadata service",
    "metadata.azure.internal": "the cloud's metadata service",
    "metadata.tencentyun.com": "the cloud's metadata service",
    "metadata.packet.net": "the cloud's metadata service",
    "metadata.platformequinix.com": "the cloud's metadata service",
    "instance-data": "the cloud's metadata service",
    "instance-data.ec2.internal": "the cloud's metadata service",
    "host.docker.internal": "the machine itself",
    "gateway.docker.internal": "the machine itself",
    "host.containers.internal": "the machine itself",
    "kubernetes.default.svc": "the cluster's own interface",
    "kubernetes.default.svc.cluster.local": "the cluster's own interface",
}


def fault_of(rule: NetworkRule | DenyRule) -> str:
    """What is wrong with a rule, in one sentence; empty if nothing is. A rule with a fault allows nothing."""
    pattern = _pattern(rule.host)
    if pattern is None:
        return f"{rule.host!r} is neither a host name nor an address"
    if meant := _other_spelling(rule.host, pattern):
        return f"{rule.host!r} is the address {meant}: write that"
    if isinstance(rule, DenyRule):
        return ""
    if _too_wide(pattern):
        return f"{rule.host!r} means every host, or nearly so"
    if any(not 0 < port < 65536 for port in rule.ports):
        return "a port is a number from 1 to 65535"
    if rule.ssh_user and not (rule.methods and {*rule.methods} <= {*GIT_READ, *GIT_PUSH}):
        return "git by SSH is to read or to push"
    if any(not re.fullmatch(r"[A-Z][A-Z0-9_-]{0,31}", method) for method in rule.methods):
        return "a method is a word in capitals"
    try:
        for glob in rule.paths:
            compiled_path(glob)
    except BadPath as bad:
        return str(bad)
    return why_no_network(rule.private)


def why_no_network(private: tuple[str, ...]) -> str:
    """Empty if each is a network of addresses."""
    for text in private:
        pattern = _pattern(text)
        if pattern is None or pattern.network is None or pattern.port is not None:
            return f"{text!r} is no network of addresses, such as 10.1.0.0/16"
    return ""


def ports_of(rule: NetworkRule) -> tuple[int, ...]:
    pattern = _pattern(rule.host)
    if pattern is not None and pattern.port is not None:
        return (pattern.port,)
    return rule.ports or WEB_PORTS


def means_host(pattern_text: str, host: Host) -> bool:
    """Whether a pattern of a rule or a secret means this host."""
    pattern = _pattern(pattern_text)
    return pattern is not None and not _too_wide(pattern) and _means(pattern, host)


@dataclass(frozen=True, slots=True)
class _Index:
    """The rules of a grant that have no fault, as they are looked for."""

    network: NetworkGrant
    by_name: dict[str, tuple[NetworkRule, ...]]
    """Those that name a host outright."""
    others: tuple[tuple[NetworkRule, HostRule, bool], ...]
    """Wildcards and addresses, with whether they name one outright."""


_indexes: OrderedDict[int, _Index] = OrderedDict()
_KEPT: Final = 1024


def _index(network: NetworkGrant) -> _Index:
    """By the grant's identity, which the index keeps alive: to hash a grant takes longer than to judge by it."""
    known = _indexes.get(id(network))
    if known is not None:
        return known
    by_name: dict[str, tuple[NetworkRule, ...]] = {}
    others: list[tuple[NetworkRule, HostRule, bool]] = []
    for rule in network.rules:
        pattern = _pattern(rule.host)
        if pattern is None or fault_of(rule):
            continue
        outright = is_outright(rule.host)
        if outright and pattern.network is None:
            name = re.sub(r"\\(.)", r"\1", pattern.pattern)
            by_name[name] = (*by_name.get(name, ()), rule)
        if not outright or pattern.network is not None or pattern.written.strip().lower() == "localhost":
            others.append((rule, pattern, outright))
    made = _indexes[id(network)] = _Index(network, by_name, tuple(others))
    if len(_indexes) > _KEPT:
        _indexes.popitem(last=False)
    return made


def naming(network: NetworkGrant, host: Host) -> tuple[NetworkRule, ...]:
    index = _index(network)
    outright = index.by_name.get(host.text)
    if outright is not None:
        return outright
    means = [(rule, sure) for rule, pattern, sure in index.others if _means(pattern, host)]
    named = tuple(rule for rule, sure in means if sure)
    if named or what_inside(host):
        return named
    return tuple(rule for rule, _ in means)


def _means(pattern: HostRule, host: Host) -> bool:
    if host.address is not None:
        return pattern.matches(host.text, None, surely=False)
    return (
        pattern.network is None
        and not pattern.addresses
        and _name_pattern(pattern.pattern).fullmatch(host.text) is not None
    )


@lru_cache(maxsize=4096)
def _name_pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def what_inside(host: Host) -> str:
    if host.text == "localhost" or host.text.endswith(".localhost"):
        return "the machine itself"
    return _TRUSTED_INSIDE.get(host.text, "")


def denies(rule: DenyRule, host: Host, port: int) -> bool:
    pattern = _pattern(rule.host)
    if pattern is None:
        return True  # what cannot be read may have meant anything
    ports = (pattern.port,) if pattern.port is not None else rule.ports
    if ports and port not in ports:
        return False
    return _means(pattern, host)


def denies_address(rule: DenyRule, address: Address, port: int) -> bool:
    pattern = _pattern(rule.host)
    if pattern is None:
        return True
    ports = (pattern.port,) if pattern.port is not None else rule.ports
    if ports and port != ANY_PORT and port not in ports:
        return False
    if pattern.network is None and not pattern.addresses:
        return False
    # An address that carries another one leads there, whichever of the two is written down.
    return any(pattern.matches(str(each), port, surely=False) for each in (address, *readings(address)))


@lru_cache(maxsize=4096)
def _pattern(text: str) -> HostRule | None:
    try:
        return HostRule.parse(text, Mark("", 0))
    except InvalidConfig:
        return None


@lru_cache(maxsize=4096)
def _other_spelling(text: str, pattern: HostRule) -> str:
    """The address that a text means in a spelling that no host ever has here, by which a rule would mean nothing."""
    bare = text.strip()
    if pattern.network is not None and "/" in bare:
        inner = pattern.network.network_address
        carried = inner.ipv4_mapped if isinstance(inner, ipaddress.IPv6Address) else None
        return f"{carried}/{pattern.network.prefixlen - 96}" if carried and pattern.network.prefixlen >= 96 else ""
    if "*" in bare or "/" in bare:
        return ""
    if pattern.port is not None:
        bare = bare.rpartition(":")[0]
    try:
        meant = canonical_host(bare)
    except BadHost:
        return ""
    if meant.address is None or (pattern.network is not None and meant.address in pattern.network):
        return ""
    return meant.text


@lru_cache(maxsize=1024)
def compiled_path(glob: str) -> re.Pattern[str]:
    return path_pattern(glob)


def _too_wide(pattern: HostRule) -> bool:
    if pattern.network is not None:
        return pattern.network.prefixlen < (8 if pattern.network.version == 4 else 16)
    if pattern.addresses:
        return pattern.pattern.startswith(r"\d")
    bare = pattern.written.strip().lower()
    if pattern.port is not None:
        bare = bare.rpartition(":")[0]
    return "*" in bare.rstrip(".").rpartition(".")[2]


def is_outright(text: str) -> bool:
    pattern = _pattern(text)
    if pattern is None or pattern.addresses:
        return False
    if pattern.network is not None:
        return pattern.network.num_addresses == 1
    return "*" not in text
