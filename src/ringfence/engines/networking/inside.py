"""The keeper of a box's network where there is no process of ours in it but PID 1: in a container.

Nobody there may change routes, so that only what is meant for the box's own loopback comes out: the proxy's port, names
asked of 127.0.0.53, and addresses of 127.0.0.0/8 that stand for names.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Final

from ringfence.engines.boxes.protocol import MessageKind
from ringfence.engines.networking.keeper import checked
from ringfence.errors import Internal

if TYPE_CHECKING:
    from ringfence.engines.boxes.control import Control

_TRIES: Final = 200
_IN_FLIGHT_SECONDS: Final = 0.005


class InsideKeeper:
    def __init__(self, control: Control) -> None:
        self._control = control

    async def listen(self, port: int) -> socket.socket:
        """As `Keeper.listen`."""
        return await self._make(MessageKind.LISTEN, port, socket.SOCK_STREAM)

    async def datagrams(self, port: int) -> socket.socket:
        """As `Keeper.datagrams`."""
        return await self._make(MessageKind.DATAGRAM, port, socket.SOCK_DGRAM)

    async def dial_socket(self) -> socket.socket:
        """As `Keeper.dial_socket`."""
        return await self._make(MessageKind.UNCONNECTED, 4, socket.SOCK_STREAM)

    async def _make(self, kind: MessageKind, which: int, type: socket.SocketKind) -> socket.socket:
        for _ in range(_TRIES):
            try:
                descriptor = await self._control.make_socket(kind, which)
            except Internal as fault:
                raise OSError(errno.ECONNRESET, fault.message) from fault
            except OSError as fault:
                if fault.errno != errno.ETOOMANYREFS:
                    raise
                await asyncio.sleep(_IN_FLIGHT_SECONDS)
                continue
            return checked(socket.socket(fileno=descriptor), type)
        raise OSError(errno.ETOOMANYREFS, "too many descriptors are on their way")

    def close(self) -> None:
        """It ends with the box."""
