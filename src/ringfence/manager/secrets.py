"""Secrets as somebody declares them, `NAME=SOURCE@HOST,HOST;OPTION=...`, and the values that the proxy asks for.

GH_TOKEN                                              a preset, from our variable of that name
GH_TOKEN=command:gh auth token                        a preset, from a program
DEPLOY_KEY=file:~/.deploy@api.example.com             a placeholder in $DEPLOY_KEY inside
GIT_KEY=agent:@git.example.com                        the SSH agent signs in to a git server; nothing inside
api=env:API_KEY@api.example.com;header=X-Api-Key      nothing inside; the proxy sets the header
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass, replace
from ringfence.egress.secrets.minting import Mint, MintingFailed
from ringfence.egress.secrets.placeholders import make_placeholder
from ringfence.egress.secrets.signers import SIGNERS, TOKEN_SIGNERS, make_mint
from ringfence.errors import InvalidArgument
from ringfence.manager.secret_presets import preset_for
from ringfence.manager.secret_sources import (
    KINDS,
    SOURCE_FORM,
    USUAL_TTL_SECONDS,
    AgentSource,
    DescriptorSource,
    Source,
    SourceFailed,
    parse_source,
)
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.policy.reach_rules import means_host
from ringfence.values.hosts import Host
from ringfence.values.network import SecretGrant, SecretPlace, SecretStyle
from ringfence.values.sizes import parse_duration

if TYPE_CHECKING:
    from ringfence.egress.base import SecretValue

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TTL: Final = "ttl"
_OPTIONS: Final = ("header", "template", "places", "style", "variable", "signer", "quoted", _TTL)
_FORM: Final = f"write NAME=SOURCE@HOST[,HOST], with {SOURCE_FORM} as SOURCE"


@dataclass(frozen=True, slots=True)
class DeclaredSecret:
    """A secret and where its value is; its grant has no placeholder yet."""

    grant: SecretGrant
    source: Source


def parse_secret(
    text: str, environment: Mapping[str, str], *, writable: tuple[str, ...] = (), from_workspace: bool = False
) -> DeclaredSecret:
    """
    Args:
        writable: directories that the box may write.
        from_workspace: whether the text comes from a file that lies in the workspace.

    Raises:
        InvalidArgument: it makes no sense, or may not be said there. Never shows what stands for the source.
    """
    if from_workspace:
        raise InvalidArgument(
            "a file in the workspace names a secret's source: whoever writes there could send any secret anywhere",
            argument="secret",
            hint="name it on the command line or in your own configuration",
        )
    name, _, rest = text.partition("=")
    if not _NAME.fullmatch(name):
        raise InvalidArgument("a secret without a name of letters and digits", argument="secret", hint=_FORM)
    preset = preset_for(name)
    if not rest and preset is not None:
        rest = "env:AWS_*" if preset.signer == "aws-sigv4" else f"env:{name}"
    written, options, hosts = _split(rest, name)
    if not hosts and preset is not None:
        hosts = preset.hosts
    if not hosts:
        raise InvalidArgument(f"secret {name}: no host that it is for", argument="secret", hint=_FORM)
    for host in hosts:
        if HostRule.parse(host, Mark(f"secret {name}", 1)).matches_everything:
            raise InvalidArgument(
                f"secret {name}: {host!r} stands for every host", argument="secret", hint="name hosts"
            )
    places = preset.places if preset is not None else SecretGrant(name="", hosts=()).places
    usual = SecretGrant(name=name, hosts=hosts, places=places, signer=preset.signer if preset is not None else "")
    ttl = _duration(name, options.pop(_TTL)) if _TTL in options else USUAL_TTL_SECONDS
    source = parse_source(name, written, environment, writable=writable, ttl_seconds=ttl)
    if isinstance(source, AgentSource):
        options.setdefault("places", SecretPlace.SSH)  # what an agent can do
    grant = _with_options(usual, options)
    if isinstance(source, AgentSource) and grant.places != (SecretPlace.SSH,):
        raise InvalidArgument(f"secret {name}: an SSH agent gives nothing to put into a request", argument="secret")
    return DeclaredSecret(grant, source)


def _split(rest: str, name: str) -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Source, options and hosts. The source may hold any character: hosts begin at the last `@`."""
    source, at, tail = rest.rpartition("@")
    if not at or source.partition(":")[0] not in KINDS:
        source, tail = rest, ""
        if at and rest.partition(":")[0] not in KINDS:
            raise InvalidArgument(f"secret {name}: the source has no kind", argument="secret", hint=_FORM)
    listed, *given = tail.split(";")
    options: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if key.strip() not in _OPTIONS or not equals:
            raise InvalidArgument(
                f"secret {name}: {key.strip()!r} is no option",
                argument="secret",
                hint=f"there are {', '.join(_OPTIONS)}",
            )
        options[key.strip()] = value.strip()
    return source, options, tuple(host.strip() for host in listed.split(",") if host.strip())


