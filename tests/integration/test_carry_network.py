"""Connections of a box's listeners over the carrier: many at once, none of which holds up another, or a command.

The other side is honest here; a lying one is in test_carry.py. The carrier is the real one, in a captured network.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.egress.arriving import Carried as Arrivals
from ringfence.engines.boxes import protocol
from ringfence.engines.boxes.protocol import MessageKind
from tests.integration.test_carry import READY, accepted, carrying
from tests.support.carried import Carried, carried

pytestmark = pytest.mark.req("B12", "X4")


@pytest.fixture(scope="module")
def network() -> Iterator[Carried]:
    with carried() as made:
        yield made


@pytest.fixture
def listener(network: Carried) -> Iterator[socket.socket]:
    with network.listen(MessageKind.LISTEN, 8080) as made:
        made.setblocking(True)
        made.settimeout(20)
        yield made


def take(listener: socket.socket) -> socket.socket:
    """The next connection, blocking."""
    connection = Arrivals().accept(listener).connection
    connection.settimeout(20)
    return connection


def memory_of(pid: int) -> int:
    """Resident, in KiB."""
    words = Path(f"/proc/{pid}/status").read_text().split()
    return int(words[words.index("VmRSS:") + 1])


def exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes; recv(2) with a time-out gives what is there."""
    got = b""
    while len(got) < count and (piece := connection.recv(count - len(got))):
        got += piece
    return got


