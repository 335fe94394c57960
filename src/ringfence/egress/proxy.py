"""The proxy of all boxes of one manager: who is attached, with which listeners."""

import resource
import socket
from typing import Final

from ringfence.egress.attached import AttachedBox, Capacity
from ringfence.egress.base import Listeners
from ringfence.egress.flow import Box, Outside
from ringfence.policy.reach import check_network
from ringfence.values.network import NetworkGrant

_SPARE: Final = 64  # descriptors for everything but connections
_FOR_EACH: Final = 3  # descriptors of a connection: client, server, and one that is on its way
_MOST: Final = 40_000


class Proxy:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._boxes: dict[str, AttachedBox] = {}
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._capacity = Capacity(max(16, min(_MOST, (soft - _SPARE) // _FOR_EACH)))

    def attach(self, name: str, network: NetworkGrant, listeners: Listeners | None) -> None:
        """Take what comes to these listeners, which are the proxy's from now on.

        Raises:
            InvalidConfig: a rule cannot be held.
            ValueError: there is a box of this name.
        """
        try:
            check_network(network)
            if name in self._boxes:
                raise ValueError(f"{name} is attached already")
        except ValueError:
            if listeners is not None:
                listeners.close()
            raise
        on_loopback = listeners is not None and listeners.is_loopback
        box = Box(name, network, self._outside, on_loopback=on_loopback)
        attached = AttachedBox(box, self._capacity, listeners)
        self._boxes[name] = attached
        attached.start()

    async def detach(self, name: str) -> None:
        """End everything of a box. One that is not there is none of our business."""
        attached = self._boxes.pop(name, None)
        if attached is not None:
            await attached.close()

    async def settle(self, name: str) -> None:
        """Let everything be judged that has come from a box until now, as far as it can be."""
        attached = self._boxes.get(name)
        if attached is not None:
            await attached.settle()

    def connect(self, name: str, connection: socket.socket) -> None:
        """Serve a connection of our own tools in the name of a box."""
        attached = self._boxes.get(name)
        if attached is None:
            connection.close()
            return
        connection.setblocking(False)
        attached.serve_tool(connection)

    async def close(self) -> None:
        for name in tuple(self._boxes):
            await self.detach(name)
