"""The file servers of one box: operations run side by side, each with a server of its own; on one path, in turn.

One server stays for the next operation, so that it costs a message and no start. The others end with their operations:
each is a process of the box, and counts as one.

A write is not done at once, so two of them, or a write and a read, would mix. Whoever reads or changes a path therefore
waits for whoever does so already; what only looks at it does not wait. Two names of one file are two paths here.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from ringfence.deferred import deferred

if TYPE_CHECKING:
    from ringfence.engines.base import Agree
    from ringfence.engines.boxes.control import Control, Job
    from ringfence.engines.boxes.files import FileServer
    from ringfence.values.files import FileOperation, Performed
else:
    FileServer = deferred("ringfence.engines.boxes.files", "FileServer")

_AT_ONCE: Final = 8
"""Servers of one box; more operations wait in order. Few, since they are among the processes that the box may have."""
_LOOKS: Final = frozenset({"stat", "list", "realpath"})


class FileServers:
    """
    Args:
        set_apart: as for `FileServer`.
    """

    def __init__(self, control: Control, set_apart: Callable[[Job], None]) -> None:
        self._control = control
        self._set_apart = set_apart
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._paths: dict[str, tuple[asyncio.Lock, int]] = {}
        self._spare: FileServer | None = None
        self._working: set[FileServer] = set()

    async def perform(
        self, operation: FileOperation, agree: Agree, seconds: float, data: AsyncIterator[bytes] | None = None
    ) -> Performed:
        """Do it; see `FileServer.perform`. Time spent waiting for a turn does not count."""
        async with AsyncExitStack() as turns:
            if operation.name not in _LOOKS:
                for path in sorted({posixpath.normpath(path) for path in (operation.path, operation.second) if path}):
                    await turns.enter_async_context(self._turn(path))
            await turns.enter_async_context(self._room)
            async with self._server() as server:
                return await server.perform(operation, agree, seconds, data)

    def close(self) -> None:
        """End all servers, and with them what they do; the next operation starts another."""
        for server in self._working:
            server.stop()
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    @asynccontextmanager
    async def _server(self) -> AsyncIterator[FileServer]:
        server = self._spare or FileServer(self._control, self._set_apart)
        self._spare = None
        self._working.add(server)
        try:
            yield server
        finally:
            self._working.discard(server)
            if self._spare is None:
                self._spare = server
            else:
                server.close()

    @asynccontextmanager
    async def _turn(self, path: str) -> AsyncIterator[None]:
        lock, users = self._paths.get(path, (asyncio.Lock(), 0))
        self._paths[path] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._paths.pop(path)
            if users > 1:
                self._paths[path] = lock, users - 1
