"""The proxy port: SOCKS5, CONNECT and URLs on one listener, told apart by the first byte."""

import asyncio
import ipaddress
from typing import Final

from ringfence.egress.base import DialRefused, Refusal
from ringfence.egress.doors import HEADER_SECONDS, record_failure, tunnel
from ringfence.egress.flow import Box
from ringfence.egress.http_head import BadHead, Head, origin_form, read_head, split_authority, split_url
from ringfence.egress.sockets import Client, Gone, stream_of
from ringfence.policy.reach import Judged
from ringfence.values.hosts import BadHost, Host, canonical_host, host_of
from ringfence.values.network import NetworkDoor
from ringfence.values.verdict import Verdict

_SOCKS5: Final = 5
_SOCKS4: Final = 4
_CONNECT: Final = 1
_V4, _NAME, _V6 = 1, 3, 4
# RFC 1928
_GRANTED, _FAILED, _NOT_ALLOWED, _UNREACHABLE, _NO_COMMAND, _NO_ADDRESS = 0, 1, 2, 4, 7, 8


async def proxy_port(box: Box, client: Client, door: NetworkDoor | None = None) -> None:
    """Serve one connection.

    Args:
        door: what the connection is recorded as; None: as what it turns out to be.
    """
    deadline = asyncio.get_running_loop().time() + HEADER_SECONDS
    try:
        await client.more(deadline)
        first = client.buffered[0]
        if first == _SOCKS5:
            await _socks5(box, client, deadline, door or NetworkDoor.SOCKS)
        elif first == _SOCKS4:
            box.malformed(NetworkDoor.SOCKS, "", 0, "SOCKS4 is not served: use SOCKS5")
            await client.last_words(bytes((0, 0x5B, 0, 0, 0, 0, 0, 0)))
        else:
            await _http(box, client, deadline, door)
    except Gone as gone:
        if client.buffered:
            box.malformed(door or NetworkDoor.HTTP, "", 0, f"the request was not finished: {gone}")
            await client.answer(Refusal(408, "Ringfence: the request was not finished in time"))


async def _http(box: Box, client: Client, deadline: float, door: NetworkDoor | None) -> None:
    try:
        head = await read_head(client, deadline)
    except BadHead as bad:
        too_long = "longer than" in str(bad)
        refusal = box.malformed(door or NetworkDoor.HTTP, "", 0, str(bad))
        return await client.answer(Refusal(431, refusal.reason) if too_long else refusal)
    if head.method == "CONNECT":
        return await _connect(box, client, head, door or NetworkDoor.CONNECT)
    await _url(box, client, head, door or NetworkDoor.HTTP)


async def _connect(box: Box, client: Client, head: Head, door: NetworkDoor) -> None:
    try:
        host, port = split_authority(head.target)
        if port is None:
            raise BadHost("there is no port")
    except BadHost as bad:
        return await client.answer(box.malformed(door, head.target, 0, f"CONNECT to no host and port: {bad}"))
    client.buffered = client.buffered[head.length :]

    async def answer(refusal: Refusal | None) -> None:
        if refusal is not None:
            return await client.answer(refusal)
        await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")

    await tunnel(box, client, door, host, port, answer)


async def _url(box: Box, client: Client, head: Head, door: NetworkDoor) -> None:
    """One request in plain HTTP by its URL. The next on this connection might be for anybody, so it ends with this."""
    try:
        host, port, target = split_url(head.target)
    except (BadHost, BadHead) as bad:
        return await client.answer(box.malformed(door, head.target, 0, str(bad)))
    if head.host is not None and (head.host != host or (head.port or 80) != port):
        judged = Judged(verdict=Verdict.DENY, reason=f"the Host header does not say {host.in_url}:{port}")
        return await client.answer(box.refuse(door, host.text, port, judged))
    flow = await box.admit(door, host, port)
    if isinstance(flow, Refusal):
        return await client.answer(flow)
    try:
        await flow.addresses()
    except DialRefused as refused:
        record_failure(flow, refused.refusal)
        return await client.answer(refused.refusal)
    rest = client.take()[head.length :]
    stream = await stream_of(client.socket)
    try:
        await box.outside.inspector.inspect(flow, stream, origin_form(head, host, port, target) + rest, tls=False)
    finally:
        stream.writer.close()


async def _socks5(box: Box, client: Client, deadline: float, door: NetworkDoor) -> None:
    _, count = await client.exactly(2, deadline)
    offered = await client.exactly(count, deadline)
    if 0 not in offered:
        box.malformed(door, "", 0, "SOCKS5 with a password: none is needed")
        return await client.last_words(bytes((5, 0xFF)))
    await client.send(bytes((5, 0)))
    version, command, _, kind = await client.exactly(4, deadline)
    if version != _SOCKS5:
        box.malformed(door, "", 0, "no request of SOCKS5")
        return await client.last_words(_reply(_FAILED))
    try:
        host, shown = await _socks_host(client, kind, deadline)
    except BadHost as bad:
        await client.exactly(2, deadline)
        box.malformed(door, "", 0, f"SOCKS5 to no host: {bad}")
        return await client.last_words(_reply(_NO_ADDRESS if kind not in (_V4, _NAME, _V6) else _NOT_ALLOWED))
    port = int.from_bytes(await client.exactly(2, deadline), "big")
    if command != _CONNECT:
        box.malformed(door, shown, port, "SOCKS5 is served for CONNECT only")
        return await client.last_words(_reply(_NO_COMMAND))
    if not port:
        box.malformed(door, shown, port, "there is no port 0")
        return await client.last_words(_reply(_NOT_ALLOWED))

    async def answer(refusal: Refusal | None) -> None:
        if refusal is not None:
            return await client.last_words(_reply(_UNREACHABLE if refusal.status == 502 else _NOT_ALLOWED))
        await client.send(_reply(_GRANTED))

    await tunnel(box, client, door, host, port, answer)


async def _socks_host(client: Client, kind: int, deadline: float) -> tuple[Host, str]:
    if kind == _V4:
        host = host_of(ipaddress.IPv4Address(await client.exactly(4, deadline)))
    elif kind == _V6:
        host = host_of(ipaddress.IPv6Address(await client.exactly(16, deadline)))
    elif kind == _NAME:
        raw = await client.exactly((await client.exactly(1, deadline))[0], deadline)
        try:
            host = canonical_host(raw.decode("ascii"))
        except UnicodeDecodeError:
            raise BadHost("the name is not ASCII") from None
    else:
        raise BadHost("a kind of address that is not known")
    return host, host.text


def _reply(code: int) -> bytes:
    return bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))
