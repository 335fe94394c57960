"""Connections and look-ups as they come to a box's listeners: accepted here, or carried out of a kernel of its own.

Of a connection that was accepted, its own name is where it was meant to go. One that was carried is an end of a pair,
and comes in a packet that says so (native/carry_network.c); a look-up comes in one with who asked whom, and its answer
goes back with that. What these say is the box's word, and so is a connection's own name: it chooses where it goes.
"""

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Callable
from typing import Final, Protocol

from ringfence.dataclass import dataclass
from ringfence.egress.sockets import as_meant
from ringfence.values.hosts import Address

LONGEST_QUERY: Final = 4096
_ANCILLARY: Final = 256
_IP_PKTINFO: Final = 8  # from linux/in.h; `socket` has it in newer versions only
_PLACE: Final = struct.Struct("!16sHxx")
_ASKED: Final = _PLACE.size * 2


@dataclass(frozen=True, slots=True)
class Arrived:
    """A connection of a box, not blocking."""

    connection: socket.socket
    asked: tuple[Address, int] | None = None
    """Where it was meant to go; None: its own name says so."""


LookUp = tuple[bytes, Callable[[bytes], object]]
"""A query, and what sends the answer to it."""


class Arrivals(Protocol):
    """How what comes to listeners is taken. Both raise OSError as sockets do; `is_gone` says whether it is over."""

    def accept(self, listener: socket.socket) -> Arrived: ...
    def look_up(self, listener: socket.socket) -> LookUp: ...


class Accepted:
    """From the listeners themselves."""

    def accept(self, listener: socket.socket) -> Arrived:
        connection, _ = listener.accept()
        connection.setblocking(False)
        return Arrived(connection)

    def look_up(self, listener: socket.socket) -> LookUp:
        query, ancillary, _, sender = listener.recvmsg(LONGEST_QUERY + 1, _ANCILLARY)
        return query, lambda reply: listener.sendmsg([reply], _answered_from(ancillary), 0, sender)


class Carried:
    """From the carrier."""

    def accept(self, listener: socket.socket) -> Arrived:
        packet, descriptors, _, _ = socket.recv_fds(listener, _PLACE.size + 1, 1, socket.MSG_CMSG_CLOEXEC)
        if len(packet) != _PLACE.size or len(descriptors) != 1:
            for each in descriptors:
                os.close(each)
            raise _gone()
        connection = socket.socket(fileno=descriptors[0])
        connection.setblocking(False)
        address, port = _PLACE.unpack(packet)
        return Arrived(connection, (as_meant(ipaddress.IPv6Address(address)), port))

    def look_up(self, listener: socket.socket) -> LookUp:
        packet = listener.recv(_ASKED + LONGEST_QUERY + 1)
        if len(packet) < _ASKED:
            raise _gone()
        return packet[_ASKED:], lambda reply: listener.send(packet[:_ASKED] + reply)


def arrivals(*, is_carried: bool) -> Arrivals:
    return Carried() if is_carried else Accepted()


def is_gone(fault: OSError) -> bool:
    """Whether nothing will come any more."""
    return fault.errno == errno.ECONNRESET


def _gone() -> OSError:
    return OSError(errno.ECONNRESET, "the carrier of the box is gone")


def _answered_from(ancillary: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
    """The address that was asked is the one that answers: clients drop answers of others."""
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IPV6 and kind == socket.IPV6_PKTINFO and len(data) == 20:
            return [(level, kind, data)]
    for level, kind, data in ancillary:
        if level == socket.IPPROTO_IP and kind == _IP_PKTINFO and len(data) == 12:
            return [(level, kind, data[:4] + data[8:12] + bytes(4))]
    return []
