"""The doors for TCP: what comes to a box's proxy port, and what its routes lead to us.

One listener takes SOCKS5, CONNECT and URLs: the first byte tells which. Every door ends in `Box.admit`, and behind it
in `tunnel`, so that a host that is refused at one door is refused at all.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from ringfence.egress.base import DialRefused, Refusal
from ringfence.egress.first_bytes import HTTP2_PREFACE, FirstBytes, Kind, look_at
from ringfence.egress.flow import Box, BoxFlow
from ringfence.egress.http_head import BadHead, read_head
from ringfence.egress.sockets import Client, Gone, close, stream_of
from ringfence.egress.splice import Carried, splice
from ringfence.egress.ssh.greeting import refusal as ssh_refusal
from ringfence.egress.wording import reason_line
from ringfence.policy.reach import Judged, ends_ssh, is_reached
from ringfence.values.hosts import BadHost, Host, canonical_host, host_of
from ringfence.values.network import NetworkDoor
from ringfence.values.verdict import Verdict

HEADER_SECONDS: Final = 10.0
"""For everything until it is known what the client wants."""
_SERVER_FIRST_SECONDS: Final = 0.3  # protocols in which the server speaks first (SSH, SMTP): how long the client may
_HTTP_PORT: Final = 80
_ALERT: Final = bytes((0x15, 3, 3, 0, 2, 2))  # a fatal TLS alert, without its number
_ACCESS_DENIED: Final = bytes((49,))
_UNRECOGNIZED_NAME: Final = bytes((112,))

Answer = Callable[[Refusal | None], Awaitable[None]]
"""Tells the client, in its door's words, that the connection stands (None) or is refused."""


async def transparent(box: Box, client: Client) -> None:
    """A connection that the box's routes led to us: by the name that its address stands for, else by what it says."""
    address, port = client.asked
    door = NetworkDoor.TRANSPARENT
    named = box.stand_ins.host_at(address)
    literal = host_of(address)
    if named is None and is_reached(box.network, literal, port):
        return await tunnel(box, client, door, literal, port, _silent)
    deadline = asyncio.get_running_loop().time() + HEADER_SECONDS
    known = named or literal
    if ends_ssh(box.network, known, port):
        return await tunnel(box, client, door, known, port, _silent)
    raw_from_start = box.judge(door, known, port, is_raw=True).verdict is Verdict.ALLOW
    try:
        first = await _first(client, _SERVER_FIRST_SECONDS if raw_from_start else HEADER_SECONDS)
    except Gone as gone:
        if client.buffered or not raw_from_start:
            box.malformed(door, known.text, port, f"the connection said nothing that can be judged: {gone}")
        return
    host = known
    if named is None and first is not None and not first.fault:
        said = await _said(box, client, first, port, deadline)
        if isinstance(said, Refusal):
            return await _refuse_first(client, first, said)
        host = said or literal
    flow = await box.admit(door, host, port, is_raw=first is None or first.kind is Kind.RAW)
    if isinstance(flow, Refusal):
        return await _refuse_first(client, first, flow)
    flow.address = str(address)
    await _carry(box, client, flow, first, deadline)


async def _said(box: Box, client: Client, first: FirstBytes, port: int, deadline: float) -> Host | Refusal | None:
    """The host that the first bytes name, where the address names none."""
    door = NetworkDoor.TRANSPARENT
    try:
        if first.kind is Kind.TLS and first.server_name is not None:
            return canonical_host(first.server_name)
        if first.kind is Kind.HTTP:
            head = await read_head(client, deadline)
            return head.host if head.host is not None and head.port in (None, port) else None
    except BadHost as bad:
        return box.malformed(door, first.server_name or "", port, f"the server name is no host: {bad}")
    except BadHead as bad:
        return box.malformed(door, "", port, str(bad))
    return None


