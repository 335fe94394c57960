"""HTTP/1.1 to a server, over a Unix socket, loopback or TLS: connections that are kept, requests, answers as they come.

h11 knows the protocol and does no I/O; here are asyncio's transports around it, and blocking sockets for what the async
face answers without waiting (`Sandbox.check_path`). A connection serves one request at a time; one whose answer was not
read to its end is closed, by which the server knows that nobody waits any longer.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import AsyncIterator
from enum import Enum
from typing import Final

import h11

from ringfence.client.address import Address
from ringfence.dataclass import dataclass
from ringfence.errors import Unreachable

Body = bytes | AsyncIterator[bytes]
Headers = list[tuple[str, str]]

CONNECT_SECONDS: Final = 10.0
READ_BYTES: Final = 256 * 1024
_AHEAD_BYTES: Final = 1024 * 1024
"""Of an answer that nobody has asked for yet; then the server waits."""
_MOST_IDLE: Final = 16
_HEAD_BYTES: Final = 64 * 1024
_KEEP_ALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""A machine that vanished is noticed after a minute, however long what it runs may take."""


class Broken(Exception):
    """The connection ended before the answer did."""

    def __init__(self, why: str, *, is_unanswered: bool) -> None:
        super().__init__(why)
        self.is_unanswered = is_unanswered
        """Whether not a byte of the answer had come: a request that may be repeated can be."""


@dataclass(frozen=True, slots=True)
class Head:
    status: int
    headers: dict[str, str]


class More(Enum):
    """That bytes have to come before anything can be said."""

    NEEDED = "needed"


class Talk:
    """One connection as h11 sees it: bytes to send, bytes that came."""

    def __init__(self, address: Address) -> None:
        self.state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._authority = address.authority
        self.has_answered = False

    def ask(self, method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
        """The bytes of a request's head, and of its body if that is here."""
        self.has_answered = False
        lines = [("Host", self._authority), *headers]
        if body is None:
            lines.append(("Transfer-Encoding", "chunked"))
        elif body or method not in ("GET", "DELETE"):
            lines.append(("Content-Length", str(len(body))))
        out = self._send(h11.Request(method=method, target=target, headers=lines))
        if body is not None:
            out += (self._send(h11.Data(data=body)) if body else b"") + self.end()
        return out

    def piece(self, data: bytes) -> bytes:
        return self._send(h11.Data(data=data))

    def end(self) -> bytes:
        return self._send(h11.EndOfMessage())

    def event(self) -> Head | bytes | bytearray | More | None:
        """What comes next: the head, a piece of the body, None at its end, or that more has to be read."""
        try:
            while True:
                event = self.state.next_event()
                if event is h11.NEED_DATA:
                    return More.NEEDED
                if isinstance(event, h11.InformationalResponse):
                    continue
                if isinstance(event, h11.Response):
                    named = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in event.headers}
                    return Head(event.status_code, named)
                if isinstance(event, h11.Data):
                    return event.data
                if isinstance(event, h11.EndOfMessage):
                    return None
                raise Broken("the server closed the connection", is_unanswered=not self.has_answered)
        except h11.RemoteProtocolError as fault:
            raise Broken(str(fault), is_unanswered=not self.has_answered) from fault

    def came(self, data: bytes) -> None:
        self.has_answered = self.has_answered or bool(data)
        try:
            self.state.receive_data(data)
        except h11.RemoteProtocolError as fault:
            raise Broken(str(fault), is_unanswered=not self.has_answered) from fault

    def renewed(self) -> bool:
        """Whether another request may follow."""
        if self.state.our_state is h11.DONE and self.state.their_state is h11.DONE:
            self.state.start_next_cycle()
            return True
        return False

    def _send(self, event: h11.Event) -> bytes:
        try:
            return self.state.send(event) or b""
        except h11.LocalProtocolError as fault:
            raise Broken(f"the request cannot be sent: {fault}", is_unanswered=False) from fault


