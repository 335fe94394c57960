"""A double of the proxy for tests of our own tools: judges by a list, answers CONNECT, carries bytes."""

import asyncio
import socket
from contextlib import suppress
from dataclasses import dataclass, field

_REFUSAL = (
    "HTTP/1.1 403 no rule allows {host}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n"
    "X-Ringfence-Reason: no rule allows {host}\r\nConnection: close\r\n\r\n{body}"
)


@dataclass
class ProxyDouble:
    """Leads allowed names to ports of this machine; `opener` is what the tools are given."""

    ports: dict[str, int]
    """`host:port` that is allowed, and where its server is."""
    asked: list[str] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def opener(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._tasks.append(asyncio.ensure_future(self._serve(theirs)))
        return ours

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection)
        try:
            line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
            method, target, _ = line.split(" ")
            assert method == "CONNECT"
            self.asked.append(target)
            if target not in self.ports:
                body = f"no rule allows {target}\nto allow it: --allow {target}\n"
                writer.write(_REFUSAL.format(host=target, length=len(body), body=body).encode())
                await writer.drain()
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.ports[target])
            try:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            finally:
                far_writer.close()
                with suppress(OSError):
                    await far_writer.wait_closed()
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
