"""The socket maker of a box where there is no process of ours in it but PID 1: in a container.

Nobody there may change routes, so that only what is meant for the box's own loopback comes out: the proxy's port, names
asked of 127.0.0.53, and addresses of 127.0.0.0/8 that stand for names.

Out of a kernel of its own no socket of the box can be passed. What comes out is what the carrier has instead
(native/carry_network.c): for a listener, a socket that hands on connections with where they were meant to go.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final

from ringfence.engines.boxes.protocol import MessageKind
from ringfence.engines.networking.socket_maker import checked
from ringfence.errors import Internal

if TYPE_CHECKING:
    from ringfence.engines.boxes.control import Control

_TRIES: Final = 200
_IN_FLIGHT_SECONDS: Final = 0.005
_PASSED: Final = {
    MessageKind.LISTEN: socket.SOCK_STREAM,
    MessageKind.DATAGRAM: socket.SOCK_DGRAM,
    MessageKind.DIAL: socket.SOCK_STREAM,
}
_CARRIED: Final = {
    MessageKind.LISTEN: socket.SOCK_SEQPACKET,
    MessageKind.DATAGRAM: socket.SOCK_SEQPACKET,
    MessageKind.DIAL: socket.SOCK_STREAM,
}


class InsideSocketMaker:
    is_loopback = True

    def __init__(self, control: Control, *, is_carried: bool) -> None:
        """Args:
        is_carried: whether a kernel of its own is between us and the box.
        """
        self.is_carried = is_carried
        self._control = control

    async def listen(self, port: int) -> socket.socket:
        """As `LauncherSocketMaker.listen`."""
        return await self._make(MessageKind.LISTEN, port)

    async def datagrams(self, port: int) -> socket.socket:
        """As `LauncherSocketMaker.datagrams`."""
        return await self._make(MessageKind.DATAGRAM, port)

    async def dial(self, port: int) -> socket.socket:
        """As `LauncherSocketMaker.dial`, but nobody waits until it stands: it ends if nobody listens there."""
        return await self._make(MessageKind.DIAL, port)

    async def _make(self, kind: MessageKind, port: int) -> socket.socket:
        families = (socket.AF_UNIX,) if self.is_carried else (socket.AF_INET, socket.AF_INET6)
        wanted = (_CARRIED if self.is_carried else _PASSED)[kind]
        for _ in range(_TRIES):
            try:
                descriptor = await self._control.make_socket(kind, port)
            except Internal as fault:
                raise OSError(errno.ECONNRESET, fault.message) from fault
            except OSError as fault:
                if fault.errno != errno.ETOOMANYREFS:
                    raise
                await asyncio.sleep(_IN_FLIGHT_SECONDS)
                continue
            return checked(socket.socket(fileno=descriptor), families, wanted)
        raise OSError(errno.ETOOMANYREFS, "too many descriptors are on their way")

    def close(self) -> None:
        """It ends with the box."""