async def tunnel(box: Box, client: Client, door: NetworkDoor, host: Host, port: int, answer: Answer) -> None:
    """A connection to a host that the client named before its first byte: CONNECT and SOCKS."""
    flow = await box.admit(door, host, port)
    if isinstance(flow, Refusal):
        return await answer(flow)
    if flow.rule is None:
        return await _reach(client, flow, answer)
    server: socket.socket | None = None
    by_ssh = ends_ssh(box.network, host, port)
    try:
        if flow.judged.inspect or port == _HTTP_PORT:  # plain HTTP is looked into, by a connection of its own
            await flow.addresses()  # so that the client is told now, not within TLS
        else:
            server = await flow.connect()
    except DialRefused as refused:
        record_failure(flow, refused.refusal)
        return await answer(refused.refusal)
    try:
        await answer(None)
        await (_ssh(box, client, flow) if by_ssh else _carry_unread(box, client, flow, server))
    finally:
        if server is not None:
            close(server)


async def _ssh(box: Box, client: Client, flow: BoxFlow) -> None:
    """Git by SSH, which ends here."""
    if client.buffered:
        box.malformed(flow.door, flow.host.text, flow.port, "the client spoke before it was told that it may")
        return
    from ringfence.egress.ssh.door import end_ssh  # of an extra, and slow to load

    await end_ssh(box, client, flow)


async def _reach(client: Client, flow: BoxFlow, answer: Answer) -> None:
    """A port of this machine that the grant opens by number: whatever is spoken there."""
    try:
        server = await flow.connect()
    except DialRefused as refused:
        record_failure(flow, refused.refusal)
        return await answer(refused.refusal)
    try:
        await answer(None)
        await _splice(client, flow, server)
    finally:
        close(server)


async def _carry_unread(box: Box, client: Client, flow: BoxFlow, server: socket.socket | None = None) -> None:
    raw_allowed = box.judge(flow.door, flow.host, flow.port, is_raw=True).verdict is Verdict.ALLOW
    deadline = asyncio.get_running_loop().time() + HEADER_SECONDS
    try:
        first = await _first(client, _SERVER_FIRST_SECONDS if raw_allowed else HEADER_SECONDS)
    except Gone as gone:
        if client.buffered:
            box.malformed(flow.door, flow.host.text, flow.port, f"the first words were not finished: {gone}")
        else:
            flow.ended(reason=f"nothing was sent: {gone}")
        return
    await _carry(box, client, flow, first, deadline, server)


async def _carry(
    box: Box,
    client: Client,
    flow: BoxFlow,
    first: FirstBytes | None,
    deadline: float,
    server: socket.socket | None = None,
) -> None:
    """Carry a connection whose first bytes are there; None: it says nothing, and may be anything."""
    if first is not None and (wrong := _wrong(flow, first)):
        judged = Judged(verdict=Verdict.DENY, reason=wrong, rule=flow.judged.rule, place=flow.judged.place)
        return await _refuse_first(client, first, box.refuse(flow.door, flow.host.text, flow.port, judged))
    if first is None or first.kind is Kind.RAW:
        judged = box.judge(flow.door, flow.host, flow.port, is_raw=True)
        if judged.verdict is not Verdict.ALLOW and not (judged.verdict is Verdict.ASK and flow.approval):
            box.refuse(flow.door, flow.host.text, flow.port, judged)
            return
        flow.judged = judged
    elif first.kind is Kind.HTTP:
        return await _http(box, client, flow, deadline)
    elif flow.judged.inspect:
        return await _inspect(box, client, flow, first, tls=True)
    own = server is None
    try:
        connected = server if server is not None else await flow.connect()
    except DialRefused as refused:
        record_failure(flow, refused.refusal)
        return await _refuse_first(client, first, refused.refusal)
    try:
        await _splice(client, flow, connected)
    finally:
        if own:
            close(connected)


