"""HTTP/2 of a box: a verdict for each stream, while the others go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import quote

from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingReceived,
    PriorityUpdated,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import H2Error

from ringfence.egress.base import Headers, Refusal, RequestHead
from ringfence.egress.inspection.base import Answer, ClientFailed, Limits
from ringfence.egress.inspection.heads import BadHead, check_authority, end_to_end, origin_form, refusal_body
from ringfence.egress.inspection.http1 import Serve
from ringfence.egress.inspection.http2_link import SLICE, Bucket, Inbox, Link
from ringfence.egress.inspection.wire import Wire
from ringfence.values.hosts import Host

_GRPC: Final = {403: b"7", 405: b"12", 413: b"8", 421: b"9", 429: b"8", 502: b"14", 504: b"4"}
"""gRPC's own codes for a refusal: clients of it show the message that goes with them, and nothing of a body."""


class Http2Client:
    """One connection of a box."""

    def __init__(self, wire: Wire, host: Host, port: int, limits: Limits, *, tls: bool) -> None:
        self._host, self._port = host, port
        self._scheme = "https" if tls else "http"
        self._limits = limits
        self._link = Link(wire, limits.sizes, is_client=False)
        self._streams: dict[int, Http2Request] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        # A browser's page or a gRPC client cancels some; hundreds a second is an attack (CVE-2023-44487).
        self._resets = Bucket(200, 50)
        # gRPC pings with every window of data; settings and priorities come with the first bytes.
        self._chores = Bucket(1000, 200)
        self._leaving = False

    async def run(self, first: bytes, serve: Serve) -> None:
        """Serve streams until the client ends the connection."""
        try:
            data = first or await self._read()
            while data:
                for start in range(0, len(data), SLICE):
                    if not await self._understand(data[start : start + SLICE], serve):
                        return
                    await asyncio.sleep(0)
                data = await self._read()
        except ConnectionError:
            pass
        finally:
            self._link.shut()
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._link.wire.close()

    async def _read(self) -> bytes:
        """Empty at the end, and where nothing comes while nothing is under way."""
        while True:
            try:
                async with asyncio.timeout(self._limits.times.idle):
                    return await self._link.wire.read()
            except TimeoutError:
                if not self._tasks:
                    self._link.say_goodbye()
                    return b""

    async def _understand(self, data: bytes, serve: Serve) -> bool:
        try:
            events = self._link.receive(data)
        except H2Error:
            self._link.flush()  # the GOAWAY that h2 made of it
            await self._link.wire.linger()
            return False
        for event in events:
            if not self._handle(event, serve):
                self._link.say_goodbye(ErrorCodes.ENHANCE_YOUR_CALM)
                await self._link.wire.linger()
                return False
        self._link.flush()
        await self._link.drain()
        return not (self._leaving and not self._tasks)

    def _handle(self, event: Event, serve: Serve) -> bool:
        """False if the client asks too much."""
        match event:
            case RequestReceived():
                self._begin(event, serve)
            case DataReceived():
                size = event.flow_controlled_length or 0
                if not event.data and event.stream_ended is None and not self._chores.take():
                    return False
                if (request := self._streams.get(event.stream_id or 0)) is not None:
                    request.inbox.put(bytes(event.data or b""), size)
                else:
                    self._link.acknowledge(event.stream_id or 0, size)
            case TrailersReceived():
                if (request := self._streams.get(event.stream_id or 0)) is not None:
                    request.inbox.end(end_to_end(_plain(event.headers or ())))
            case StreamEnded():
                if (request := self._streams.get(event.stream_id or 0)) is not None:
                    request.inbox.end()
            case StreamReset():
                self._reset(event)
                return self._resets.take()
            case WindowUpdated():
                self._link.windows_moved(event.stream_id)
            case RemoteSettingsChanged():
                self._link.windows_moved(None)
                return self._chores.take()
            case PingReceived() | PriorityUpdated():
                return self._chores.take()
            case ConnectionTerminated():
                self._leaving = True
            case _:
                pass
        return True

    def _reset(self, event: StreamReset) -> None:
        stream = event.stream_id or 0
        if (request := self._streams.get(stream)) is not None:
            request.inbox.fail(event)
            if (task := self._tasks.get(stream)) is not None:
                task.cancel()

    def _begin(self, event: RequestReceived, serve: Serve) -> None:
        stream = event.stream_id or 0
        request = Http2Request(self._link, stream)
        self._streams[stream] = request
        refusal: Refusal | None = None
        try:
            request.begin(self._head(_plain(event.headers or ())), ended=event.stream_ended is not None)
        except BadHead as bad:
            refusal = bad.refusal
        except UnicodeDecodeError:
            refusal = Refusal(400, "Ringfence: this is no request")
        task = self._tasks[stream] = asyncio.create_task(self._work(request, refusal, serve))
        # A task that is cancelled before its first turn runs nothing of its own, not even a `finally`.
        task.add_done_callback(lambda _: self._forget(request, stream))

    async def _work(self, request: "Http2Request", refusal: Refusal | None, serve: Serve) -> None:
        with contextlib.suppress(ClientFailed):
            await (serve(request) if refusal is None else request.refuse(refusal))

    def _forget(self, request: "Http2Request", stream: int) -> None:
        self._streams.pop(stream, None)
        self._tasks.pop(stream, None)
        request.close()
        if self._leaving and not self._tasks:
            self._link.say_goodbye()
            self._link.wire.close()

    def _head(self, headers: Headers) -> RequestHead:
        pseudo = {name: value.decode("ascii") for name, value in headers if name.startswith(b":")}
        rest = [each for each in headers if not each[0].startswith(b":")]
        if b":protocol" in pseudo:
            raise BadHead(405, "Ringfence: no WebSocket over HTTP/2; HTTP/1.1 has it")
        path, named = origin_form(pseudo[b":method"], pseudo.get(b":path", ""), scheme=self._scheme)
        if named is not None:
            raise BadHead(400, "Ringfence: the request's target is no path")
        if pseudo.get(b":scheme", self._scheme).lower() != self._scheme:
            raise BadHead(421, f"Ringfence: this connection is for {self._scheme}")
        hosts = [value.decode("latin-1") for name, value in rest if name == b"host"]
        if len(hosts) > 1:
            raise BadHead(400, "Ringfence: the request has more than one host")
        authority = pseudo.get(b":authority", hosts[0] if hosts else "")
        for each in {authority, *hosts}:
            check_authority(each, self._host, self._port)
        cookies = [value for name, value in rest if name == b"cookie"]
        kept = [each for each in rest if each[0] not in (b"host", b"cookie", b"expect")]
        if cookies:  # HTTP/2 may split them; nothing else may
            kept.append((b"cookie", b"; ".join(cookies)))
        return RequestHead(pseudo[b":method"], path, ((b"host", authority.encode()), *end_to_end(tuple(kept))))


