"""A child of a keeper: waits for an order and carries it out.

    forked -> waits -> SERVE: becomes the caller's process, runs the command line, answers -> OVER
                ^                                                                               |
                '---------- PREPARED: a box for the next call like this one <-- PREPARE <-------'

Only a child that has come to a result serves a second call, and only one of the same kind: as a program does that calls
`ringfence.run` twice. It dies with its keeper, and the guardian of its box sees to the rest, as when the command line
itself is killed.
"""

import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

from ringfence.keeper import wire
from ringfence.keeper.becoming import (
    FIRST_OWN,
    STANDARD,
    Caller,
    Image,
    OutOfDate,
    Peer,
    Request,
    become,
    reserve_numbers,
)
from ringfence.keeper.leaving import run_to_the_end
from ringfence.manager import ahead
from ringfence.manager.ahead import Ahead

_PR_SET_PDEATHSIG = 1
_SO_PEERPIDFD = 77
"""From Linux 6.5 on."""
_UCRED = struct.Struct("3i")
_MOST_CALLS = 100
"""Then a new one, forked from the keeper, takes its place."""
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What a child runs; the keeper itself knows nothing of it."""

    main: Callable[[], None]
    prepare: Callable[[Sequence[str], Ahead], bool]
    """Opens the box for a call with these words; False if there is none to be opened ahead."""


def be_a_child(channel: socket.socket, image: Image, line: CommandLine, keeper: int) -> NoReturn:
    """Args:
    channel: to the keeper.
    keeper: its pid.
    """
    try:
        _be_its_own(channel, keeper)
        _obey(channel, image, line)
    except OutOfDate:
        os.kill(keeper, signal.SIGTERM)
    finally:
        os._exit(1)


def _be_its_own(channel: socket.socket, keeper: int) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)
    os.setpgid(0, 0)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in (*STANDARD, channel.fileno()):
            with suppress(OSError):  # that of the listing itself
                os.close(int(name))


def _obey(channel: socket.socket, image: Image, line: CommandLine) -> None:
    """Until there is no further order."""
    moved = fcntl.fcntl(channel, fcntl.F_DUPFD_CLOEXEC, FIRST_OWN)
    channel.close()
    channel = socket.socket(fileno=moved)
    reserve_numbers()
    made = ahead.begin()
    caller: Caller | None = None
    for _ in range(_MOST_CALLS):
        said, descriptors = _order(channel)
        if said == wire.PREPARE and caller is not None:
            reserve_numbers()
            if not line.prepare([os.fsdecode(word) for word in caller.words.argv[1:]], made):
                return
            os.chdir("/")  # nobody's directory is held
            channel.send(wire.PREPARED)
            if not made.wait(channel.fileno()):
                return
            said, descriptors = _order(channel)
        caller = _serve(said, descriptors, image, caller) if said.startswith(wire.SERVE) else None
        if caller is None:
            return
        run_to_the_end(line.main, partial(_tell, channel, caller, made), made)
        caller.leave()


def _serve(said: bytes, descriptors: tuple[int, ...], image: Image, before: Caller | None) -> Caller | None:
    """Become a caller's process."""
    numbers = struct.unpack(f"{(len(said) - 1) // 4}i", said[1:])
    with socket.socket(fileno=descriptors[0]) as connection:
        peer, _ = peer_of(connection)
        _, line, words, here, *others = descriptors
        request = Request(line, words, here, tuple(others), numbers)
        return become(request, Peer(peer, partial(is_same_process, connection, peer)), image, before)


def _tell(channel: socket.socket, caller: Caller, made: Ahead, code: int) -> None:
    """First the keeper, who would otherwise take the caller's leaving for a death."""
    with suppress(OSError):  # whoever is gone needs no answer
        channel.send(wire.OVER + bytes([made.is_repeatable]))
        caller.line.send(wire.EXITED + bytes([code]))


def _order(channel: socket.socket) -> tuple[bytes, tuple[int, ...]]:
    descriptors = array.array("i")
    said, ancillary, _, _ = channel.recvmsg(
        wire.LONGEST_REQUEST, socket.CMSG_SPACE(descriptors.itemsize * (wire.MOST_DESCRIPTORS + 1))
    )
    for _, _, data in ancillary:
        descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    return said, tuple(descriptors)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """The pid and the uid of whoever connected, as the kernel noted them."""
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def is_same_process(connection: socket.socket, pid: int) -> bool:
    """Whether the process that connected is still the one with that pid, and not a later one."""
    try:
        handle = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as fault:
        if fault.errno != errno.ENOPROTOOPT:  # it is gone; an older kernel has only the pid
            return False
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
    try:
        return not select.select([handle], [], [], 0)[0]
    finally:
        os.close(handle)
