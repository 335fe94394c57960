"""Somebody who serves a box's network without judging: says where each connection was meant to go, answers names.

For tests of the capture itself. What the real one does is in `ringfence.egress`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ringfence.egress.arriving import Arrived, arrivals, is_gone
from ringfence.egress.base import Listeners
from ringfence.egress.sockets import Client
from ringfence.engines.base import SocketMaker
from ringfence.values.network import NetworkGrant, NetworkRule
from ringfence.values.violation import Violation

Serve = Callable[[Client], Awaitable[None]]
ANSWER = "198.18.7.7"
"""What every name is."""


def a_network(*ports: int, **parts: object) -> NetworkGrant:
    """One host, at these ports of it."""
    return NetworkGrant(rules=(NetworkRule(host="example.com", ports=ports),), **parts)  # type: ignore[arg-type]  # a builder


async def say_where(client: Client) -> None:
    """The address and port that whoever connected meant."""
    address, port = client.asked
    await client.send(f"{address} {port}".encode())


def _answered(question: bytes) -> tuple[str, bytes]:
    """The name in a question, and an answer: one address for A, nothing for any other type."""
    labels, at = [], 12
    while size := question[at]:
        labels.append(question[at + 1 : at + 1 + size].decode())
        at += 1 + size
    kind = question[at + 1 : at + 5]
    answer = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(ANSWER) if kind == b"\0\1\0\1" else b""
    head = question[:2] + b"\x81\x80\0\1" + bytes([0, bool(answer), 0, 0, 0, 0])
    return ".".join(labels), head + question[12 : at + 5] + answer


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Attachment:
    def __init__(self, box: str, listeners: Listeners, maker: SocketMaker, provider: Accepting) -> None:
        self.box = box
        self.listeners = listeners
        self.maker = maker
        self.variables = provider.variables
        self.published: tuple[tuple[int, int], ...] = ()
        self.refused: list[Violation] = []
        self.asked: list[tuple[str, str]] = []
        """(name, the server that was asked)"""
        self._serve = provider.serve
        self._arrivals = arrivals(is_carried=listeners.is_carried)
        loop = asyncio.get_running_loop()
        accepted = (listeners.proxy, listeners.dns_tcp, *listeners.tcp.values())
        self._tasks = [loop.create_task(self._accept(each)) for each in accepted]
        self._loop = loop
        loop.add_reader(listeners.dns_udp, self._on_question)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                arrived = self._arrivals.accept(listener)
            except BlockingIOError:
                await self._readable(listener)
                continue
            except OSError as fault:
                if is_gone(fault):
                    return
                raise
            self._tasks.append(self._loop.create_task(self._one(arrived)))

    async def _readable(self, listener: socket.socket) -> None:
        ready: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(listener, _settle, ready)
        try:
            await ready
        finally:
            self._loop.remove_reader(listener)

    async def _one(self, arrived: Arrived) -> None:
        with arrived.connection, suppress(OSError):
            await self._serve(Client(arrived.connection, self._loop, arrived.asked))

    def _on_question(self) -> None:
        with suppress(BlockingIOError):
            if self.listeners.is_carried:
                return self._on_carried_question()
            data, told, _, client = self.listeners.dns_udp.recvmsg(4096, 256)
            ours = [(level, kind, value) for level, kind, value in told if level == socket.IPPROTO_IPV6]
            name, reply = _answered(data)
            server = socket.inet_ntop(socket.AF_INET6, ours[0][2][:16]).removeprefix("::ffff:")
            self.asked.append((name, server))
            self.listeners.dns_udp.sendmsg([reply], ours, 0, client)

    def _on_carried_question(self) -> None:
        packet = self.listeners.dns_udp.recv(4096)
        if not packet:
            self._loop.remove_reader(self.listeners.dns_udp)
            return
        name, reply = _answered(packet[40:])
        self.asked.append((name, socket.inet_ntop(socket.AF_INET6, packet[20:36]).removeprefix("::ffff:")))
        self.listeners.dns_udp.send(packet[:40] + reply)

    async def settle(self) -> bool:
        return True

    def taken(self, until: float | None = None) -> tuple[Violation, ...]:
        refused, self.refused = tuple(self.refused), []
        return refused

    async def close(self) -> None:
        self._loop.remove_reader(self.listeners.dns_udp)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self.listeners.close()


class Accepting:
    """A `NetworkProvider` whose boxes are all served alike."""

    def __init__(
        self, serve: Serve = say_where, *, authority: bytes = b"", variables: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self.serve = serve
        self.variables = variables
        self.attached: list[Attachment] = []
        self._authority = authority

    async def authority(self) -> bytes:
        return self._authority

    async def known_hosts(self) -> str:
        return ""

    async def attach(self, box: str, network: NetworkGrant, listeners: Listeners, maker: SocketMaker) -> Attachment:
        self.attached.append(Attachment(box, listeners, maker, self))
        return self.attached[-1]
