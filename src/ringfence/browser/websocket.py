"""The same messages over a WebSocket, for a browser that somebody else runs. Only `ws://` and `wss://`.

A browser's own endpoint (`http://127.0.0.1:9222`) is asked for its WebSocket first, as every client does.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, RejectConnection, TextMessage
from wsproto.events import Request as Handshake
from wsproto.utilities import ProtocolError

from ringfence.browser.wire import MESSAGE_BYTES
from ringfence.errors import BrowserGone, BrowserTimeout, InvalidArgument

_PIECE: Final = 256 * 1024
_ANSWER_BYTES: Final = 64 * 1024
CONNECT_SECONDS: Final = 10.0


class WebSocketWire:
    """One connection. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int = MESSAGE_BYTES) -> None:
        self._reader = reader
        self._writer = writer
        self._most = most
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._ready: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._size = 0
        self.is_open = False

    async def open(self, host: str, target: str) -> None:
        await self._write(self._protocol.send(Handshake(host=host, target=target)))
        while not self.is_open:
            await self._take()

    async def send(self, message: bytes) -> None:
        try:
            await self._write(self._protocol.send(TextMessage(data=message.decode())))
        except ProtocolError:
            raise BrowserGone("the browser has closed the connection") from None

    async def receive(self) -> bytes:
        while not self._ready:
            await self._take()
        return self._ready.popleft()

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as fault:
            raise BrowserGone(f"the browser does not listen any more: {fault.strerror or fault}") from None

    async def _take(self) -> None:
        try:
            piece = await self._reader.read(_PIECE)
        except OSError as fault:
            raise BrowserGone(f"the browser is gone: {fault.strerror or fault}") from None
        if not piece:
            raise BrowserGone("the browser has closed the connection")
        try:
            self._protocol.receive_data(piece)
            for event in self._protocol.events():
                await self._on_event(event)
        except (ProtocolError, UnicodeDecodeError) as fault:
            raise BrowserGone(f"what the browser sent is no WebSocket: {str(fault)[:200]}") from None

    async def _on_event(self, event: Event) -> None:
        match event:
            case AcceptConnection():
                self.is_open = True
            case RejectConnection():
                raise BrowserGone(
                    f"the browser refused the connection ({event.status_code})",
                    hint="give the address that the browser itself names, with its token",
                )
            case TextMessage() | BytesMessage():
                data = event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                self._size += len(data)
                if self._size > self._most:
                    raise BrowserGone(f"the browser sent a message of more than {self._most} bytes")
                self._parts.append(data)
                if event.message_finished:
                    self._ready.append(b"".join(self._parts))
                    self._parts, self._size = [], 0
            case Ping():
                await self._write(self._protocol.send(event.response()))
            case CloseConnection():
                raise BrowserGone("the browser has closed the connection")
            case _:
                pass

    def abort(self) -> None:
        with suppress(OSError, ProtocolError):
            self._writer.write(self._protocol.send(CloseConnection(code=1000)))
        self._writer.close()

    def close(self) -> None:
        self._writer.transport.abort()


async def connect(endpoint: str, seconds: float = CONNECT_SECONDS) -> WebSocketWire:
    """Connect to a browser.

    Args:
        endpoint: `ws://host:port/devtools/browser/...`, or `http://host:port`, which is asked for the former.

    Raises:
        InvalidArgument: it is no such address.
        BrowserGone: nobody is there, or somebody else.
        BrowserTimeout: nobody answers.
    """
    parts = urlsplit(endpoint)
    if parts.scheme not in ("ws", "wss", "http", "https") or not parts.hostname:
        raise InvalidArgument(
            f"{endpoint!r} is no address of a browser", hint="write ws://host:port/... or http://host:port"
        )
    try:
        async with asyncio.timeout(seconds):
            if parts.scheme in ("http", "https"):
                endpoint = await _discover(endpoint)
            return await _connect(endpoint)
    except TimeoutError:
        raise BrowserTimeout("the browser does not answer", seconds, hint="is it running, and is this it?") from None
    except (OSError, ssl.SSLError, UnicodeError) as fault:
        raise BrowserGone(f"no browser can be reached at {endpoint}: {fault}", hint="is it running?") from None


async def _connect(endpoint: str) -> WebSocketWire:
    parts = urlsplit(endpoint)
    reader, writer = await _dial(endpoint)
    wire = WebSocketWire(reader, writer)
    try:
        await wire.open(parts.netloc.rpartition("@")[2], _target(endpoint))
    except BaseException:
        writer.close()
        raise
    return wire


async def _discover(endpoint: str) -> str:
    """The browser's own word for where its WebSocket is; only on the host that was named."""
    parts = urlsplit(endpoint)
    reader, writer = await _dial(endpoint)
    try:
        host = parts.netloc.rpartition("@")[2]
        writer.write(f"GET /json/version HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode("ascii"))
        await writer.drain()
        answer = b""
        while len(answer) < _ANSWER_BYTES and not answer.rstrip().endswith(b"}"):  # it may keep the connection open
            piece = await reader.read(_ANSWER_BYTES - len(answer))
            if not piece:
                break
            answer += piece
    finally:
        writer.close()
    try:
        found = json.loads(answer[answer.index(b"{") :])["webSocketDebuggerUrl"]
        socket = urlsplit(found)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BrowserGone(f"who answers at {endpoint} is no browser", hint="give its ws:// address") from None
    scheme = "wss" if parts.scheme == "https" else "ws"
    return f"{scheme}://{parts.netloc}{socket.path}"


async def _dial(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(address)
    is_safe = parts.scheme in ("wss", "https")
    context = ssl.create_default_context() if is_safe else None
    return await asyncio.open_connection(parts.hostname, parts.port or (443 if is_safe else 80), ssl=context)


def _target(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
