"""A door for tests of inspection: flows that a test decides about, and a real way from real clients to real servers.

`Front` takes connections as a box's doors do: CONNECT, TLS at once, and plain HTTP. It runs in a thread with a loop of
its own, so that blocking clients and programs of others can be used against it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ringfence.egress.base import (
    DialRefused,
    Refusal,
    RequestHead,
    Stream,
    Swapped,
)
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.inspection.base import Limits
from ringfence.egress.inspection.inspector import HttpInspector
from ringfence.egress.sockets import stream_of
from ringfence.egress.tls import tls_stream_of
from ringfence.policy.reach import Judged
from ringfence.values.hosts import Host, canonical_host
from ringfence.values.network import NetworkDoor, NetworkGrant, NetworkRule
from ringfence.values.network_event import NetworkEvent
from ringfence.values.verdict import Verdict

T = TypeVar("T")
ALLOWED = Judged(verdict=Verdict.ALLOW, reason="the test allows it", rule="api.test", place="test:1")


class NoSecrets:
    """A desk of a box without secrets."""

    async def swap(self, host: Host, port: int, head: RequestHead, *, tls: bool) -> Swapped | Refusal:
        return Swapped(head, ())

    async def sign(self, host: Host, swapped: Swapped, body: bytes | None) -> RequestHead | Refusal:
        return swapped.head

    def canary(self, raw: bytes) -> str:
        return ""


@dataclass(slots=True)
class Rules:
    """What a test's flows decide, and what they were told."""

    decide: Callable[[RequestHead], Judged | Refusal] = lambda head: ALLOWED
    budget: int | None = None
    network: NetworkGrant = field(default_factory=NetworkGrant)
    asked: list[RequestHead] = field(default_factory=list)
    events: list[NetworkEvent] = field(default_factory=list)
    dials: int = 0
    spent: int = 0


@dataclass(slots=True)
class FlowDouble:
    rules: Rules
    door: NetworkDoor
    host: Host
    port: int
    target: tuple[str, int]
    trusted: Callable[[tuple[str, ...]], ssl.SSLContext]
    opened: Callable[[asyncio.StreamWriter], None]
    box: str = "box"

    @property
    def network(self) -> NetworkGrant:
        return self.rules.network

    async def decide(self, head: RequestHead) -> Judged | Refusal:
        self.rules.asked.append(head)
        return self.rules.decide(head)

    async def dial(self, *, tls: bool, alpn: Sequence[str] = ()) -> Stream:
        self.rules.dials += 1
        context = self.trusted(tuple(alpn)) if tls else None
        try:
            connected = socket.create_connection(self.target)
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is None:
                stream = await stream_of(connected)
            else:
                stream = await tls_stream_of(connected, context, self.host)
        except OSError as error:
            raise DialRefused(Refusal(502, f"Ringfence: nobody answers at {self.host}")) from error
        self.opened(stream.writer)
        return stream

    def spend(self, sent: int) -> bool:
        self.rules.spent += sent
        return self.rules.budget is None or self.rules.spent <= self.rules.budget

    def record(self, event: NetworkEvent) -> None:
        self.rules.events.append(event)


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(seconds)

    def close(self) -> None:
        self.run(_end_tasks())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


async def _end_tasks() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.sleep(0.05)  # transports close one turn later


