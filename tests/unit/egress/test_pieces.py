"""What is read of a connection arrives whole and in order, and no more of it waits than its bound."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest

from ringfence.egress.inspection.authority import Authority
from ringfence.egress.sockets import stream_of
from ringfence.values.hosts import canonical_host

MUCH = 48 * 1024 * 1024


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_what_nobody_takes_stops_the_sender_and_all_of_it_arrives(tls: bool) -> None:
    authority, host = Authority.make(), canonical_host("api.test")
    data = bytes(range(256)) * (MUCH // 256)
    sent = 0

    async def go() -> bytes:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            for at in range(0, len(data), 65536):
                writer.write(data[at : at + 65536])
                await writer.drain()
                sent = at + 65536
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.context_for(host) if tls else None)
        async with server:
            connected = socket.create_connection(server.sockets[0].getsockname())
            connected.setblocking(False)
            trusting = ssl.create_default_context(cadata=authority.certificate_pem.decode()) if tls else None
            stream = await stream_of(connected, context=trusting, host=host)
            before = -1
            while sent != before or not sent:  # until it does not move any longer
                before = sent
                await asyncio.sleep(0.2)
            assert sent < MUCH
            assert not stream.reader.at_eof()
            pieces = [await stream.reader.read(7)]
            while piece := await stream.reader.read(100_000):
                assert len(piece) <= 100_000
                pieces.append(piece)
            assert stream.reader.at_eof()
            stream.writer.close()
            with contextlib.suppress(OSError):
                await stream.writer.wait_closed()
        assert len(pieces[0]) == 7
        return b"".join(pieces)

    assert asyncio.run(go()) == data


def test_an_end_wakes_whoever_waits() -> None:
    async def go() -> bytes:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        stream = await stream_of(ours)
        waiting = asyncio.ensure_future(stream.reader.read(10))
        await asyncio.sleep(0)
        theirs.close()
        found = await waiting
        stream.writer.close()
        return found

    assert asyncio.run(go()) == b""
