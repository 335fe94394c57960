"""Finds the control groups that we may make children in: version 1 per controller, or version 2.

Children are always made below the group that we are in ourselves (version 1), or below the nearest ancestor that
hands its controllers down and lets us write (version 2): never at the top, where they would escape the limits that
were set for us.
"""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ringfence.dataclass import dataclass

PREFIX = "ringfence-"


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """One mounted hierarchy and the group in it that this process is in."""

    controllers: frozenset[str]
    directory: Path
    top: Path


def parse_mounts(mountinfo: str, membership: str) -> tuple[tuple[CgroupMount, ...], CgroupMount | None]:
    """(version 1 hierarchies, version 2 hierarchy) from the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    groups: dict[frozenset[str], str] = {}
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        groups[frozenset(controllers.split(",")) - {""}] = path
    first: list[CgroupMount] = []
    second: CgroupMount | None = None
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if not after:
            continue
        kind, _, options = after.split(" ", 2)
        fields = before.split(" ")
        top, root = Path(_unescape(fields[4])), fields[3]
        if kind == "cgroup2" and frozenset() in groups:
            second = CgroupMount(frozenset(), top / _relative(groups[frozenset()], root), top)
        elif kind == "cgroup":
            mounted = frozenset(options.rsplit(" ", 1)[-1].split(","))
            for names, path in groups.items():
                if names and names <= mounted:
                    first.append(CgroupMount(names, top / _relative(path, root), top))
    return tuple(first), second


def _relative(path: str, root: str) -> str:
    """A group's path, seen from a mount whose root may itself be a group (as in a container)."""
    inside = path.removeprefix(root) if root != "/" and f"{path}/".startswith(f"{root}/") else path
    return inside.lstrip("/")


def _unescape(text: str) -> str:
    return text.replace(r"\040", " ").replace(r"\011", "\t").replace(r"\012", "\n").replace(r"\134", "\\")


_REMOVE_TRIES = 25
_REMOVE_PAUSE_SECONDS = 0.002


def hierarchies() -> tuple[tuple[CgroupMount, ...], CgroupMount | None]:
    return hierarchies_of("self")


def hierarchies_of(pid: int | str) -> tuple[tuple[CgroupMount, ...], CgroupMount | None]:
    """The groups of another process, where our own mounts show them."""
    try:
        return parse_mounts(Path("/proc/self/mountinfo").read_text(), Path(f"/proc/{pid}/cgroup").read_text())
    except (OSError, ValueError):
        return (), None


def new_name() -> str:
    """A name that says whose it is, so that a person who finds one knows where to look."""
    return f"{PREFIX}{os.getpid()}-{os.urandom(4).hex()}"


def read_number(path: Path) -> int:
    """A number from a control file, 0 if it cannot be read."""
    try:
        return int(_slurp(path).split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def read_counter(path: Path, key: bytes) -> int:
    """The number after `key` in a control file of `key number` lines."""
    with suppress(OSError, ValueError):
        for line in _slurp(path).splitlines():
            name, _, value = line.partition(b" ")
            if name == key:
                return int(value)
    return 0


def _slurp(path: Path) -> bytes:
    """A control file, read without the detour through a buffered file: it is read for every command."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def write_control(path: Path, text: bytes) -> None:
    """Write to a control file; one that is gone with its group is nobody's fault."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)


def sweep(parents: Iterable[Path]) -> None:
    """Remove the empty groups that dead processes left: a machine may stop between making one and removing it."""
    for parent in parents:
        with suppress(OSError):
            for entry in os.scandir(parent):
                maker = entry.name.removeprefix(PREFIX).partition("-")[0]
                if entry.name.startswith(PREFIX) and maker.isdigit() and not os.path.exists(f"/proc/{maker}"):
                    with suppress(OSError):
                        os.rmdir(entry.path)


def remove(directories: tuple[Path, ...]) -> None:
    """Remove groups that are empty. The launcher has done so, unless it was killed; then the last process may still be
    dying."""
    for directory in directories:
        for _ in range(_REMOVE_TRIES):
            try:
                directory.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(_REMOVE_PAUSE_SECONDS)
            else:
                break
