"""May this be reached? One pure function for every way out of a box.

Deny beats allow. Rules that name the host outright are taken before wildcards: whoever wrote `files.example.com:443`
beside `*.example.com` meant that port. Among those that are left, the first one that means host, port, method and path
counts; a method or path that is not known yet (a tunnel that has not been looked into) is decided later, on the request
itself. What no rule names is refused, or asked about, where the grant says so. Addresses are judged again once a name
is resolved (`policy/reach_addresses.py`).

What this does not protect against: what happens inside TLS that nobody looks into (another Host there, data in names
below a wildcard).
"""

import ipaddress
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from ringfence.errors import InvalidConfig
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.policy.reach_addresses import NOTHING_OF_OURS, readings, why_address_is_refused
from ringfence.values.hosts import Address, BadHost, Host, canonical_host
from ringfence.values.network import (
    GIT_PUSH,
    GIT_READ,
    WEB_PORTS,
    Asking,
    DenyRule,
    Inspection,
    NetworkDoor,
    NetworkGrant,
    NetworkRule,
    SecretPlace,
)
from ringfence.values.verdict import Verdict
from ringfence.values.web_path import BadPath, canonical_path, path_pattern

ANY_PORT: Final = 0
"""Of a look-up: which port the name is wanted for is not known yet."""
READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a box asks for, as far as it is known."""

    host: Host
    port: int
    door: NetworkDoor
    method: str = ""
    """Empty if it is not known yet."""
    path: str = ""
    """Without the query; empty if it is not known yet."""
    is_raw: bool = False
    """Whether the bytes are neither TLS nor HTTP."""
    is_ssh: bool = False
    """Whether the method is one of git's and the path a repository, asked for by SSH."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    verdict: Verdict
    reason: str
    rule: str = ""
    place: str = ""
    allow_by: str = ""
    """The narrowest rule that would allow it; empty where none would."""
    matched: NetworkRule | None = None
    inspect: bool = False
    """Whether it can only be carried if it is looked into."""


def judge(network: NetworkGrant, wanted: Wanted) -> Judged:
    """What the rules say about a request."""
    for denied in network.denied:
        if _denies(denied, wanted):
            return _refused(f"{_named(wanted)} is denied by {_title(denied)}", denied)
    if is_reached(network, wanted.host, wanted.port):
        return Judged(
            verdict=Verdict.ALLOW, reason="a port of the host that the box may reach", rule=f"reach {wanted.port}"
        )
    naming = _naming(network, wanted.host)
    if not naming:
        return _unlisted(network, wanted)
    on_port = tuple(rule for rule in naming if wanted.port == ANY_PORT or wanted.port in ports_of(rule))
    if not on_port:
        judged = _refused(f"no rule allows port {wanted.port} of {wanted.host}", naming[0], allow_by=allow_by(wanted))
    elif wanted.port != ANY_PORT and (by_ssh := tuple(rule for rule in on_port if rule.ssh_user)):
        judged = _ssh(network, wanted, by_ssh)
    else:
        judged = (_raw if wanted.is_raw else _request)(network, wanted, on_port)
    return _unlisted(network, wanted) if network.learn and judged.verdict is Verdict.DENY else judged


def judge_addresses(
    network: NetworkGrant,
    rule: NetworkRule,
    host: Host,
    answers: tuple[Address, ...],
    *,
    port: int = ANY_PORT,
    own: frozenset[Address] = NOTHING_OF_OURS,
) -> Judged:
    """What the rules say about the addresses that a name has: all of them have to be global, or named by the rule.

    A rule of the grant that names one address outright means that one, also if it is private. One that was made while
    learning, or for a question, opens nothing: nobody wrote it.

    Args:
        own: the addresses of this machine's interfaces, which are never reached.
    """
    if not answers:
        return _refused(f"{host} has no address", rule)
    means_it = host.address is not None and _is_outright(rule.host) and rule in network.rules
    opened = (*rule.private, host.text) if means_it else rule.private
    for address in answers:
        for denied in network.denied:
            if _denies_address(denied, address, port):
                return _refused(f"{host} is at {address}, which {_title(denied)} denies", denied)
        why = why_address_is_refused(address, opened, own)
        if why:
            return _refused(
                f"{host} is at {address}: {why.sentence}",
                rule,
                allow_by=_line(rule, private=str(address)) if why.may_be_opened else "",
            )
    return Judged(
        verdict=Verdict.ALLOW, reason="every address may be reached", rule=_title(rule), place=rule.place, matched=rule
    )


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
            _path_pattern(glob)
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


def check_network(network: NetworkGrant) -> None:
    """Refuse a grant with a rule that cannot be held.

    Raises:
        InvalidConfig: names the rule and what is wrong with it.
    """
    rules: tuple[NetworkRule | DenyRule, ...] = (*network.rules, *network.denied)
    for rule in rules:
        if fault := fault_of(rule):
            raise InvalidConfig(
                f"{_title(rule)}: {fault}", source=rule.place, hint="write a host, such as api.example.com:443"
            )


