"""HTTP/1.1 towards a server: connections that are used again, one request at a time on each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import h11

from ringfence.egress.base import Headers, RequestHead
from ringfence.egress.inspection.base import Answer, Limits, ServerFailed
from ringfence.egress.inspection.heads import end_to_end
from ringfence.egress.inspection.wire import Wire

Dial = Callable[[], Awaitable[Wire]]
_CONNECTIONS: Final = 16
"""At once: many streams of HTTP/2 may meet a server that has none."""


class Http1Upstream:
    """Connections to one server (`Upstream`)."""

    def __init__(self, dial: Dial, limits: Limits) -> None:
        self._dial = dial
        self._limits = limits
        self._idle: list[_Connection] = []
        self._room = asyncio.Semaphore(_CONNECTIONS)

    def adopt(self, wire: Wire) -> None:
        """A connection that was made already."""
        self._idle.append(_Connection(wire, self._limits))

    async def open(
        self, head: RequestHead, spelled: dict[bytes, bytes], *, chunked: bool, ended: bool
    ) -> "Http1Exchange":
        await self._room.acquire()
        connection: _Connection | None = None
        try:
            connection = self._take()
            if connection is None:
                connection = _Connection(await self._dial(), self._limits)
            exchange = Http1Exchange(self, connection, head.method)
            await connection.send(_request(head, spelled, chunked=chunked), ended=ended)
        except BaseException:
            if connection is not None:
                connection.wire.abort()
            self._room.release()
            raise
        return exchange

    def _take(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.wire.is_still_idle():
                return connection
            connection.wire.abort()
        return None

    def give_back(self, connection: "_Connection") -> None:
        self._room.release()
        if connection.is_done and connection.wire.is_usable:
            connection.start_next_cycle()
            self._idle.append(connection)
        else:
            connection.wire.close()

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().wire.abort()  # nothing is owed on it, and in TLS the server could keep us waiting


class _Connection:
    def __init__(self, wire: Wire, limits: Limits) -> None:
        self.wire = wire
        self.used = False
        self.heard = False
        self._limits = limits
        self._http = self._new()
        self._counted: bool | None = None
        """Whether the connection can go on after a body that was counted here; None if h11 reads the body."""

    def _new(self) -> h11.Connection:
        return h11.Connection(h11.CLIENT, max_incomplete_event_size=self._limits.sizes.head)

    @property
    def is_done(self) -> bool:
        over = self._http.their_state is h11.DONE if self._counted is None else self._counted
        return self._http.our_state is h11.DONE and over

    @property
    def is_switching(self) -> bool:
        return self._http.their_state is h11.SWITCHED_PROTOCOL

    @property
    def trailing(self) -> bytes:
        return self._http.trailing_data[0]

    def start_next_cycle(self) -> None:
        if self._counted is None:
            self._http.start_next_cycle()
        else:
            self._http, self._counted = self._new(), None
        self.used, self.heard = True, False

    async def send(self, event: h11.Event, *, ended: bool = False) -> None:
        try:
            data = self._http.send(event) or b""
            if ended:
                data += self._http.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            raise ServerFailed(f"Ringfence: the request cannot be sent on: {error}", 400) from error
        try:
            self.wire.send(data)
            await self.wire.drain()
        except ConnectionError as error:
            raise self.failure("the server ended the connection") from error

    async def next_event(self) -> h11.Event:
        while True:
            try:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    data = await self.wire.read()
                    self.heard = self.heard or bool(data)
                    self._http.receive_data(data)
                    continue
            except h11.RemoteProtocolError as error:
                if not self.heard:
                    raise self.failure("the server ended the connection without an answer") from error
                raise self.failure("the server's answer broke off or is not HTTP") from error
            if isinstance(event, type | h11.ConnectionClosed):
                raise self.failure("the server ended the connection")
            return event

    async def counted(self, length: int, *, stays: bool) -> AsyncIterator[bytes]:
        """A body of a known length: its bytes as they come, past h11, which copies each of them three times."""
        self._counted = False
        data, _ = self._http.trailing_data
        while True:
            if len(data) > length:
                data = data[:length]
                stays = False  # the server said more than it said it would
            if data:
                length -= len(data)
                self._counted = stays and not length
                yield data
            if not length:
                return
            if not (data := await self.wire.read()):
                raise self.failure("the server's answer broke off or is not HTTP")

    def failure(self, reason: str) -> ServerFailed:
        self.wire.abort()
        return ServerFailed(f"Ringfence: {reason}", said_nothing=self.used and not self.heard)


class Http1Exchange:
    """One request on one of them (`Outgoing`)."""

    def __init__(self, upstream: Http1Upstream, connection: _Connection, method: str) -> None:
        self._upstream = upstream
        self._method = method
        self._connection = connection
        self._trailers: Headers = ()
        self._released = False
        self._length = 0
        self._stays = False
        self.continued = False

    @property
    def trailers(self) -> Headers:
        return self._trailers

    async def send_data(self, data: bytes) -> None:
        await self._connection.send(h11.Data(data=data))

    async def send_end(self, trailers: Headers) -> None:
        try:
            await self._connection.send(h11.EndOfMessage(headers=list(trailers)))
        except ServerFailed:
            if not trailers:
                raise
            await self._connection.send(h11.EndOfMessage())  # after a length there is no place for them

    async def answer(self) -> Answer:
        while True:
            event = await self._connection.next_event()
            if isinstance(event, h11.InformationalResponse) and event.status_code != 101:
                self.continued = self.continued or event.status_code == 100
                continue
            if isinstance(event, h11.Response | h11.InformationalResponse):
                self._length, self._stays = _length(event, self._method), _stays(event)
                return _answer(event)
            raise self._connection.failure("the server's answer is not HTTP")

    async def body(self) -> AsyncIterator[bytes]:
        if self._length:
            async for data in self._connection.counted(self._length, stays=self._stays):
                yield data
            return
        while True:
            event = await self._connection.next_event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._trailers = end_to_end(tuple(event.headers))
                return
            else:
                raise self._connection.failure("the server's answer is not HTTP")

    async def switch(self) -> tuple[Wire, bytes]:
        if not self._connection.is_switching:
            raise self._connection.failure("the server switched to another protocol unasked")
        return self._connection.wire, self._connection.trailing

    async def release(self) -> None:
        if not self._released:
            self._released = True
            self._upstream.give_back(self._connection)

    def abort(self) -> None:
        self._connection.wire.abort()


def _request(head: RequestHead, spelled: dict[bytes, bytes], *, chunked: bool) -> h11.Request:
    headers = [(spelled.get(name) or name.title(), value) for name, value in head.headers]
    if chunked:
        headers.append((b"Transfer-Encoding", b"chunked"))
    if any(name == b"te" for name, _ in head.headers):  # it belongs to the connection, and has to say so
        headers.append((b"Connection", b"TE"))
    return h11.Request(method=head.method.encode(), target=head.path.encode(), headers=headers)


def _length(event: h11.Response | h11.InformationalResponse, method: str) -> int:
    """Of a body that is framed by its length alone; 0 if there is none, or another framing."""
    if method in ("HEAD", "CONNECT") or event.status_code in (204, 304) or event.status_code < 200:
        return 0
    names = dict(event.headers)
    return 0 if b"transfer-encoding" in names else int(names.get(b"content-length", 0))


def _stays(event: h11.Response | h11.InformationalResponse) -> bool:
    said = b",".join(value for name, value in event.headers if name == b"connection").lower()
    return event.http_version == b"1.1" and b"close" not in [word.strip() for word in said.split(b",")]


def _answer(event: h11.Response | h11.InformationalResponse) -> Answer:
    raw: Headers = tuple(event.headers.raw_items())
    switching = event.status_code == 101
    coded = any(name == b"transfer-encoding" for name, _ in event.headers)
    headers = end_to_end(raw, upgrade=switching)
    if coded:  # the encoding counts and ends here; a length beside it would contradict ours
        headers = tuple(each for each in headers if each[0].lower() != b"content-length")
    return Answer(event.status_code, event.reason, headers)