class Front:
    """Takes a box's connections, and inspects every one of them."""

    def __init__(
        self,
        loop: Loop,
        target: tuple[str, int],
        *,
        origin: Authority,
        rules: Rules | None = None,
        desk: Any = None,
        limits: Limits | None = None,
        host: str = "api.test",
        port: int = 443,
    ) -> None:
        self.authority = Authority.make()
        self.rules = rules or Rules()
        self._loop = loop
        self._target = target
        self._origin = origin
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._host, self._port = host, port
        self._inspector = HttpInspector(self.authority, lambda box: desk or NoSecrets(), limits=limits)
        self._server = loop.run(self._listen())
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def trust(self, directory: Path) -> Path:
        """A file with our authority's certificate."""
        path = directory / "authority.pem"
        path.write_bytes(self.authority.certificate_pem)
        return path

    def client_context(self, *alpn: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.certificate_pem.decode())
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def trusted(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """For a connection to the server."""
        if alpn not in self._contexts:
            context = ssl.create_default_context(cadata=self._origin.certificate_pem.decode())
            context.set_alpn_protocols(list(alpn))
            self._contexts[alpn] = context
        return self._contexts[alpn]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        client = Stream(reader, writer)
        first = await reader.read(65536)
        door, host, port = NetworkDoor.TRANSPARENT, self._host, self._port
        try:
            if first.startswith(b"CONNECT "):
                authority = first.split(b" ")[1].decode()
                host, _, given = authority.rpartition(":")
                door, port = NetworkDoor.CONNECT, int(given)
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                first = await reader.read(65536)
            elif b"://" in first.split(b"\r\n")[0]:
                door = NetworkDoor.HTTP
            flow = FlowDouble(
                self.rules, door, canonical_host(host), port, self._target, self.trusted, self._writers.add
            )
            await self._inspector.inspect(flow, client, first, tls=first[:1] == b"\x16")
        finally:
            writer.close()

    def close(self) -> None:
        self._loop.run(self._close())

    async def _close(self) -> None:
        self._server.close()
        for writer in self._writers:
            with contextlib.suppress(AttributeError):  # asyncio's TLS until 3.11.5, where it was closed before
                writer.transport.abort()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Origin:
    """A server whose every byte a test decides."""

    def __init__(self, loop: Loop, handler: Handler, *, alpn: Sequence[str] = ("http/1.1",), tls: bool = True) -> None:
        self.authority = Authority.make()
        self._loop = loop
        self._handler = handler
        self.context: ssl.SSLContext | None = None
        if tls:
            self.context = self.authority.context_for(canonical_host("api.test"))
            self.context.set_alpn_protocols(list(alpn))
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = loop.run(self._listen())
        self.address: tuple[str, int] = ("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._handler(reader, writer)
        finally:
            writer.close()

    def close(self) -> None:
        self._loop.run(self._close())

    async def _close(self) -> None:
        self._server.close()
        for writer in self._writers:
            with contextlib.suppress(AttributeError):  # asyncio's TLS until 3.11.5, where it was closed before
                writer.transport.abort()


def fixed(answer: bytes) -> Handler:
    """Says the same to every head, on a connection that stays."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()

    return handle


class Client:
    """A client that sends a test's bytes as they are, through CONNECT and TLS."""

    def __init__(self, front: Front, *, host: str = "api.test", alpn: Sequence[str] = ("http/1.1",)) -> None:
        self._front, self._host, self._alpn = front, host, alpn

    async def __aenter__(self) -> Client:
        context = self._front.client_context(*self._alpn)
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self._front.port, ssl=context, server_hostname=self._host
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def exactly(self, count: int) -> bytes:
        async with asyncio.timeout(20):
            return await self.reader.readexactly(count)

    async def rest(self) -> bytes:
        """Until the connection ends, in whatever way."""
        got = bytearray()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            async with asyncio.timeout(20):
                while data := await self.reader.read(65536):
                    got += data
        return bytes(got)


@contextlib.asynccontextmanager
async def connected(front: Front, **options: Any) -> AsyncIterator[Client]:
    async with Client(front, **options) as client:
        yield client


def rule(**fields: Any) -> Judged:
    """A verdict with a rule of these fields."""
    return Judged(verdict=Verdict.ALLOW, reason="", rule="api.test", matched=NetworkRule(host="api.test", **fields))


class NodeOrigin:
    """Node.js's HTTP/2 server (nghttp2), which is not ours; also HTTP/1.1, unless `only_http2`."""

    def __init__(self, directory: Path, *, only_http2: bool = False) -> None:
        self.authority = Authority.make()
        pem = directory / "origin.pem"
        pem.write_bytes(self.authority.chain_pem(canonical_host("api.test")))
        script = Path(__file__).parent.parent / "integration" / "inspection" / "origin.mjs"
        self._process = subprocess.Popen(
            ["node", script, pem, "h2" if only_http2 else "both"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        self.address: tuple[str, int] = ("127.0.0.1", int(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()
