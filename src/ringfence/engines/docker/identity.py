"""Who a box is: to us, to the daemon, and to itself.

With a daemon of root's all three are the same. A rootless daemon lives in a user namespace of its user: what it calls
uid 0 is that user, and nobody in there is root of the machine. So a box of that user has to be uid 0 to the daemon; or,
if the daemon runs us in a container too, whoever we are in there. It does not stay so: the box's first process makes a
user namespace of its own before it connects, with one user in it, who is not 0.

Which uid of the daemon's is ours stands in the kernel's map of the daemon's user namespace, as we see it. The daemon is
found by its socket, whose other end the kernel names.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass
from ringfence.engines.boxes.identity import INSIDE
from ringfence.engines.docker.address import connect
from ringfence.errors import InitializationFailed

if TYPE_CHECKING:
    from ringfence.confinement.base import StandIn

_SECONDS = 5.0
_PEER = struct.Struct("=iII")
_EVERYBODY = ((0, 0, 0xFFFFFFFF),)
"""The map of the namespace that a machine starts with."""


@dataclass(frozen=True, slots=True)
class Ids:
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Identity:
    outside: Ids
    """As the kernel tells us."""
    named: Ids
    """As the daemon is told."""
    inside: Ids
    """As the box sees itself."""
    has_own_users: bool = False
    """Whether its first process makes a user namespace of its own."""


def identity_of(stand_in: StandIn | None) -> Identity:
    """For a daemon that maps nobody: ourselves, or, run by root, who stands in for us."""
    ids = _own() if stand_in is None else Ids(stand_in.uid, stand_in.gid)
    return Identity(ids, ids, ids)


def rootless_identity(url: str) -> Identity:
    """For a daemon in a user namespace, which has to be ours.

    Raises:
        InitializationFailed: it is somebody else's, or cannot be looked at.
    """
    own = _own()
    daemon = _listener(url)
    named = Ids(_named(own.uid, daemon, "uid_map"), _named(own.gid, daemon, "gid_map"))
    return Identity(own, named, Ids(own.uid or INSIDE, own.gid or INSIDE), has_own_users=True)


def parse_map(text: str) -> tuple[tuple[int, int, int], ...]:
    """(first id inside, first id outside, how many) of each line of a user namespace's map."""
    return tuple(_lines(text))


def translate(own: int, theirs: str, ours: str) -> int | None:
    """What an id of ours is in another user namespace, by both maps as we read them; None if it is nobody there.

    The kernel shows a map as it looks from the reader's namespace, and one's own as it looks from its parent. So two
    that are the same are of one namespace, in which ids need no translation.
    """
    if theirs == ours:
        return own
    return next(
        (inside + own - outside for inside, outside, count in _lines(theirs) if outside <= own < outside + count), None
    )


def _own() -> Ids:
    return Ids(os.getuid(), os.getgid())


def _listener(url: str) -> int:
    if not url.startswith("unix://"):
        raise InitializationFailed(
            f"the Docker daemon at {url} is rootless, and only its own socket tells whose it is",
            hint="set DOCKER_HOST to unix:///run/user/UID/docker.sock",
        )
    try:
        connection = connect(url, _SECONDS)
    except OSError as fault:
        raise InitializationFailed(
            f"no Docker daemon answers at {url} ({fault.strerror})", hint="does `docker info` answer?"
        ) from fault
    try:
        pid, _, _ = _PEER.unpack(connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    finally:
        connection.close()
    return int(pid)


def _named(own: int, daemon: int, name: str) -> int:
    try:
        theirs, ours = (Path(f"/proc/{process}/{name}").read_text() for process in (str(daemon), "self"))
    except OSError as fault:
        raise InitializationFailed(
            "the Docker daemon is rootless, and its process cannot be seen from here",
            hint="it has to run on this machine; in a container, give us the host's processes (`pid: host`)",
        ) from fault
    if parse_map(theirs) == _EVERYBODY:
        raise InitializationFailed(
            "the Docker daemon says that it is rootless, and whoever holds its socket is in no user namespace",
            hint="use the socket that the daemon itself has made, without a proxy or an activator before it",
        )
    found = translate(own, theirs, ours)
    if found is None:
        raise InitializationFailed(
            f"the Docker daemon is rootless, and not of the user {own}, who runs this",
            hint="use a daemon of the same user, or the native engine, which needs none",
        )
    return found


def _lines(text: str) -> Iterator[tuple[int, int, int]]:
    for line in text.splitlines():
        inside, outside, count = map(int, line.split())
        yield inside, outside, count
