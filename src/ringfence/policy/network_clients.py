"""What the person's own clients are configured for, as values: indexes, registries, mirrors, remotes.

Whoever reads them from files and variables is `manager.network_presets`; a preset starts from them, so that a company's
mirror works without being named. Nothing of it comes from files that an agent can write, but for the remotes of the
workspace, which are protected there.
"""

from enum import StrEnum
from urllib.parse import SplitResult, urlsplit

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument


class SourceKind(StrEnum):
    """What a client uses an address for."""

    INDEX = "index"
    """Instead of the public one."""
    EXTRA = "extra"
    """Besides the other."""
    LINKS = "links"
    """A page or directory of files, for pip and uv."""
    REMOTE = "remote"
    """A repository, for git."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSource:
    """One address that a client is set to."""

    client: str
    """pip, uv, npm, apt, cargo, go, maven or git."""
    kind: SourceKind
    url: str
    """Without user and password; a path alone is a directory."""
    place: str
    """The file or variable that says so."""
    scope: str = ""
    """For npm: the scope that the registry is for, such as `@corp`."""
    has_password: bool = False
    """Whether it held one, which does not come along."""

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def is_directory(self) -> bool:
        return self.parts.scheme in ("", "file")

    @property
    def path(self) -> str:
        """The directory that it is, if it is one."""
        return self.parts.path

    @property
    def port(self) -> int:
        return self.parts.port or (80 if self.parts.scheme == "http" else 443)


@dataclass(frozen=True, slots=True)
class Clients:
    """What all of them are set to."""

    sources: tuple[ClientSource, ...] = ()
    trusted: tuple[str, ...] = ()
    """pip's trusted hosts, whose certificates it does not look at."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What could not be read."""

    def of(self, *clients: str) -> tuple[ClientSource, ...]:
        return tuple(source for source in self.sources if source.client in clients)


def make_source(client: str, kind: SourceKind, url: str, place: str, *, scope: str = "") -> ClientSource:
    """A source, with user and password taken out of its address.

    Raises:
        InvalidArgument: it is no address.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError as fault:
        raise InvalidArgument(f"{place}: {url!r} is not an address: {fault}", hint="correct it there") from None
    has_password = "@" in parts.netloc
    shown = f"[{host}]" if ":" in host else host
    bare = parts._replace(netloc=f"{shown}:{port}" if port else shown).geturl()
    return ClientSource(client=client, kind=kind, url=bare, place=place, scope=scope, has_password=has_password)
