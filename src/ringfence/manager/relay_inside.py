"""Runs inside boxes, as a program of its own: carries connections of one box to servers of another.

One end listens for a browser (SOCKS 5, so that the browser says which host it means), the other dials 127.0.0.1 of its
own box; between them is one stream, at descriptor 9, with a window for each connection, so that none holds up the
others. Both ends are in boxes, so both take the other for hostile. Standard library only.

    python3 -I -c SOURCE listen PORT NEXT    NEXT: where everything but loopback goes, the port of a proxy; 0 is nowhere
    python3 -I -c SOURCE dial
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
from collections.abc import Coroutine

HEAD = struct.Struct("!BII")
OPEN, OPENED, DATA, END, CREDIT = range(1, 6)
WINDOW = 256 * 1024
PIECE = 64 * 1024
MOST = 256
LOOPBACK = ("localhost", "::1", "0.0.0.0")
REFUSED, UNREACHABLE, DONE = 2, 5, 0


class Link:
    """One connection that is carried."""

    def __init__(self, mux: Mux, number: int) -> None:
        self.mux, self.number = mux, number
        self.room = WINDOW
        self.came: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.roomy = asyncio.Event()
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ways, until both are at their end."""
        await asyncio.gather(self._out(reader), self._in(writer), return_exceptions=True)
        writer.close()
        self.mux.links.pop(self.number, None)

    async def _out(self, reader: asyncio.StreamReader) -> None:
        try:
            while piece := await reader.read(PIECE):
                while self.room < len(piece):
                    self.roomy.clear()
                    await self.roomy.wait()
                self.room -= len(piece)
                await self.mux.send(DATA, self.number, piece)
        finally:
            await self.mux.send(END, self.number)

    async def _in(self, writer: asyncio.StreamWriter) -> None:
        while (piece := await self.came.get()) is not None:
            writer.write(piece)
            await writer.drain()
            await self.mux.send(CREDIT, self.number, struct.pack("!I", len(piece)))
        if writer.can_write_eof():
            writer.write_eof()


class Mux:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.links: dict[int, Link] = {}
        self.turn = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def send(self, kind: int, number: int, data: bytes = b"") -> None:
        async with self.turn:
            self.writer.write(HEAD.pack(kind, number, len(data)) + data)
            await self.writer.drain()

    async def run(self) -> None:
        while True:
            kind, number, length = HEAD.unpack(await self.reader.readexactly(HEAD.size))
            if length > PIECE:
                return
            data = await self.reader.readexactly(length)
            link = self.links.get(number)
            if kind == OPEN:
                if link is None and len(self.links) < MOST and length == 2:
                    self.links[number] = Link(self, number)
                    self.start(self.dial(self.links[number], *struct.unpack("!H", data)))
                else:
                    await self.send(OPENED, number, b"\0")
            elif link is None:
                continue
            elif kind == OPENED and not link.answer.done():
                link.answer.set_result(data == b"\1")
            elif kind == DATA:
                if link.came.qsize() * PIECE > 8 * WINDOW:
                    return
                link.came.put_nowait(data)
            elif kind == END:
                link.came.put_nowait(None)
            elif kind == CREDIT and length == 4:
                link.room = min(WINDOW, link.room + struct.unpack("!I", data)[0])
                link.roomy.set()

    async def dial(self, link: Link, port: int) -> None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            self.links.pop(link.number, None)
            await self.send(OPENED, link.number, b"\0")
            return
        await self.send(OPENED, link.number, b"\1")
        await link.pump(reader, writer)


class Listener:
    def __init__(self, mux: Mux, following: int) -> None:
        self.mux, self.following, self.count = mux, following, 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            await self._serve(reader, writer)
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, methods = await reader.readexactly(2)
        await reader.readexactly(methods)
        writer.write(b"\5\0")
        version, command, _, form = await reader.readexactly(4)
        if form == 3:
            (length,) = await reader.readexactly(1)
            name = await reader.readexactly(length)
            host, address = name.decode("ascii", "replace").lower().rstrip("."), bytes((length,)) + name
        elif form in (1, 4):
            address = await reader.readexactly(4 if form == 1 else 16)
            host = socket.inet_ntop(socket.AF_INET if form == 1 else socket.AF_INET6, address)
        else:
            return
        (port,) = struct.unpack("!H", await reader.readexactly(2))
        if version != 5 or command != 1:
            return
        if host in LOOPBACK or host.endswith(".localhost") or host.startswith("127."):
            await self._inside(reader, writer, port)
        elif self.following:
            await self._onwards(reader, writer, bytes((5, 1, 0, form)) + address + struct.pack("!H", port))
        else:
            await said(writer, REFUSED)

    async def _inside(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.count += 1
        link = self.mux.links[self.count] = Link(self.mux, self.count)
        await self.mux.send(OPEN, link.number, struct.pack("!H", port))
        if not await link.answer:
            self.mux.links.pop(link.number, None)
            await said(writer, UNREACHABLE)
            return
        await said(writer, DONE)
        await link.pump(reader, writer)

    async def _onwards(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self.following)
        to.write(b"\5\1\0")
        await there.readexactly(2)
        to.write(request)
        await asyncio.gather(copy(there, writer), copy(reader, to), return_exceptions=True)
        to.close()


async def said(writer: asyncio.StreamWriter, code: int) -> None:
    writer.write(bytes((5, code, 0, 1)) + bytes(6))
    await writer.drain()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


async def main(words: list[str]) -> None:
    channel = socket.socket(fileno=9)
    mux = Mux(*await asyncio.open_connection(sock=channel))
    if words[0] == "listen":
        listener = Listener(mux, int(words[2]))
        await asyncio.start_server(listener.serve, "127.0.0.1", int(words[1]))
        await mux.send(OPENED, 0)
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        await mux.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
