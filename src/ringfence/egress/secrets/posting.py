"""Sends one request to a token endpoint: HTTPS, verified, bounded in time and size; by the parent proxy if any."""

import asyncio
import errno
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

import h11

from ringfence.egress.base import Stream
from ringfence.egress.dialing import SystemDialer
from ringfence.egress.parents import connect_by
from ringfence.egress.secrets.minting import TokenRequest, TokenResponse
from ringfence.egress.sockets import stream_of
from ringfence.values.hosts import Address, Host, canonical_host
from ringfence.values.parent_proxy import ParentProxies

SECONDS: Final = 6.0
"""Less than a client waits, so that it hears why."""
_LONGEST: Final = 1024 * 1024
_PIECE: Final = 65536

Dial = Callable[[str, int], Awaitable[Stream]]
"""Connects to a host and port by TLS, its certificate verified."""


async def dial_directly(host: str, port: int) -> Stream:
    """A connection from this machine itself."""
    return Stream(*await asyncio.open_connection(host, port, ssl=ssl.create_default_context()))


class _LoopResolver:
    """Asks as every program does; the time is bounded by whoever posts."""

    async def addresses(self, host: Host) -> tuple[Address, ...]:
        if host.address is not None:
            return (host.address,)
        found = await asyncio.get_running_loop().getaddrinfo(host.text, None, type=socket.SOCK_STREAM)
        return tuple(ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found)


def dial_by(parents: ParentProxies) -> Dial:
    """Through the parent proxy, where a host has one; else directly."""

    async def dial(host: str, port: int) -> Stream:
        meant = canonical_host(host)
        parent = parents.of(meant, port, is_plain=False)
        if parent is None:
            return await dial_directly(host, port)
        connected, _ = await connect_by(parent, meant, port, _LoopResolver(), SystemDialer())
        try:
            return await stream_of(connected, context=ssl.create_default_context(), host=meant)
        except BaseException:
            connected.close()
            raise

    return dial


class Poster:
    """`Post` of `minting`, over any way to a host."""

    def __init__(self, dial: Dial = dial_directly, *, seconds: float = SECONDS) -> None:
        self._dial = dial
        self._seconds = seconds

    async def __call__(self, request: TokenRequest) -> TokenResponse:
        """
        Raises:
            OSError: it cannot be reached, is too slow, or does not speak HTTP.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._exchange(request)
        except TimeoutError:
            raise OSError(errno.ETIMEDOUT, f"no answer in {self._seconds:g} s") from None
        except h11.ProtocolError:
            raise OSError(errno.EPROTO, "the answer is no HTTP") from None

    async def _exchange(self, request: TokenRequest) -> TokenResponse:
        parts = urlsplit(request.url)
        host = parts.hostname or ""
        stream = await self._dial(host, parts.port or 443)
        try:
            speaker = h11.Connection(h11.CLIENT)
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            authority = f"[{host}]" if ":" in host else host
            headers = [
                ("host", authority if parts.port in (None, 443) else f"{authority}:{parts.port}"),
                ("content-length", str(len(request.body))),
                ("connection", "close"),
                *request.headers,
            ]
            out = speaker.send(h11.Request(method="POST", target=target, headers=headers)) or b""
            out += speaker.send(h11.Data(request.body)) or b""
            out += speaker.send(h11.EndOfMessage()) or b""
            stream.writer.write(out)
            await stream.writer.drain()
            return await _answer(speaker, stream.reader)
        finally:
            stream.writer.close()
            with suppress(OSError):
                await stream.writer.wait_closed()


async def _answer(speaker: h11.Connection, reader: asyncio.StreamReader) -> TokenResponse:
    status = 0
    body = bytearray()
    while True:
        event = speaker.next_event()
        if event is h11.NEED_DATA:
            speaker.receive_data(await reader.read(_PIECE))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _LONGEST:
                raise OSError(errno.EMSGSIZE, "the answer is too long")
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            return TokenResponse(status, bytes(body))
