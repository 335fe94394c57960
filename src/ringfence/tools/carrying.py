"""Carries one HTTP request of ours to the proxy that judges a box's, and its answer back. Needs the extra `fetch`.

Every connection is a `CONNECT` on a socket that the proxy gave, so that judge, budgets and record are those of the box.
Nothing else is dialled, and nothing of the host is used: no cookies, no netrc, no proxy variables. What comes back is
bounded in time and in bytes, before and after it is unpacked.
"""

import asyncio
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import h11
import httpcore

from ringfence.dataclass import dataclass
from ringfence.errors import NetworkAccessDenied, ResourceLimitExceeded

Opener = Callable[[], Awaitable[socket.socket]]
"""Gives one end of a connection on which the proxy is spoken to."""

_PIECE: Final = 64 * 1024
_REASON_BYTES: Final = 8 * 1024
_HEAD_BYTES: Final = 64 * 1024
_UNPACKED: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}
"""Content codings that we ask for, with what zlib calls them."""
_MOST_CODINGS: Final = 1
"""One packed body in another is how bombs are built."""


@dataclass(frozen=True, slots=True)
class Sent:
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Came:
    """An answer, unpacked."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    version: str
    is_cut: bool = False
    """Whether there was more than was wanted."""

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")


class Carrier:
    """Sends requests by the proxy.

    Args:
        opener: gives a connection to the proxy.
        authority: in PEM, whom we trust besides the system's authorities: the proxy's own, where it inspects.
    """

    def __init__(self, opener: Opener, authority: bytes = b"", *, context: ssl.SSLContext | None = None) -> None:
        self._context = context or ssl.create_default_context()
        if authority:
            self._context.load_verify_locations(cadata=authority.decode("ascii"))
        self._proxy_name = _subject(authority)
        self._backend = _Backend(opener)

    async def carry(self, sent: Sent, *, most_bytes: int, cut: bool = False) -> Came:
        """One request and its answer; redirects are answers.

        Args:
            most_bytes: of the body, packed as well as unpacked.
            cut: whether a longer one is cut instead of refused.

        Raises:
            NetworkAccessDenied: the proxy refused it, or the host cannot be reached.
            ResourceLimitExceeded: the answer is longer than allowed.
        """
        host = sent.url.partition("://")[2].partition("/")[0]
        pool = httpcore.AsyncConnectionPool(
            ssl_context=self._context, http2=True, max_connections=1, network_backend=self._backend
        )
        try:
            async with (
                pool,
                pool.stream(
                    sent.method,
                    sent.url,
                    headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in sent.headers],
                    content=sent.body or None,
                ) as response,
            ):
                headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers)
                came = Came(response.status, headers, b"", str(response.extensions.get("http_version", b""), "ascii"))
                _refused(host, came)
                body, is_cut = await _body(response, came, most_bytes, cut=cut)
                says_refused = "x-ringfence-refused" in dict(came.headers) or came.header("x-ringfence-reason")
                if says_refused and self._is_of_the_proxy(response):
                    raise _denial(host, came.status, body.decode("utf-8", "replace"))
                return Came(came.status, headers, body, came.version, is_cut)
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, OSError) as fault:
            raise NetworkAccessDenied(host, f"the request came to no answer: {_why(fault)}") from fault
        except (UnicodeEncodeError, h11.ProtocolError) as fault:
            raise NetworkAccessDenied(host, f"the request cannot be sent: {type(fault).__name__}") from fault

    def _is_of_the_proxy(self, response: httpcore.Response) -> bool:
        """Whether the proxy can have said it: in TLS that it does not look into, only the server speaks."""
        stream = response.extensions.get("network_stream")
        inside = stream.get_extra_info("ssl_object") if stream is not None else None
        return inside is None or (
            self._proxy_name is not None and inside.getpeercert().get("issuer") == self._proxy_name
        )


def _subject(authority: bytes) -> object:
    """Whose name stands in the certificates that the proxy makes."""
    if not authority:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode("ascii"))
    return context.get_ca_certs()[0].get("subject")


def _refused(host: str, came: Came) -> None:
    """A redirect to nowhere, or a head that is too long, is no answer."""
    if sum(len(name) + len(value) for name, value in came.headers) > _HEAD_BYTES:
        raise NetworkAccessDenied(host, "the head of the answer is too long")


def _why(fault: BaseException) -> str:
    cause = fault.__cause__ or fault.__context__ or fault
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {cause.verify_message}"
    return str(fault) or type(fault).__name__


def _denial(host: str, status: int, text: str) -> NetworkAccessDenied:
    reason, _, hint = text.strip().partition("\n")
    return NetworkAccessDenied(host, f"{reason or 'refused'} ({status})", hint=hint.strip())


async def _body(response: httpcore.Response, came: Came, most: int, *, cut: bool) -> tuple[bytes, bool]:
    codings = [each.strip().lower() for each in came.header("content-encoding").split(",") if each.strip()]
    unpackers = _unpackers([each for each in codings if each != "identity"])
    body = bytearray()
    packed = 0
    async for piece in response.aiter_stream():
        packed += len(piece)
        data = piece
        for unpacker in unpackers:
            data = unpacker(data, most + 1 - len(body))
        body += data
        if len(body) > most or packed > most:
            if not cut:
                raise ResourceLimitExceeded("response size", most, hint="ask for more, or for a part of it")
            return bytes(body[:most]), True
    return bytes(body), False


def _unpackers(codings: Sequence[str]) -> list[Callable[[bytes, int], bytes]]:
    if len(codings) > _MOST_CODINGS or not all(each in _UNPACKED for each in codings):
        raise httpcore.RemoteProtocolError(f"it is packed as {', '.join(codings)[:60]}, which was not asked for")
    return [_Unpacker(_UNPACKED[each]) for each in reversed(codings)]


class _Unpacker:
    """Unpacks pieces; never gives more than is asked for, so that a bomb stays small."""

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._zlib = zlib.decompressobj(kind)
        self._is_first = True

    def __call__(self, data: bytes, most: int) -> bytes:
        try:
            return self._unpacked(data, most)
        except zlib.error:
            if not self._is_first or self._kind != 15:
                raise httpcore.RemoteProtocolError("its packed body is damaged") from None
            self._zlib = zlib.decompressobj(-15)  # some servers mean the bare form by `deflate`
            return self._unpacked(data, most)

    def _unpacked(self, data: bytes, most: int) -> bytes:
        found = self._zlib.decompress(data, max(1, most))
        self._is_first = False
        return found


class _Backend(httpcore.AsyncNetworkBackend):
    """Every connection is one to the proxy, which is asked for the host and port."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        connection = await self._opener()
        connection.setblocking(False)
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise
        stream = _Stream(reader, writer)
        try:
            await _connect(stream, f"[{host}]" if ":" in host else host, port)
        except BaseException:
            await stream.aclose()
            raise
        return stream

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise httpcore.UnsupportedProtocol("no sockets of this machine")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def _connect(stream: "_Stream", host: str, port: int) -> None:
    """Ask the proxy for a tunnel.

    Raises:
        NetworkAccessDenied: it refuses, and says why.
    """
    authority = f"{host}:{port}"
    speaker = h11.Connection(h11.CLIENT)
    await stream.write(
        speaker.send(h11.Request(method="CONNECT", target=authority, headers=[("host", authority)])) or b""
    )
    status = 0
    text = bytearray()
    while True:
        event = speaker.next_event()
        if event is h11.NEED_DATA:
            # One byte at a time while a yes may come: what follows it belongs to the tunnel.
            speaker.receive_data(await stream.read(1 if not status else _PIECE))
        elif isinstance(event, h11.Response):
            if 200 <= event.status_code < 300:
                return
            status = event.status_code
            text += bytes(event.reason) + b"\n" if not event.headers else b""
        elif isinstance(event, h11.Data) and len(text) < _REASON_BYTES:
            text += event.data
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            raise _denial(authority, status, text.decode("utf-8", "replace"))


class _Stream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            return await self._reader.read(max_bytes)
        except OSError as fault:
            raise httpcore.ReadError(str(fault)) from fault

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        try:
            self._writer.write(buffer)
            await self._writer.drain()
        except OSError as fault:
            raise httpcore.WriteError(str(fault)) from fault

    async def aclose(self) -> None:
        self._writer.transport.abort()  # nothing is owed to anybody, and TLS would wait for the other side

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            await self._writer.start_tls(ssl_context, server_hostname=server_hostname)
        except (OSError, ssl.SSLError) as fault:
            await self.aclose()
            raise httpcore.ConnectError(str(fault)) from fault
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "ssl_object":
            return self._writer.get_extra_info("ssl_object")
        return False if info == "is_readable" else None