class Answer:
    """An answer whose head is here, and whose body comes as it is read. Read to its end, or closed, once."""

    def __init__(self, head: Head, connection: _Connection, idle: Connections) -> None:
        self.head = head
        self._connection = connection
        self._idle = idle
        self._is_over = False

    async def pieces(self) -> AsyncIterator[bytes | bytearray]:
        """
        Raises:
            Broken: it ended too early.
        """
        while (piece := await self._connection.next()) is not None:
            assert isinstance(piece, bytes | bytearray)
            yield piece
        self._is_over = True
        self._connection.finish_sending()
        self._idle.give_back(self._connection)

    async def whole(self) -> bytes:
        """
        Raises:
            Broken: it ended too early.
        """
        return b"".join([piece async for piece in self.pieces()])

    def finish(self) -> None:
        """Close the connection, unless all of the answer was read."""
        if not self._is_over:
            self.close()

    def close(self) -> None:
        """Read no more: the server learns that nobody waits."""
        self._connection.close()


class _Connection(asyncio.Protocol):
    """One connection in one loop: what comes goes to h11 at once; whoever does not read holds the sender up."""

    def __init__(self, address: Address) -> None:
        self.talk = Talk(address)
        self.loop = asyncio.get_running_loop()
        self.sending: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._fault: Broken | None = None
        self._is_lost = False
        self._ahead = 0
        """Bytes that h11 holds, or has given out since it last asked for more."""
        self._is_paused = False
        self._came: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None
        """Set while what was written has not left."""

    # --- what asyncio tells -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        made = transport.get_extra_info("socket")
        if made.family != socket.AF_UNIX:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEP_ALIVE:
                made.setsockopt(socket.IPPROTO_TCP, option, value)

    def data_received(self, data: bytes) -> None:
        self._take(data)
        self._ahead += len(data)
        if self._ahead > _AHEAD_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._came)

    def connection_lost(self, fault: Exception | None) -> None:
        self._is_lost = True
        if fault is not None and self._fault is None:
            self._fault = Broken(str(fault), is_unanswered=not self.talk.has_answered)
        self._take(b"")
        _wake(self._came)
        _wake(self._room)

    def pause_writing(self) -> None:
        self._room = self.loop.create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        _wake(room)

    def _take(self, data: bytes) -> None:
        try:
            self.talk.came(data)
        except Broken as fault:
            self._fault = self._fault or fault

    # --- one request --------------------------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        return not self._is_lost and self._transport is not None and not self._transport.is_closing()

    async def ask(self, method: str, target: str, headers: Headers, body: Body) -> Head:
        if isinstance(body, bytes):
            await self._write(self.talk.ask(method, target, headers, body))
        else:
            await self._write(self.talk.ask(method, target, headers, None))
            self.sending = asyncio.ensure_future(self._feed(body))
        head = await self.next()
        if not isinstance(head, Head):
            raise Broken("the server answered without a head", is_unanswered=False)
        return head

    async def _feed(self, body: AsyncIterator[bytes]) -> None:
        try:
            async for piece in body:
                if piece:
                    await self._write(self.talk.piece(piece))
            await self._write(self.talk.end())
        finally:
            _wake(self._came)

    async def _write(self, data: bytes) -> None:
        if self._transport is None or self._is_lost:
            raise self._fault or Broken("the server closed the connection", is_unanswered=not self.talk.has_answered)
        self._transport.write(data)
        if self._room is not None:
            await self._room

    async def next(self) -> Head | bytes | bytearray | None:
        """What comes next of the answer; None at its end."""
        while (event := self.talk.event()) is More.NEEDED:
            if self._fault is not None:
                raise self._fault
            if self.sending is not None and self.sending.done():
                self.sending.result()  # what was to be sent could not be: that is what went wrong
            self._ahead = 0
            if self._is_paused and self._transport is not None:
                self._is_paused = False
                self._transport.resume_reading()
            self._came = self.loop.create_future()
            await self._came
        return event

    def finish_sending(self) -> None:
        """An answer may come before all of the request was taken; such a connection serves no further one."""
        if self.sending is not None:
            if not self.sending.done():
                self.close()
            self.sending = None

    def close(self) -> None:
        if self.sending is not None:
            self.sending.cancel()
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if not self.loop.is_closed():
            transport.abort()
            return
        with warnings.catch_warnings():
            # Its loop is gone, and with it every way to close it but to let go of it, now and not some time later.
            warnings.simplefilter("ignore", ResourceWarning)
            del transport
            gc.collect()


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)


