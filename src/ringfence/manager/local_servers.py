"""Lets a browser in its box see the servers of the session's box, at the ports that they have there.

`http://localhost:8000` in the browser is port 8000 of the session's box, whatever it is; nothing of the host is
reached, and nothing is published there. A program of ours in each box (`relay_inside.py`) carries the connections;
between them we copy bytes and look at none. Where a box has no Python, there is none of this.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, Final

from ringfence.errors import BrowserGone, RingfenceError
from ringfence.values.network import PROXY_PORT
from ringfence.values.request import Overflow, Request

if TYPE_CHECKING:
    from ringfence.engines.base import Box, Process

PORT: Final = 3129
"""Where the browser finds it, in its own box."""
_PIECE: Final = 256 * 1024
_READY_SECONDS: Final = 10.0
_HELLO: Final = 9
"""Bytes of the first message: it listens."""
_PYTHONS: Final = ("python3", "python")


class LocalServers:
    """
    Args:
        session: the box whose servers are meant.
    """

    def __init__(self, session: Box) -> None:
        self._session = session
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._processes: list[Process] = []

    async def start(self, browser: Box, *, has_network: bool) -> str:
        """Connect the two boxes; returns the address of the proxy for the browser, empty if it cannot be done.

        Args:
            browser: the browser's box.
            has_network: whether that has a proxy for everything else.

        Raises:
            BrowserGone: it does not come up.
        """
        pythons = browser.find_program(_PYTHONS), self._session.find_program(_PYTHONS)
        if not all(pythons):
            return ""
        listen = (str(pythons[0]), "listen", str(PORT), str(PROXY_PORT if has_network else 0))
        here = await self._run(browser, *listen)
        there = await self._run(self._session, str(pythons[1]), "dial")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_READY_SECONDS):
                hello = b""
                while len(hello) < _HELLO:
                    piece = await loop.sock_recv(here, _HELLO - len(hello))
                    if not piece:
                        raise BrowserGone("what shows the session's servers to the browser has ended")
                    hello += piece
        except TimeoutError:
            raise BrowserGone("what shows the session's servers to the browser does not start") from None
        self._tasks = [loop.create_task(_copy(here, there)), loop.create_task(_copy(there, here))]
        return f"socks5://127.0.0.1:{PORT}"

    async def _run(self, box: Box, python: str, *words: str) -> socket.socket:
        source = resources.files("ringfence.manager").joinpath("relay_inside.py").read_text("utf-8")
        ours, theirs = socket.socketpair()
        self._sockets.append(ours)
        ours.setblocking(False)
        request = Request(argv=(python, "-I", "-c", source, *words), overflow=Overflow.KEEP_ENDS, output_limit=4096)
        with theirs:
            self._processes.append(await box.start(request, channel=theirs.fileno()))
        return ours

    async def close(self) -> None:
        """Connect them no longer."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for each in self._sockets:
            each.close()
        for process in self._processes:
            process.kill()
            with suppress(RingfenceError):
                await process.wait(2.0)


async def _copy(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while piece := await loop.sock_recv(source, _PIECE):
            await loop.sock_sendall(target, piece)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