def is_reached(network: NetworkGrant, host: Host, port: int) -> bool:
    """Whether it is one of the host's own ports that the grant opens one by one."""
    return host.text in _LOCAL and (port in network.reach or (port == ANY_PORT and bool(network.reach)))


def ports_of(rule: NetworkRule) -> tuple[int, ...]:
    pattern = _pattern(rule.host)
    if pattern is not None and pattern.port is not None:
        return (pattern.port,)
    return rule.ports or WEB_PORTS


def means_host(pattern_text: str, host: Host) -> bool:
    """Whether a pattern of a rule or a secret means this host."""
    pattern = _pattern(pattern_text)
    return pattern is not None and not _too_wide(pattern) and _means(pattern, host)


def allow_by(wanted: Wanted) -> str:
    """The narrowest rule that would allow what no rule names."""
    if wanted.is_raw:
        by_ssh = f"ssh: {'push' if wanted.method in GIT_PUSH else 'read'}"
        return _policy_line(wanted.host, (wanted.port,), by_ssh if wanted.is_ssh else "raw: true")
    if wanted.port == ANY_PORT:
        return f"--allow {wanted.host.in_url}"
    return f"--allow {wanted.host.in_url}:{wanted.port}"


def _unlisted(network: NetworkGrant, wanted: Wanted) -> Judged:
    if (kind := _inside(wanted.host)) and not network.learn:
        return _refused(f"{wanted.host} is {kind}, and no rule names it outright", None, allow_by=allow_by(wanted))
    if kind:
        return _refused(f"{wanted.host} is {kind}", None)
    by_hand = NetworkRule(
        host=wanted.host.in_url,
        ports=() if wanted.port == ANY_PORT else (wanted.port,),
        raw=network.learn,
        written="learning" if network.learn else "asked for",
    )
    if network.learn:
        return Judged(
            verdict=Verdict.ALLOW, reason="no rule denies it, and the box is learning", rule="learn", matched=by_hand
        )
    if network.ask_unlisted:
        return Judged(
            verdict=Verdict.ASK,
            reason=f"no rule names {wanted.host}",
            rule="ask",
            allow_by=allow_by(wanted),
            matched=replace(by_hand, raw=wanted.is_raw),
            inspect=network.inspect_all or _has_secret(network, wanted.host),
        )
    return _refused(f"no rule allows {_named(wanted)}", None, allow_by=allow_by(wanted))


def _raw(network: NetworkGrant, wanted: Wanted, rules: tuple[NetworkRule, ...]) -> Judged:
    if network.inspect_all:
        return _refused(f"{_named(wanted)}: neither TLS nor HTTP, and nothing may pass unseen", rules[0])
    opening = next((rule for rule in rules if rule.raw and not rule.methods and not rule.paths), None)
    if opening is None:
        return _refused(f"{_named(wanted)}: neither TLS nor HTTP", rules[0], allow_by=allow_by(wanted))
    return _allowed(opening, wanted, inspect=False)


def _ssh(network: NetworkGrant, wanted: Wanted, rules: tuple[NetworkRule, ...]) -> Judged:
    """A port where a rule says that SSH is ended: nothing else is spoken there, whatever other rules say."""
    if wanted.method and not wanted.is_ssh:
        return _refused(f"{_named(wanted)} is for git by SSH, and for nothing else", rules[0])
    return _request(network, wanted, rules)


def ends_ssh(network: NetworkGrant, host: Host, port: int) -> bool:
    """Whether a connection there is SSH that the proxy ends."""
    return any(rule.ssh_user and port in ports_of(rule) for rule in _naming(network, host))


def _request(network: NetworkGrant, wanted: Wanted, rules: tuple[NetworkRule, ...]) -> Judged:
    if not wanted.method:
        # The rest of what these rules say is decided on the requests themselves, if any of them says more.
        decisive = _up_to_first_open(rules)
        inspect = _must_inspect(network, decisive, wanted.host)
        return _allowed(decisive[0], wanted, inspect=inspect)
    by_method = [rule for rule in rules if not rule.methods or wanted.method in rule.methods]
    if not by_method:
        return _refused(
            f"no rule allows {wanted.method} to {wanted.host}",
            rules[0],
            allow_by=_line(rules[0], port=wanted.port, host=wanted.host, method=wanted.method),
        )
    problem = ""
    for rule in by_method:
        try:
            if _means_path(rule, wanted.path):
                return _allowed(rule, wanted, inspect=_must_inspect(network, (rule,), wanted.host))
        except BadPath as bad:
            problem = str(bad)
    if problem:
        return _refused(f"{wanted.method} to {wanted.host}: {problem}", by_method[0])
    return _refused(
        f"no rule allows {wanted.method} of this path of {wanted.host}",
        by_method[0],
        allow_by=_line(by_method[0], port=wanted.port, host=wanted.host, method=wanted.method, path=wanted.path),
    )


