"""Turns what a caller and the policies say about the network into a grant, with what the box needs beside it.

A preset is more than hosts: clients inside are told of the person's own mirrors by variables, mirrors that are
directories can be read, and a host that the person's clients use may have a private address, exactly the one that it
has here and now.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass, field, replace
from ringfence.deferred import deferred, deferred_module
from ringfence.manager.options import NetworkMode, SandboxOptions
from ringfence.policy.network import NetworkRequest, network_of

if TYPE_CHECKING:
    from ringfence.manager.hiding import Caller
    from ringfence.manager.network_options import Network, joined, network_request
    from ringfence.manager.network_presets import own_addresses, read_clients
    from ringfence.manager.secrets import DeclaredSecret
    from ringfence.policy import network_presets, preset_expanding
    from ringfence.policy.config import SandboxConfig
    from ringfence.policy.network_clients import Clients
    from ringfence.policy.preset_expanding import expand_preset
    from ringfence.policy.terms import Terms
    from ringfence.values.network import NetworkGrant
else:
    joined = deferred("ringfence.manager.network_options", "joined")
    network_request = deferred("ringfence.manager.network_options", "network_request")
    own_addresses = deferred("ringfence.manager.network_presets", "own_addresses")
    read_clients = deferred("ringfence.manager.network_presets", "read_clients")
    Clients = deferred("ringfence.policy.network_clients", "Clients")
    expand_preset = deferred("ringfence.policy.preset_expanding", "expand_preset")
    network_presets = deferred_module("ringfence.policy.network_presets")
    preset_expanding = deferred_module("ringfence.policy.preset_expanding")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkParts:
    """The network of a grant, and what goes with it."""

    grant: NetworkGrant | None = None
    readable: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = field(default=())


def grant_network(
    options: SandboxOptions,
    config: SandboxConfig,
    caller: Caller,
    terms: Terms | None,
    workspace: Path,
    *,
    looks_up: bool = True,
) -> NetworkParts:
    """What a box may reach.

    Args:
        looks_up: whether the addresses of the person's own mirrors are looked up; else private ones stay closed.

    Raises:
        NetworkAccessDenied: the caller asks for what the policy does not let it have.
        InvalidArgument: what the caller asks for makes no sense.
    """
    if options.network == NetworkMode.OFF:
        return NetworkParts()
    asked = options.asked_network
    presets = _presets(asked, terms)
    # Files are read, and names looked up, only for whoever has asked for a preset.
    clients = _clients(caller, workspace, presets)
    request = None if asked is None else network_request(asked, clients)
    declared = secrets_of(
        options, config, caller.environ, terms, (os.fspath(workspace), *(os.fspath(path) for path in options.write))
    )
    request = replace(request or NetworkRequest(), secrets=tuple(each.grant for each in declared))
    found = network_of(terms, request)
    if found.grant is None or not presets:
        return NetworkParts(grant=found.grant, notes=found.notes)
    expansions = (expand_preset(network_presets.BY_PRESET[name], "-", clients) for name in presets)
    more = reduce(preset_expanding.Expansion.with_, expansions, preset_expanding.Expansion())
    own = own_addresses(_reached_hosts(found.grant, more.own_hosts)) if looks_up else {}
    grant = with_addresses(found.grant, own)
    reach = tuple(dict.fromkeys((*grant.reach, *_mirror_ports(more.reach, terms))))
    return NetworkParts(
        grant=replace(grant, reach=reach),
        readable=more.readable,
        variables=more.variables,
        notes=(*found.notes, *clients.notes, *more.notes),
    )


def _clients(caller: Caller, workspace: Path, presets: tuple[str, ...]) -> Clients:
    if not presets:
        return Clients()
    return read_clients(caller.environ, caller.home, os.fspath(workspace), remotes="git" in presets)


def _presets(asked: Network | None, terms: Terms | None) -> tuple[str, ...]:
    """Those that are named; of the policies' own only where the caller has not said which it wants."""
    if asked is not None and asked.allow is not None:
        return asked.presets
    lists = terms.host_lists() if terms is not None else ()
    return tuple(dict.fromkeys(rule.preset for rules in lists for rule in rules if rule.preset))


def _reached_hosts(grant: NetworkGrant, own: Iterable[str]) -> tuple[str, ...]:
    allowed = {rule.host for rule in grant.rules}
    return tuple(host for host in own if host in allowed)


def _mirror_ports(ports: Iterable[int], terms: Terms | None) -> tuple[int, ...]:
    """Ports of the host's loopback where a mirror listens; under a policy that lists such ports, only those."""
    lists = terms.value("network.reach") if terms is not None else None
    return tuple(port for port in ports if lists is None or all(port in rows for rows in lists))


def with_addresses(grant: NetworkGrant, addresses: dict[str, tuple[str, ...]]) -> NetworkGrant:
    """The grant in which a host may have these private addresses, and no other host may."""
    rules = (
        replace(rule, private=tuple(dict.fromkeys((*rule.private, *addresses.get(rule.host, ())))))
        for rule in grant.rules
    )
    return replace(grant, rules=tuple(rules))


def secrets_of(
    options: SandboxOptions,
    config: SandboxConfig,
    environ: Mapping[str, str],
    terms: Terms | None,
    writable: tuple[str, ...] = (),
) -> tuple[DeclaredSecret, ...]:
    """The secrets that have a source, each with it (`network_secrets.sources_of` has those of a grant).

    Raises:
        InvalidArgument: one of them makes no sense.
    """
    typed = () if options.asked_network is None else tuple(options.asked_network.secrets)
    if not typed and not config.secrets:
        return ()
    from ringfence.manager.network_secrets import declare_secrets  # loads what signs: only for who has a secret

    return declare_secrets(typed, config.secrets, terms, environ, writable)


def with_network(options: SandboxOptions, more: Network) -> SandboxOptions:
    """The options with a further network beside what they have."""
    before = options.asked_network
    return replace(options, network=joined(before, more) if before is not None else more)
