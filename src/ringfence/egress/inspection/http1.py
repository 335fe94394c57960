"""HTTP/1.1 of a box: its requests one after another on a connection that stays.

h11 reads and writes the grammar. It forgives bare line ends and folded lines, so that each head is looked at before
h11 sees it, and only whole: an endless or slow head costs no more than its bound.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import h11

from ringfence.egress.base import Headers, Refusal, RequestHead
from ringfence.egress.inspection.base import Answer, ClientFailed, Incoming, Limits
from ringfence.egress.inspection.heads import (
    BadHead,
    asks_for_websocket,
    check_authority,
    check_framing,
    check_lines,
    end_to_end,
    origin_form,
    printable,
    refusal_body,
)
from ringfence.egress.inspection.wire import Wire
from ringfence.values.hosts import Host

Serve = Callable[[Incoming], Awaitable[None]]
_BLANK: Final = b"\r\n\r\n"


class Http1Client:
    """One connection of a box."""

    def __init__(self, wire: Wire, host: Host, port: int, limits: Limits, *, tls: bool, stays: bool = True) -> None:
        self._wire = wire
        self._host, self._port = host, port
        self._scheme = "https" if tls else "http"
        self._limits = limits
        self._stays = stays
        self._rest = b""
        self._connection = self._new_connection()

    def _new_connection(self) -> h11.Connection:
        return h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.sizes.head)

    async def run(self, first: bytes, serve: Serve) -> None:
        """Serve requests until the client ends the connection, or one of them does."""
        self._rest = first
        while (request := await self._next()) is not None:
            await serve(request)
            if not await request.finish():
                break
        self._wire.close()

    async def _next(self) -> "Http1Request | None":
        try:
            raw = await self._read_head()
            return self._parse(raw) if raw else None
        except BadHead as bad:
            await self.answer_bad(bad.refusal)
        except (h11.RemoteProtocolError, UnicodeDecodeError):
            await self.answer_bad(Refusal(400, "Ringfence: this is not HTTP/1.1"))
        return None

    async def _read_head(self) -> bytes:
        """A whole head; empty if the connection ends, or nothing comes."""
        times = self._limits.times
        try:
            async with asyncio.timeout(times.idle):
                self._rest = self._rest.lstrip(b"\r\n")
                while not self._rest:
                    if not (data := await self._wire.read()):
                        return b""
                    self._rest = data.lstrip(b"\r\n")
        except TimeoutError:
            return b""
        if (end := self._rest.find(_BLANK)) < 0:
            try:
                async with asyncio.timeout(times.head):
                    end = await self._read_to_blank()
            except TimeoutError:
                raise BadHead(408, "Ringfence: the request's head took too long") from None
        if end < 0:
            return b""
        if end > self._limits.sizes.head:
            raise BadHead(431, "Ringfence: the request's head is too large")
        raw, self._rest = self._rest[: end + 4], self._rest[end + 4 :]
        check_lines(raw)
        return raw

    async def _read_to_blank(self) -> int:
        buffer = bytearray(self._rest)
        start, end = 0, -1
        while end < 0:
            if len(buffer) > self._limits.sizes.head:
                raise BadHead(431, "Ringfence: the request's head is too large")
            check_lines(buffer, start)  # now: who ends lines badly would wait for an answer
            if not (data := await self._wire.read()):
                break
            start = max(0, len(buffer) - 3)
            buffer += data
            end = buffer.find(_BLANK, start)
        self._rest = bytes(buffer)
        return end

    def _parse(self, raw: bytes) -> "Http1Request":
        self._connection.receive_data(raw)
        event = self._connection.next_event()
        if not isinstance(event, h11.Request):
            raise BadHead(400, "Ringfence: this is no request")
        headers: Headers = tuple(event.headers)
        check_framing(headers, event.http_version)
        path, named = origin_form(event.method.decode("ascii"), event.target.decode("ascii"), scheme=self._scheme)
        authority = next(value for name, value in headers if name == b"host").decode("latin-1")
        check_authority(authority if named is None else named, self._host, self._port)
        if named is not None:
            check_authority(authority, self._host, self._port)
        upgrades = asks_for_websocket(headers) and event.method == b"GET"
        head = RequestHead(event.method.decode("ascii"), path, end_to_end(headers, upgrade=upgrades))
        spelled = {raw_name.lower(): raw_name for raw_name, _ in event.headers.raw_items()}
        return Http1Request(self, head, headers, spelled, upgrades=upgrades)

    async def answer_bad(self, refusal: Refusal) -> None:
        """For what is no request: nothing that h11 knows of can be answered then, and the connection ends."""
        headers, body = refusal_body(refusal)
        lines = [b"HTTP/1.1 %d %s" % (refusal.status, printable(refusal.reason)), b"connection: close"]
        lines += [name + b": " + value for name, value in headers]
        self._wire.send(b"\r\n".join(lines) + _BLANK + body)
        await self._wire.linger()

    # --- what a request needs of its connection -----------------------------------------------------------------------

    async def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while True:
            try:
                event = self._connection.next_event()
            except h11.RemoteProtocolError as error:
                raise ClientFailed(f"the request's body is not HTTP: {error}") from error
            if event is not h11.NEED_DATA:
                return event
            if self._rest:
                data, self._rest = self._rest, b""
            else:
                data = await self._wire.read()
            if not data:
                raise ClientFailed("the client went away in its request")
            self._connection.receive_data(data)

    async def next_bytes(self, most: int) -> bytes:
        """At most so many of a body whose length is known, past h11, which copies each of them three times."""
        data = self._rest or await self._wire.read()
        if not data:
            raise ClientFailed("the client went away in its request")
        self._rest = data[most:]
        return data[:most]

    def hold(self, event: h11.Event) -> None:
        self._wire.hold(self._bytes(event))

    def _bytes(self, event: h11.Event) -> bytes:
        try:
            return self._connection.send(event) or b""
        except h11.LocalProtocolError as error:
            raise ClientFailed(f"the answer cannot be told to this client: {error}") from error

    async def send(self, event: h11.Event) -> None:
        self._wire.send(self._bytes(event))
        try:
            await self._wire.drain()
        except ConnectionError as error:
            raise ClientFailed("the client went away") from error

    @property
    def connection(self) -> h11.Connection:
        return self._connection

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def stays(self) -> bool:
        return self._stays

    def cut(self) -> None:
        self._wire.cut()

    async def linger(self) -> None:
        await self._wire.linger()

    def give_away(self) -> tuple[Wire, bytes]:
        rest = self._connection.trailing_data[0] + self._rest
        self._rest = b""
        return self._wire, rest

    def next_cycle(self, *, counted: bool) -> bool:
        """
        Args:
            counted: the request's body was read to its end, but not by h11.
        """
        connection = self._connection
        if counted and connection.our_state is h11.DONE:
            self._connection = self._new_connection()
            return True
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return False
        if early := connection.trailing_data[0]:  # the client did not wait: its next head is looked at as any other
            self._rest = early + self._rest
            self._connection = self._new_connection()
        else:
            connection.start_next_cycle()
        return True


class Http1Request:
    """One of its requests (`Incoming`)."""

    def __init__(
        self, client: Http1Client, head: RequestHead, raw: Headers, spelled: dict[bytes, bytes], *, upgrades: bool
    ) -> None:
        self._client = client
        self._begun = False
        self._given_away = False
        self._ended = False
        self._head = head
        self._spelled = spelled
        self._upgrades = upgrades
        self._trailers: Headers = ()
        self._counted = 0
        self._length: int | None = 0
        for name, value in raw:
            if name == b"content-length":
                self._length = int(value)
            elif name == b"transfer-encoding":
                self._length = None
        if self._length == 0:  # h11 knows the end of it already
            self._ended = isinstance(client.connection.next_event(), h11.EndOfMessage)

    @property
    def head(self) -> RequestHead:
        return self._head

    @property
    def spelled(self) -> dict[bytes, bytes]:
        return self._spelled

    @property
    def upgrades(self) -> bool:
        return self._upgrades

    @property
    def trailers(self) -> Headers:
        return self._trailers

    @property
    def length(self) -> int | None:
        return self._length

    @property
    def has_body(self) -> bool:
        return self._length != 0

    @property
    def wants_continue(self) -> bool:
        return not self._counted and self._client.connection.they_are_waiting_for_100_continue

    async def body(self) -> AsyncIterator[bytes]:
        if self._length and not self._ended:
            left = self._length - self._counted
            while left:
                data = await self._client.next_bytes(left)
                left -= len(data)
                self._counted += len(data)
                self._ended = not left
                yield data
        while not self._ended:
            event = await self._client.next_event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                self._trailers = end_to_end(tuple(event.headers))
                self._ended = True
            else:
                raise ClientFailed("the client went away in its request")

    async def send_continue(self) -> None:
        if self.wants_continue:
            await self._client.send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))

    async def send_head(self, answer: Answer) -> None:
        self._begun = True
        headers = list(answer.headers)
        if not self._client.stays:
            headers.append((b"connection", b"close"))
        self._client.hold(h11.Response(status_code=answer.status, reason=answer.reason, headers=headers))

    async def send_data(self, data: bytes) -> None:
        await self._client.send(h11.Data(data=data))

    async def send_end(self, trailers: Headers) -> None:
        chunked = self._client.connection.our_state is h11.SEND_BODY and trailers
        try:
            await self._client.send(h11.EndOfMessage(headers=list(trailers) if chunked else []))
        except ClientFailed:
            if not trailers:
                raise
            await self._client.send(h11.EndOfMessage())  # the framing of this answer has no place for them

    async def refuse(self, refusal: Refusal) -> None:
        if self._given_away:
            return
        if self._begun:
            self._client.cut()
            self._given_away = True
            return
        keeps = await self._drained()
        headers, body = refusal_body(refusal)
        listed = list(headers) if keeps and self._client.stays else [*headers, (b"connection", b"close")]
        self._begun = True
        await self._client.send(
            h11.Response(status_code=refusal.status, reason=printable(refusal.reason), headers=listed)
        )
        if self._head.method != "HEAD":
            await self._client.send(h11.Data(data=body))
        await self._client.send(h11.EndOfMessage())

    async def switch(self, answer: Answer) -> tuple[Wire, bytes]:
        if not self._ended:
            raise ClientFailed("a request for a WebSocket has no body")
        await self._client.send(
            h11.InformationalResponse(status_code=101, reason=answer.reason, headers=list(answer.headers))
        )
        self._given_away = True
        return self._client.give_away()

    async def finish(self) -> bool:
        """Whether the connection can take another request; if not, it is ended in the way that fits."""
        if self._given_away:
            return False
        if not self._begun:
            self._client.cut()
            return False
        if self._client.connection.our_state not in (h11.DONE, h11.MUST_CLOSE):
            self._client.cut()  # the answer broke off: no end may be told
            return False
        if await self._drained() and self._client.next_cycle(counted=bool(self._counted)):
            return True
        await self._client.linger()
        return False

    async def _drained(self) -> bool:
        """Read a body that nobody wants, if it is short and on its way."""
        if self._ended:
            return True
        bound = self._client.limits.sizes.drained
        if self.wants_continue or self._length is None or self._length > bound:
            return False
        try:
            async with asyncio.timeout(self._client.limits.times.hundred):
                async for _ in self.body():
                    pass
        except (ClientFailed, TimeoutError):
            return False
        return self._ended
