"""The port of a confiner, and the values that it takes and gives."""

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ringfence.values.guarantee import Guarantee


class How(StrEnum):
    """How a path inside a writable directory is covered."""

    HIDE = "hide"
    """Neither read nor written."""
    FREEZE = "freeze"
    """Read, not written, not replaced."""
    ANCHOR = "anchor"
    """Read and written, but not renamed or removed itself, so that what is frozen below it stays where it is."""
    PIN = "pin"
    """The same for a directory on the way to something covered; files still move freely in and out of it."""


@dataclass(frozen=True, slots=True)
class Cover:
    """One path below a writable directory and how it is covered."""

    root: str
    below: str
    how: How


@dataclass(frozen=True, slots=True)
class Layered:
    """A writable directory whose changes lie elsewhere."""

    root: str
    store: str
    """Holds `upper`, and `work` for overlayfs."""
    is_copy: bool
    """Whether `upper` is all of it, instead of what differs from the root."""
    memory_bytes: int = 0
    """If not 0, changes are kept in memory of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The file system that a box sees, built up from nothing. Paths are the same inside as outside."""

    uid: int
    gid: int
    home: str
    system: tuple[str, ...]
    """Directories of the system, read-only."""
    links: tuple[tuple[str, str], ...] = ()
    """(where, target)"""
    etc: tuple[tuple[str, str], ...] = ()
    """(name below /etc, source)"""
    texts: tuple[tuple[str, str], ...] = ()
    """(name below /etc, content): synthetic files"""
    readable: tuple[str, ...] = ()
    linked: tuple[tuple[str, str], ...] = ()
    """(one of `readable`, where it really lies): the launcher follows no link, since an agent may have put it there."""
    writable: tuple[str, ...] = ()
    layered: tuple[Layered, ...] = ()
    """Which of `writable` are shadows."""
    covers: tuple[Cover, ...] = ()
    hidden: tuple[str, ...] = ()
    """Absolute paths hidden in what is readable."""
    tmp_bytes: int
    unix_sockets: bool = True
    """Whether commands may make them: not where they could see sockets of the host that no cover hides."""

    def origin(self, root: str) -> str:
        """Where on the host a writable directory lies: a shadow that is a copy lies elsewhere."""
        return next((f"{each.store}/upper" for each in self.layered if each.root == root and each.is_copy), root)


@dataclass(frozen=True, slots=True)
class StandIn:
    """Run by root: ids that own nothing on the host, and whom they stand for in each writable directory."""

    uid: int
    gid: int
    owners: tuple[tuple[str, int, int], ...]
    """(directory, uid, gid)"""

    @property
    def for_root(self) -> bool:
        """Whether something that the box writes will belong to root."""
        return any(uid == 0 or gid == 0 for _, uid, gid in self.owners)


@dataclass(frozen=True, slots=True)
class Descriptors:
    """Numbers of the descriptors that a launch may name, as the launched process will find them."""

    options: int
    seccomp: int
    helper: int
    """Our helper: a program, or the text of one."""
    control: int
    memory: int = -1
    """To become what holds a shadow's changes, where they are kept in memory."""
    interpreter: tuple[str, ...] = ()
    """Where the helper is a text: what runs it, when the text's descriptor follows."""

    @property
    def init_argv(self) -> tuple[str, ...]:
        """How PID 1 is started from within the wall."""
        start = (*self.interpreter, str(self.helper)) if self.interpreter else (f"/proc/self/fd/{self.helper}",)
        return (*start, "init", str(self.control), *([str(self.memory)] if self.memory >= 0 else []))


@dataclass(frozen=True, slots=True)
class Launch:
    """How a box is started: what the launcher does, what it becomes, and how PID 1 confines itself.

    `plan` and `configure` are words for the helper (docs/box-protocol.md), `options` what bwrap reads from a
    descriptor, so that nothing of them shows in a process list.
    """

    plan: tuple[str, ...]
    options: tuple[str, ...]
    configure: tuple[str, ...]
    seccomp: bytes
    filter_by_helper: bool = False
    """Whether PID 1 applies the seccomp filter itself."""
    description: str = ""
    """What goes where `options` would, for a wall that is described as a whole and not by words."""
    explained: bool = True
    """Whether somebody outside can look at the calls that are refused."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a confiner can do here; `missing` says why it cannot be used at all."""

    guarantees: frozenset[Guarantee] = frozenset()
    missing: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()
    own_processes: int = 0
    """How many processes and threads the wall itself may have, besides those of the box."""

    @property
    def usable(self) -> bool:
        return not self.missing


@dataclass(slots=True)
class Shared:
    """A writable directory that boxes may share: the lock on it, and the placeholders that the last one removes."""

    lock: int
    root: str
    placeholders: list[str]

    def close(self) -> None:
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


@dataclass(slots=True)
class Prepared:
    """A view that is ready to be built: its placeholders exist. Close it when the launcher has the locks."""

    view: View
    env: tuple[tuple[str, str], ...]
    """Variables that go with it, PATH among them."""
    shared: tuple[Shared, ...]
    notes: tuple[str, ...] = ()

    def close(self) -> None:
        for shared in self.shared:
            shared.close()


@dataclass(frozen=True, slots=True)
class ContainerFilter:
    """How the kernel's surface is reduced in a container."""

    profile: str
    """The seccomp profile as JSON, for the container engine."""
    seccomp: bytes
    """The same as a filter that PID 1 applies itself."""
    configure: tuple[str, ...]
    """Words by which PID 1 restricts itself by Landlock."""


class Confiner(Protocol):
    """Turns a view into a launch behind one kind of wall."""

    @property
    def name(self) -> str: ...

    def probe(self) -> Probe:
        """What this confiner guarantees on this machine; cached, never raises."""

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        """How to start a box that sees `view` and nothing else.

        Raises:
            InitializationFailed: this view cannot be built by this confiner.
        """
