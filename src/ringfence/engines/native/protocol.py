"""The messages between the manager and PID 1 of a box: docs/box-protocol.md, version 1.

Every byte that comes from a box is hostile: lengths are checked, kinds and numbers are closed sets, and a message
that does not fit is a fault of the box, never of ours.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ringfence.errors import Internal

VERSION = 1
INLINE_MAX = 48 * 1024
BODY_MAX = 16 * 1024 * 1024
REPLY_MAX = 256
_HEADER = struct.Struct("=IIII")
_CREDENTIALS = struct.Struct("=iII")


class Kind(IntEnum):
    CONFIGURE = 1
    SPAWN = 2
    KILL_ALL = 3
    READY = 16
    FAILED = 17
    ENDED = 18


_NUMBERS = {Kind.READY: 0, Kind.FAILED: 1, Kind.ENDED: 4}


@dataclass(frozen=True, slots=True)
class Reply:
    kind: Kind
    id: int
    numbers: tuple[int, ...]


def send(
    control: socket.socket, kind: Kind, id: int, words: Iterable[str] = (), descriptors: Sequence[int] = ()
) -> None:
    """Send one message; a body that is too long for a packet goes in a memory file.

    Raises:
        OSError: nobody is there any more; with E2BIG, the body is longer than a box takes.
    """
    body = os.fsencode("\0".join((*words, "")))
    if len(body) > BODY_MAX:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    header = _HEADER.pack(VERSION, kind, id, len(body))
    if len(body) <= INLINE_MAX:
        socket.send_fds(control, [header + body], descriptors)
        return
    descriptor = os.memfd_create("ringfence-message", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(body)
        socket.send_fds(control, [header], [*descriptors, descriptor])
    finally:
        os.close(descriptor)


def receive(control: socket.socket) -> tuple[Reply, int] | None:
    """The next reply, and the process that sent it, by the kernel's word; None when the box is gone. Does not wait.

    Raises:
        BlockingIOError: there is none yet.
        Internal: what came is no reply.
    """
    try:
        packet, ancillary, _, _ = control.recvmsg(REPLY_MAX, socket.CMSG_SPACE(_CREDENTIALS.size))
    except ConnectionResetError:
        return None
    if not packet:
        return None
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            return parse(packet), _CREDENTIALS.unpack_from(data)[0]
    raise Internal("a box sent a message without its sender")


def parse(packet: bytes) -> Reply:
    """One reply from its bytes.

    Raises:
        Internal: it is not one.
    """
    if len(packet) < _HEADER.size:
        raise Internal("a box sent a message that is too short")
    version, kind, id, length = _HEADER.unpack_from(packet)
    count = _NUMBERS.get(kind)
    if version != VERSION or count is None or length != count * 8 or len(packet) != _HEADER.size + length:
        raise Internal(f"a box sent a message that makes no sense (version {version}, kind {kind}, length {length})")
    return Reply(Kind(kind), id, struct.unpack_from(f"={count}Q", packet, _HEADER.size))
