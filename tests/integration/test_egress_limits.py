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
from ringfence.egress.base import DialRefused, Refusal
from ringfence.egress.flow import Box, BoxFlow, Outside
from ringfence.egress.proxy import Proxy
from ringfence.values.hosts import Address, canonical_host
from ringfence.values.network import Budget, NetworkDoor, NetworkGrant, NetworkRule
from tests.support.egress import EVERYWHERE, World, in_loop, local_listeners, origin_servers, serving

CONNECT = b"CONNECT mail.example:25 HTTP/1.1\r\nHost: x\r\n\r\n"
RULE = NetworkRule(host="mail.example", ports=(25,), raw=True)


async def opened(at: tuple[str, int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    reader, writer = await asyncio.open_connection(*at)
    writer.write(CONNECT)
    return reader, writer, await asyncio.wait_for(reader.read(1000), 10)


@in_loop
async def test_ten_thousand_connections_in_a_row_leave_another_box_served() -> None:
    async with origin_servers(World()) as world:
        outside: Outside = world.outside()
        proxy = Proxy(outside)
        loud, quiet = local_listeners(), local_listeners()
        loud_at, quiet_at = loud.proxy.getsockname(), quiet.proxy.getsockname()
        network = NetworkGrant(rules=(RULE,))
        proxy.attach("loud", network, loud)
        proxy.attach("quiet", network, quiet)
        loop = asyncio.get_running_loop()
        held: list[socket.socket] = []
        passed_by = 0
        try:
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            most = 250 if soft > 2000 else 100
            for number in range(10_000):
                made = socket.socket()
                made.setblocking(False)
                await loop.sock_connect(made, loud_at)
                if number < most:
                    held.append(made)
                else:
                    made.close()
                    passed_by += 1
            _, writer, answer = await opened(quiet_at)
            assert answer.startswith(b"HTTP/1.1 200")
            writer.close()
            assert passed_by == 10_000 - most
        finally:
            for each in held:
                each.close()
            await proxy.close()


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
