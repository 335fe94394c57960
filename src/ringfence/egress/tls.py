"""TLS on memory: OpenSSL sees only bytes, and whoever has the connection reads and writes them.

asyncio's own TLS cannot be handed bytes that were read already, and a door has to read the first ones to know whose
connection it is. It also costs more: a protocol of its own under each stream, and a copy of every byte on the way up.
"""

import asyncio
import contextlib
import socket
import ssl
from typing import Final

from ringfence.egress.base import Stream
from ringfence.egress.sockets import stream_of
from ringfence.values.hosts import Host

PIECE: Final = 256 * 1024


class Tls:
    """One end of a TLS connection."""

    __slots__ = ("_incoming", "_object", "_outgoing")

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, server_name: str | None = None) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side, server_name)

    @property
    def alpn(self) -> str:
        return self._object.selected_alpn_protocol() or ""

    async def handshake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bytes = b"") -> None:
        """
        Args:
            first: bytes of the peer that were read already.

        Raises:
            ssl.SSLError: the peer does not trust us, or we do not trust it, or it speaks no TLS that we speak.
            ConnectionError: it is gone.
        """
        self._incoming.write(first)
        while True:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                writer.write(self.outgoing())
                if not (raw := await reader.read(PIECE)):
                    raise ConnectionResetError("the peer has ended the connection") from None
                self._incoming.write(raw)
            except ssl.SSLError:
                writer.write(self.outgoing())  # the alert
                raise
            else:
                writer.write(self.outgoing())
                return

    def encrypted(self, data: bytes) -> bytes:
        """Data as it travels.

        Raises:
            ConnectionError: the connection takes no more.
        """
        try:
            self._object.write(data)
        except ssl.SSLError as fault:
            raise ConnectionResetError("TLS has ended") from fault
        return self._outgoing.read()

    def outgoing(self) -> bytes:
        """What OpenSSL itself has to say: its part of a handshake, answers to the peer, alerts."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def received(self, raw: bytes) -> None:
        self._incoming.write(raw)

    def decrypted(self) -> bytes | None:
        """What came, as much as is there up to some hundred kilobytes; None if it is not a whole record yet, empty at
        the end, in order or by a fault."""
        try:
            first = self._object.read(PIECE)
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError:
            return b""
        if not self._incoming.pending or not first:
            return first
        parts, size = [first], len(first)
        while parts[-1] and size < PIECE:  # what came together goes on together: a record has 16 KiB at most
            try:
                parts.append(self._object.read(PIECE))
            except ssl.SSLError:  # no whole record more; an error comes again with the next one that is asked for
                break
            size += len(parts[-1])
        return b"".join(parts)

    def end(self) -> bytes:
        """The last word of TLS, which tells the peer that nothing was cut off."""
        with contextlib.suppress(OSError, RuntimeError):  # most often: it would wait for the peer's
            self._object.unwrap()
        return self.outgoing()


async def tls_stream_of(connection: socket.socket, context: ssl.SSLContext, host: Host) -> Stream:
    """Both directions of a connected socket, with TLS of ours as a client (`Stream.tls`) after its handshake.

    Raises:
        OSError: there is no TLS with this host; the connection is closed then.
    """
    stream = await stream_of(connection)
    try:
        stream.tls = Tls(context, server_side=False, server_name=host.text)
        await stream.tls.handshake(stream.reader, stream.writer)
    except BaseException:
        stream.writer.transport.abort()
        raise
    return stream