async def _http(box: Box, client: Client, flow: BoxFlow, deadline: float) -> None:
    """Plain HTTP on a connection whose host is known: each request is judged, and has to name this host."""
    try:
        if client.buffered.startswith(HTTP2_PREFACE[:4]):
            raise BadHead("HTTP/2 without TLS")
        head = await read_head(client, deadline)
    except BadHead as bad:
        return await client.answer(box.malformed(flow.door, flow.host.text, flow.port, str(bad)))
    except Gone as gone:
        flow.ended(reason=str(gone))
        return None
    if head.host != flow.host or head.port not in (None, flow.port):
        judged = Judged(verdict=Verdict.DENY, reason=f"the Host header does not say {flow.host}", rule=flow.judged.rule)
        refusal = box.refuse(flow.door, flow.host.text, flow.port, judged, status=421)
        return await client.answer(refusal)
    await _inspect(box, client, flow, FirstBytes(Kind.HTTP), tls=False)


async def _inspect(box: Box, client: Client, flow: BoxFlow, first: FirstBytes | None, *, tls: bool) -> None:
    try:
        await flow.addresses()
    except DialRefused as refused:
        record_failure(flow, refused.refusal)
        return await _refuse_first(client, first, refused.refusal)
    taken = client.take()
    stream = await stream_of(client.socket)
    try:
        await box.outside.inspector.inspect(flow, stream, taken, tls=tls)
    finally:
        stream.writer.close()


async def _splice(client: Client, flow: BoxFlow, server: socket.socket) -> None:
    carried = Carried()
    await flow.begins()
    try:
        await splice(client.socket, server, to_server=client.take(), may_send=flow.spend, carried=carried)
    finally:  # also of a connection that is open when its box is closed: without a record nobody would know of it
        reason = reason_line("the bytes that may be sent are sent") if carried.stopped else ""
        flow.ended(sent=carried.sent, received=carried.received, reason=reason, denied=carried.stopped)


async def _first(client: Client, seconds: float) -> FirstBytes | None:
    """What the client begins with; None if it says nothing in this time, and may say nothing.

    Raises:
        Gone: it ended, or the time is over within its first words.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    while (found := look_at(client.buffered)) is None:
        try:
            await client.more(deadline)
        except Gone:
            if not client.buffered and seconds == _SERVER_FIRST_SECONDS and _is_open(client):
                return None
            if client.buffered and seconds == _SERVER_FIRST_SECONDS and _is_open(client):
                deadline = asyncio.get_running_loop().time() + HEADER_SECONDS
                seconds = HEADER_SECONDS
                continue
            raise
    return found


def _is_open(client: Client) -> bool:
    """Whether silence was the reason, not the end."""
    try:
        return client.socket.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _wrong(flow: BoxFlow, first: FirstBytes) -> str:
    """What is wrong with TLS for this host, whatever the rules say; else empty."""
    if first.kind is not Kind.TLS:
        return ""
    if first.fault:
        return f"no TLS that can be judged: {first.fault}"
    if first.server_name is None:
        return "" if flow.host.address is not None else f"TLS to {flow.host} without a server name"
    try:
        named = canonical_host(first.server_name)
    except BadHost as bad:
        return f"the server name is no host: {bad}"
    if named != flow.host:
        hidden = " (in front of an encrypted one)" if first.has_ech else ""
        return f"TLS asks for {named}{hidden}, the connection is for {flow.host}"
    return ""


async def _refuse_first(client: Client, first: FirstBytes | None, refusal: Refusal) -> None:
    """Refuse in the words of what the client speaks."""
    if client.buffered.startswith(b"SSH-"):
        return await client.last_words(ssh_refusal(refusal.reason))
    if first is None or first.kind is Kind.RAW:
        return
    if first.kind is Kind.HTTP:
        return await client.answer(refusal)
    number = _UNRECOGNIZED_NAME if refusal.status == 421 else _ACCESS_DENIED
    await client.last_words(_ALERT + number)


def record_failure(flow: BoxFlow, refusal: Refusal) -> None:
    if refusal.status == 502:
        flow.ended(status=502, reason=refusal.reason)


async def _silent(refusal: Refusal | None) -> None:
    """A captured connection stands already, and has no words for a refusal."""