def _with_options(grant: SecretGrant, options: dict[str, str]) -> SecretGrant:
    name = grant.name
    try:
        style = SecretStyle(options.get("style") or ("inject" if "header" in options else "placeholder"))
        places = (
            tuple(SecretPlace(each.strip()) for each in options["places"].split(",")) if "places" in options else ()
        )
    except ValueError as fault:
        raise InvalidArgument(f"secret {name}: {fault}", argument="secret") from None
    if SecretPlace.SSH in (places or grant.places):
        if len(places or grant.places) > 1 or {*options} - {"places"}:
            raise InvalidArgument(
                f"secret {name}: a key for SSH goes nowhere else", argument="secret", hint="write places=ssh alone"
            )
        return replace(grant, places=(SecretPlace.SSH,), style=SecretStyle.INJECT, variable="")
    header = options.get("header", "")
    if header and not _HEADER.fullmatch(header):
        raise InvalidArgument(f"secret {name}: {header!r} is no header", argument="secret")
    signer = options.get("signer", grant.signer)
    if signer and signer not in SIGNERS:
        raise InvalidArgument(
            f"secret {name}: there is no signer {signer!r}",
            argument="secret",
            hint=f"there are {', '.join(sorted(SIGNERS))}",
        )
    template = options.get("template") or ("Bearer {}" if header.lower() in ("", "authorization") else "{}")
    if "{}" not in template or not template.isprintable() or not template.isascii():
        raise InvalidArgument(f"secret {name}: a template without {{}}", argument="secret", hint="such as 'token {}'")
    variable = options.get("variable", name if style is SecretStyle.PLACEHOLDER and _VARIABLE.fullmatch(name) else "")
    if variable and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", variable):
        raise InvalidArgument(f"secret {name}: {variable!r} is no variable", argument="secret")
    return replace(
        grant,
        places=places or grant.places,
        style=style,
        header=header,
        template=template,
        variable=variable,
        signer=signer,
        quoted_to=_quoted(name, options.get("quoted", "")),
    )


def _quoted(name: str, text: str) -> tuple[str, ...]:
    hosts = tuple(host.strip() for host in text.split(",") if host.strip())
    for host in hosts:
        if HostRule.parse(host, Mark(f"secret {name}", 1)).matches_everything:
            raise InvalidArgument(f"secret {name}: quoted to every host", argument="secret", hint="name hosts")
    return hosts


def _duration(name: str, text: str) -> float:
    try:
        return parse_duration(text)
    except InvalidArgument as fault:
        raise InvalidArgument(f"secret {name}: ttl: {fault.message}", argument="secret", hint=fault.hint) from None


class SecretSources:
    """The secrets of one box: grants for it, and values for the proxy."""

    def __init__(self, declared: tuple[DeclaredSecret, ...], mint: Mint | None = None) -> None:
        self._sources = {each.grant.name: each.source for each in declared}
        self._declared = declared
        self._mint = mint or make_mint()
        if len(self._sources) != len(declared):
            raise InvalidArgument("two secrets have one name", argument="secret", hint="rename one")

    def __repr__(self) -> str:
        return f"<SecretSources {', '.join(self._sources)}>"

    async def grants(self) -> tuple[SecretGrant, ...]:
        """What the box is granted, with a new placeholder for each secret that has one.

        Raises:
            SourceFailed: a source gives no value now, so that it would give none later.
        """
        return tuple([await self._with_placeholder(each) for each in self._declared])

    async def _with_placeholder(self, each: DeclaredSecret) -> SecretGrant:
        found = await self._read(each.grant.name)  # also for a signer: that it cannot be read is said now
        return replace(each.grant, placeholder=make_placeholder(each.grant, found.value))

    async def value(self, secret: SecretGrant) -> SecretValue:
        """What the proxy puts in: the value, or the token that a signer gets for it.

        Raises:
            SourceFailed: there is none; says why.
        """
        if any(each.grant.name == secret.name and SecretPlace.SSH in each.grant.places for each in self._declared):
            raise SourceFailed(f"secret {secret.name}: a key for SSH is not given out")
        found = await self._read(secret.name)
        if secret.signer not in TOKEN_SIGNERS:
            return found
        try:
            return await self._mint.token(secret.signer, found.value)
        except MintingFailed as fault:
            raise SourceFailed(f"secret {secret.name}: {fault}") from None

    def for_ssh(self, host: Host) -> tuple[DeclaredSecret, ...]:
        """Those that sign in to this host by SSH."""
        return tuple(
            each
            for each in self._declared
            if SecretPlace.SSH in each.grant.places and any(means_host(text, host) for text in each.grant.hosts)
        )

    async def private_key(self, declared: DeclaredSecret) -> bytes:
        """The value of a key that signs in by SSH; it stays with whoever asks here.

        Raises:
            SourceFailed: there is none; says why.
        """
        return (await self._read(declared.grant.name)).value

    async def _read(self, name: str) -> SecretValue:
        source = self._sources.get(name)
        if source is None:
            raise SourceFailed(f"there is no secret {name}")
        try:
            found = await source.read()
        except SourceFailed as fault:
            raise SourceFailed(f"secret {name}: {fault.message}", hint=fault.hint) from None
        if len(found.value) < _SHORTEST:
            raise SourceFailed(f"secret {name}: its value is shorter than {_SHORTEST} bytes")
        return found

    def close(self) -> None:
        """Wipe what is kept."""
        for source in self._sources.values():
            if isinstance(source, DescriptorSource):
                source.wipe()


_SHORTEST: Final = 8