def all_of(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_connection_arrives_with_where_it_was_meant_to_go(network: Carried, listener: socket.socket) -> None:
    for address in ("93.184.216.34", "127.0.0.1", "2606:4700::1111"):
        with network.connect(address, 8080):
            arrived = Arrivals().accept(listener)
            arrived.connection.close()
            assert arrived.asked is not None and (str(arrived.asked[0]), arrived.asked[1]) == (address, 8080)


def test_every_byte_arrives_in_both_directions_and_each_half_ends_by_itself(
    network: Carried, listener: socket.socket
) -> None:
    up, down = random.Random(1).randbytes(3_000_000), random.Random(2).randbytes(3_000_000)
    with network.connect("93.184.216.34", 8080) as client, take(listener) as server:

        def speak() -> None:
            client.sendall(up)
            client.shutdown(socket.SHUT_WR)

        speaking = threading.Thread(target=speak)
        speaking.start()
        heard = all_of(server)  # until the client has ended its half, with the other one open
        server.sendall(down[:1000])
        assert exactly(client, 1000) == down[:1000]
        answering = threading.Thread(target=lambda: (server.sendall(down), server.shutdown(socket.SHUT_WR)))
        answering.start()
        answered = all_of(client)
        speaking.join()
        answering.join()

    assert heard == up and answered == down


def test_who_does_not_read_holds_up_neither_other_connections_nor_a_command(
    network: Carried, listener: socket.socket
) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(20):  # each sends as much as it can, both ways, and nobody reads
            for each in (open_ones.enter_context(network.connect("93.184.216.34", 8080)), take(listener)):
                open_ones.enter_context(each)
                each.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while each.send(bytes(65536)):
                        pass
        time.sleep(0.2)
        with network.connect("93.184.216.34", 8080) as client, take(listener) as server:
            client.sendall(b"ping" * 100_000)
            assert exactly(server, 400_000) == b"ping" * 100_000
            server.sendall(b"pong" * 100_000)
            assert exactly(client, 400_000) == b"pong" * 100_000
        assert said_by(network, "head -c 3000000 /dev/zero | tr '\\0' x") == b"x" * 3_000_000
        assert memory_of(network.carrier.pid) < 30_000


def said_by(network: Carried, command: str) -> bytes:
    """What a command in the box prints."""
    argv = ("/bin/sh", "-c", command)
    null, (reading, writing) = os.open("/dev/null", os.O_RDWR), os.pipe()
    words = ("0", "/", "3", "1", *argv, "PATH=/usr/bin:/bin")
    protocol.send(network.control, MessageKind.SPAWN, 1_000_000 + random.randrange(1000), words, (null, writing, null))
    os.close(writing)
    os.close(null)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    received = protocol.receive(network.control)
    assert received is not None and received.reply.kind is MessageKind.ENDED
    return said


def test_connections_that_nobody_takes_wait_and_none_is_lost(network: Carried, listener: socket.socket) -> None:
    count = 600 if resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 4096 else 250  # two here for each of them
    clients = [network.connect("93.184.216.34", 8080) for _ in range(count)]
    try:
        for number, client in enumerate(clients):
            client.sendall(struct.pack("=I", number))
        time.sleep(0.3)  # more than the socket to the proxy holds, and than a listener has room for
        servers = [take(listener) for _ in clients]
        numbers = [struct.unpack("=I", exactly(server, 4))[0] for server in servers]
        for server, number in zip(servers, numbers, strict=True):
            server.sendall(struct.pack("=I", number + 1))
        heard = [struct.unpack("=I", exactly(client, 4))[0] for client in clients]
        for server in servers:
            server.close()
    finally:
        for client in clients:
            client.close()

    assert sorted(numbers) == list(range(count))
    assert heard == [number + 1 for number in range(count)]


def test_more_connections_than_the_carrier_has_room_for_wait_until_others_end(
    network: Carried, listener: socket.socket
) -> None:
    """1,024 of them at most, so that the other half of the channels is there for commands."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 4096:
        pytest.skip("the test itself has two descriptors for each connection, and may not have so many")
    clients = [network.connect("93.184.216.34", 8080) for _ in range(1100)]
    listener.settimeout(1)
    servers = []
    try:
        with contextlib.suppress(TimeoutError):
            while True:
                servers.append(take(listener))
        assert len(servers) == 1024
        assert said_by(network, "echo still here") == b"still here\n"
        for server in servers:
            server.close()
        for client in clients[:1024]:
            client.close()
        listener.settimeout(20)
        rest = [take(listener) for _ in clients[1024:]]
        assert len(rest) == 76
        for server in rest:
            server.close()
    finally:
        for each in clients:
            each.close()


def test_a_proxy_that_ends_a_connection_ends_it_inside_although_the_client_says_nothing(
    network: Carried, listener: socket.socket
) -> None:
    with network.connect("93.184.216.34", 8080) as client:
        server = take(listener)
        server.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        server.close()
        time.sleep(0.1)
        with pytest.raises(OSError):  # as on any machine: the first write may still succeed
            for _ in range(20):
                client.sendall(b"x")
                time.sleep(0.02)


def test_without_a_proxy_there_is_no_listener(network: Carried) -> None:
    with network.listen(MessageKind.LISTEN, 8081) as listener:
        listener.setblocking(True)
        with network.connect("93.184.216.34", 8081) as waiting:
            network.connect("93.184.216.34", 8081).close()
            listener.close()
            waiting.settimeout(20)
            with contextlib.suppress(ConnectionResetError):
                assert waiting.recv(1) == b"", "what nobody took has ended"
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            network.connect("93.184.216.34", 8081).close()
        except ConnectionRefusedError:
            return
    pytest.fail("somebody still listens")


def test_the_host_s_side_dials_into_the_box(network: Carried) -> None:
    said_by(network, "true")
    serve = "import socket\ns = socket.create_server(('127.0.0.1', 5173))\nc = s.accept()[0]\nc.sendall(c.recv(9) * 2)"
    null = os.open("/dev/null", os.O_RDWR)
    words = ("0", "/", "3", "1", "/usr/bin/python3", "-c", serve, "PATH=/usr/bin:/bin")
    protocol.send(network.control, MessageKind.SPAWN, 2_000_000, words, (null, null, null))
    os.close(null)
    deadline = time.monotonic() + 20
    while not (heard := dialled(network, b"twice")):  # it is not up yet
        assert time.monotonic() < deadline
        time.sleep(0.05)
    received = protocol.receive(network.control)
    assert received is not None and received.reply.kind is MessageKind.ENDED
    assert heard == b"twicetwice"
    assert dialled(network, b"twice") == b"", "nobody listens any more"


def dialled(network: Carried, said: bytes) -> bytes:
    """What a server in the box answers; nothing if there is none."""
    with network.make(MessageKind.DIAL, 5173) as connection, contextlib.suppress(OSError):
        connection.settimeout(20)
        connection.sendall(said)
        return all_of(connection)
    return b""


def test_a_box_that_never_reads_makes_the_carrier_keep_no_more_than_a_bound(tmp_path: Path) -> None:
    """Each connection to what is no listener any more is answered, to somebody who does not read."""
    speaker = (
        f"import os; os.write(1, {READY!r})\npiece = {accepted(3, 12345)!r} * 5000\nwhile True: os.write(1, piece)\n"
    )
    with carrying(tmp_path / "carry", "/usr/bin/python3", "-ISc", speaker) as (child, ours):
        ours.settimeout(20)
        assert protocol.receive(ours) is not None
        time.sleep(1)

        assert memory_of(child.pid) < 20_000
        assert child.poll() is None
        ours.close()
        assert child.wait(5) == 0, "it ends with the manager although the box does not read"
