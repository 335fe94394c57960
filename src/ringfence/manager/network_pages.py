"""What the command line shows of the network: presets, the verdict on a URL, the record, a policy made of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ringfence.audit.network_records import EVENT
from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument
from ringfence.manager.assemble import policy_in_force
from ringfence.manager.configuring import home_directory, load_config, state_directory
from ringfence.manager.granting import current_directory
from ringfence.manager.hiding import Caller
from ringfence.manager.network_granting import grant_network
from ringfence.manager.network_presets import own_addresses, read_clients
from ringfence.manager.policing import SHELL_TOOL
from ringfence.manager.policy_pages import shown_rule
from ringfence.manager.records import records
from ringfence.policy.network import closed_by
from ringfence.policy.network_presets import PRESETS
from ringfence.policy.preset_expanding import expand_preset
from ringfence.policy.reach import Judged, Wanted, judge
from ringfence.values.hosts import BadHost, canonical_host
from ringfence.values.network import GIT_PUSH, GIT_READ, NetworkDoor, NetworkGrant
from ringfence.values.verdict import Verdict

if TYPE_CHECKING:
    from ringfence.manager.options import SandboxOptions
    from ringfence.policy.terms import Terms

_SCHEMES: Final = {"https": 443, "http": 80, "wss": 443, "ws": 80, "ssh": 22}


def preset_names() -> Iterator[tuple[str, str]]:
    """Each preset, and what it is for."""
    return ((preset.name, preset.reason) for preset in PRESETS)


@dataclass(frozen=True, slots=True)
class PresetPage:
    """One preset as it would be in force here."""

    name: str
    aliases: tuple[str, ...]
    argument: str
    reason: str
    risk: str
    rules: tuple[str, ...]
    notes: tuple[str, ...]


def preset_pages(environ: Mapping[str, str], workspace: str | None = None) -> tuple[PresetPage, ...]:
    """All presets, with the hosts that the person's own clients are configured for."""
    clients = read_clients(environ, home_directory(environ), workspace, remotes=True)
    found = []
    for preset in PRESETS:
        more = expand_preset(preset, preset.argument or "-", clients)
        rules = (
            *map(shown_rule, more.rules),
            *(f"the host's port {port}" for port in more.reach),
            *(f"reads {path}" for path in more.readable),
        )
        page = PresetPage(preset.name, preset.aliases, preset.argument, preset.reason, preset.risk, rules, more.notes)
        found.append(page)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Reachable:
    """What the rules say about a URL."""

    target: str
    judged: Judged


def check_url(url: str, options: SandboxOptions, environ: Mapping[str, str], *, method: str = "GET") -> Reachable:
    """Whether a box that is opened so would reach a URL, host, or host:port; nothing is looked up or connected to.

    Raises:
        InvalidArgument: it is no URL.
        InvalidConfig, NetworkAccessDenied: the options are refused.
    """
    wanted = _wanted(url, method)
    network, terms = network_in_force(options, environ)
    target = f"{wanted.host.in_url}:{wanted.port}{wanted.path}"
    return Reachable(target, judge(network, wanted) if network is not None else _no_network(wanted, terms))


def network_in_force(options: SandboxOptions, environ: Mapping[str, str]) -> tuple[NetworkGrant | None, Terms | None]:
    """What a box that is opened so may reach.

    Raises:
        InvalidConfig, InvalidArgument, NetworkAccessDenied: the options are refused.
    """
    home = home_directory(environ)
    config = load_config(environ, home, options.config)
    policy = policy_in_force(options, environ)
    tool = options.tool or SHELL_TOOL
    terms = policy.terms(tool, options.role).under(options.mode) if policy is not None else None
    workspace = Path(os.path.realpath(options.workspace or current_directory()))
    caller = Caller(environ, home, state_directory(environ, home))
    return grant_network(options, config, caller, terms, workspace, looks_up=False).grant, terms


