"""Somebody who serves a box's network without judging: says where each connection was meant to go, answers names.

For tests of the capture itself. What the real one does is in `ringfence.egress`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ringfence.egress.base import Listeners
from ringfence.engines.base import NetKeeper
from ringfence.values.network import NetworkGrant, NetworkRule
from ringfence.values.violation import Violation

Serve = Callable[[socket.socket], Awaitable[None]]
ANSWER = "198.18.7.7"
"""What every name is."""


def a_network(*ports: int, **parts: object) -> NetworkGrant:
    """One host, at these ports of it."""
    return NetworkGrant(rules=(NetworkRule(host="example.com", ports=ports),), **parts)  # type: ignore[arg-type]  # a builder


def where(connection: socket.socket) -> str:
    """The address and port that whoever connected meant."""
    address, port = connection.getsockname()[:2]
    return f"{address.removeprefix('::ffff:')} {port}"


async def say_where(connection: socket.socket) -> None:
    """What it was meant for, and whom it comes from."""
    await asyncio.get_running_loop().sock_sendall(connection, where(connection).encode())


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


class Attachment:
    def __init__(self, box: str, listeners: Listeners, keeper: NetKeeper, provider: Accepting) -> None:
        self.box = box
        self.listeners = listeners
        self.keeper = keeper
        self.variables = provider.variables
        self.published: tuple[tuple[int, int], ...] = ()
        self.refused: list[Violation] = []
        self.asked: list[tuple[str, str]] = []
        """(name, the server that was asked)"""
        self._serve = provider.serve
        loop = asyncio.get_running_loop()
        accepted = (listeners.proxy, listeners.dns_tcp, *listeners.tcp.values())
        self._tasks = [loop.create_task(self._accept(each)) for each in accepted]
        self._loop = loop
        loop.add_reader(listeners.dns_udp, self._on_question)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = await self._loop.sock_accept(listener)
            connection.setblocking(False)
            self._tasks.append(self._loop.create_task(self._one(connection)))

    async def _one(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            await self._serve(connection)

    def _on_question(self) -> None:
        with suppress(BlockingIOError):
            data, told, _, client = self.listeners.dns_udp.recvmsg(4096, 256)
            ours = [(level, kind, value) for level, kind, value in told if level == socket.IPPROTO_IPV6]
            name, reply = _answered(data)
            server = socket.inet_ntop(socket.AF_INET6, ours[0][2][:16]).removeprefix("::ffff:")
            self.asked.append((name, server))
            self.listeners.dns_udp.sendmsg([reply], ours, 0, client)

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

    async def attach(self, box: str, network: NetworkGrant, listeners: Listeners, keeper: NetKeeper) -> Attachment:
        self.attached.append(Attachment(box, listeners, keeper, self))
        return self.attached[-1]
