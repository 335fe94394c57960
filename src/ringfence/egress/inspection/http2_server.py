"""HTTP/2 towards a server: one connection, a stream for each request."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    InformationalResponseReceived,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error

from ringfence.egress.base import Headers, RequestHead
from ringfence.egress.inspection.base import Answer, Limits, ServerFailed
from ringfence.egress.inspection.heads import end_to_end
from ringfence.egress.inspection.http2_link import SLICE, Inbox, Link
from ringfence.egress.inspection.wire import Wire

_OfAStream = ResponseReceived | InformationalResponseReceived | TrailersReceived | StreamEnded | StreamReset
_OF_A_STREAM: Final = (ResponseReceived, InformationalResponseReceived, TrailersReceived, StreamEnded, StreamReset)
_NEVER_ANSWERED: Final = "the server ended the connection without an answer"


class Http2Upstream:
    """One connection to a server (`Upstream`)."""

    def __init__(self, wire: Wire, limits: Limits, *, scheme: bytes) -> None:
        self._scheme = scheme
        self._link = Link(wire, limits.sizes, is_client=True)
        self._streams: dict[int, Http2Exchange] = {}
        self._room = asyncio.Event()
        self._leaving = False
        self._reader = asyncio.create_task(self._read())

    @property
    def is_usable(self) -> bool:
        """Whether it takes another request."""
        return not (self._leaving or self._link.is_closed) and self._link.wire.is_usable

    async def open(
        self, head: RequestHead, spelled: dict[bytes, bytes], *, chunked: bool, ended: bool
    ) -> "Http2Exchange":
        while self.is_usable and len(self._streams) >= self._link.h2.remote_settings.max_concurrent_streams:
            self._room.clear()
            await self._room.wait()
        try:
            if not self.is_usable:
                raise ConnectionResetError("it takes no more")
            stream = self._link.h2.get_next_available_stream_id()
            exchange = self._streams[stream] = Http2Exchange(self._link, stream, self._forget)
            await self._link.send_headers(stream, self._headers(head), ended=ended)
        except (ConnectionError, H2Error) as error:
            raise ServerFailed(f"Ringfence: {_NEVER_ANSWERED}", said_nothing=True) from error
        exchange.is_sent = ended
        return exchange

    async def close(self) -> None:
        self._link.say_goodbye()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        self._link.wire.close()

    def _headers(self, head: RequestHead) -> Headers:
        host = next((value for name, value in head.headers if name == b"host"), b"")
        rest = tuple(each for each in head.headers if each[0] not in (b"host", b"connection", b"upgrade"))
        return (
            (b":method", head.method.encode()),
            (b":scheme", self._scheme),
            (b":authority", host),
            (b":path", head.path.encode()),
            *rest,
        )

    def _forget(self, stream: int) -> None:
        self._streams.pop(stream, None)
        self._room.set()
        if self._leaving and not self._streams:
            self._link.say_goodbye()
            self._link.wire.close()

    async def _read(self) -> None:
        reason = _NEVER_ANSWERED
        try:
            while data := await self._link.wire.read():
                for start in range(0, len(data), SLICE):
                    for event in self._link.receive(data[start : start + SLICE]):
                        self._handle(event)
                    self._link.flush()
                    await self._link.drain()
        except H2Error:
            self._link.flush()
            reason = "the server's answer is not HTTP/2"
        except ConnectionError:
            pass
        finally:
            self._link.shut()
            self._link.wire.close()
            self._room.set()
            for exchange in list(self._streams.values()):
                exchange.inbox.fail(reason)

    def _handle(self, event: Event) -> None:
        if isinstance(event, WindowUpdated):
            self._link.windows_moved(event.stream_id)
        elif isinstance(event, RemoteSettingsChanged):
            self._link.windows_moved(None)
            self._room.set()
        elif isinstance(event, ConnectionTerminated):
            self._leave(event)
        elif isinstance(event, DataReceived):
            size = event.flow_controlled_length or 0
            if (exchange := self._streams.get(event.stream_id or 0)) is not None:
                exchange.inbox.put(bytes(event.data or b""), size)
            else:
                self._link.acknowledge(event.stream_id or 0, size)
        elif isinstance(event, _OF_A_STREAM) and (exchange := self._streams.get(event.stream_id or 0)) is not None:
            exchange.handle(event)

    def _leave(self, event: ConnectionTerminated) -> None:
        self._leaving = True
        self._room.set()
        last = event.last_stream_id or 0
        for stream, exchange in list(self._streams.items()):
            if stream > last:
                exchange.is_refused = True
                exchange.inbox.fail(_NEVER_ANSWERED)


class Http2Exchange:
    """One stream of it (`Outgoing`)."""

    def __init__(self, link: Link, stream: int, forget: Callable[[int], None]) -> None:
        self._link, self._stream, self._forget = link, stream, forget
        self._answer: Answer | None = None
        self.inbox = Inbox(link, stream)
        self.is_sent = False
        self.is_refused = False
        """Whether the server says that it has not looked at the request."""
        self.continued = False

    def handle(self, event: "_OfAStream") -> None:
        if isinstance(event, ResponseReceived):
            headers = tuple((bytes(name), bytes(value)) for name, value in event.headers or ())
            status = next((value for name, value in headers if name == b":status"), b"502")
            kept = end_to_end(tuple(each for each in headers if not each[0].startswith(b":")))
            self._answer = Answer(int(status), b"", kept, event.stream_ended is not None)
            self.inbox.wake()
        elif isinstance(event, TrailersReceived):
            headers = tuple((bytes(name), bytes(value)) for name, value in event.headers or ())
            self.inbox.end(end_to_end(headers))
        elif isinstance(event, StreamEnded):
            self.inbox.end()
        elif isinstance(event, StreamReset):
            self.is_refused = event.error_code == ErrorCodes.REFUSED_STREAM
            if event.error_code == ErrorCodes.NO_ERROR and self._is_whole():
                self.inbox.end()
            else:
                self.inbox.fail(event)
            self._link.windows_moved(self._stream)
        else:
            self.continued = True

    def _is_whole(self) -> bool:
        """Whether nothing that the answer's head announced is missing.

        A server under load (Node.js) may end a stream by a reset without an error, after the last byte and in place of
        the mark of the end. Browsers take it for the end.
        """
        if self._answer is None:
            return False
        announced = next((value for name, value in self._answer.headers if name == b"content-length"), None)
        return announced is None or int(announced) == self.inbox.received

    @property
    def trailers(self) -> Headers:
        return self.inbox.trailers

    async def send_data(self, data: bytes) -> None:
        try:
            await self._link.send_data(self._stream, data)
        except ConnectionError as error:
            raise self._failure() from error

    async def send_end(self, trailers: Headers) -> None:
        try:
            if trailers:
                await self._link.send_headers(self._stream, trailers, ended=True)
            else:
                await self._link.end(self._stream)
        except ConnectionError as error:
            raise self._failure() from error
        self.is_sent = True

    async def answer(self) -> Answer:
        while self._answer is None:
            if self.inbox.failure is not None:
                raise self._failure()
            await self.inbox.wait()
        return self._answer

    async def body(self) -> AsyncIterator[bytes]:
        async for data in self.inbox.pieces():
            yield data
        if self.inbox.failure is not None and not self.inbox.ended:
            raise self._failure()

    async def switch(self) -> tuple[Wire, bytes]:
        raise ServerFailed("Ringfence: the server switched to another protocol unasked")

    async def release(self) -> None:
        self.inbox.drop()
        if not (self.is_sent and self.inbox.ended) and self.inbox.failure is None:
            self._link.reset(self._stream, ErrorCodes.CANCEL)
        self._forget(self._stream)

    def abort(self) -> None:
        if self.inbox.failure is None and not (self.is_sent and self.inbox.ended):
            self._link.reset(self._stream, ErrorCodes.CANCEL)
            self.inbox.fail("the request was given up")
            self._link.windows_moved(self._stream)

    def _failure(self) -> ServerFailed:
        failure = self.inbox.failure
        if isinstance(failure, StreamReset):
            code = failure.error_code
            name = code.name if isinstance(code, ErrorCodes) else str(code)
            return ServerFailed(f"Ringfence: the server reset the stream ({name})", said_nothing=self.is_refused)
        return ServerFailed(f"Ringfence: {failure or _NEVER_ANSWERED}", said_nothing=self.is_refused)
