"""Sockets of clients: read with a bound and a deadline, answered, ended without losing the answer."""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Final, SupportsIndex

from ringfence.egress.base import Refusal, Stream
from ringfence.values.hosts import Address, Host

CHUNK: Final = 64 * 1024
_WAITING_BYTES: Final = 512 * 1024  # of one connection, read and not taken yet
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1024 * 1024
_SEND_SECONDS: Final = 10.0
_GOODBYE_SECONDS: Final = 2.0  # for a server to end TLS: until then it holds a descriptor that nobody counts


class Gone(OSError):
    """The client has ended, said nothing in time, or said too much."""


class Client:
    """One connection of a box, before it is known what it is."""

    __slots__ = ("_asked", "_loop", "buffered", "socket")

    def __init__(
        self, connection: socket.socket, loop: asyncio.AbstractEventLoop, asked: tuple[Address, int] | None = None
    ) -> None:
        """Args:
        asked: where it was meant to go; None: its own name says so.
        """
        self.socket = connection
        self._asked = asked
        self._loop = loop
        self.buffered = b""
        """What was read and not taken yet."""

    @property
    def asked(self) -> tuple[Address, int]:
        """Where a captured connection was meant to go."""
        return self._asked or asked_for(self.socket)

    async def more(self, deadline: float) -> bytes:
        """Read once, and keep it; the new bytes.

        Raises:
            Gone: it ended, or nothing came before the deadline (of the loop's clock).
        """
        try:
            data = self._read()
            if data is None:
                async with asyncio.timeout_at(deadline):
                    while data is None:
                        await self._readable()
                        data = self._read()
        except TimeoutError:
            raise Gone("nothing came in time") from None
        except OSError as fault:
            raise Gone(fault.strerror or str(fault)) from fault
        if not data:
            raise Gone("the client ended")
        self.buffered += data
        return data

    def _read(self) -> bytes | None:
        try:
            return self.socket.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return None

    async def _readable(self) -> None:
        """Waiting and reading are apart, so that nothing that was read is lost when the time is over."""
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(self.socket, _settle, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(self.socket)

    async def exactly(self, count: int, deadline: float) -> bytes:
        """Take so many bytes."""
        while len(self.buffered) < count:
            await self.more(deadline)
        taken, self.buffered = self.buffered[:count], self.buffered[count:]
        return taken

    def take(self) -> bytes:
        taken, self.buffered = self.buffered, b""
        return taken

    async def send(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._loop.sock_sendall(self.socket, data)
        except OSError as fault:  # TimeoutError is one
            raise Gone(str(fault)) from fault

    async def answer(self, refusal: Refusal, *, hint: str = "") -> None:
        """Refuse in HTTP."""
        await self.last_words(http_refusal(refusal, hint=hint))

    async def last_words(self, data: bytes) -> None:
        """Send, then end so that the client reads it: what it still sends is read and dropped for a moment, because
        closing on unread bytes would throw the answer away."""
        with contextlib.suppress(Gone, OSError):
            await self.send(data)
            self.socket.shutdown(socket.SHUT_WR)
            deadline = self._loop.time() + _LINGER_SECONDS
            dropped = 0
            while dropped < _LINGER_BYTES:
                dropped += len(await self.more(deadline))
                self.buffered = b""


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


def http_refusal(refusal: Refusal, *, hint: str = "") -> bytes:
    """The answer in HTTP/1.1, with the reason where clients print it: in the status line, a header and the body."""
    body = f"{refusal.reason}\n{hint}".encode("ascii", "replace")
    lines = (
        f"HTTP/1.1 {refusal.status} {refusal.reason}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        f"X-Ringfence-Reason: {refusal.reason}",
        *((f"X-Ringfence-Question: {refusal.event_id}",) if refusal.event_id else ()),
        "Connection: close",
    )
    return "\r\n".join(lines).encode("ascii", "replace") + b"\r\n\r\n" + body


def close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.close()


def asked_for(connection: socket.socket) -> tuple[Address, int]:
    """Where a captured connection was meant to go."""
    name = connection.getsockname()
    return as_meant(ipaddress.ip_address(str(name[0]).partition("%")[0])), int(name[1])


def as_meant(address: Address) -> Address:
    """An IPv4 address often comes as one of IPv6."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


class Pieces(asyncio.StreamReader):
    """Hands on what came as it came: asyncio's own reader copies every byte into one buffer, and out of it again."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._loop_of_ours = loop
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended = False
        self._is_paused = False
        self._wanted: asyncio.Future[None] | None = None
        self._source: asyncio.ReadTransport | None = None

    def set_transport(self, transport: asyncio.BaseTransport) -> None:
        super().set_transport(transport)
        assert isinstance(transport, asyncio.ReadTransport)
        self._source = transport

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        piece = bytes(data)
        if not piece:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        self._wake()
        if self._size > _WAITING_BYTES and not self._is_paused and self._source is not None:
            with contextlib.suppress(NotImplementedError, RuntimeError):
                self._source.pause_reading()
                self._is_paused = True

    def feed_eof(self) -> None:
        self._ended = True
        super().feed_eof()
        self._wake()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._wake()

    def at_eof(self) -> bool:
        return self._ended and not self._pieces

    async def read(self, n: int = -1) -> bytes:
        """What has come, at most so many bytes; empty at the end."""
        while not self._pieces:
            if (fault := self.exception()) is not None:
                raise fault
            if self._ended:
                return b""
            self._wanted = self._loop_of_ours.create_future()
            try:
                await self._wanted
            finally:
                self._wanted = None
        piece = self._pieces.popleft()
        if 0 <= n < len(piece):
            self._pieces.appendleft(piece[n:])
            piece = piece[:n]
        self._taken(len(piece))
        return piece

    def take_waiting(self) -> bytes:
        """All that has come and waits, without waiting for more."""
        waiting = b"".join(self._pieces)
        self._pieces.clear()
        self._taken(len(waiting))
        return waiting

    def _taken(self, count: int) -> None:
        self._size -= count
        if self._is_paused and self._size <= _WAITING_BYTES // 2 and self._source is not None:
            self._is_paused = False
            self._source.resume_reading()

    def _wake(self) -> None:
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)


async def stream_of(
    connection: socket.socket, *, context: ssl.SSLContext | None = None, host: Host | None = None
) -> Stream:
    """Both directions of a connected socket, which is theirs from then on; with a context, through TLS as a client."""
    loop = asyncio.get_running_loop()
    reader = Pieces(loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport: asyncio.WriteTransport
    if context is None:
        transport, _ = await loop.create_connection(lambda: protocol, sock=connection)
    else:
        name = host.text if host is not None else ""
        transport, _ = await loop.create_connection(
            lambda: protocol,
            sock=connection,
            ssl=context,
            server_hostname=name,
            ssl_shutdown_timeout=_GOODBYE_SECONDS,
        )
    return Stream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
