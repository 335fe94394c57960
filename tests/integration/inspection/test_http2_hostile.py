"""HTTP/2 from hostile clients and servers: each is ended, or costs what is bounded; others are served meanwhile."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable

import h2.connection
import h2.events
import hpack
import httpx
import pytest
from h2.config import H2Configuration
from h2.errors import ErrorCodes
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
)

from ringfence.egress.inspection.base import Limits, Sizes, Times
from ringfence.values.network import Budget
from tests.support.inspected import Client, Front, Loop, Rules, fixed, rule

Place = Callable[..., Front]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS = [(":method", "GET"), (":scheme", "https"), (":authority", "api.test"), (":path", "/a")]
SMALL = Limits(Times(), Sizes(window=65_536))


def opening() -> bytes:
    return PREFACE + SettingsFrame(0).serialize()


def headers(stream: int, fields: list[tuple[str, str]], *flags: str) -> HeadersFrame:
    return HeadersFrame(stream, hpack.Encoder().encode(fields), flags=["END_HEADERS", *flags])


async def exchange(front: Front, data: bytes, *, wait: float = 20) -> list[Frame]:
    """What comes back until the connection ends, or for a while."""
    frames: list[Frame] = []
    async with Client(front, alpn=("h2",)) as client:
        try:
            async with asyncio.timeout(wait):
                sending = asyncio.create_task(client.send(data))
                while True:
                    head = await client.reader.readexactly(9)
                    frame, length = Frame.parse_frame_header(memoryview(head))
                    frame.parse_body(memoryview(await client.reader.readexactly(length)))
                    frames.append(frame)
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        sending.cancel()
    return frames


def statuses(frames: list[Frame]) -> dict[int, bytes]:
    decoder = hpack.Decoder()
    found = {}
    for frame in frames:
        if isinstance(frame, HeadersFrame):
            found[frame.stream_id] = dict(decoder.decode(frame.data, raw=True)).get(b":status", b"")
    return found


def goodbye(frames: list[Frame]) -> ErrorCodes | None:
    return next((ErrorCodes(frame.error_code) for frame in frames if isinstance(frame, GoAwayFrame)), None)


def changed(**fields: str) -> list[tuple[str, str]]:
    return [(name, fields.get(name.lstrip(":"), value)) for name, value in HEADERS]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        (HEADERS, b"200"),
        (changed(authority="evil.test"), b"421"),
        (changed(authority="api.test:8443"), b"421"),
        (changed(authority="API.TEST:443"), b"200"),
        (changed(path="a"), b"400"),
        (changed(path="https://api.test/a"), b"400"),
        (changed(path="/a#b"), b"400"),
        (changed(scheme="http"), b"421"),
        ([(":method", "CONNECT"), (":authority", "api.test:443")], b"405"),
    ],
)
def test_a_stream_has_to_be_for_the_connections_host(
    place: Place, loop: Loop, fields: list[tuple[str, str]], status: bytes
) -> None:
    front = place(fixed(OK))

    sent = headers(1, fields, "END_STREAM").serialize() + headers(3, HEADERS, "END_STREAM").serialize()
    got = statuses(loop.run(exchange(front, opening() + sent, wait=1)))

    assert got == {1: status, 3: b"200"}, "the other stream goes on"


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        ([*HEADERS, ("host", "evil.test")], [*HEADERS, ("host", "api.test")]),
        ([*HEADERS, ("connection", "close")], [*HEADERS, ("x-connection", "close")]),
        ([*HEADERS, ("transfer-encoding", "chunked")], [*HEADERS, ("te", "trailers")]),
        ([*HEADERS, ("X-Upper", "1")], [*HEADERS, ("x-upper", "1")]),
        ([*HEADERS, ("x", "a\r\nb")], [*HEADERS, ("x", "a b")]),
        ([*HEADERS, (":path", "/b")], [*HEADERS, ("path", "/b")]),
        ([*HEADERS, (":protocol", "websocket")], [*HEADERS, ("protocol", "websocket")]),
        (HEADERS[:3], HEADERS),
    ],
)
def test_headers_that_http2_forbids_end_the_connection_or_the_stream(
    place: Place, loop: Loop, fields: list[tuple[str, str]], right: list[tuple[str, str]]
) -> None:
    front = place(fixed(OK))
    got = loop.run(exchange(front, opening() + headers(1, fields, "END_STREAM").serialize(), wait=2))
    assert goodbye(got) is ErrorCodes.PROTOCOL_ERROR or statuses(got)[1] in (b"400", b"405")
    assert front.rules.dials == 0
    passed = loop.run(exchange(front, opening() + headers(1, right, "END_STREAM").serialize(), wait=1))
    assert statuses(passed) == {1: b"200"}


def flood_of_continuations() -> bytes:
    first = HeadersFrame(1, hpack.Encoder().encode(HEADERS), flags=[])
    more = b"".join(ContinuationFrame(1, b"").serialize() for _ in range(100_000))
    return first.serialize() + more


def bomb() -> bytes:
    """One entry of 4,000 bytes in the table, and a hundred thousand references to it: 400 MB of headers."""
    encoder = hpack.Encoder()
    block = encoder.encode([*HEADERS, ("x", "y" * 4000)])
    block += b"\xbe" * 16_000
    return HeadersFrame(1, block[:16_000], flags=["END_HEADERS", "END_STREAM"]).serialize()


def rapid_resets(count: int) -> bytes:
    encoder = hpack.Encoder()
    out = bytearray()
    for number in range(count):
        stream = 1 + 2 * number
        out += HeadersFrame(stream, encoder.encode(HEADERS), flags=["END_HEADERS", "END_STREAM"]).serialize()
        out += RstStreamFrame(stream, 8).serialize()
    return bytes(out)


FLOODS = {
    "continuations": flood_of_continuations,
    "HPACK bomb": bomb,
    "rapid resets": lambda: rapid_resets(5_000),
    "pings": lambda: PingFrame(0, b"12345678").serialize() * 50_000,
    "settings": lambda: SettingsFrame(0, settings={4: 65_535}).serialize() * 20_000,
    "priorities": lambda: PriorityFrame(1, depends_on=3).serialize() * 20_000,
    "empty data": lambda: headers(1, [*changed(method="POST")]).serialize() + DataFrame(1, b"").serialize() * 20_000,
    "a frame that is too large": lambda: struct.pack("!I", 1 << 22)[1:] + b"\0\0\0\0\0\1" + b"\0" * 40_000,
    "garbage": lambda: b"\xff" * 5_000,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection_and_others_are_served_meanwhile(place: Place, loop: Loop, name: str) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/ok" in await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)
        await reader.read()

    front = place(never)
    data = opening() + FLOODS[name]()

    async def go() -> tuple[list[Frame], float]:
        flood = asyncio.create_task(exchange(front, data, wait=20))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        async with Client(front) as other:
            await other.send(b"GET /ok HTTP/1.1\r\nHost: api.test\r\n\r\n")
            await other.head()
        return await flood, time.monotonic() - begun

    frames, waited = loop.run(go())

    assert goodbye(frames) not in (None, ErrorCodes.NO_ERROR), name
    assert waited < 5, "the other connection had to wait"
    assert len(front.rules.asked) < 1000


def test_ordinary_cancelling_is_no_flood(place: Place, loop: Loop) -> None:
    front = place(fixed(OK))
    frames = loop.run(exchange(front, opening() + rapid_resets(100) + PingFrame(0, b"12345678").serialize(), wait=2))
    assert goodbye(frames) is None and any(isinstance(frame, PingFrame) for frame in frames)


def test_what_a_slow_server_does_not_take_is_not_read_from_the_client(place: Place, loop: Loop) -> None:
    async def stuck(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(30)

    front = place(stuck, limits=SMALL)

    async def go() -> int:
        peer = h2.connection.H2Connection(H2Configuration(client_side=True))
        peer.initiate_connection()
        sent = 0
        async with Client(front, alpn=("h2",)) as client:
            peer.send_headers(1, changed(method="POST"))
            await client.send(peer.data_to_send())
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline and sent < 64_000_000:
                room = min(peer.local_flow_control_window(1), peer.max_outbound_frame_size)
                if room:
                    peer.send_data(1, b"x" * room)
                    sent += room
                    await client.send(peer.data_to_send())
                else:
                    try:
                        async with asyncio.timeout(0.2):
                            peer.receive_data(await client.reader.read(65_536))
                    except TimeoutError:
                        pass
        return sent

    # The window, what asyncio and the kernel hold of both connections; without back-pressure it would be 64 MB.
    assert loop.run(go()) < 12_000_000


def test_a_body_over_its_bound_gets_413_and_the_connection_stays(place: Place, loop: Loop) -> None:
    front = place(fixed(OK), rules=Rules(lambda head: rule(budget=Budget(body_bytes=10))))
    sent = headers(1, changed(method="POST")).serialize() + DataFrame(1, b"x" * 100).serialize()
    frames = loop.run(exchange(front, opening() + sent + headers(3, HEADERS, "END_STREAM").serialize(), wait=1.5))
    assert statuses(frames) == {1: b"413", 3: b"200"}


def test_a_server_whose_http2_is_none_is_a_bad_gateway(place: Place, loop: Loop) -> None:
    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\xff" * 100)
        await reader.read()

    front = place(garbage, alpn=("h2",))
    frames = loop.run(exchange(front, opening() + headers(1, HEADERS, "END_STREAM").serialize(), wait=2))
    assert statuses(frames)[1] == b"502"


def test_a_server_that_answers_no_settings_and_nothing_else_times_out(place: Place, loop: Loop) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    front = place(silent, alpn=("h2",), limits=Limits(Times(answer=0.5), Sizes()))
    frames = loop.run(exchange(front, opening() + headers(1, HEADERS, "END_STREAM").serialize(), wait=2))
    assert statuses(frames)[1] == b"504"


def test_http2_without_tls_where_the_client_knows_that_the_server_has_it(place: Place, loop: Loop) -> None:
    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = h2.connection.H2Connection(H2Configuration(client_side=False))
        peer.initiate_connection()
        writer.write(peer.data_to_send())
        while data := await reader.read(65_536):
            for event in peer.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    peer.send_headers(event.stream_id or 0, [(":status", "204")], end_stream=True)
            writer.write(peer.data_to_send())

    front = place(server, tls=False, port=80)

    async def go() -> list[Frame]:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(opening() + headers(1, changed(scheme="http"), "END_STREAM").serialize())
        frames: list[Frame] = []
        while not any(isinstance(frame, HeadersFrame) for frame in frames):
            frame, length = Frame.parse_frame_header(memoryview(await reader.readexactly(9)))
            frame.parse_body(memoryview(await reader.readexactly(length)))
            frames.append(frame)
        writer.close()
        return frames

    assert statuses(loop.run(go())) == {1: b"204"}


@pytest.mark.parametrize(
    ("announced", "code", "whole"),
    [
        ("", ErrorCodes.NO_ERROR, True),
        ("4", ErrorCodes.NO_ERROR, True),
        ("5", ErrorCodes.NO_ERROR, False),
        ("4", ErrorCodes.CANCEL, False),
    ],
)
def test_a_server_may_end_an_answer_by_a_reset_without_an_error_if_nothing_is_missing(
    place: Place, loop: Loop, announced: str, code: ErrorCodes, whole: bool
) -> None:
    length = [("content-length", announced)] if announced else []

    async def server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = h2.connection.H2Connection(H2Configuration(client_side=False))
        peer.initiate_connection()
        while data := await reader.read(65_536):
            for event in peer.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    stream = event.stream_id or 0
                    peer.send_headers(stream, [(":status", "200"), *length])
                    peer.send_data(stream, b"body")
                    peer.reset_stream(stream, code)
            writer.write(peer.data_to_send())

    front = place(server, alpn=("h2",))

    async def go() -> str:
        async with httpx.AsyncClient(http2=True, proxy=front.url, verify=front.client_context(), timeout=20) as client:
            return (await client.get("https://api.test/a")).text

    if whole:
        assert loop.run(go()) == "body"
    else:
        with pytest.raises(httpx.RemoteProtocolError):
            loop.run(go())