class Http2Request:
    """One stream of it (`Incoming`)."""

    def __init__(self, link: Link, stream: int) -> None:
        self._link, self._stream = link, stream
        self._head = RequestHead("", "", ())
        self._begun = False
        self._ended = False
        self._has_body = True
        self.inbox = Inbox(link, stream)
        self.spelled: dict[bytes, bytes] = {}
        self.wants_continue = False
        self.upgrades = False

    def begin(self, head: RequestHead, *, ended: bool) -> None:
        self._head = head
        self._has_body = not ended

    @property
    def head(self) -> RequestHead:
        return self._head

    @property
    def has_body(self) -> bool:
        return self._has_body

    @property
    def length(self) -> int | None:
        for name, value in self._head.headers:
            if name == b"content-length":
                return int(value)
        return None if self._has_body else 0

    @property
    def trailers(self) -> Headers:
        return self.inbox.trailers

    async def body(self) -> AsyncIterator[bytes]:
        async for data in self.inbox.pieces():
            yield data
        if self.inbox.failure is not None:
            raise ClientFailed("the client gave the request up")

    async def send_continue(self) -> None:
        """No client waits for one."""

    async def send_head(self, answer: Answer) -> None:
        self._begun = True
        headers = tuple((name.lower(), value) for name, value in answer.headers)
        self._ended = answer.ended
        await self._headers(((b":status", b"%d" % answer.status), *headers), ended=answer.ended)

    async def send_data(self, data: bytes) -> None:
        try:
            await self._link.send_data(self._stream, data)
        except ConnectionError as error:
            raise ClientFailed("the client went away") from error

    async def send_end(self, trailers: Headers) -> None:
        if self._ended:
            return
        self._ended = True
        if trailers:
            await self._headers(tuple((name.lower(), value) for name, value in trailers), ended=True)
            return
        try:
            await self._link.end(self._stream)
        except ConnectionError as error:
            raise ClientFailed("the client went away") from error

    async def refuse(self, refusal: Refusal) -> None:
        if self._begun:
            self._link.reset(self._stream, ErrorCodes.INTERNAL_ERROR)
            self._ended = True
            return
        headers, body = refusal_body(refusal)
        kind = next((value for name, value in self._head.headers if name == b"content-type"), b"")
        status = (b":status", b"%d" % refusal.status)
        if kind.startswith(b"application/grpc"):
            message = quote(refusal.reason, safe=" !\"#$&'()*+,/:;<=>?@[]^_`{|}~").encode()
            code = _GRPC.get(refusal.status, b"2")
            await self.send_head(
                Answer(
                    refusal.status,
                    b"",
                    ((b"content-type", b"application/grpc"), (b"grpc-status", code), (b"grpc-message", message)),
                    ended=True,
                )
            )
            return
        self._begun = True
        await self._headers((status, *headers), ended=self._head.method == "HEAD")
        if self._head.method != "HEAD":
            await self.send_data(body)
            await self.send_end(())
        self._ended = True

    async def switch(self, answer: Answer) -> tuple[Wire, bytes]:
        raise ClientFailed("no WebSocket over HTTP/2")

    def close(self) -> None:
        """The stream is over; what the client still sends on it is neither wanted nor waited for."""
        self.inbox.drop()
        if not self._ended:
            self._link.reset(self._stream, ErrorCodes.INTERNAL_ERROR)
        elif not self.inbox.ended and self._has_body:
            self._link.reset(self._stream, ErrorCodes.NO_ERROR)

    async def _headers(self, headers: Headers, *, ended: bool) -> None:
        try:
            await self._link.send_headers(self._stream, headers, ended=ended)
        except ConnectionError as error:
            raise ClientFailed("the client went away") from error


def _plain(headers: object) -> Headers:
    return tuple((bytes(name), bytes(value)) for name, value in headers)  # type: ignore[attr-defined]  # h2's own tuples
