"""The messages between the manager and PID 1 of a box: docs/box-protocol.md, version 4.

Every byte that comes from a box is hostile: lengths are checked, kinds and numbers are closed sets, and a message
that does not fit is a fault of the box, never of ours.
"""

import errno
import os
import socket
import struct
from array import array
from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag

from ringfence.dataclass import dataclass
from ringfence.errors import Internal

VERSION = 4
INLINE_MAX = 48 * 1024
BODY_MAX = 16 * 1024 * 1024
REPLY_MAX = 256
_HEADER = struct.Struct("=IIII")
_CREDENTIALS = struct.Struct("=iII")
_ANCILLARY_MAX = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(2 * array("i").itemsize)


class MessageKind(IntEnum):
    CONFIGURE = 1
    SPAWN = 2
    KILL = 3
    SIGNAL = 4
    MEASURE = 5
    READY = 16
    FAILED = 17
    ENDED = 18
    TERMINAL = 19
    WINDOW = 20
    LEFT = 21
    MEASURED = 22
    ATTACH = 32
    ANSWER = 33
    FORGET = 34
    ENTRUST = 35
    ASKED = 48
    LISTEN = 64
    DATAGRAM = 65
    UNCONNECTED = 66
    DIAL = 67
    MADE = 80


class Manner(IntFlag):
    """How a command is started."""

    PLAIN = 0
    ON_TERMINAL = 1
    LONG_LIVED = 2
    SERVES_FILES = 4
    KEEPS = 8
    RESUMES = 16


class Step(IntEnum):
    """What failed, of a start."""

    PROGRAM = 0
    DIRECTORY = 1


SWEPT = 0x10000
"""In the wait status of ENDED: it was ended because another command could not be ended otherwise."""


_DESCRIPTORS = {
    MessageKind.TERMINAL: (1,),
    MessageKind.WINDOW: (1,),
    MessageKind.READY: (0, 1),
    MessageKind.MADE: (0, 1),
}
"""READY brings the listener of the notification filter, if there is one; MADE a socket, unless it could not be made."""
_NUMBERS = {
    MessageKind.READY: 0,
    MessageKind.FAILED: 2,
    MessageKind.ENDED: 4,
    MessageKind.TERMINAL: 0,
    MessageKind.WINDOW: 0,
    MessageKind.LEFT: 4,
    MessageKind.MEASURED: 3,
    MessageKind.MADE: 1,
}


@dataclass(frozen=True, slots=True)
class Reply:
    kind: MessageKind
    id: int
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Received:
    reply: Reply
    sender: int
    """The process that sent it, by the kernel's word."""
    descriptor: int = -1
    """The manager's end of a terminal, the listener, or the shadow as seen inside; whoever receives it closes it."""


def pack_header(kind: MessageKind, id: int = 0, last: int = 0) -> bytes:
    """The four numbers that a packet begins with; the last is the body's length, or what the kind means by it."""
    return _HEADER.pack(VERSION, kind, id, last)


def send(
    control: socket.socket, kind: MessageKind, id: int, words: Iterable[str] = (), descriptors: Sequence[int] = ()
) -> None:
    """Send one message; a body that is too long for a packet goes in a memory file.

    Raises:
        OSError: nobody is there any more; with E2BIG, the body is longer than a box takes.
    """
    body = os.fsencode("\0".join((*words, "")))
    if len(body) > BODY_MAX:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    header = pack_header(kind, id, len(body))
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


def receive(control: socket.socket) -> Received | None:
    """The next reply; None when the box is gone. Does not wait.

    Raises:
        BlockingIOError: there is none yet.
        Internal: what came is no reply.
    """
    try:
        packet, ancillary, flags, _ = control.recvmsg(REPLY_MAX, _ANCILLARY_MAX, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    if not packet:
        return None
    sender, descriptors = 0, array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(data) >= _CREDENTIALS.size:
            sender = _CREDENTIALS.unpack_from(data)[0]
        elif level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    try:
        reply = parse(packet)
        expected = _DESCRIPTORS.get(reply.kind, (0,))
        if not sender or len(descriptors) not in expected or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise Internal("a box sent a message without its sender, or with descriptors that do not belong to it")
    except Internal:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return Received(reply, sender, descriptors[0] if descriptors else -1)


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
    return Reply(MessageKind(kind), id, struct.unpack_from(f"={count}Q", packet, _HEADER.size))


def check_own_end(reply: Reply) -> None:
    """Make sure that a command's end is its own.

    Raises:
        Internal: it was ended on another's account, so that its ending says nothing about it.
    """
    if reply.kind is MessageKind.ENDED and reply.numbers[0] & SWEPT:
        raise Internal(
            "everything in the box had to be ended, because another command in it could not be ended otherwise",
            hint="run it again; a command that forks without end needs a sandbox of its own",
        )
