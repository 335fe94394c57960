"""What a container sees of the host, as mounts: the workspace, what is granted, and the covers over what is protected.

A container engine takes paths and nothing else, so what a native box does by descriptor is done here by name, parents
before children (the engine sorts by depth):

    hide     a socket of ours that nobody listens on, or a directory that nobody may enter, over the path
    freeze   the path, read-only, over itself
    anchor   the path over itself, so that it can be neither renamed nor removed
    pin      the same in a second copy of the workspace, below a directory that nobody inside may enter: the kernel
             moves nothing that is a mount point anywhere in the namespace, and files still move in and out of it

Names can be swapped between our look and the engine's. So nothing runs in a box before `verify` has compared what the
kernel says is mounted with what was meant.

What this does not protect against: what the native covers do not (see `masks`). A link cannot be covered by name,
because the engine would follow it: a workspace in which one has to be is refused.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from ringfence.confinement.base import Cover, How, View
from ringfence.dataclass import dataclass, field
from ringfence.errors import InitializationFailed
from ringfence.values.paths import is_inside

OURS = "/run/ringfence"
"""Where our own things lie in a container."""
HELPER = f"{OURS}/box"
CONTROL = f"{OURS}/control"
PINS = f"{OURS}/pins"
"""In memory, and closed to everybody: what lies in it is mounted, and cannot be reached."""
ALIAS = "/workspace"
_SYSTEM = (
    *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc"),
    *("/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var", "/var/tmp"),
)
"""Directories of the image, or of the kernel, that nothing may cover."""
_KERNEL = ("/dev", "/proc", "/sys", OURS)


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    target: str
    writable: bool = False
    recursive: bool = False
    """Whether what is mounted below comes along. Not where it is read-only: that would hold for the top alone."""

    def as_json(self) -> dict[str, Any]:
        return {
            "Type": "bind",
            "Source": self.source,
            "Target": self.target,
            "ReadOnly": not self.writable,
            "BindOptions": {"Propagation": "rprivate", "NonRecursive": not self.recursive},
        }


@dataclass(frozen=True, slots=True)
class Sources:
    """Where on the host the things lie that are mounted."""

    helper: str
    control: str | None
    """The socket to connect to; None if nobody could."""
    hidden_file: str
    hidden_directory: str
    texts: tuple[tuple[str, str], ...]
    """(name below /etc, file)"""
    homes: dict[str, str] = field(default_factory=dict)
    """What is put over homes of the image, so that what is granted in them can be reached."""
    roots: dict[str, str] = field(default_factory=dict)
    """Where a writable root is mounted from, if not from its own place."""
    profile: str = ""
    """The system-call filter as a file; it is not mounted, Podman reads it."""


def plan(view: View, sources: Sources) -> tuple[Mount, ...]:
    """Every mount of a container with this view.

    Raises:
        InitializationFailed: something cannot be shown, or cannot be protected, by the names that an engine takes.
    """
    mounts = [Mount(sources.helper, HELPER)]
    if sources.control is not None:
        mounts.append(Mount(sources.control, CONTROL))
    mounts += [Mount(file, f"/etc/{name}") for name, file in sources.texts]
    mounts += [Mount(directory, home) for home, directory in sources.homes.items()]
    mounts += [Mount(path, path) for path in view.readable]
    mounts += [_hide(path, path, sources) for path in view.hidden]
    for index, root in enumerate(view.writable):
        covers = [cover for cover in view.covers if cover.root == root]
        source = sources.roots.get(root, view.origin(root))
        for target in (root, *([ALIAS] if index == 0 and _alias_is_free(view) else [])):
            mounts.append(Mount(source, target, writable=True, recursive=True))
            mounts += _covers(covers, source, target, sources)
        mounts += _pins(covers, source, f"{PINS}/{index}")
    for mount in mounts:
        _check_text(mount.source)
        _check_text(mount.target)
    return tuple(sorted(mounts, key=lambda mount: mount.target.count("/")))


def check_place(path: str) -> None:
    """Refuse to show what an engine could not, or what would cover the image's own.

    Raises:
        InitializationFailed: says which.
    """
    _check_text(path)
    if path in _SYSTEM or any(is_inside(path, top) for top in _KERNEL):
        raise InitializationFailed(
            f"{path} cannot be shown in a container, whose own it would cover",
            hint="grant a directory of its own, or use the native engine",
        )


def check_fields(mounts: Iterable[Mount]) -> None:
    """Refuse what Podman would read as more than a path: it writes each mount as a line of fields with commas between.

    Raises:
        InitializationFailed: says which.
    """
    for path in (path for mount in mounts for path in (mount.source, mount.target)):
        if set(path) & set(',"\r\n'):
            raise InitializationFailed(
                f"{path!r} cannot be shown in a container of Podman, which takes no commas, quotes or new lines",
                hint="rename it, or use Docker or the native engine",
            )


def closed_parents(view: View) -> tuple[str, ...]:
    """Homes that images keep closed to others, and that something granted lies in: an open one is put over each.

    Not one in memory: runc gives that the mode of what it covers.
    """
    homes: dict[str, None] = {}
    for path in (*view.writable, *view.readable):
        parts = path.split("/")
        if parts[1] == "root" and len(parts) > 2:
            homes["/root"] = None
        elif parts[1] == "home" and len(parts) > 3:
            homes["/".join(parts[:3])] = None
    return tuple(home for home in homes if home != view.home)


def _alias_is_free(view: View) -> bool:
    return not any(path == ALIAS or path.startswith(f"{ALIAS}/") for path in (*view.writable, *view.readable))


def _covers(covers: Iterable[Cover], source: str, target: str, sources: Sources) -> Iterator[Mount]:
    for cover in covers:
        own, place = f"{source}/{cover.below}", f"{target}/{cover.below}"
        match cover.how:
            case How.HIDE:
                yield _hide(own, place, sources)
            case How.FREEZE | How.ANCHOR:
                _mode(own)
                yield Mount(own, place, writable=cover.how is How.ANCHOR)
            case How.PIN:
                pass  # in the copy


def _pins(covers: Iterable[Cover], source: str, copy: str) -> Iterator[Mount]:
    pinned = [cover.below for cover in covers if cover.how is How.PIN]
    if pinned:
        yield Mount(source, copy)
        yield from (Mount(f"{source}/{below}", f"{copy}/{below}") for below in pinned)


def _hide(own: str, place: str, sources: Sources) -> Mount:
    is_directory = stat.S_ISDIR(_mode(own))
    return Mount(sources.hidden_directory if is_directory else sources.hidden_file, place)


def _mode(path: str) -> int:
    """What kind of thing is to be covered.

    Raises:
        InitializationFailed: it is a link, or has gone.
    """
    try:
        mode = os.lstat(path).st_mode
    except OSError as fault:
        raise InitializationFailed(
            f"{path} vanished while the box was being made", hint="does something else work there? Try again"
        ) from fault
    if stat.S_ISLNK(mode):
        raise InitializationFailed(
            f"{path} is a link, which a container engine cannot protect: it would follow it",
            hint="replace it by what it leads to, or use the native engine",
        )
    return mode


def _check_text(path: str) -> None:
    try:
        path.encode("utf-8")
    except UnicodeEncodeError as fault:
        raise InitializationFailed(
            f"{path!r} is not text, and Docker takes only text for paths", hint="rename it, or use the native engine"
        ) from fault
