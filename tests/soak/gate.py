"""A socket between us and a daemon, which can be closed: everything hangs then, or is cut off."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Self


class Gate:
    """Passes on what comes, both ways, while it is open. Use it as `async with Gate(own, theirs) as gate`."""

    def __init__(self, path: Path, behind: str) -> None:
        self.url = f"unix://{path}"
        self._path = path
        self._behind = behind.removeprefix("unix://")
        self._passes = asyncio.Event()
        self._is_cut = False
        self._server: asyncio.Server
        self._writers: set[asyncio.StreamWriter] = set()
        self._visits: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self.open()
        self._server = await asyncio.start_unix_server(self._enter, self._path)
        return self

    async def __aexit__(self, *fault: object) -> None:
        self._server.close()
        self.cut()
        for visit in self._visits:
            visit.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)
        await asyncio.sleep(0)  # transports close one turn of the loop later
        self._path.unlink(missing_ok=True)

    def open(self) -> None:
        self._is_cut = False
        self._passes.set()

    def hang(self) -> None:
        """Take what comes, and pass on nothing; it goes on where it was when the gate opens."""
        self._passes.clear()

    def cut(self) -> None:
        """End every connection in the middle of what it says, and take no other."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.ensure_future(self._visit(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = {writer}
        self._writers.add(writer)
        try:
            if self._is_cut:
                return
            behind, to_behind = await asyncio.open_unix_connection(self._behind)
            own.add(to_behind)
            self._writers.add(to_behind)
            there = asyncio.ensure_future(self._carry(reader, to_behind))
            back = asyncio.ensure_future(self._carry(behind, writer))
            try:
                await asyncio.wait((there, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                there.cancel()
                back.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        except OSError:
            pass  # nobody is behind it
        finally:
            self._writers -= own
            for each in own:
                each.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await reader.read(65536):
                await self._passes.wait()
                writer.write(piece)
                await writer.drain()
