"""The port of a confiner, and the values that it takes and gives."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from ringfence.dataclass import dataclass

if TYPE_CHECKING:
    from ringfence.values.guarantee import Guarantee

OWN_ADDRESSES = ("127.82.70.1", "fd72:696e:6766::1")
"""What the loopback of a box has besides 127.0.0.1 and ::1; the helpers know the same. The C library takes no notice of
those two when it is asked for addresses of a family that the machine has."""
CAPTURED_ADDRESSES = ("198.18.0.1", OWN_ADDRESSES[1])
"""The same for a box with a network, in which every address is its own: native/capture.c has these. Connections come
from them, so that no other may be 127.0.0.1 to whoever is asked where one comes from."""
BUNDLE = "/etc/ringfence/ca-bundle.crt"
KNOWN_HOSTS = "ssh/ssh_known_hosts"
"""Below /etc: what every client of SSH on the system reads."""
SSH_CONFIG = "ssh/ssh_config"
SSH_SETTINGS = """# SSH ends at the proxy, which needs no key and is the only server there is.
Host *
    IdentityFile none
    UserKnownHostsFile /dev/null
    UpdateHostKeys no
"""
"""Where inside the file lies that says whom to trust, where that is not the system's own choice."""
NAME_SERVER = "127.0.0.53"
"""Whom programs in a box with a network ask for names. Any address would do, but in a container, where only those of
the loopback are its own."""


def is_within(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies below it; both are absolute and resolved."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


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
class Unmade:
    """A protected name that nobody in the box may make, held by whoever makes names for it."""

    root: str
    below: str
    device: int
    inode: int
    """Of its directory."""

    @property
    def path(self) -> str:
        return os.path.join(self.root, self.below)


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


@dataclass(frozen=True, slots=True)
class Trust:
    """Whom programs in a box trust with TLS: the system's authorities and ours, as they read them."""

    bundle: bytes
    """PEM."""
    java: bytes
    """JKS."""
    known_hosts: str = ""
    """For clients of SSH, where that is ended outside."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A file below a directory of the view whose content is another."""

    root: str
    below: str
    source: str
    """One of the view's `files`."""


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
    unmade: tuple[Unmade, ...] = ()
    named: tuple[str, ...] = ()
    """Which of `writable` are directories in which the guardian makes every name, and the box none."""
    hidden: tuple[str, ...] = ()
    """Absolute paths hidden in what is readable."""
    files: tuple[tuple[str, bytes], ...] = ()
    """(absolute path, content) of files of our own that are no text, or long"""
    replaced: tuple[Replaced, ...] = ()
    tmp_bytes: int
    unix_sockets: bool = True
    """Whether commands may make them: not where they could see sockets of the host that no cover hides."""

    @property
    def made_outside(self) -> tuple[str, ...]:
        """Where in the view the box makes no names itself: `named`, and what of its own one of these lies below."""
        own = ("/tmp", "/dev/shm", self.home, *self.writable)
        return tuple(path for path in dict.fromkeys(own) if any(is_within(name, path) for name in self.named))

    @property
    def held(self) -> frozenset[str]:
        """Paths that nothing inside can change, because a cover lies over them."""
        covers = (cover for cover in self.covers if cover.how in (How.FREEZE, How.HIDE))
        return frozenset(os.path.join(cover.root, cover.below) for cover in covers)

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
    """Our helper's program."""
    control: int
    memory: int = -1
    """To become what holds a shadow's changes, where they are kept in memory."""
    maker: int = -1
    """For the socket maker of the box; without one there is no network."""
    files: tuple[int, ...] = ()
    """What the view's `files` hold, in their order."""

    @property
    def init_argv(self) -> tuple[str, ...]:
        """How PID 1 is started from within the wall."""
        memory = (str(self.memory),) if self.memory >= 0 else ()
        return (f"/proc/self/fd/{self.helper}", "init", str(self.control), *memory)

    @property
    def stay_words(self) -> tuple[str, ...]:
        """The same in a plan whose process is PID 1 already, and starts nothing."""
        return ("stay", str(self.control), str(max(self.memory, 0)))


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
    is_first: bool = False
    """Whether the process that carries out the plan is PID 1 already."""
    description: str = ""
    """What goes where `options` would, for a wall that is described as a whole and not by words."""
    before: tuple[str, ...] = ()
    """What of the plan comes before the process joins the box's groups."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What a confiner can do here; `missing` says why it cannot be used at all."""

    guarantees: frozenset[Guarantee] = frozenset()
    missing: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()
    own_processes: int = 0
    """How many processes and threads the wall itself may have, besides those of the box."""
    supervised: bool = True
    """Whether somebody outside can look at single calls."""
    stays: bool = False
    """Whether PID 1 is a fork of the launcher, so that an interpreter can stand ready in it."""
    makes_names: bool = False
    """Whether names can be made from outside, so that protected ones need no placeholder."""

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
