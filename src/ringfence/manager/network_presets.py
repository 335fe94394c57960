"""Reads what the person's own clients are configured for, and looks up the addresses of their hosts.

Only what belongs to the person counts: variables, files of their home and of the system. A file that lies in the
workspace is left out, since an agent could have written it and opened a host by it; the exception are the remotes in
its `.git/config`, which is protected there, and which are asked for by their own preset.
"""

import configparser
import glob
import ipaddress
import os
import re
import socket
import threading
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument
from ringfence.policy.defaults import may_be_granted
from ringfence.policy.network_clients import Clients, ClientSource, SourceKind, make_source
from ringfence.values.paths import is_below

_SIZE_MAX: Final = 1024 * 1024
_LOOK_UP_SECONDS: Final = 3.0
_KEPT_SECONDS: Final = 60
"""How long an address is remembered: a pool asks for each of its boxes."""
_SCP: Final = re.compile(r"(?:[^/@:\s]+@)?([^/@:\s\[\]]+):(?!//)(\S+)")
"""`git@host:org/repo`, which is no URL."""


@dataclass(slots=True)
class _Reader:
    """Where files are read from, and what was found."""

    environ: Mapping[str, str]
    home: str
    root: str
    workspace: str
    sources: list[ClientSource] = field(default_factory=list)
    trusted: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def text(self, path: str) -> str | None:
        """What a file of the person's holds; None if there is none that counts."""
        real = os.path.realpath(path)
        if self.workspace and is_below(real, self.workspace):
            if os.path.exists(real):
                self.notes.append(
                    f"{path} is in the workspace, where an agent could have written it: it does not count"
                )
            return None
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                return file.read(_SIZE_MAX).decode("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as fault:
            self.notes.append(f"{path} cannot be read ({fault}): presets do not start from it")
            return None

    def system(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def at_home(self, path: str) -> str:
        return os.path.join(self.home, path)

    def config(self, path: str) -> str:
        return os.path.join(self.environ.get("XDG_CONFIG_HOME") or self.at_home(".config"), path)

    def add(
        self, client: str, kind: SourceKind, urls: str, place: str, *, scope: str = "", named: bool = False
    ) -> None:
        """Note the addresses of one setting, separated by white space."""
        for url in urls.split():
            bare = url.partition("=")[2] if named and "=" in url.partition("://")[0] else url
            if self.environ and "${" in bare:
                bare = re.sub(r"\$\{(\w+)\}", lambda found: self.environ.get(found[1], ""), bare)
            try:
                made = make_source(client, kind, bare, place, scope=scope)
            except InvalidArgument as fault:
                self.notes.append(fault.message)
                continue
            if made not in self.sources:
                self.sources.append(made)


def read_clients(
    environ: Mapping[str, str], home: str, workspace: str | None = None, *, root: str = "/", remotes: bool = False
) -> Clients:
    """What pip, uv, npm, apt, cargo, go and maven are configured for.

    Args:
        workspace: where an agent may write; the current directory, if that could be one and none is given.
        root: where the system's own files are looked for.
        remotes: whether the workspace's git remotes are read too.
    """
    place = os.path.realpath(workspace or _current())
    written = place if workspace or may_be_granted(place, os.path.realpath(home)) else ""
    reader = _Reader(environ, home, root, written)
    for read in (_read_pip, _read_uv, _read_npm, _read_apt, _read_cargo, _read_go, _read_maven):
        read(reader)
    if remotes:
        _read_remotes(reader, place)
    return Clients(tuple(reader.sources), tuple(dict.fromkeys(reader.trusted)), tuple(reader.notes))


def lazy_clients(environ: Mapping[str, str], home: str) -> Callable[[], Clients]:
    """The same, read when it is asked for."""

    @lru_cache(maxsize=1)
    def read() -> Clients:
        return read_clients(environ, home)

    return read


def _current() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "/"


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


_PIP: Final = {
    "index-url": SourceKind.INDEX,
    "extra-index-url": SourceKind.EXTRA,
    "find-links": SourceKind.LINKS,
}


def _read_pip(reader: _Reader) -> None:
    """A variable beats the person's file, which beats the system's; each setting by itself."""
    named = reader.environ.get("PIP_CONFIG_FILE", "")
    files = [
        reader.system("/etc/pip.conf"),
        reader.system("/etc/xdg/pip/pip.conf"),
        reader.at_home(".pip/pip.conf"),
        reader.config("pip/pip.conf"),
    ]
    files = [] if named == os.devnull else [*files, named] if named else files
    found: dict[str, tuple[str, str]] = {}
    for path in files:
        sections = _ini(reader, path)
        for section in ("global", "install"):
            found.update({key: (value, path) for key, value in sections.get(section, {}).items()})
    for key in (*_PIP, "trusted-host"):
        variable = f"PIP_{key.upper().replace('-', '_')}"
        if reader.environ.get(variable, "").strip():
            found[key] = (reader.environ[variable], f"${variable}")
    for key, kind in _PIP.items():
        if key in found:
            reader.add("pip", kind, *found[key])
    reader.trusted += found.get("trusted-host", ("", ""))[0].split()


def _read_uv(reader: _Reader) -> None:
    given: dict[SourceKind, tuple[str, str]] = {}
    for path in (reader.system("/etc/uv/uv.toml"), reader.config("uv/uv.toml")):
        table = _toml(reader, path)
        for part in (table, table.get("pip", {})):
            for key, kind in _PIP.items():
                if part.get(key):
                    value = part[key]
                    given[kind] = (" ".join(map(str, value)) if isinstance(value, list) else str(value), path)
        rows = [row for row in table.get("index", ()) if isinstance(row, dict) and row.get("url")]
        for kind, default in ((SourceKind.INDEX, True), (SourceKind.EXTRA, False)):
            named = [str(row["url"]) for row in rows if bool(row.get("default")) is default]
            if named:
                given[kind] = (" ".join(named), path)
    for variable, kind in _UV_VARIABLES:
        if reader.environ.get(variable, "").strip():
            given[kind] = (reader.environ[variable].replace(",", " "), f"${variable}")
    for kind, (urls, place) in given.items():
        reader.add("uv", kind, urls, place, named=True)


_UV_VARIABLES: Final = (
    ("UV_INDEX_URL", SourceKind.INDEX),
    ("UV_DEFAULT_INDEX", SourceKind.INDEX),
    ("UV_EXTRA_INDEX_URL", SourceKind.EXTRA),
    ("UV_INDEX", SourceKind.EXTRA),
    ("UV_FIND_LINKS", SourceKind.LINKS),
)


def _read_npm(reader: _Reader) -> None:
    environ = {name.lower(): value for name, value in reader.environ.items() if name.lower().startswith("npm_config_")}
    files = [reader.system(path) for path in ("/usr/etc/npmrc", "/usr/local/etc/npmrc", "/etc/npmrc")]
    files += [environ["npm_config_globalconfig"]] if environ.get("npm_config_globalconfig") else []
    files.append(environ.get("npm_config_userconfig") or reader.at_home(".npmrc"))
    found: dict[str, tuple[str, str]] = {}
    for path in files:
        for line in (reader.text(path) or "").splitlines():
            key, equals, value = line.strip().partition("=")
            key = key.strip()
            if equals and (key == "registry" or (key.startswith("@") and key.endswith(":registry"))):
                found[key] = (value.strip().strip("\"'"), path)
    if environ.get("npm_config_registry"):
        found["registry"] = (environ["npm_config_registry"], "$npm_config_registry")
    for key, (url, place) in found.items():
        scope = key.removesuffix("registry").removesuffix(":")
        if not scope and url.rstrip("/") == "https://registry.npmjs.org":
            continue  # the public one, written out
        reader.add("npm", SourceKind.INDEX, url, place, scope=scope)


def _read_apt(reader: _Reader) -> None:
    top = reader.system("/etc/apt")
    for path in (f"{top}/sources.list", *sorted(glob.glob(f"{glob.escape(top)}/sources.list.d/*.list"))):
        for line in (reader.text(path) or "").splitlines():
            found = re.match(r"\s*deb(?:-src)?\s+(?:\[[^\]]*\]\s+)?(\S+)", line)
            if found:
                _add_apt(reader, found[1], path)
    for path in sorted(glob.glob(f"{glob.escape(top)}/sources.list.d/*.sources")):
        for block in re.split(r"\n\s*\n", reader.text(path) or ""):
            if re.search(r"(?mi)^Enabled:\s*(no|false|0)", block):
                continue
            for uris in re.findall(r"(?mi)^URIs:[ \t]*(.*)$", block):
                for uri in uris.split():
                    _add_apt(reader, uri, path)


def _add_apt(reader: _Reader, uri: str, path: str) -> None:
    plain = uri.removeprefix("mirror+").replace("copy:", "file:", 1)
    if plain.startswith(("http://", "https://", "file:")):
        reader.add("apt", SourceKind.INDEX, plain, path)


def _read_cargo(reader: _Reader) -> None:
    top = reader.environ.get("CARGO_HOME") or reader.at_home(".cargo")
    for name in ("config.toml", "config"):
        table = _toml(reader, os.path.join(top, name))
        rows = [(row, "registry") for row in table.get("source", {}).values()]
        rows += [(row, "index") for row in table.get("registries", {}).values()]
        for row, key in rows:
            if isinstance(row, dict) and isinstance(row.get(key), str):
                reader.add("cargo", SourceKind.EXTRA, row[key].removeprefix("sparse+"), os.path.join(top, name))
        if table:
            return


def _read_go(reader: _Reader) -> None:
    path = reader.environ.get("GOENV") or reader.config("go/env")
    lines = (reader.text(path) or "").splitlines() if path != "off" else ()
    found = next(((line[8:], path) for line in lines if line.startswith("GOPROXY=")), None)
    if reader.environ.get("GOPROXY"):
        found = (reader.environ["GOPROXY"], "$GOPROXY")
    if found is not None:
        urls = [url for url in re.split(r"[,|]", found[0].strip()) if url not in ("direct", "off", "")]
        if urls != ["https://proxy.golang.org"]:
            reader.add("go", SourceKind.INDEX, " ".join(urls), found[1])


def _read_maven(reader: _Reader) -> None:
    path = reader.at_home(".m2/settings.xml")
    text = reader.text(path)
    if text is None or "<!ENTITY" in text:
        return
    try:
        document = ElementTree.fromstring(text)
    except ElementTree.ParseError as fault:
        reader.notes.append(f"{path} is no XML ({fault}): presets do not start from it")
        return
    for element in document.iter():
        if element.tag.rpartition("}")[2] == "mirror":
            for child in element:
                if child.tag.rpartition("}")[2] == "url" and child.text:
                    reader.add("maven", SourceKind.EXTRA, child.text.strip(), path)


def _read_remotes(reader: _Reader, workspace: str) -> None:
    """Of the repository itself, never by way of a link or a file that leads elsewhere."""
    top = os.path.join(workspace, ".git")
    path = os.path.join(top, "config")
    if os.path.islink(top) or not os.path.isdir(top) or os.path.islink(path):
        return
    for section, values in _ini(_Reader(reader.environ, reader.home, reader.root, ""), path).items():
        url = values.get("url", "")
        if section.startswith("remote ") and url:
            scp = _SCP.fullmatch(url)
            reader.add("git", SourceKind.REMOTE, f"ssh://{scp[1]}/{scp[2]}" if scp else url, path)


def _ini(reader: _Reader, path: str) -> dict[str, dict[str, str]]:
    text = reader.text(path)
    if text is None:
        return {}
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    is_git = path.endswith("/.git/config")
    try:
        # git indents its keys, which this parser would take for continued lines; pip's lists are continued lines.
        parser.read_string("\n".join(line.strip() for line in text.splitlines()) if is_git else text)
    except configparser.Error as fault:
        reader.notes.append(f"{path} cannot be read ({str(fault).splitlines()[0]}): presets do not start from it")
        return {}
    return {
        section: {key.replace("_", "-"): value or "" for key, value in parser.items(section)}
        for section in parser.sections()
    }


def _toml(reader: _Reader, path: str) -> dict[str, Any]:
    text = reader.text(path)
    if text is None:
        return {}
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        reader.notes.append(f"{path} is no TOML ({fault}): presets do not start from it")
        return {}


def own_addresses(hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The addresses of hosts that are not global: a mirror in the person's own network. Never loopback or link-local.

    A name that has no address in time has none.
    """
    names = tuple(host for host in dict.fromkeys(hosts) if "*" not in host and "/" not in host)
    if not names:
        return {}
    now = int(time.monotonic()) // _KEPT_SECONDS
    found: dict[str, tuple[str, ...]] = {}

    def look_up(name: str) -> None:
        found[name] = _looked_up(name, now)

    # Daemons: a name server that does not answer keeps nobody from ending.
    threads = [threading.Thread(target=look_up, args=(name,), daemon=True) for name in names]
    for thread in threads:
        thread.start()
    until = time.monotonic() + _LOOK_UP_SECONDS
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return {name: addresses for name in names if (addresses := tuple(_private(found.get(name, ()))))}


@lru_cache(maxsize=256)
def _looked_up(host: str, minute: int) -> tuple[str, ...]:
    try:
        answers = socket.getaddrinfo(host, 443, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))


def _private(addresses: Iterable[str]) -> Iterator[str]:
    for text in addresses:
        address = ipaddress.ip_address(text.partition("%")[0])
        never = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
        if not address.is_global and not never:
            yield str(ipaddress.ip_network(address))
