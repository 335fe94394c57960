"""HTTP/1.1, byte by byte: what passes, what is refused, and what a bad client or server comes to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import pytest

from ringfence.egress.base import Refusal, RequestHead
from ringfence.egress.inspection.base import Limits, Sizes, Times
from ringfence.policy.reach import Judged
from ringfence.values.network import Budget, NetworkGrant
from ringfence.values.verdict import Verdict
from tests.support.inspected import ALLOWED, Client, Front, Loop, Rules, fixed, rule

Place = Callable[..., Front]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
GET = b"GET /a HTTP/1.1\r\nHost: api.test\r\n\r\n"
QUICK = Limits(Times(handshake=2, head=0.5, idle=5, answer=0.7, stalled=30, hundred=0.5), Sizes())


async def talk(front: Front, data: bytes) -> bytes:
    async with Client(front) as client:
        await client.send(data)
        return await client.rest()


def closing(data: bytes) -> bytes:
    return data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def test_requests_on_one_connection_are_judged_one_by_one_over_one_connection_to_the_server(
    place: Place, loop: Loop
) -> None:
    front = place(fixed(OK))

    async def go() -> list[bytes]:
        async with Client(front) as client:
            answers = []
            for path in (b"/a", b"/b?q=1", b"/c"):
                await client.send(GET.replace(b"/a", path))
                answers.append(await client.head() + await client.exactly(2))
            return answers

    answers = loop.run(go())

    assert all(each.startswith(b"HTTP/1.1 200 OK\r\n") and each.endswith(b"ok") for each in answers)
    assert [head.path for head in front.rules.asked] == ["/a", "/b?q=1", "/c"]
    assert [(event.path, event.status, event.bytes_in) for event in front.rules.events] == [
        ("/a", 200, 2),
        ("/b", 200, 2),
        ("/c", 200, 2),
    ]
    assert front.rules.events[1].query_sha256 and "q=1" not in repr(front.rules.events)
    assert front.rules.dials == 1


def test_pipelined_requests_are_answered_in_order(place: Place, loop: Loop) -> None:
    front = place(fixed(OK))

    got = loop.run(talk(front, GET + GET.replace(b"/a", b"/b") + closing(GET)))

    assert got.count(b"HTTP/1.1 200 OK") == 3
    assert [head.path for head in front.rules.asked] == ["/a", "/b", "/a"]


def test_a_refused_request_is_told_why_and_the_next_one_passes(place: Place, loop: Loop) -> None:
    def decide(head: RequestHead) -> Judged | Refusal:
        return Refusal(403, "Ringfence: POST is not allowed", "n-7") if head.method == "POST" else ALLOWED

    front = place(fixed(OK), rules=Rules(decide))
    post = b"POST /a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 5\r\n\r\nhello"

    got = loop.run(talk(front, post + closing(GET)))

    refused, _, passed = got.partition(b"HTTP/1.1 200 OK")
    assert refused.startswith(b"HTTP/1.1 403 Ringfence: POST is not allowed\r\n")
    assert b"x-ringfence-refused: n-7\r\n" in refused and refused.endswith(b"Ringfence: POST is not allowed\n")
    assert passed
    assert front.rules.dials == 1, "nothing is dialled for what is refused"


def test_a_verdict_that_is_not_allow_is_a_refusal_too(place: Place, loop: Loop) -> None:
    front = place(fixed(OK), rules=Rules(lambda head: Judged(verdict=Verdict.ASK, reason="somebody is to be asked")))

    assert loop.run(talk(front, closing(GET))).startswith(b"HTTP/1.1 403 Ringfence: somebody is to be asked")
    assert front.rules.dials == 0


def test_a_large_refused_upload_gets_its_answer_before_the_connection_ends(place: Place, loop: Loop) -> None:
    front = place(fixed(OK), rules=Rules(lambda head: Refusal(403, "Ringfence: no")))
    body = b"x" * 3_000_000

    got = loop.run(talk(front, b"PUT /a HTTP/1.1\r\nHost: api.test\r\nContent-Length: 3000000\r\n\r\n" + body))

    assert got.startswith(b"HTTP/1.1 403 Ringfence: no")
    assert b"connection: close" in got.lower()


@pytest.mark.parametrize(
    ("name", "data", "right"),
    [
        ("another host", GET.replace(b"api.test", b"evil.test"), GET.replace(b"api.test", b"API.test.")),
        ("another port", GET.replace(b"api.test", b"api.test:8443"), GET.replace(b"api.test", b"api.test:443")),
        ("a name with user", GET.replace(b"Host: api.test", b"Host: api.test@evil.test"), GET),
        (
            "an absolute target of another host",
            GET.replace(b"/a", b"https://evil.test/a"),
            GET.replace(b"/a", b"https://api.test/a"),
        ),
        (
            "an absolute target and another Host",
            GET.replace(b"/a", b"https://api.test/a").replace(b": api", b": evil"),
            GET.replace(b"/a", b"https://api.test/a"),
        ),
        ("another scheme", GET.replace(b"/a", b"http://api.test/a"), GET.replace(b"/a", b"https://api.test/a")),
    ],
)
def test_another_host_than_the_connections_is_misdirected(
    place: Place, loop: Loop, name: str, data: bytes, right: bytes
) -> None:
    front = place(fixed(OK))

    assert loop.run(talk(front, closing(data))).startswith(b"HTTP/1.1 421 "), name
    assert front.rules.asked == [] and front.rules.dials == 0
    assert loop.run(talk(front, closing(right))).startswith(b"HTTP/1.1 200 "), name


POST = b"POST /a HTTP/1.1\r\nHost: api.test\r\n"
X = b"GET /a HTTP/1.1\r\nHost: api.test\r\nX: a b\r\n\r\n"


CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
LONG = POST + b"Content-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize(
    ("name", "data", "right"),
    [
        (
            "length and encoding",
            POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            CHUNKED,
        ),
        ("two lengths", POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", LONG),
        ("two lengths in one", POST + b"Content-Length: 5, 6\r\n\r\nhello", LONG),
        ("odd encoding", CHUNKED.replace(b"chunked", b"xchunked"), CHUNKED),
        ("two encodings", CHUNKED.replace(b"chunked", b"gzip, chunked"), CHUNKED),
        ("encoding in HTTP/1.0", CHUNKED.replace(b"1.1", b"1.0"), LONG.replace(b"1.1", b"1.0")),
        ("bare line ends", GET.replace(b"\r", b""), GET),
        ("one bare line end", X.replace(b"test\r", b"test"), X),
        ("bare CR", X.replace(b"a b", b"a\rb"), X),
        ("folded line", X.replace(b"a b", b"a\r\n b"), X),
        ("NUL", X.replace(b"a b", b"a\0b"), X),
        ("two hosts", X.replace(b"X: a b", b"Host: api.test"), X),
        ("no host", b"GET /a HTTP/1.1\r\nX: a b\r\n\r\n", X),
        ("space before colon", GET.replace(b"Host:", b"Host :"), GET),
        ("fragment", GET.replace(b"/a", b"/a#b"), GET.replace(b"/a", b"/a%23b")),
        ("space in the target", GET.replace(b"/a", b"/a b"), GET.replace(b"/a", b"/a%20b")),
        ("no path", GET.replace(b"/a", b"a"), GET),
        ("HTTP/2 in the line", GET.replace(b"1.1", b"2.0"), GET),
        ("no HTTP at all", b"\x00\x01\x02\x03\r\n\r\n", GET),
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(
    place: Place, loop: Loop, name: str, data: bytes, right: bytes
) -> None:
    front = place(fixed(OK))

    got = loop.run(talk(front, data))

    assert got.startswith((b"HTTP/1.1 400 Ringfence", b"HTTP/1.1 400 ")), (name, got)
    assert front.rules.asked == [] and front.rules.dials == 0
    passed = loop.run(talk(front, closing(right)))
    assert passed.startswith(b"HTTP/1.1 200 "), (name, passed)


def test_a_tunnel_in_a_tunnel_is_refused(place: Place, loop: Loop) -> None:
    front = place(fixed(OK))
    data = b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test\r\n\r\n"
    assert loop.run(talk(front, data)).startswith(b"HTTP/1.1 405 ")


def test_a_head_without_end_and_a_slow_one_are_bounded(place: Place, loop: Loop) -> None:
    front = place(fixed(OK), limits=QUICK)

    endless = loop.run(talk(front, b"GET /a HTTP/1.1\r\nHost: api.test\r\nX: " + b"y" * 200_000))
    slow = loop.run(talk(front, b"GET /a HTTP/1.1\r\nHost: api.te"))

    assert endless.startswith(b"HTTP/1.1 431 ")
    assert slow.startswith(b"HTTP/1.1 408 ")
    assert front.rules.dials == 0


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends a chunked request's chunks back as they come, then its trailers."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line, 16)
        if size == 0:
            writer.write(line)
            while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                writer.write(line)
            writer.write(line)
            await writer.drain()
            return
        writer.write(line + await reader.readexactly(size + 2))
        await writer.drain()


def test_bodies_stream_in_both_directions_at_once_with_trailers(place: Place, loop: Loop) -> None:
    front = place(echo)

    async def go() -> tuple[list[bytes], bytes]:
        async with Client(front) as client:
            await client.send(POST + b"Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n")
            await client.head()
            came = []
            for word in (b"one", b"two", b"six"):
                await client.send(b"3\r\n%s\r\n" % word)
                came.append(await client.exactly(8))  # comes back before the next one is sent
            await client.send(b"0\r\nX-Sum: 9\r\n\r\n")
            return came, await client.exactly(len(b"0\r\nX-Sum: 9\r\n\r\n"))

    came, end = loop.run(go())

    assert came == [b"3\r\none\r\n", b"3\r\ntwo\r\n", b"3\r\nsix\r\n"]
    assert end.lower() == b"0\r\nx-sum: 9\r\n\r\n"
    assert front.rules.events == [] or front.rules.events[0].status == 200


def test_events_of_a_server_arrive_as_they_are_sent(place: Place, loop: Loop) -> None:
    go_on = asyncio.Event()

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await go_on.wait()  # until the client has the first one
        writer.write(b"data: 2\n\n")

    front = place(server)

    async def go() -> bytes:
        async with Client(front) as client:
            await client.send(closing(GET))
            await client.head()
            first = await client.exactly(len(b"9\r\ndata: 1\n\n\r\n"))
            go_on.set()
            return first + await client.rest()

    got = loop.run(go())
    assert b"data: 1\n\n" in got and b"data: 2\n\n" in got and got.endswith(b"0\r\n\r\n")


async def waits_for_continue(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if b"/no" in head:
        writer.write(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
        return
    assert b"100-continue" in head.lower()
    writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(5)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body)
    await writer.drain()


def test_expect_100_is_the_servers_to_answer(place: Place, loop: Loop) -> None:
    front = place(waits_for_continue)

    async def go(path: bytes) -> tuple[bytes, bytes]:
        async with Client(front) as client:
            await client.send(
                POST.replace(b"/a", path) + b"Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
            )
            first = await client.head()
            if b" 100 " in first:
                await client.send(b"hello")
            return first, await client.rest()

    first, rest = loop.run(go(b"/yes"))
    assert first.startswith(b"HTTP/1.1 100 ") and rest.endswith(b"hello")
    first, _ = loop.run(go(b"/no"))
    assert first.startswith(b"HTTP/1.1 417 ")


def test_a_server_that_knows_no_100_gets_the_body_all_the_same(place: Place, loop: Loop) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(5)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n" + body)
        await writer.drain()

    front = place(server, limits=QUICK)

    async def go() -> bytes:
        async with Client(front) as client:
            await client.send(POST + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n")
            assert (await client.head()).startswith(b"HTTP/1.1 100 ")
            await client.send(b"hello")
            return await client.head() + await client.exactly(5)

    assert loop.run(go()).endswith(b"hello")


@pytest.mark.parametrize(
    ("request_line", "answer", "expected"),
    [
        (b"HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"ontent-Length: 1000"),
        (b"GET", b"HTTP/1.1 204 No Content\r\n\r\n", b"204 No Content"),
        (b"GET", b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 9\r\n\r\n', b"304 Not Modified"),
    ],
)
def test_answers_without_a_body_do_not_wait_for_one(
    place: Place, loop: Loop, request_line: bytes, answer: bytes, expected: bytes
) -> None:
    front = place(fixed(answer))

    async def go() -> tuple[bytes, bytes]:
        async with Client(front) as client:
            await client.send(GET.replace(b"GET", request_line))
            first = await client.head()
            await client.send(GET.replace(b"GET", request_line))
            return first, await client.head()

    assert all(expected in head for head in loop.run(go()))
    assert front.rules.dials == 1


def test_a_server_that_dies_in_the_body_is_seen_to_have_died(place: Place, loop: Loop) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        kind = b"Transfer-Encoding: chunked" if b"/chunks" in head else b"Content-Length: 100"
        data = b"5\r\nhello\r\n" if b"/chunks" in head else b"hello"
        writer.write(b"HTTP/1.1 200 OK\r\n" + kind + b"\r\n\r\n" + data)

    front = place(server)
    lengths = loop.run(talk(front, GET))
    chunks = loop.run(talk(front, GET.replace(b"/a", b"/chunks")))

    assert lengths.endswith(b"hello") and b"ontent-Length: 100" in lengths
    assert chunks.endswith(b"5\r\nhello\r\n"), "no last chunk: the answer is not whole"
    assert all("broke off" in event.reason for event in front.rules.events)


@pytest.mark.parametrize(
    ("name", "answer", "status"),
    [
        ("nothing", b"", 502),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", 502),
        ("endless head", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000, 502),
        ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", 502),
        ("unasked switch", b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 502),
    ],
)
def test_a_server_that_says_nothing_or_garbage_is_a_bad_gateway_with_a_reason(
    place: Place, loop: Loop, name: str, answer: bytes, status: int
) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    front = place(server)

    got = loop.run(talk(front, closing(GET)))

    assert got.startswith(b"HTTP/1.1 %d Ringfence: the server" % status), (name, got)
    assert front.rules.events[0].status == status and front.rules.events[0].verdict is Verdict.ALLOW


def test_a_server_that_never_answers_is_a_time_out(place: Place, loop: Loop) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    front = place(server, limits=QUICK)
    assert loop.run(talk(front, closing(GET))).startswith(b"HTTP/1.1 504 Ringfence: the server gave no answer")


def test_nobody_at_the_address_is_a_bad_gateway(place: Place, loop: Loop) -> None:
    front = place(fixed(OK))
    front._target = ("127.0.0.1", 1)
    assert loop.run(talk(front, closing(GET))).startswith(b"HTTP/1.1 502 Ringfence: nobody answers")


def test_a_connection_that_the_server_closed_while_idle_is_dialled_anew(place: Place, loop: Loop) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)  # and closes, without having said so

    front = place(server)

    async def go() -> list[bytes]:
        async with Client(front) as client:
            got = []
            for _ in range(5):
                await client.send(GET)
                got.append(await client.head() + await client.exactly(2))
            return got

    assert all(each.startswith(b"HTTP/1.1 200") for each in loop.run(go()))
    assert front.rules.dials >= 5


def test_an_answer_that_nobody_asked_for_is_not_taken_for_the_next_ones(place: Place, loop: Loop) -> None:
    unasked = OK.replace(b"200 OK", b"203 Unasked")

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)
            await writer.drain()
            await asyncio.sleep(0.05)  # the answer is whole, and the connection idle
            writer.write(unasked)

    front = place(server)

    async def go() -> list[bytes]:
        async with Client(front) as client:
            got = []
            for _ in range(3):
                await client.send(GET)
                got.append(await client.head() + await client.exactly(2))
                await asyncio.sleep(0.2)
            return got

    assert all(each.startswith(b"HTTP/1.1 200") for each in loop.run(go()))
    assert front.rules.dials == 3


def test_a_body_has_its_bound_with_and_without_a_length(place: Place, loop: Loop) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    front = place(server, rules=Rules(lambda head: rule(budget=Budget(body_bytes=10))))
    known = loop.run(talk(front, POST + b"Content-Length: 11\r\nConnection: close\r\n\r\n" + b"x" * 11))
    assert known.startswith(b"HTTP/1.1 413 ") and front.rules.dials == 0
    chunked = loop.run(talk(front, POST + b"Transfer-Encoding: chunked\r\n\r\n6\r\nxxxxxx\r\n6\r\nxxxxxx\r\n0\r\n\r\n"))
    assert chunked.startswith(b"HTTP/1.1 413 ")
    assert {event.status for event in front.rules.events} == {413}


def test_a_body_within_its_bound_passes(place: Place, loop: Loop) -> None:
    front = place(echo, rules=Rules(network=NetworkGrant(budget=Budget(body_bytes=12))))
    got = loop.run(
        talk(
            front,
            POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n6\r\nxxxxxx\r\n6\r\nxxxxxx\r\n0\r\n\r\n",
        )
    )
    assert got.startswith(b"HTTP/1.1 200 ")


def test_bytes_out_are_counted_and_end_with_the_budget(place: Place, loop: Loop) -> None:
    front = place(echo, rules=Rules(budget=400))
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"

    got = loop.run(talk(front, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 6 + b"0\r\n\r\n"))

    assert got.count(b"x" * 100) <= 4
    assert b"0\r\n\r\n" not in got
    assert "as many bytes as it may" in front.rules.events[0].reason


def test_what_concerns_one_connection_does_not_go_on(place: Place, loop: Loop) -> None:
    seen: list[bytes] = []

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            OK.replace(b"OK\r\n", b"OK\r\nKeep-Alive: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Stays: 1\r\n", 1)
        )

    front = place(server)
    got = loop.run(
        talk(
            front,
            b"GET /a HTTP/1.1\r\nHost: api.test\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n"
            b"Proxy-Authorization: Basic x\r\nKeep-Alive: 1\r\nTE: trailers\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: x\r\nX-CaSe: 1\r\n\r\n",
        )
    )

    sent = seen[0].lower()
    assert not any(name in sent for name in (b"x-mine", b"proxy-auth", b"keep-alive", b"h2c", b"http2-settings"))
    assert b"te: trailers" in sent and b"X-CaSe: 1" in seen[0], "names are sent as the client spelled them"
    assert b"X-Stays" in got and b"X-Hop" not in got and b"Keep-Alive" not in got


def test_a_client_that_asks_for_another_name_gets_no_connection(place: Place, loop: Loop) -> None:
    front = place(fixed(OK))

    async def go() -> None:
        async with Client(front, host="evil.test"):
            pass

    with pytest.raises(ssl.SSLError):
        loop.run(go())
    assert "did not accept inspection" in front.rules.events[0].reason


def test_plain_http_by_the_proxy_door_and_at_an_address(place: Place, loop: Loop) -> None:
    front = place(fixed(OK), tls=False, port=80)

    async def go(data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(data)
        got = await reader.read(4096)
        writer.close()
        return got

    by_proxy = loop.run(go(GET.replace(b"/a", b"http://api.test/a")))
    assert by_proxy.startswith(b"HTTP/1.1 200 ") and b"connection: close" in by_proxy.lower()
    assert loop.run(go(GET)).startswith(b"HTTP/1.1 200 ")
    assert loop.run(go(GET.replace(b"/a", b"http://evil.test/a"))).startswith(b"HTTP/1.1 421 ")


def test_more_than_the_length_that_a_server_said_is_dropped_and_its_connection_is_not_used_again(
    place: Place, loop: Loop
) -> None:
    front = place(fixed(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"))
    exact = place(fixed(OK))

    async def go(front: Front) -> list[bytes]:
        async with Client(front) as client:
            answers = []
            for _ in range(3):
                await client.send(GET)
                answers.append(await client.head() + await client.exactly(2))
            return answers

    answers = loop.run(go(front))

    assert all(each.endswith(b"ok") and b"evil" not in each for each in answers)
    assert front.rules.dials == 3
    assert loop.run(go(exact)) and exact.rules.dials == 1


def test_after_a_body_of_a_known_length_comes_the_next_request(place: Place, loop: Loop) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            body = await reader.readexactly(length)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + body)
            await writer.drain()

    front = place(server)
    first, second = b"a" * 700_000, b"b" * 5
    posts = b"".join(
        b"POST /a HTTP/1.1\r\nHost: api.test\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        for body in (first, second)
    )

    async def go() -> list[bytes]:
        async with Client(front) as client:
            sending = asyncio.ensure_future(client.send(posts))
            answers = []
            for body in (first, second):
                await client.head()
                answers.append(await client.exactly(len(body)))
            await sending
            return answers

    assert loop.run(go()) == [first, second]
    assert front.rules.dials == 1
    assert [event.bytes_in for event in front.rules.events] == [len(first), len(second)]
