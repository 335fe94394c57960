"""A box that asks for too much: it is told so, and the others do not notice."""

import asyncio
import contextlib
import ipaddress
import resource
import socket
import threading
from dataclasses import replace

import pytest

from ringfence.egress import resolve
from ringfence.egress.base import DialRefused, NetworkAnswer, NetworkQuestion, Refusal, SecretValue
from ringfence.egress.budgets import MOST_CONNECTIONS
from ringfence.egress.flow import Box, BoxFlow
from ringfence.egress.service import EgressService
from ringfence.values.hosts import Address, canonical_host
from ringfence.values.network import Budget, NetworkDoor, NetworkGrant, NetworkRule, SecretGrant
from ringfence.values.network_event import NetworkEvent
from tests.support.egress import EVERYWHERE, World, http_server, in_loop, local_listeners, origin_servers, serving

CONNECT = b"CONNECT mail.example:25 HTTP/1.1\r\nHost: x\r\n\r\n"
RULE = NetworkRule(host="mail.example", ports=(25,), raw=True)


async def opened(at: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await asyncio.open_connection(*at)
    writer.write(CONNECT)
    return reader, writer, await asyncio.wait_for(reader.read(1000), 10)


@in_loop
async def test_ten_thousand_connections_many_at_the_same_time_leave_another_box_served() -> None:
    """The real process. As many are open at once as this process may have; the quiet box is asked while they are."""
    made = EgressService(Silent())
    server = await asyncio.start_server(http_server, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loud, quiet = local_listeners(), local_listeners()
    loud_at, quiet_at = loud.proxy.getsockname(), quiet.proxy.getsockname()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    at_once = min(
        10_000, hard - 2 * MOST_CONNECTIONS - 150
    )  # those that are served have another end here, the server's
    assert at_once > MOST_CONNECTIONS, "more than a box may have, else nothing is shown"
    total, told = 0, {"served": 0, "refused": 0}
    try:
        await made.attach("loud", NetworkGrant(reach=(port,)), loud)
        await made.attach("quiet", NetworkGrant(reach=(port,)), quiet)
        while total < 10_000:
            count = min(at_once, 10_000 - total)
            held = await asyncio.gather(*(connected_to(loud_at, port) for _ in range(count)))
            total += count
            try:
                for _ in range(3):
                    reader, writer = await asyncio.open_connection(*quiet_at)
                    writer.write(reached(port))
                    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).startswith(b"HTTP/1.1 200")
                    writer.write(b"GET /quiet HTTP/1.1\r\nHost: here\r\n\r\n")
                    assert b"GET here /quiet" in await asyncio.wait_for(reader.read(1000), 60)
                    writer.close()
                    await writer.wait_closed()
                answers = await asyncio.gather(*map(first_line, held))
                served = sum(each.startswith(b"HTTP/1.1 200") for each in answers)
                assert 0 < served <= MOST_CONNECTIONS
                # 408: on a busy machine we ourselves may say too late what we want.
                told_so = tuple(b"HTTP/1.1 %d" % status for status in (200, 408, 429))
                assert all(each.startswith(told_so) or not each for each in answers)
                told["served"] += served
                told["refused"] += count - served
            finally:
                for each in held:
                    each.close()
            async with asyncio.timeout(60):  # until the proxy has noticed that they are gone
                while not (await said_by(loud_at, port)).startswith(b"HTTP/1.1 200"):
                    await asyncio.sleep(0.05)
        print(f"{total} connections, {at_once} at once: {told}")
        assert sum(told.values()) == 10_000
    finally:
        await made.close()
        server.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Silent:
    """Whoever runs the proxy, and keeps nothing."""

    def began(self, event: NetworkEvent) -> None: ...
    def happened(self, event: NetworkEvent) -> None: ...
    def ended(self) -> None: ...

    async def ask(self, question: NetworkQuestion) -> NetworkAnswer:
        return NetworkAnswer(False, "nobody")

    async def secret(self, box: str, secret: SecretGrant) -> SecretValue:
        raise OSError("there is none")


def reached(port: int) -> bytes:
    return f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


async def connected_to(at: tuple[str, int], port: int) -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, at)
    with contextlib.suppress(OSError):  # it was turned away already
        await loop.sock_sendall(made, reached(port))
    return made


async def first_line(made: socket.socket) -> bytes:
    """What it was told; nothing, if it was ended."""
    with contextlib.suppress(OSError):
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(made, 100), 60)
    return b""


async def said_by(at: tuple[str, int], port: int) -> bytes:
    made = await connected_to(at, port)
    try:
        return await first_line(made)
    finally:
        made.close()


@in_loop
async def test_one_connection_too_many_is_told_so_and_one_fewer_is_served() -> None:
    async with origin_servers(World()) as world:
        listeners = local_listeners()
        at = listeners.proxy.getsockname()
        network = NetworkGrant(rules=(RULE,), budget=Budget(connections=1))
        async with serving(world, network, listeners):
            _, first, answer = await opened(at)
            assert answer.startswith(b"HTTP/1.1 200")
            _, second, refused = await opened(at)
            assert refused.startswith(b"HTTP/1.1 429 Ringfence: 1 connections are open already")
            first.close()
            second.close()
            await asyncio.sleep(0.2)
            _, third, answer = await opened(at)
            assert answer.startswith(b"HTTP/1.1 200")
            third.close()


