"""Ports of a box that the host reaches: 127.0.0.1 outside, each connection dialled into the box and copied both ways.

Nothing of it is reachable from other machines, and nothing of the host by it: bytes go where the person who published
the port connects them.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ringfence.errors import InitializationFailed

if TYPE_CHECKING:
    from ringfence.engines.base import SocketMaker

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 64 * 1024
_AT_ONCE: Final = 256
"""Connections of one port; more wait in the listener's queue."""
_BACKLOG: Final = 128


class Publisher:
    """The ports of one box."""

    def __init__(self, maker: SocketMaker) -> None:
        self._maker = maker
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.ports: tuple[tuple[int, int], ...] = ()
        """(inside, outside)"""

    def publish(self, wanted: tuple[tuple[int, int], ...]) -> None:
        """Listen outside.

        Raises:
            InitializationFailed: a port is taken there.
        """
        for inside, outside in wanted:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            self._listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((_HOST, outside))
                listener.listen(_BACKLOG)
            except OSError as fault:
                raise InitializationFailed(
                    f"port {outside} of {_HOST} cannot be published: {fault.strerror}",
                    hint="choose another port outside, or leave it out for any that is free",
                ) from fault
            listener.setblocking(False)
            self.ports = (*self.ports, (inside, listener.getsockname()[1]))
            self._start(self._serve(listener, inside))

    def _start(self, work: asyncio._CoroutineLike[None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, listener: socket.socket, port: int) -> None:
        loop = asyncio.get_running_loop()
        room = asyncio.Semaphore(_AT_ONCE)
        while True:
            await room.acquire()
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as fault:
                room.release()
                if fault.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                    return
                await asyncio.sleep(0.05)
                continue
            self._start(self._connect(client, port)).add_done_callback(lambda _: room.release())

    async def _connect(self, client: socket.socket, port: int) -> None:
        with client, suppress(OSError):  # nobody listens inside, or one of the two is gone: the other is closed
            client.setblocking(False)
            with await self._maker.dial(port) as server:
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copy(client, server))
                    both.create_task(_copy(server, client))

    async def close(self) -> None:
        """Listen no more, and end what is open."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for listener in self._listeners:
            listener.close()


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    buffer = bytearray(_CHUNK)
    try:
        while count := await loop.sock_recv_into(source, buffer):
            await loop.sock_sendall(target, memoryview(buffer)[:count])
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # The other direction waits for somebody who is gone.
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
