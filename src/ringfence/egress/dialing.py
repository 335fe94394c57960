"""Connects to addresses that were looked at, and to nothing else."""

import asyncio
import socket
from typing import Final, Protocol

from ringfence.values.hosts import Address

_CONNECT_SECONDS: Final = 10.0
_TRIED: Final = 3  # of a name's addresses, one after the other


class Dialer(Protocol):
    async def connect(self, addresses: tuple[Address, ...], port: int) -> tuple[socket.socket, Address]:
        """A connected socket, not blocking, and the address that it leads to.

        Raises:
            OSError: none of them answers.
        """


class SystemDialer:
    """Connects from this machine."""

    async def connect(self, addresses: tuple[Address, ...], port: int) -> tuple[socket.socket, Address]:
        tried = addresses[:_TRIED]
        last: OSError = OSError("there is no address")
        for address in tried:
            try:
                return await dial_one(address, port, _CONNECT_SECONDS / len(tried)), address
            except OSError as fault:
                last = fault
        raise last


async def dial_one(address: Address, port: int, seconds: float) -> socket.socket:
    """Connect to one address.

    Raises:
        OSError: nobody answers there, or not in time.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        async with asyncio.timeout(seconds):
            await asyncio.get_running_loop().sock_connect(made, (str(address), port))
    except BaseException:
        made.close()
        raise
    return made
