"""Secrets through inspection: put in after the record was made, taken out of answers, refused where they may not go."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import random
import ssl
from collections.abc import AsyncIterator, Callable

import pytest
import websockets.asyncio.client
import websockets.asyncio.server
import websockets.exceptions

from ringfence.egress.base import Refusal, RequestHead, SecretRefused, Swapped
from ringfence.values.hosts import Host
from ringfence.values.verdict import Verdict
from tests.support.inspected import Client, Front, Loop, NoSecrets, Origin, Rules

Place = Callable[..., Front]
REAL, STAND_IN = b"sk-real-value-0123456789", b"sk-placeholder-012345678"
assert len(REAL) == len(STAND_IN)
LONG = random.Random(0).randbytes(150_000).hex()


class Desk(NoSecrets):
    """One secret with a placeholder, in headers, bodies and messages; `forbidden` may be sent nowhere."""

    def __init__(self, *, signed: int = 0) -> None:
        self._signed = signed

    async def swap(self, host: Host, port: int, head: RequestHead, *, tls: bool) -> Swapped | Refusal:
        if any(b"forbidden" in value for _, value in head.headers):
            return Refusal(403, "Ringfence: the placeholder of OTHER was sent to api.test", canary="OTHER")
        headers = tuple((name, value.replace(STAND_IN, REAL)) for name, value in head.headers)
        swapped = RequestHead(head.method, head.path.replace(STAND_IN.decode(), REAL.decode()), headers)
        return Swapped(swapped, ("KEY",), self._body, self._frame, self._scrub, self._scrub_body, self._signed)

    async def sign(self, host: Host, swapped: Swapped, body: bytes | None) -> RequestHead | Refusal:
        digest = hashlib.sha256(body or b"").hexdigest().encode()
        return RequestHead(swapped.head.method, swapped.head.path, (*swapped.head.headers, (b"x-signature", digest)))

    async def _body(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for data in body:
            if b"forbidden" in data:
                raise SecretRefused(Refusal(403, "Ringfence: the placeholder of OTHER is in the body", canary="OTHER"))
            yield data.replace(STAND_IN, REAL)

    def _frame(self, message: bytes) -> bytes:
        if b"forbidden" in message:
            raise SecretRefused(Refusal(403, "Ringfence: the placeholder of OTHER is in a message", canary="OTHER"))
        return message.replace(STAND_IN, REAL)

    def _scrub(self, data: bytes) -> bytes:
        return data.replace(REAL, STAND_IN)

    async def _scrub_body(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for data in body:
            yield self._scrub(data)


class Mirror:
    """A server that remembers what it was sent, and shows it: head, then body; compressed where it is told to."""

    def __init__(self) -> None:
        self.seen: list[tuple[bytes, bytes]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
            if b"chunked" in head.lower():
                while (size := int(await reader.readuntil(b"\r\n"), 16)) > 0:
                    body += (await reader.readexactly(size + 2))[:-2]
                await reader.readuntil(b"\r\n")
            self.seen.append((head, body))
            shown, coding = head + body, b""
            if b"GET /gzip" in head:
                shown, coding = gzip.compress(shown), b"Content-Encoding: gzip\r\n"
            elif b"GET /br" in head:
                coding = b"Content-Encoding: br\r\n"
            answer = b"HTTP/1.1 200 OK\r\nX-Shown: %s\r\n%sContent-Length: %d\r\n\r\n%s"
            writer.write(answer % (REAL, coding, len(shown), shown))
            await writer.drain()


async def talk(front: Front, data: bytes) -> bytes:
    async with Client(front) as client:
        await client.send(data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        return await client.rest()


GET = b"GET /a?key=%s HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer %s\r\nAccept-Encoding: gzip, br\r\n\r\n"


def test_the_server_gets_the_secret_and_neither_box_nor_record_does(place: Place, loop: Loop) -> None:
    mirror = Mirror()
    front = place(mirror, desk=Desk())

    got = loop.run(talk(front, GET % (STAND_IN, STAND_IN)))

    head = mirror.seen[0][0]
    assert head.count(REAL) == 2 and STAND_IN not in head
    assert b"ccept-encoding: identity" in head.lower().replace(b"accept", b"ccept") and b"gzip" not in head
    assert got.startswith(b"HTTP/1.1 200 ") and REAL not in got and got.count(STAND_IN) == 3
    event = front.rules.events[0]
    assert event.secrets == ("KEY",) and event.verdict is Verdict.ALLOW
    assert REAL.decode() not in repr(front.rules.events) and STAND_IN.decode() not in repr(event)


def test_without_a_desk_the_same_answer_comes_through_as_it_is(place: Place, loop: Loop) -> None:
    front = place(Mirror())
    assert REAL in loop.run(talk(front, GET % (STAND_IN, STAND_IN)))


@pytest.mark.parametrize("framing", ["length", "chunks"])
def test_a_body_is_changed_as_it_streams(place: Place, loop: Loop, framing: str) -> None:
    mirror = Mirror()
    front = place(mirror, desk=Desk())
    body = b'{"key": "' + STAND_IN + b'"}'
    sent = b"POST /a HTTP/1.1\r\nHost: api.test\r\n"
    if framing == "length":
        sent += b"Content-Length: %d\r\n\r\n" % len(body) + body
    else:
        sent += b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)

    got = loop.run(talk(front, sent))

    assert mirror.seen[0][1] == body.replace(STAND_IN, REAL)
    assert REAL not in got and got.startswith(b"HTTP/1.1 200")


CHUNKED = b"PUT /a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_signer_sees_the_whole_body_before_the_head_goes_out(place: Place, loop: Loop) -> None:
    mirror = Mirror()
    front = place(mirror, desk=Desk(signed=1000))
    got = loop.run(
        talk(
            front,
            b"PUT /a HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        )
    )
    head, body = mirror.seen[0]
    assert body == b"abcde" and hashlib.sha256(b"abcde").hexdigest().encode() in head
    assert b"content-length: 5" in head.lower() and b"chunked" not in head.lower()
    assert got.startswith(b"HTTP/1.1 200")

    large = b"PUT /a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
    assert loop.run(talk(front, large)).startswith(b"HTTP/1.1 413 ")
    assert len(mirror.seen) == 1


def test_a_placeholder_where_it_may_not_go_is_refused_and_named(place: Place, loop: Loop) -> None:
    mirror = Mirror()
    front = place(mirror, desk=Desk())

    head = loop.run(talk(front, b"GET /a HTTP/1.1\r\nHost: api.test\r\nX-Key: forbidden\r\n\r\n"))
    body = loop.run(talk(front, b"POST /a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 9\r\n\r\nforbidden"))

    assert head.startswith(b"HTTP/1.1 403 Ringfence: the placeholder of OTHER was sent")
    assert body.startswith(b"HTTP/1.1 403 Ringfence: the placeholder of OTHER is in the body")
    assert mirror.seen == []
    assert [(event.canary, event.verdict) for event in front.rules.events] == [("OTHER", Verdict.DENY)] * 2


def test_a_compressed_answer_is_read_through_or_refused(place: Place, loop: Loop) -> None:
    front = place(Mirror(), desk=Desk())
    get = GET % (STAND_IN, STAND_IN)

    gzipped = loop.run(talk(front, get.replace(b"/a", b"/gzip")))
    brotli = loop.run(talk(front, get.replace(b"/a", b"/br")))

    assert gzipped.startswith(b"HTTP/1.1 200") and REAL not in gzipped and STAND_IN in gzipped
    assert b"ontent-Encoding" not in gzipped
    assert brotli.startswith(b"HTTP/1.1 502 Ringfence: the answer is compressed") and REAL not in brotli


def test_a_bomb_is_passed_on_piece_by_piece(place: Place, loop: Loop) -> None:
    bomb = gzip.compress(b"\0" * 200_000_000)

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)
        await writer.drain()
        await reader.read()

    front = place(server, desk=Desk())

    async def go() -> int:
        async with Client(front) as client:
            await client.send(GET % (STAND_IN, STAND_IN))
            await client.head()
            await asyncio.sleep(1)  # nobody reads: nothing may pile up
            return _memory()

    before = _memory()
    assert loop.run(go()) - before < 60_000_000


def _memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


# --- WebSocket --------------------------------------------------------------------------------------------------------


async def _serve_websocket(
    origin_context: ssl.SSLContext, heard: list[str | bytes]
) -> websockets.asyncio.server.Server:
    async def handle(connection: websockets.asyncio.server.ServerConnection) -> None:
        async for message in connection:
            heard.append(message)
            await connection.send(message)

    return await websockets.asyncio.server.serve(handle, "127.0.0.1", 0, ssl=origin_context)


@pytest.mark.parametrize("with_secrets", [False, True])
def test_a_websocket_is_judged_as_a_request_and_its_messages_are_swapped(loop: Loop, with_secrets: bool) -> None:
    async def unused(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pass

    heard: list[str | bytes] = []
    origin = Origin(loop, unused)
    assert origin.context is not None
    server = loop.run(_serve_websocket(origin.context, heard))
    address = ("127.0.0.1", server.sockets[0].getsockname()[1])
    rules = Rules()
    front = Front(loop, address, origin=origin.authority, desk=Desk() if with_secrets else None, rules=rules)

    async def go() -> list[str | bytes]:
        tls = front.client_context()
        async with websockets.asyncio.client.connect(
            "wss://api.test/socket", ssl=tls, host="127.0.0.1", port=front.port, proxy=None
        ) as connection:
            got = []
            for message in ("hello", f"key {STAND_IN.decode()}", b"\x00\x01", LONG):
                await connection.send(message)
                got.append(await connection.recv())
            await connection.send(["in ", "three ", "pieces"])
            got.append(await connection.recv())
            pong = await connection.ping()
            await pong
            return got

    async def forbidden() -> int:
        async with websockets.asyncio.client.connect(
            "wss://api.test/socket", ssl=front.client_context(), host="127.0.0.1", port=front.port, proxy=None
        ) as connection:
            await connection.send("forbidden")
            try:
                await connection.recv()
            except websockets.exceptions.ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd else 0
            return 1

    try:
        got = loop.run(go())
        assert got == ["hello", f"key {STAND_IN.decode()}", b"\x00\x01", LONG, "in three pieces"]
        assert heard[1] == f"key {(REAL if with_secrets else STAND_IN).decode()}"
        assert rules.asked[0].path == "/socket" and rules.events[0].status == 101
        assert rules.events[0].bytes_out > 100_000 and rules.events[0].bytes_in > 100_000
        assert loop.run(forbidden()) == (1008 if with_secrets else 1)
        if with_secrets:
            assert rules.events[1].canary == "OTHER" and "forbidden" not in heard
        rules.decide = lambda head: Refusal(403, "Ringfence: no sockets")
        with pytest.raises(websockets.exceptions.InvalidStatus, match="403"):
            loop.run(go())
    finally:
        front.close()
        server.close()
        loop.run(server.wait_closed())
        origin.close()
