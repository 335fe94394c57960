"""Bytes in both directions of one connection, with TLS of our own or without.

Sending is apart from draining: what is sent keeps its order among many senders, and each of them waits for the peer on
its own.
"""

import asyncio
import contextlib
import ssl
import time
from typing import Final

from ringfence.egress.base import Stream
from ringfence.egress.sockets import Pieces
from ringfence.egress.tls import PIECE, Tls

_HELD_SECONDS: Final = 0.001
_LINGER_SECONDS: Final = 2.0
_LINGER_BYTES: Final = 4 * 1024 * 1024


class Wire:
    """A connection as it is: plain, or with TLS that asyncio does."""

    def __init__(self, stream: Stream) -> None:
        self._reader = stream.reader
        self._writer = stream.writer
        self._held = b""
        self._late: asyncio.TimerHandle | None = None
        # Else the next piece is read only once nearly all of the last one is gone.
        self._writer.transport.set_write_buffer_limits(high=2 * PIECE)
        self.touched_at = time.monotonic()
        """When something last moved."""

    @property
    def alpn(self) -> str:
        tls = self._writer.get_extra_info("ssl_object")
        return (tls.selected_alpn_protocol() or "") if tls is not None else ""

    @property
    def is_usable(self) -> bool:
        """False once the peer has ended it, as far as that is known."""
        return not (self._reader.at_eof() or self._writer.is_closing())

    def is_still_idle(self) -> bool:
        """Whether the peer neither ended it nor said anything since its last answer. For HTTP/1.1 only: what was said
        is gone then, and the connection with it."""
        return self.is_usable and not self._waiting()

    def _waiting(self) -> bytes:
        return self._reader.take_waiting() if isinstance(self._reader, Pieces) else b""

    async def read(self) -> bytes:
        """What has come, at least one byte; empty at the end."""
        try:
            data = await self._reader.read(PIECE)
        except (ConnectionError, ssl.SSLError, TimeoutError):
            return b""
        self.touched_at = time.monotonic()
        return data

    def hold(self, data: bytes) -> None:
        """Send it with what follows, or alone a moment later: a head and a short body are one packet then, and nobody
        waits for a body that is not there yet. By a timer, which costs no turn of the loop where it is not needed."""
        self._held += data
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(_HELD_SECONDS, self._send_held)

    def _send_held(self) -> None:
        if self._held and not self._writer.is_closing():
            self.send(b"")

    def send(self, data: bytes) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        if self._held:
            data, self._held = self._held + data, b""
        if data:
            self._put(data)

    def _put(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the peer has taken most of it.

        Raises:
            ConnectionError: it is gone.
        """
        await self._writer.drain()
        self.touched_at = time.monotonic()

    def close(self) -> None:
        """End it in order: what was sent still arrives."""
        self._send_held()
        with contextlib.suppress(OSError, RuntimeError):
            self._writer.close()

    def cut(self) -> None:
        """End it so that the peer sees an error, after what was sent."""
        self.close()

    def abort(self) -> None:
        """Drop it at once, with what was not sent yet."""
        with contextlib.suppress(AttributeError):  # asyncio's TLS until 3.11.5, where it was closed before
            self._writer.transport.abort()

    async def linger(self) -> None:
        """End our side, and let the peer finish: closing at once would take the answer away from who still sends."""
        self._send_held()
        self._say_end()
        with contextlib.suppress(OSError, RuntimeError, TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._writer.drain()
                if self._writer.can_write_eof():
                    self._writer.write_eof()
                taken = 0
                while taken < _LINGER_BYTES and (data := await self._reader.read(PIECE)):
                    taken += len(data)
        self.close()

    def _say_end(self) -> None:
        """For what has an end of its own above the connection's."""


class TlsWire(Wire):
    """A connection whose TLS is ours: a box's, ended here, or one to a server."""

    def __init__(self, stream: Stream, tls: Tls) -> None:
        super().__init__(stream)
        self._tls = tls

    @property
    def alpn(self) -> str:
        return self._tls.alpn

    def is_still_idle(self) -> bool:
        if raw := self._waiting():
            self._tls.received(raw)  # tickets for the next session, most often; or the end
            if self._tls.decrypted() is not None:
                return False
        return self.is_usable

    async def handshake(self, first: bytes) -> None:
        """As `Tls.handshake`."""
        await self._tls.handshake(self._reader, self._writer, first)

    async def read(self) -> bytes:
        while (data := self._tls.decrypted()) is None:
            self._flush(self._tls.outgoing())
            try:
                raw = await self._reader.read(PIECE)
            except (ConnectionError, TimeoutError):
                return b""
            if not raw:
                return b""
            self.touched_at = time.monotonic()
            self._tls.received(raw)
        return data

    def _put(self, data: bytes) -> None:
        self._writer.write(self._tls.encrypted(data))

    def close(self) -> None:
        self._send_held()
        self._say_end()
        super().close()

    def cut(self) -> None:
        super().close()

    def _flush(self, raw: bytes) -> None:
        if raw:
            self._writer.write(raw)

    def _say_end(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self._flush(self._tls.end())


def wire_of(stream: Stream) -> Wire:
    return Wire(stream) if stream.tls is None else TlsWire(stream, stream.tls)
