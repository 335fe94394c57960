"""Finds the real programs behind the shims of version managers: pyenv, rbenv and their kin, asdf, mise.

A shim is a small script, or a link to the manager, that finds out which version is wanted and becomes it. That takes
some hundred milliseconds, at every call of `python`, and the answer is the same every time. So it is found out once,
when a box is made, by reading what the manager would read, and the directory of the real programs is put before that
of the shims. Nothing is run for it.

Which version is wanted may be said by a file in the workspace, which the agent may have written. It is taken as one
name out of those that are installed, and can lead nowhere else.

What is not found this way (a plugin's own rules, a version that is not installed, a path instead of a version) is left
to the shim.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ringfence.deferred import deferred_module

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = deferred_module("tomllib")


_ENVS: Final = {
    "pyenv": ("PYENV_VERSION", ".python-version"),
    "rbenv": ("RBENV_VERSION", ".ruby-version"),
    "nodenv": ("NODENV_VERSION", ".node-version"),
    "goenv": ("GOENV_VERSION", ".go-version"),
    "plenv": ("PLENV_VERSION", ".perl-version"),
}
"""Managers of one family, by the name of their directory: each has ROOT/shims, ROOT/versions and ROOT/version."""
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_FILE_MAX: Final = 65536
_DEPTH_MAX: Final = 40
_SYSTEM: Final = "system"


def resolve_shims(path: str, environ: Mapping[str, str], *, home: str, workspace: str) -> str:
    """PATH with the directories of the real programs before each directory of shims.

    Where a manager says `system`, its shims go behind everything else.
    """
    kept: list[str] = []
    last: list[str] = []
    for entry in path.split(":"):
        if os.path.basename(entry.rstrip("/")) != "shims":
            kept.append(entry)
            continue
        root = os.path.dirname(entry.rstrip("/"))
        found = _programs_of(root, environ, home, workspace)
        kept += found or ()
        (last if found == () else kept).append(entry)
    return ":".join(dict.fromkeys((*kept, *last)))


def resolve_program(program: str, environ: Mapping[str, str], *, home: str, workspace: str) -> str:
    """The real program, if this is a shim whose manager's answer is known; else as it was."""
    directory, name = os.path.split(program)
    if os.path.basename(directory) != "shims":
        return program
    for real in resolve_shims(directory, environ, home=home, workspace=workspace).split(":"):
        candidate = os.path.join(real, name)
        if real != directory and os.access(candidate, os.X_OK):
            return candidate
    return program


def _programs_of(root: str, environ: Mapping[str, str], home: str, workspace: str) -> tuple[str, ...] | None:
    """Directories of the programs that are wanted now; none if those of the system are, None if it is not known."""
    name = os.path.basename(root).removeprefix(".")
    if os.path.isdir(os.path.join(root, "versions")):
        family = name if name in _ENVS else _family_of(root, environ)
        return _of_env(root, family, environ, workspace) if family else None
    if os.path.isdir(os.path.join(root, "installs")):
        return _of_tools(root, environ, home, workspace) or None
    return None


def _family_of(root: str, environ: Mapping[str, str]) -> str | None:
    """A manager that lies where it usually does not is known by the variable that says so."""
    return next((name for name in _ENVS if environ.get(f"{name.upper()}_ROOT", "").rstrip("/") == root), None)


def _of_env(root: str, family: str, environ: Mapping[str, str], workspace: str) -> tuple[str, ...] | None:
    variable, local = _ENVS[family]
    wanted = environ.get(variable, "").replace(":", " ").split()
    if not wanted:
        wanted = next(filter(None, (_words(os.path.join(place, local)) for place in _above(workspace))), [])
    wanted = wanted or _words(os.path.join(root, "version")) or [_SYSTEM]
    found: list[str] = []
    for version in wanted:
        if version == _SYSTEM:
            continue
        directory = _installed(os.path.join(root, "versions"), version.removeprefix("python-"))
        if directory is None:
            return None  # the manager has something to say about it
        found.append(os.path.join(directory, "bin"))
    return tuple(found)


def _of_tools(root: str, environ: Mapping[str, str], home: str, workspace: str) -> tuple[str, ...]:
    """asdf and mise: what is wanted is said for each tool; the nearest file counts."""
    config = environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    wanted: dict[str, str] = {}
    for place in (*_above(workspace), home):
        for name, read in (("mise.toml", _toml), (".mise.toml", _toml), (".tool-versions", _table)):
            for tool, version in read(os.path.join(place, name)):
                wanted.setdefault(tool, version)
    for tool, version in _toml(os.path.join(config, "mise", "config.toml")):
        wanted.setdefault(tool, version)
    for tool in wanted:
        for prefix in ("ASDF", "MISE"):
            wanted[tool] = environ.get(f"{prefix}_{tool.upper().replace('-', '_')}_VERSION") or wanted[tool]
    found: list[str] = []
    for tool, version in wanted.items():
        directory = _installed(os.path.join(root, "installs", tool), version) if _VERSION.fullmatch(tool) else None
        if directory is not None and os.path.isdir(os.path.join(directory, "bin")):
            found.append(os.path.join(directory, "bin"))
    return tuple(found)


def _installed(directory: str, version: str) -> str | None:
    """Where that version lies; of one that is not whole (`3.12`) the newest."""
    if _VERSION.fullmatch(version) is None:
        return None
    exact = os.path.join(directory, version)
    if os.path.isdir(exact):
        return exact
    try:
        names = [name for name in os.listdir(directory) if name.startswith(f"{version}.")]
    except OSError:
        return None
    newest = max(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], default=None)
    return os.path.join(directory, newest) if newest is not None else None


def _above(directory: str) -> Iterator[str]:
    """The directory and those above it."""
    for _ in range(_DEPTH_MAX):
        yield directory
        if directory == (directory := os.path.dirname(directory)):
            return


def _words(path: str) -> list[str]:
    lines = (line.partition("#")[0] for line in _text(path).splitlines())
    return [word for line in lines for word in line.split()]


def _table(path: str) -> Iterable[tuple[str, str]]:
    for line in _text(path).splitlines():
        words = line.partition("#")[0].split()
        if len(words) > 1:
            yield words[0], words[1]


def _toml(path: str) -> Iterable[tuple[str, str]]:
    text = _text(path)
    return _tools_in(text) if text else ()


@lru_cache(maxsize=32)
def _tools_in(text: str) -> tuple[tuple[str, str], ...]:
    try:
        tools = tomllib.loads(text).get("tools")
    except tomllib.TOMLDecodeError:
        return ()
    found: list[tuple[str, str]] = []
    for tool, wanted in tools.items() if isinstance(tools, dict) else ():
        first = wanted[0] if isinstance(wanted, list) and wanted else wanted
        version = first.get("version") if isinstance(first, dict) else first
        if isinstance(version, str):
            found.append((tool.removeprefix("core:"), version))
    return tuple(found)


def _text(path: str) -> str:
    """A small file, or nothing: an agent may have made it a fifo, or a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        return os.read(descriptor, _FILE_MAX).decode("utf-8", "replace") if is_file else ""
    except OSError:
        return ""
    finally:
        os.close(descriptor)