def _wanted(url: str, method: str) -> Wanted:
    hint = "write https://host/path, or host:port"
    has_scheme = "://" in url
    try:
        parts = urlsplit(url if has_scheme else f"//{url}")
        port, name = parts.port, parts.hostname or ""
        if has_scheme and parts.scheme not in _SCHEMES:
            raise InvalidArgument(f"{url!r}: the scheme {parts.scheme} is not known", hint=hint)
        host = canonical_host(name)
    except (ValueError, BadHost) as fault:
        raise InvalidArgument(f"{url!r} is no address: {fault}", hint=hint) from None
    by_ssh = parts.scheme == "ssh"
    if by_ssh:  # a repository, as a clone of it would ask
        asked = method.upper() if method.upper() in (*GIT_READ, *GIT_PUSH) else GIT_READ[0]
        path = parts.path.removesuffix("/").removesuffix(".git") or "/"
    return Wanted(
        host=host,
        port=_SCHEMES.get(parts.scheme, 443) if port is None else port,
        door=NetworkDoor.CONNECT,
        method=asked if by_ssh else method.upper() if has_scheme else "",
        path=path if by_ssh else (parts.path or "/") if has_scheme else "",
        is_raw=by_ssh,
        is_ssh=by_ssh,
    )


def _no_network(wanted: Wanted, terms: Terms | None) -> Judged:
    closed = closed_by(terms)
    target = wanted.host.in_url if wanted.port in (80, 443) else f"{wanted.host.in_url}:{wanted.port}"
    if closed is None:
        by = f"--allow {target}, or network.allow: [{target}] in a policy"
        return Judged(verdict=Verdict.DENY, reason="nothing allows a host: the box has no network", allow_by=by)
    return Judged(
        verdict=Verdict.DENY,
        reason=f"{closed.written} leaves the box without a network",
        rule=closed.written,
        place=str(closed.mark),
        allow_by=f"network.allow: [{target}] in {closed.mark.source}",
    )


def network_log(state: Path) -> Iterator[dict[str, Any]]:
    """The records of requests to the network, the oldest first."""
    return records(state, having=f'"event_type":"{EVENT}"'.encode())


@dataclass(slots=True)
class _Learned:
    """What was seen of one host and port."""

    methods: set[str] = field(default_factory=set)
    paths: set[str] = field(default_factory=set)
    private: set[str] = field(default_factory=set)


def learned_from(found: Iterable[Mapping[str, Any]]) -> str:
    """`learned_policy`, with the private addresses that the hosts have here."""
    kept = tuple(found)
    reached = [str(record.get("host", "")) for record in kept if record.get("verdict") == "allow"]
    return learned_policy(kept, own_addresses(reached))


def learned_policy(
    found: Iterable[Mapping[str, Any]], addresses: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> str:
    """The smallest policy that would allow what these records are about: hosts, ports, methods, and paths where every
    request to a host was under one directory. What was refused is named in comments, and stays closed."""
    wanted: dict[tuple[str, int], _Learned] = {}
    refused: dict[str, None] = {}
    for record in found:
        host, port = str(record.get("host", "")), int(record.get("port") or 0)
        if record.get("verdict") != "allow":
            by = f"; would be allowed by: {record['allow_by']}" if record.get("allow_by") else ""
            refused[f"# refused: {record.get('why', '')}{by}".replace("\n", " ")] = None
        elif host and port and record.get("rule") != f"reach {port}":
            seen = wanted.setdefault((host, port), _Learned())
            seen.private.update(addresses.get(host, ()))
            _learn(seen, record)
    head = ["# What one run reached. Read it before you keep it: it allows this again, whoever asks.", *refused]
    if not wanted:
        return "\n".join((*head, "network:", "  default: none", "  allow: []  # nothing was reached")) + "\n"
    lines = [*head, "network:", "  default: none", "  allow:"]
    for (host, port), seen in sorted(wanted.items()):
        lines += (f"    - host: {_quoted(host)}", f"      ports: [{port}]")
        if seen.methods:
            lines.append(f"      methods: [{', '.join(sorted(seen.methods))}]")
            common = _common_directory(seen.paths)
            if common != "/":
                lines.append(f"      paths: [{_quoted(common + '**')}]")
        if seen.private:
            lines.append(f"      private: [{', '.join(map(_quoted, sorted(seen.private)))}]")
    return "\n".join(lines) + "\n"


def _learn(seen: _Learned, record: Mapping[str, Any]) -> None:
    if record.get("method") and record["method"] != "CONNECT":
        seen.methods.add(str(record["method"]))
        seen.paths.add(str(record.get("path") or "/"))


def _common_directory(paths: Iterable[str]) -> str:
    """The longest directory that holds all paths, with its slash."""
    split = [path.split("/")[1:-1] for path in paths]
    common: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) != 1 or not parts[0] or set(parts[0]) & set('*?"\\ '):
            break
        common.append(parts[0])
    return "/" + "".join(f"{part}/" for part in common)


def _quoted(text: str) -> str:
    return f'"{text}"' if set(text) & set("*:[]{},#&!|>'%@`\"") else text
