"""Makes rules of a preset: its own hosts, or those that the person's own clients are configured for.

What a client inside has to be told so that it uses the same mirror comes as variables, directories that it reads its
packages from as paths, and a mirror on the host's own loopback as a port that is reached. Passwords in addresses do not
come along: they are secrets (docs/egress.md).
"""

import ipaddress
import posixpath
from collections.abc import Iterable, Iterator
from typing import Final

from ringfence.dataclass import dataclass, replace
from ringfence.errors import InvalidArgument
from ringfence.policy.network_clients import Clients, ClientSource, SourceKind
from ringfence.policy.network_presets import BY_PRESET, READ, Preset
from ringfence.values.network import NetworkRule

_DEFAULT: Final = {
    "pip": "https://pypi.org/simple",
    "npm": "https://registry.npmjs.org/",
    "go": "https://proxy.golang.org",
}
"""What a client uses that nobody has configured."""
_CLIENTS: Final = {"pip": ("pip", "uv")}
"""The clients whose settings a preset looks at, where that is not the one of its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What a preset comes to."""

    rules: tuple[NetworkRule, ...] = ()
    own_hosts: tuple[str, ...] = ()
    """Hosts that the person's clients use: an address of theirs that is not global may be reached as that host."""
    reach: tuple[int, ...] = ()
    """Ports of the host's loopback where a mirror listens."""
    readable: tuple[str, ...] = ()
    """Directories that are mirrors."""
    variables: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def with_(self, other: "Expansion") -> "Expansion":
        return Expansion(
            rules=tuple(dict.fromkeys((*self.rules, *other.rules))),
            own_hosts=_once((*self.own_hosts, *other.own_hosts)),
            reach=tuple(dict.fromkeys((*self.reach, *other.reach))),
            readable=_once((*self.readable, *other.readable)),
            variables=tuple(dict((*self.variables, *other.variables)).items()),
            notes=_once((*self.notes, *other.notes)),
        )


def find_preset(text: str) -> tuple[Preset, str] | None:
    """The preset that is meant by `pip`, or `github-push ORG/REPO`, with its argument; None if it is none.

    Raises:
        InvalidArgument: it lacks its argument, or has one that it cannot have.
    """
    name, _, argument = text.strip().replace("=", " ", 1).partition(" ")
    preset, argument = BY_PRESET.get(name.lower()), argument.strip()
    if preset is None:
        return None
    if preset.argument and not _is_argument(argument):
        raise InvalidArgument(
            f"the preset {preset.name} needs {preset.argument}", hint=f"write `{preset.name} {preset.argument}`"
        )
    if argument and not preset.argument:
        raise InvalidArgument(f"the preset {preset.name} takes nothing after its name, and has {argument!r}")
    return preset, argument


def _is_argument(text: str) -> bool:
    parts = text.split("/")
    return (
        all(
            part and part not in (".", "..") and all(letter.isalnum() or letter in "-_." for letter in part)
            for part in parts
        )
        and text.isascii()
    )


def expand_preset(preset: Preset, argument: str, clients: Clients) -> Expansion:
    """What a preset comes to on a machine whose clients are configured so."""
    rules = tuple(_filled(rule, argument) for rule in preset.rules)
    if not preset.client:
        return Expansion(rules=rules)
    sources = clients.of(*_CLIENTS.get(preset.client, (preset.client,)))
    if preset.client == "git":
        return _of_remotes(sources)
    found = Expansion(rules=_public(preset, rules, sources))
    found = replace(found, own_hosts=_once(rule.host for rule in found.rules) if preset.client in _DEFAULT else ())
    for source in sources:
        found = found.with_(_of_source(source))
    return replace(found, variables=tuple(_variables(sources, clients)))


def _filled(rule: NetworkRule, argument: str) -> NetworkRule:
    return replace(
        rule,
        host=rule.host.replace("{}", argument.lower()),
        paths=tuple(path.replace("{}", argument) for path in rule.paths),
    )


def _public(preset: Preset, rules: tuple[NetworkRule, ...], sources: Iterable[ClientSource]) -> tuple[NetworkRule, ...]:
    """The public hosts, unless a client that is configured uses another index instead."""
    replaced = {source.client for source in sources if source.kind is SourceKind.INDEX and not source.scope}
    if preset.client == "apt":
        return () if replaced else rules
    return () if preset.client in replaced else rules