def _allowed(rule: NetworkRule, wanted: Wanted, *, inspect: bool) -> Judged:
    asked = rule.asking is Asking.EACH or (
        rule.asking is Asking.CHANGES
        and bool(wanted.method)
        and wanted.method not in (GIT_READ if rule.ssh_user else READING)
    )
    later = wanted.door is NetworkDoor.DNS or (inspect and not wanted.method)
    return Judged(
        verdict=Verdict.ASK if asked and not later else Verdict.ALLOW,
        reason=f"{_title(rule)} says to ask" if asked else "allowed",
        rule=_title(rule),
        place=rule.place,
        matched=rule,
        inspect=inspect,
    )


def _must_inspect(network: NetworkGrant, rules: tuple[NetworkRule, ...], host: Host) -> bool:
    if network.inspect_all or any(rule.needs_inspection for rule in rules):
        return True
    return all(rule.inspection is not Inspection.NEVER for rule in rules) and _has_secret(network, host)


def _has_secret(network: NetworkGrant, host: Host) -> bool:
    in_requests = (secret for secret in network.secrets if SecretPlace.SSH not in secret.places)
    return any(means_host(pattern, host) for secret in in_requests for pattern in secret.hosts)


def _up_to_first_open(rules: tuple[NetworkRule, ...]) -> tuple[NetworkRule, ...]:
    for index, rule in enumerate(rules):
        if not rule.methods and not rule.paths:
            return rules[: index + 1]
    return rules


def _means_path(rule: NetworkRule, path: str) -> bool:
    if not rule.paths:
        return True
    if not path:
        return False
    canonical = canonical_path(path)
    return any(_path_pattern(glob).fullmatch(canonical) for glob in rule.paths)


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
        outright = _is_outright(rule.host)
        if outright and pattern.network is None:
            name = re.sub(r"\\(.)", r"\1", pattern.pattern)
            by_name[name] = (*by_name.get(name, ()), rule)
        if not outright or pattern.network is not None or pattern.written.strip().lower() == "localhost":
            others.append((rule, pattern, outright))
    made = _indexes[id(network)] = _Index(network, by_name, tuple(others))
    if len(_indexes) > _KEPT:
        _indexes.popitem(last=False)
    return made


def _naming(network: NetworkGrant, host: Host) -> tuple[NetworkRule, ...]:
    index = _index(network)
    outright = index.by_name.get(host.text)
    if outright is not None:
        return outright
    means = [(rule, sure) for rule, pattern, sure in index.others if _means(pattern, host)]
    named = tuple(rule for rule, sure in means if sure)
    if named or _inside(host):
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


def _inside(host: Host) -> str:
    if host.text == "localhost" or host.text.endswith(".localhost"):
        return "the machine itself"
    return _TRUSTED_INSIDE.get(host.text, "")


def _denies(rule: DenyRule, wanted: Wanted) -> bool:
    pattern = _pattern(rule.host)
    if pattern is None:
        return True  # what cannot be read may have meant anything
    ports = (pattern.port,) if pattern.port is not None else rule.ports
    if ports and wanted.port not in ports:
        return False
    return _means(pattern, wanted.host)


def _denies_address(rule: DenyRule, address: Address, port: int) -> bool:
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
def _path_pattern(glob: str) -> re.Pattern[str]:
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


def _is_outright(text: str) -> bool:
    pattern = _pattern(text)
    if pattern is None or pattern.addresses:
        return False
    if pattern.network is not None:
        return pattern.network.num_addresses == 1
    return "*" not in text


def _refused(reason: str, rule: NetworkRule | DenyRule | None, *, allow_by: str = "") -> Judged:
    return Judged(
        verdict=Verdict.DENY,
        reason=reason,
        rule="" if rule is None else _title(rule),
        place="" if rule is None else rule.place,
        allow_by=allow_by,
    )


def _title(rule: NetworkRule | DenyRule) -> str:
    return rule.written or (f"deny {rule.host}" if isinstance(rule, DenyRule) else f"allow {rule.host}")


def _named(wanted: Wanted) -> str:
    return str(wanted.host) if wanted.port == ANY_PORT else f"{wanted.host.in_url}:{wanted.port}"


def _line(
    rule: NetworkRule, *, host: Host | None = None, port: int = 0, method: str = "", path: str = "", private: str = ""
) -> str:
    """A line for the policy's list of what is allowed, no wider than needed."""
    try:
        shown = canonical_path(path) if path else ""
    except BadPath:
        shown = ""
    said = f"ssh: {'push' if method in GIT_PUSH else 'read'}" if rule.ssh_user else f"methods: [{method}]"
    more = (
        said if method else "",
        f'paths: ["{shown}"]' if shown else "",
        f'private: ["{private}"]' if private else "",
    )
    return _policy_line(host or rule.host, (port,) if port else ports_of(rule), *more)


def _policy_line(host: Host | str, ports: tuple[int, ...], *more: str) -> str:
    text = host.in_url if isinstance(host, Host) else host
    fields = (f'host: "{text}"', f"ports: [{', '.join(map(str, ports))}]", *filter(None, more))
    return "network.allow: {" + ", ".join(fields) + "}"
