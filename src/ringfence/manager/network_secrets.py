"""The secrets of a box: what the caller and the person's own configuration name, within what the policy lets them be.

A policy says where a secret may go, the person says where it comes from. Loaded only where there is a secret, for the
signers need a library that takes its time to load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.egress.secrets.posting import Poster, dial_by
from ringfence.egress.secrets.signers import make_mint
from ringfence.manager.secrets import DeclaredSecret, SecretSources, parse_secret

if TYPE_CHECKING:
    from ringfence.policy.terms import Terms
    from ringfence.values.network import NetworkGrant
    from ringfence.values.parent_proxy import ParentProxies


def declare_secrets(
    typed: Iterable[str],
    configured: Iterable[tuple[str, str]],
    terms: Terms | None,
    environ: Mapping[str, str],
    writable: tuple[str, ...] = (),
) -> tuple[DeclaredSecret, ...]:
    """Each secret that has a source, with the hosts that are meant; not yet held against the policy.

    Args:
        typed: `NAME=SOURCE@HOST`, by the caller; without a host, for those of the policy.
        configured: (name, source) of the person's own configuration; only those that the policy names are used.
        writable: directories that the box may write: nothing is read from there.

    Raises:
        InvalidArgument: one of them makes no sense; never shows what stands for a source.
    """
    hosts = _hosts_of_policy(terms)
    texts = {text.partition("=")[0]: text for text in typed}
    for name, source in configured:
        if name in hosts:
            texts.setdefault(name, f"{name}={source}")
    return tuple(parse_secret(_with_hosts(text, hosts), environ, writable=writable) for text in texts.values())


def _with_hosts(text: str, hosts: Mapping[str, tuple[str, ...]]) -> str:
    name, equals, source = text.partition("=")
    if not equals or "@" in source or name not in hosts:
        return text
    return f"{text}@{','.join(hosts[name])}"


def _hosts_of_policy(terms: Terms | None) -> dict[str, tuple[str, ...]]:
    lists = terms.value("network.secrets", ()) if terms is not None else ()
    return {secret.name: secret.hosts for secret in (lists[-1] if lists else ())}


def sources_of(
    network: NetworkGrant,
    typed: Iterable[str],
    configured: Iterable[tuple[str, str]],
    environ: Mapping[str, str],
    writable: tuple[str, ...] = (),
    parents: ParentProxies | None = None,
) -> SecretSources:
    """Where the values of a grant's secrets come from; hosts and places are the grant's.

    Args:
        parents: through which tokens are asked for.

    Raises:
        InvalidArgument: one of them has no source.
    """
    texts = {name: f"{name}={source}" for name, source in configured} | {text.partition("=")[0]: text for text in typed}
    hosts = {secret.name: secret.hosts for secret in network.secrets}
    declared = (parse_secret(_with_hosts(texts.get(name, name), hosts), environ, writable=writable) for name in hosts)
    granted = {secret.name: secret for secret in network.secrets}
    mint = make_mint(Poster(dial_by(parents))) if parents is not None else None
    return SecretSources(tuple(replace(each, grant=granted[each.grant.name]) for each in declared), mint)