class Connections:
    """The connections to one server, for any loop."""

    def __init__(self, address: Address, ca_file: str | None = None) -> None:
        self.address = address
        self._ca_file = ca_file
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None

    async def ask(self, method: str, target: str, headers: Headers, body: Body = b"", *, fresh: bool = False) -> Answer:
        """Send a request; returns when the answer's head is here.

        Args:
            fresh: by a connection that nobody has used: one that was kept may have been closed meanwhile.

        Raises:
            Unreachable: there is no connection, and nothing was sent.
            Broken: it ended before the answer began.
        """
        connection = (None if fresh else self._kept()) or await self._connected()
        try:
            head = await connection.ask(method, self.address.base + target, headers, body)
        except BaseException:
            connection.close()
            raise
        return Answer(head, connection, self)

    def give_back(self, connection: _Connection) -> None:
        if connection.talk.renewed() and connection.is_usable:
            with self._lock:
                if len(self._idle) < _MOST_IDLE:
                    self._idle.append(connection)
                    return
        connection.close()

    async def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        await asyncio.sleep(0)  # so that the transports are closed before a loop that ends now

    def _kept(self) -> _Connection | None:
        loop = asyncio.get_running_loop()
        with self._lock:
            gone = [kept for kept in self._idle if kept.loop.is_closed() or not kept.is_usable]
            self._idle = [kept for kept in self._idle if kept not in gone]
            for kept in gone:
                kept.close()
            for kept in reversed(self._idle):
                if kept.loop is loop:
                    self._idle.remove(kept)
                    return kept
        return None

    async def _connected(self) -> _Connection:
        address = self.address
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                loop = asyncio.get_running_loop()
                if address.socket:
                    _, made = await loop.create_unix_connection(lambda: _Connection(address), address.socket)
                else:
                    _, made = await loop.create_connection(
                        lambda: _Connection(address), address.host, address.port, ssl=self._tls()
                    )
        except (OSError, TimeoutError) as fault:
            raise unreachable(address, fault) from fault
        return made

    def _tls(self) -> ssl.SSLContext | None:
        if not self.address.is_encrypted:
            return None
        if self._context is None:
            self._context = ssl.create_default_context(cafile=self._ca_file)
        return self._context

    # --- without a loop -----------------------------------------------------------------------------------------------

    def ask_at_once(
        self, method: str, target: str, headers: Headers, body: bytes, *, timeout: float
    ) -> tuple[Head, bytes]:
        """A small request, waited for in this thread, on a connection of its own.

        Raises:
            Unreachable, Broken: as `ask`.
        """
        address, talk = self.address, Talk(self.address)
        try:
            with contextlib.closing(self._plain_socket(timeout)) as made:
                made.sendall(talk.ask(method, address.base + target, [*headers, ("Connection", "close")], body))
                head: Head | None = None
                pieces: list[bytes | bytearray] = []
                while (event := talk.event()) is not None:
                    if event is More.NEEDED:
                        talk.came(made.recv(READ_BYTES))
                    elif isinstance(event, Head):
                        head = event
                    else:
                        assert isinstance(event, bytes | bytearray)
                        pieces.append(event)
        except OSError as fault:
            raise unreachable(address, fault) from fault
        assert head is not None
        return head, b"".join(pieces)

    def _plain_socket(self, timeout: float) -> socket.socket:
        address = self.address
        if address.socket:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                made.settimeout(timeout)
                made.connect(address.socket)
            except BaseException:
                made.close()
                raise
            return made
        made = socket.create_connection((address.host, address.port), timeout)
        context = self._tls()
        return made if context is None else context.wrap_socket(made, server_hostname=address.host)


def unreachable(address: Address, fault: Exception) -> Unreachable:
    if isinstance(fault, ssl.SSLError):
        why = f"TLS: {fault.reason or fault}"
    elif isinstance(fault, TimeoutError):
        why = f"no answer within {CONNECT_SECONDS:g} s"
    else:
        why = getattr(fault, "strerror", None) or str(fault)
    return Unreachable(f"no server answers at {address}: {why}", hint="is `ringfence serve` running there?")
