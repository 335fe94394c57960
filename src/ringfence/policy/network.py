"""What a box may reach: the `NetworkGrant` that the terms in force and a request come to.

The request is the last layer. What it names has to be within what the policies let it have, else it is refused with the
place that says so; a list that it gives narrows the policies' list, one that it leaves out stays as they say. Without a
policy it is the request alone. What nobody names is no network.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from ringfence.dataclass import dataclass, replace
from ringfence.deferred import deferred
from ringfence.errors import NetworkAccessDenied
from ringfence.values.network import WEB_PORTS, Budget, DenyRule, NetworkGrant, NetworkRule, SecretGrant

if TYPE_CHECKING:
    from ringfence.policy.hosts import HostRule
    from ringfence.policy.model import Setting
    from ringfence.policy.network_meeting import host_covers, meet, meet_lists, narrowed_networks
    from ringfence.policy.network_reading import plain_rule
    from ringfence.policy.reach_rules import fault_of
    from ringfence.policy.terms import Terms
else:
    host_covers = deferred("ringfence.policy.network_meeting", "host_covers")
    meet = deferred("ringfence.policy.network_meeting", "meet")
    meet_lists = deferred("ringfence.policy.network_meeting", "meet_lists")
    narrowed_networks = deferred("ringfence.policy.network_meeting", "narrowed_networks")
    plain_rule = deferred("ringfence.policy.network_reading", "plain_rule")
    fault_of = deferred("ringfence.policy.reach_rules", "fault_of")

_BUDGET: Final = {
    "network.budget.body": "body_bytes",
    "network.budget.requests_per_minute": "requests_per_minute",
    "network.budget.connections": "connections",
    "network.budget.total_out": "total_bytes_out",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRequest:
    """What a caller asks for, read already."""

    rules: tuple[HostRule, ...] | None = None
    """None is no opinion: what the policies allow."""
    denied: tuple[HostRule, ...] = ()
    secrets: tuple[SecretGrant, ...] = ()
    """One without hosts is for those that the policies give it."""
    publish: tuple[tuple[int, int], ...] = ()
    reach: tuple[int, ...] = ()
    ask_unlisted: bool = False
    inspect_all: bool = False
    learn: bool = False
    written: str = "--allow"
    """How its rules are called in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTerms:
    """The network that is granted, and what is worth saying about it."""

    grant: NetworkGrant | None
    notes: tuple[str, ...] = ()


def network_of(
    terms: Terms | None, request: NetworkRequest | None = None, *, sources: Collection[str] = ()
) -> NetworkTerms:
    """What a box may reach.

    Args:
        sources: names of secrets that the person's own configuration has a source for.

    Raises:
        NetworkAccessDenied: the request asks for what the policies do not let it have; names the place.
    """
    asked = request or NetworkRequest()
    if terms is not None and (access := terms.get("network_access")) is not None and not access.value:
        _refuse_all(terms, access, asked)
        return NetworkTerms(grant=None)
    rules, notes = _rules(terms, asked)
    secrets, without = _secrets(terms, asked, sources)
    notes += [f"the secret {name} has no source, so it is left out; give --secret {name}=SOURCE" for name in without]
    notes += () if asked.learn else _closed_hosts(secrets, rules)
    grant = NetworkGrant(
        rules=_with_private(rules, terms),
        denied=(*_denied(terms), *(_deny_rule(rule, "deny") for rule in asked.denied)),
        ask_unlisted=_ask_unlisted(terms, asked),
        inspect_all=asked.inspect_all or bool(terms and terms.value("network.inspect", False)),
        budget=_budget(terms),
        secrets=secrets,
        publish=_published(terms, asked),
        reach=_reached(terms, asked),
        learn=_learns(terms, asked),
    )
    opens = grant.rules or grant.ask_unlisted or grant.publish or grant.reach or grant.learn
    return NetworkTerms(grant=grant if opens else None, notes=tuple(notes))


def closed_by(terms: Terms | None) -> Setting | None:
    """The setting by which hosts that no list names stay closed; None if the policies leave that to the request."""
    if terms is None:
        return None
    access, default = terms.get("network_access"), terms.get("network.default")
    if access is not None and not access.value:
        return access
    if (allowed := terms.get("allowed_domains")) is not None:
        return allowed
    return default if default is not None and default.value == "none" else None


def _refuse_all(terms: Terms, access: Setting, asked: NetworkRequest) -> None:
    named = [rule.written for rule in asked.rules or ()] + [f"port {port}" for port in asked.reach]
    named += [f"port {inside}" for inside, _ in asked.publish]
    named += ["what no rule names"] if asked.ask_unlisted or asked.learn else []
    if named:
        why = f"the policy does not let {terms.tool} use the network"
        hint = "set network_access: true there, and allow the host"
        raise NetworkAccessDenied(named[0], why, rule=access.place, hint=hint)