def _of_source(source: ClientSource) -> Expansion:
    notes: tuple[str, ...] = ()
    if source.has_password:
        notes = (
            f"{source.place}: the password in the address of {source.parts.hostname} does not come into the box; "
            f"give it as a secret: --secret NAME=SOURCE@{source.parts.hostname}",
        )
    if source.is_directory:
        return Expansion(readable=tuple(_directories(source.path)))
    host = (source.parts.hostname or "").rstrip(".")
    if not host or source.parts.scheme not in ("http", "https"):
        return Expansion(notes=(f"{source.place}: {source.url} is not reached: neither http(s) nor a directory",))
    if _is_loopback(host):
        return Expansion(reach=(source.port,), notes=notes)
    rules = [NetworkRule(host=host, ports=(source.port,), methods=READ)]
    if source.client == "npm":
        rules.append(
            NetworkRule(host=host, ports=(source.port,), methods=("POST",), paths=("/**/-/npm/v1/security/**",))
        )
    return Expansion(rules=tuple(rules), own_hosts=(host,), notes=notes)


def _directories(path: str) -> Iterator[str]:
    """An index in a directory links to files beside it: `../../packages/...`."""
    top = posixpath.normpath(path)
    parent = posixpath.dirname(top)
    is_index = posixpath.basename(top) == "simple" and parent.count("/") >= 2
    yield parent if is_index else top


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _of_remotes(sources: Iterable[ClientSource]) -> Expansion:
    found = Expansion()
    for source in sources:
        host, path = source.parts.hostname or "", source.parts.path.strip("/").removesuffix(".git")
        if source.is_directory or not host or not path or _is_loopback(host):
            continue
        ports = (source.port,) if source.parts.scheme in ("http", "https") else (443,)
        below = (f"/{path}/**", f"/{path}.git/**")
        posts = tuple(
            f"/{name}/{end}" for name in (path, f"{path}.git") for end in ("git-upload-pack", "info/lfs/objects/batch")
        )
        found = found.with_(
            Expansion(
                rules=(
                    NetworkRule(host=host, ports=ports, methods=READ, paths=below),
                    NetworkRule(host=host, ports=ports, methods=("POST",), paths=posts),
                ),
            )
        )
    if not found.rules:
        return Expansion(
            notes=("git: the workspace has no remote that is reached by a host's name, so it opens nothing",)
        )
    return found


def _variables(sources: tuple[ClientSource, ...], clients: Clients) -> Iterator[tuple[str, str]]:
    """What tells the client inside to use the same addresses; its own files stay outside, for they hold passwords."""
    by = _by_kind(sources)
    for client, kind, name, separator in _TOLD:
        urls = by.get((client, kind), ())
        if urls:
            yield name, separator.join(urls)
    for source in sources:
        if source.scope:
            yield f"npm_config_{source.scope}:registry", source.url
    if clients.trusted and any(source.client == "pip" for source in sources):
        yield "PIP_TRUSTED_HOST", " ".join(clients.trusted)


_TOLD: Final = (
    ("pip", SourceKind.INDEX, "PIP_INDEX_URL", " "),
    ("pip", SourceKind.EXTRA, "PIP_EXTRA_INDEX_URL", " "),
    ("pip", SourceKind.LINKS, "PIP_FIND_LINKS", " "),
    ("uv", SourceKind.INDEX, "UV_DEFAULT_INDEX", " "),
    ("uv", SourceKind.EXTRA, "UV_INDEX", " "),
    ("uv", SourceKind.LINKS, "UV_FIND_LINKS", ","),
    ("npm", SourceKind.INDEX, "npm_config_registry", " "),
    ("go", SourceKind.INDEX, "GOPROXY", ","),
)


def _by_kind(sources: Iterable[ClientSource]) -> dict[tuple[str, SourceKind], tuple[str, ...]]:
    found: dict[tuple[str, SourceKind], tuple[str, ...]] = {}
    for source in sources:
        if not source.scope:
            found[(source.client, source.kind)] = (*found.get((source.client, source.kind), ()), source.url)
    return found


def _once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
