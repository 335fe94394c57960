"""Our end of the socket maker of a box: asks for listeners and sockets there (native/capture.c).

The maker is ours, and outside the box; its answers are checked all the same, since a wrong descriptor would be handed
on as a box's identity.
"""

import asyncio
import errno
import os
import socket
import struct
from contextlib import suppress
from typing import Final

from ringfence.engines.boxes.protocol import VERSION, MessageKind
from ringfence.engines.loops import forget_reader

_PACKET: Final = struct.Struct("=IIII")
_AT_ONCE: Final = 64
"""Requests on their way, so that they always fit into the socket."""
_IN_FLIGHT_SECONDS: Final = 0.005
_TRIES: Final = 200
"""While the kernel has too many descriptors of this user's on their way: about a second."""
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)


class LauncherSocketMaker:
    is_loopback = False
    is_carried = False

    def __init__(self, connection: socket.socket) -> None:
        """Args:
        connection: not blocking; ours to close from now on.
        """
        self.ports: set[int] = set()
        """Where it was asked to listen."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[socket.socket]] = {}
        self._count = 0
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._loop.add_reader(connection.fileno(), self._on_answer)

    async def listen(self, port: int) -> socket.socket:
        """A TCP listener on a port of every address of the box.

        Raises:
            OSError: the port is taken inside, or the box is gone.
        """
        made = await self._make(MessageKind.LISTEN, port, socket.SOCK_STREAM)
        self.ports.add(port)
        return made

    async def datagrams(self, port: int) -> socket.socket:
        """The same for UDP; it says where each packet was sent to.

        Raises:
            OSError: as `listen`.
        """
        return await self._make(MessageKind.DATAGRAM, port, socket.SOCK_DGRAM)

    async def dial(self, port: int) -> socket.socket:
        """A connection to a server in the box, at 127.0.0.1.

        Raises:
            OSError: nobody listens there, or the box is gone.
        """
        made = await self._make(MessageKind.UNCONNECTED, 4, socket.SOCK_STREAM)
        try:
            await self._loop.sock_connect(made, ("127.0.0.1", port))
        except BaseException:
            made.close()
            raise
        return made

    async def _make(self, kind: MessageKind, which: int, type: socket.SocketKind) -> socket.socket:
        async with self._room:
            for _ in range(_TRIES):
                try:
                    made = await self._ask(kind, which)
                except OSError as fault:
                    if fault.errno != errno.ETOOMANYREFS:
                        raise
                    await asyncio.sleep(_IN_FLIGHT_SECONDS)
                    continue
                return checked(made, _INTERNET, type)
        raise OSError(errno.ETOOMANYREFS, "too many descriptors are on their way")

    async def _ask(self, kind: MessageKind, which: int) -> socket.socket:
        if self._connection.fileno() < 0:
            raise _gone()
        self._count += 1
        number = self._count & 0xFFFFFFFF
        future: asyncio.Future[socket.socket] = self._loop.create_future()
        self._waiting[number] = future
        try:
            self._connection.send(_PACKET.pack(VERSION, kind, number, which))
            return await future
        except BrokenPipeError:
            raise _gone() from None
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                future.result().close()
            raise
        finally:
            self._waiting.pop(number, None)

    def _on_answer(self) -> None:
        try:
            packet, descriptors, _, _ = socket.recv_fds(self._connection, _PACKET.size + 1, 2)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            packet, descriptors = b"", []
        made = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if len(packet) != _PACKET.size or len(made) > 1:
            _close(made)
            self.close()
            return
        version, kind, number, error = _PACKET.unpack(packet)
        future = self._waiting.pop(number, None)
        if (version, kind) != (VERSION, MessageKind.MADE) or bool(error) == bool(made):
            _close(made)
            self.close()
        elif future is None or future.done():  # whoever asked has given up
            _close(made)
        elif error:
            future.set_exception(OSError(error, os.strerror(error)))
        else:
            future.set_result(made[0])

    def close(self) -> None:
        """Let it end; whoever waits is told."""
        if self._connection.fileno() < 0:
            return
        forget_reader(self._loop, self._connection.fileno())
        self._connection.close()
        for future in self._waiting.values():
            if not future.done():
                with suppress(RuntimeError):  # its loop is closed: whoever waited there is gone
                    future.set_exception(_gone())
        self._waiting.clear()


def checked(made: socket.socket, families: tuple[socket.AddressFamily, ...], type: socket.SocketKind) -> socket.socket:
    """The socket, if it is of the kind that was asked for; not blocking.

    Raises:
        OSError: it is another.
    """
    if made.family not in families or made.type != type:
        made.close()
        raise OSError(errno.EPROTO, "what was passed out of the box's network is another kind of socket")
    made.setblocking(False)
    return made


def _gone() -> OSError:
    return OSError(errno.ECONNRESET, "the box's network is gone")


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()