def layer_rules(terms: Terms) -> tuple[tuple[NetworkRule, ...], ...]:
    """The rules of each layer that has some; a host has to be in every one."""
    setting = terms.get("allowed_domains")
    written = setting.written if setting is not None else ""
    return tuple(tuple(rule.allow or plain_rule(rule, written) for rule in rules) for rules in terms.host_lists())


def _rules(terms: Terms | None, asked: NetworkRequest) -> tuple[tuple[NetworkRule, ...], list[str]]:
    wanted = None if asked.rules is None else tuple(rule.allow or plain_rule(rule) for rule in asked.rules)
    closed = closed_by(terms)
    if terms is None or closed is None:
        return wanted or (), []
    lists = layer_rules(terms)
    if not lists:
        if wanted:
            raise _beyond(wanted[0], closed, asked)
        return (), []
    granted = reduce(meet_lists, lists)
    faults = {rule: fault for rule in granted if (fault := fault_of(rule))}
    notes = [f"{rule.place}: {rule.written}: {fault}, so it opens nothing" for rule, fault in faults.items()]
    granted = tuple(rule for rule in granted if rule not in faults)
    notes += [
        f"{rule.place}: {rule.written}: no rule of the earlier policies allows it, so it does not count"
        for rule in lists[-1]
        if len(lists) > 1 and not any(meet(one, rule) for one in reduce(meet_lists, lists[:-1]))
    ]
    if wanted is None:
        return granted, notes
    for rule in wanted:
        if not any(_within(one, rule) for one in granted):
            raise _beyond(rule, closed, asked)
    return meet_lists(granted, wanted), notes


def _within(granted: NetworkRule, wanted: NetworkRule) -> bool:
    """Whether the host and all ports of a rule are granted; methods and paths become those of both."""
    ports = set(wanted.ports or WEB_PORTS) & set(granted.ports or WEB_PORTS)
    return (
        host_covers(granted.host, wanted.host)
        and bool(ports)
        and (not wanted.ports or ports == set(wanted.ports))
        and (granted.raw or not wanted.raw)
        and meet(granted, wanted) is not None
    )


def _beyond(rule: NetworkRule, closed: Setting, asked: NetworkRequest) -> NetworkAccessDenied:
    target = rule.host if not rule.ports else f"{rule.host}:{','.join(map(str, rule.ports))}"
    return NetworkAccessDenied(
        target,
        f"the policy does not let a request reach it (asked for by {rule.written or asked.written})",
        rule=closed.place,
        hint=f"add {target} to network.allow of the policy, or leave it out",
    )


def _with_private(rules: Iterable[NetworkRule], terms: Terms | None) -> tuple[NetworkRule, ...]:
    lists = terms.value("network.private", ()) if terms is not None else ()
    if not lists:
        return tuple(rules)
    networks = reduce(narrowed_networks, lists)
    return tuple(replace(rule, private=tuple(dict.fromkeys((*rule.private, *networks)))) for rule in rules)


def _denied(terms: Terms | None) -> Iterator[DenyRule]:
    if terms is None:
        return
    for rule in terms.value("denied_domains", ()):
        yield _deny_rule(rule, "denied_domains")
    ports = terms.get("network.denylist.ports")
    if ports is not None and ports.value:
        yield DenyRule(ports=tuple(ports.value), written=ports.written, place=str(ports.mark))


def _deny_rule(rule: HostRule, written: str) -> DenyRule:
    return DenyRule(
        host=rule.bare.strip("[]"),
        ports=() if rule.port is None else (rule.port,),
        written=f"{written} {rule.written}",
        place=str(rule.mark) if rule.mark.source else "",
    )


def _ask_unlisted(terms: Terms | None, asked: NetworkRequest) -> bool:
    said, closed = (terms.get("network.ask_unlisted") if terms is not None else None), closed_by(terms)
    if said is not None:
        if asked.ask_unlisted and not said.value:
            raise _not_asking(said)
        return bool(said.value)
    if asked.ask_unlisted and closed is not None:
        raise _not_asking(closed)
    return asked.ask_unlisted


def _not_asking(setting: Setting) -> NetworkAccessDenied:
    why = "the policy does not let a person be asked about hosts that no rule names"
    hint = "set network.ask_unlisted: true in the policy"
    return NetworkAccessDenied("other hosts", why, rule=setting.place, hint=hint)


def _learns(terms: Terms | None, asked: NetworkRequest) -> bool:
    closed = closed_by(terms)
    if asked.learn and closed is not None:
        why = "the policy does not let hosts be reached that no rule names, so nothing can be learned"
        raise NetworkAccessDenied("other hosts", why, rule=closed.place, hint="learn without this policy")
    return asked.learn