@in_loop
async def test_no_more_bytes_leave_than_may() -> None:
    for total, passes in ((5000, False), (None, True)):
        async with origin_servers(World()) as world:
            listeners = local_listeners()
            at = listeners.proxy.getsockname()
            network = NetworkGrant(rules=(RULE,), budget=Budget(total_bytes_out=total))
            async with serving(world, network, listeners):
                reader, writer, _ = await opened(at)
                echoed = 0
                with contextlib.suppress(OSError, TimeoutError):
                    for _ in range(10):
                        writer.write(bytes(1000))
                        await asyncio.sleep(0.02)
                    while echoed < 10_000 and (data := await asyncio.wait_for(reader.read(65536), 1)):
                        echoed += len(data)
                writer.close()
                assert (echoed >= 10_000) == passes
                assert passes or echoed <= 5020


@in_loop
async def test_a_rule_has_as_many_connections_as_it_may() -> None:
    for most, refused in ((1, b"HTTP/1.1 429 Ringfence: 1 connections to mail.example are open"), (2, b"HTTP/1.1 200")):
        async with origin_servers(World()) as world:
            listeners = local_listeners()
            at = listeners.proxy.getsockname()
            rule = replace(RULE, budget=Budget(connections=most))
            async with serving(world, NetworkGrant(rules=(rule,)), listeners):
                _, first, answer = await opened(at)
                assert answer.startswith(b"HTTP/1.1 200")
                _, second, told = await opened(at)
                assert told.startswith(refused)
                first.close()
                second.close()
                while not (await opened_and_closed(at)).startswith(b"HTTP/1.1 200"):
                    await asyncio.sleep(0.05)


@in_loop
async def test_requests_that_are_looked_into_count_for_their_own_rule() -> None:
    """One connection of a rule's, whichever rule the connection itself was allowed by."""
    both = (
        NetworkRule(host="web.example", methods=("POST",)),
        NetworkRule(host="web.example", methods=("GET",), budget=Budget(connections=1)),
    )
    async with origin_servers(World()) as world:
        listeners = local_listeners()
        at = listeners.proxy.getsockname()
        async with serving(world, NetworkGrant(rules=both), listeners):
            held, answers = [], []
            for method in ("GET", "GET", "POST"):
                reader, writer = await asyncio.open_connection(*at)
                writer.write(b"CONNECT web.example:80 HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                writer.write(f"{method} / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 0\r\n\r\n".encode())
                answers.append((await asyncio.wait_for(reader.readuntil(b"\r\n"), 10))[9:12])
                held.append(writer)
            assert answers == [b"200", b"429", b"200"]
            for writer in held:
                writer.close()


async def opened_and_closed(at: tuple[str, int]) -> bytes:
    _, writer, answer = await opened(at)
    writer.close()
    return answer


@in_loop
async def test_a_box_has_no_more_connections_to_servers_than_it_may() -> None:
    """One of a box's connections may need many: HTTP/2 inside, HTTP/1.1 outside. Descriptors are for everybody."""
    async with origin_servers(World()) as world:
        box = Box("box", NetworkGrant(rules=(RULE,), budget=Budget(connections=1)), world.outside())
        flow = await box.admit(NetworkDoor.CONNECT, canonical_host("mail.example"), 25)
        assert isinstance(flow, BoxFlow)
        made = [await flow.connect(), await flow.connect()]
        with pytest.raises(DialRefused, match="too many connections to servers"):
            await flow.connect()
        made.pop().close()
        made.append(await flow.connect())
        for each in made:
            each.close()


@in_loop
async def test_names_that_nobody_answers_for_keep_no_other_box_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def look_up(name: str) -> tuple[Address, ...]:
        if name.endswith("evil.example"):
            hangs.wait(30)
        return (ipaddress.ip_address(EVERYWHERE),)

    monkeypatch.setattr(resolve, "_look_up", look_up)
    resolver = resolve.SystemResolver()
    world = World()
    outside = replace(world.outside(), resolver=resolver)
    loud = Box("loud", NetworkGrant(rules=(NetworkRule(host="*.evil.example"),)), outside)
    quiet = Box("quiet", NetworkGrant(rules=(RULE,)), outside)
    flows = [
        await loud.admit(NetworkDoor.CONNECT, canonical_host(f"n{number}.evil.example"), 443) for number in range(200)
    ]
    waiting = [asyncio.ensure_future(flow.addresses()) for flow in flows if isinstance(flow, BoxFlow)]
    try:
        await asyncio.sleep(0)
        flow = await quiet.admit(NetworkDoor.CONNECT, canonical_host("mail.example"), 25)
        assert isinstance(flow, BoxFlow)
        assert await asyncio.wait_for(flow.addresses(), 5) == (ipaddress.ip_address(EVERYWHERE),)
        assert len(waiting) == 200 and not any(each.done() for each in waiting)
    finally:
        hangs.set()
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        resolver.close()


@in_loop
async def test_answers_to_questions_are_kept_up_to_a_bound() -> None:
    world = World()
    box = Box("box", NetworkGrant(ask_unlisted=True), world.outside())
    for number in range(4500):
        refused = await box.admit(NetworkDoor.CONNECT, canonical_host(f"n{number}.example"), 443)
        assert isinstance(refused, Refusal)
    assert len(world.asked) == 4500
    await box.admit(NetworkDoor.CONNECT, canonical_host("n4499.example"), 443)
    assert len(world.asked) == 4500  # a no counts for a while
    await box.admit(NetworkDoor.CONNECT, canonical_host("n0.example"), 443)
    assert len(world.asked) == 4501
    box.close()
