"""May this be reached? One pure function for every way out of a box.

Deny beats allow. Rules that name the host outright are taken before wildcards: whoever wrote `files.example.com:443`
beside `*.example.com` meant that port. Among those that are left, the first one that means host, port, method and path
counts; a method or path that is not known yet (a tunnel that has not been looked into) is decided later, on the request
itself. What no rule names is refused, or asked about, where the grant says so. Addresses are judged again once a name
is resolved (`policy/reach_addresses.py`).

What this does not protect against: what happens inside TLS that nobody looks into (another Host there, data in names
below a wildcard).
"""

from typing import Final

from ringfence.dataclass import dataclass, replace
from ringfence.errors import InvalidConfig
from ringfence.policy.reach_addresses import NOTHING_OF_OURS, why_address_is_refused
from ringfence.policy.reach_rules import (
    ANY_PORT,
    compiled_path,
    denies,
    denies_address,
    fault_of,
    is_outright,
    means_host,
    naming,
    ports_of,
    what_inside,
)
from ringfence.values.hosts import Address, Host
from ringfence.values.network import (
    GIT_PUSH,
    GIT_READ,
    Asking,
    DenyRule,
    Inspection,
    NetworkDoor,
    NetworkGrant,
    NetworkRule,
    SecretPlace,
)
from ringfence.values.verdict import Verdict
from ringfence.values.web_path import BadPath, canonical_path

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


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
        if denies(denied, wanted.host, wanted.port):
            return _refused(f"{_named(wanted)} is denied by {_title(denied)}", denied)
    if is_reached(network, wanted.host, wanted.port):
        return Judged(
            verdict=Verdict.ALLOW, reason="a port of the host that the box may reach", rule=f"reach {wanted.port}"
        )
    found = naming(network, wanted.host)
    if not found:
        return _unlisted(network, wanted)
    on_port = tuple(rule for rule in found if wanted.port == ANY_PORT or wanted.port in ports_of(rule))
    if not on_port:
        judged = _refused(f"no rule allows port {wanted.port} of {wanted.host}", found[0], allow_by=allow_by(wanted))
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
    means_it = host.address is not None and is_outright(rule.host) and rule in network.rules
    opened = (*rule.private, host.text) if means_it else rule.private
    for address in answers:
        for denied in network.denied:
            if denies_address(denied, address, port):
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


def allow_by(wanted: Wanted) -> str:
    """The narrowest rule that would allow what no rule names."""
    if wanted.is_raw:
        by_ssh = f"ssh: {'push' if wanted.method in GIT_PUSH else 'read'}"
        return _policy_line(wanted.host, (wanted.port,), by_ssh if wanted.is_ssh else "raw: true")
    if wanted.port == ANY_PORT:
        return f"--allow {wanted.host.in_url}"
    return f"--allow {wanted.host.in_url}:{wanted.port}"


def _unlisted(network: NetworkGrant, wanted: Wanted) -> Judged:
    if (kind := what_inside(wanted.host)) and not network.learn:
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
    return any(rule.ssh_user and port in ports_of(rule) for rule in naming(network, host))


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
    return any(compiled_path(glob).fullmatch(canonical) for glob in rule.paths)


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