def _budget(terms: Terms | None) -> Budget:
    if terms is None:
        return Budget()
    said = {field: terms.value(name) for name, field in _BUDGET.items()}
    return Budget(**{field: None if value is None else int(value) for field, value in said.items()})


def _reached(terms: Terms | None, asked: NetworkRequest) -> tuple[int, ...]:
    granted = _in_every_list(terms, "network.reach")
    for port in asked.reach:
        _refuse_port(terms, "network.reach", granted, port, f"port {port} of the host")
    return asked.reach or granted or ()


def _published(terms: Terms | None, asked: NetworkRequest) -> tuple[tuple[int, int], ...]:
    granted: tuple[tuple[int, int], ...] | None = _in_every_list(terms, "network.publish")
    inside = None if granted is None else tuple(pair[0] for pair in granted)
    outside = dict(granted or ())
    for port, given in asked.publish:
        _refuse_port(terms, "network.publish", inside, port, f"port {port} of the box")
        if outside.get(port) and given and outside[port] != given:
            _refuse_port(terms, "network.publish", (), given, f"port {given} outside")
    if asked.publish:
        return tuple((port, given or outside.get(port, 0)) for port, given in asked.publish)
    return granted or ()


def _refuse_port(terms: Terms | None, name: str, granted: tuple[int, ...] | None, port: int, what: str) -> None:
    """Where the policies list ports, it has to be among them; where they only close the network, it is closed too."""
    setting = terms.get(name) if terms is not None else None
    by = setting or closed_by(terms)
    if by is None or (granted is not None and port in granted):
        return
    why = "the policy does not let a request have it"
    raise NetworkAccessDenied(what, why, rule=by.place, hint=f"add {port} to {name} of the policy")


def _in_every_list(terms: Terms | None, name: str) -> tuple[Any, ...] | None:
    """What every layer that has such a list names; None if there is no list."""
    lists = terms.value(name) if terms is not None else None
    if lists is None:
        return None
    return tuple(item for item in lists[-1] if all(item in others for others in lists))


def _secrets(
    terms: Terms | None, asked: NetworkRequest, sources: Collection[str]
) -> tuple[tuple[SecretGrant, ...], tuple[str, ...]]:
    """Those that have a source, and the names of the policies' others."""
    setting = terms.get("network.secrets") if terms is not None else None
    declared = _declared(setting)
    found: dict[str, SecretGrant] = {}
    for secret in asked.secrets:
        own = declared.get(secret.name)
        if setting is not None and (own is None or not all(_goes_to(own, host) for host in secret.hosts)):
            where = f" to {', '.join(secret.hosts)}" if secret.hosts else ""
            hint = f"name it with its hosts in network.secrets of {setting.mark.source}"
            raise NetworkAccessDenied(
                f"the secret {secret.name}", f"the policy does not let it be sent{where}", rule=setting.place, hint=hint
            )
        if own is not None:  # where a placeholder may be quoted is no question of trust: it is worth nothing
            secret = replace(own, hosts=secret.hosts or own.hosts, quoted_to=secret.quoted_to)
        found[secret.name] = secret
    for name, secret in declared.items():
        if name in sources:
            found.setdefault(name, secret)
    return tuple(found.values()), tuple(name for name in declared if name not in found)


def _closed_hosts(secrets: Iterable[SecretGrant], rules: tuple[NetworkRule, ...]) -> Iterator[str]:
    """A secret opens no host: where nothing else does, somebody has probably forgotten it."""
    for secret in secrets:
        pairs = ((rule.host, host) for rule in rules for host in secret.hosts)
        if not any(host_covers(one, other) or host_covers(other, one) for one, other in pairs):
            hosts = ", ".join(secret.hosts)
            yield f"the secret {secret.name} is for {hosts}, which nothing allows; a secret opens no host by itself"


def _declared(setting: Setting | None) -> dict[str, SecretGrant]:
    if setting is None:
        return {}
    first, *others = setting.value
    found = {secret.name: secret for secret in first}
    for later in others:
        by_name = {secret.name: secret for secret in later}
        found = {
            name: narrowed
            for name, secret in found.items()
            if name in by_name and (narrowed := _narrowed(secret, by_name[name])) is not None
        }
    return found


def _narrowed(earlier: SecretGrant, later: SecretGrant) -> SecretGrant | None:
    hosts = tuple(host for host in later.hosts if _goes_to(earlier, host))
    hosts += tuple(host for host in earlier.hosts if _goes_to(later, host) and host not in hosts)
    places = tuple(place for place in later.places if place in earlier.places)
    return replace(earlier, hosts=hosts, places=places) if hosts and places else None


def _goes_to(secret: SecretGrant, host: str) -> bool:
    return any(host_covers(pattern, host) for pattern in secret.hosts)
