"""A proxy with a world of the test's own: names, addresses and servers that it makes up, and a captured network.

Nothing of production can be told to do this: the resolver and the dialer are parts that whoever builds a `Proxy` hands
in, and `ringfence.egress.process` builds it with the system's own.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import functools
import ipaddress
import json
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringfence.egress.base import Listeners, NetworkAnswer, NetworkQuestion, SecretValue
from ringfence.egress.dialing import dial_one
from ringfence.egress.flow import Outside
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.inspection.inspector import HttpInspector
from ringfence.egress.proxy import Proxy
from ringfence.egress.resolve import NotResolved
from ringfence.egress.secrets.desk import Desk
from ringfence.values.hosts import Address, BadHost, Host, canonical_host
from ringfence.values.network import PROXY_PORT, NetworkGrant, SecretGrant
from ringfence.values.network_event import NetworkEvent

LOOPBACK = ipaddress.IPv4Address("127.0.0.1")
EVERYWHERE = "93.184.216.34"


@dataclass
class World:
    """Every name has the address that `names` says (else `EVERYWHERE`), and behind every address are our servers."""

    names: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    """Answers, one look-up after the other; the last one stays."""
    own: frozenset[Address] = frozenset()
    dialled: list[tuple[str, int]] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)
    events: list[NetworkEvent] = field(default_factory=list)
    answer: Callable[[NetworkQuestion], NetworkAnswer] | None = None
    asked: list[NetworkQuestion] = field(default_factory=list)
    ask_seconds: float = 0.0
    servers: dict[int, int] = field(default_factory=dict)
    """By port: where on our loopback it is."""
    hold_seconds: float = 8.0
    roots: Authority = field(default_factory=Authority.make)
    authority: Authority = field(default_factory=Authority.make)

    async def addresses(self, host: Host) -> tuple[Address, ...]:
        if host.address is not None:
            return (host.address,)
        self.looked_up.append(host.text)
        answers = self.names.get(host.text, [(EVERYWHERE,)])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if not found:
            raise NotResolved(f"{host} has no address")
        return tuple(map(ipaddress.ip_address, found))

    async def connect(self, addresses: tuple[Address, ...], port: int) -> tuple[socket.socket, Address]:
        self.dialled.append((str(addresses[0]), port))
        return await dial_one(LOOPBACK, self.servers.get(port, self.servers.get(0, 1)), 5), addresses[0]

    async def ask(self, question: NetworkQuestion) -> NetworkAnswer:
        self.asked.append(question)
        await asyncio.sleep(self.ask_seconds)
        return self.answer(question) if self.answer else NetworkAnswer(False, "nobody")

    def client_tls(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.roots.certificate_pem.decode())
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    def outside(self) -> Outside:
        return Outside(
            resolver=self,
            dialer=self,
            own=lambda: self.own,
            inspector=HttpInspector(self.authority, lambda box: Desk((), self._no_secret)),
            client_tls=self.client_tls,
            happened=self.events.append,
            ask=self.ask,
            hold_seconds=self.hold_seconds,
        )

    async def _no_secret(self, secret: SecretGrant) -> SecretValue:
        raise OSError(f"there is no {secret.name}")


def origin_context(roots: Authority) -> ssl.SSLContext:
    """TLS of a server that is whatever host it is asked for."""

    def named(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        with contextlib.suppress(BadHost):
            chosen = roots.context_for(canonical_host(name or EVERYWHERE))
            chosen.set_alpn_protocols(["http/1.1"])  # our servers speak nothing newer
            connection.context = chosen

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sni_callback = named
    return context


async def http_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request with what it was asked for; `/to/URL` with a redirect; `/bytes/N` with so many."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *headers = head.split("\r\n")
            fields = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in headers)}
            method, target = line.split(" ")[:2]
            sent = await reader.readexactly(int(fields.get("content-length", "0")))
            status, more, body = "200 OK", "", f"{method} {fields.get('host')} {target} {len(sent)}\n".encode()
            if target.startswith("/to/"):
                status, more = "302 Found", f"Location: {target[4:]}\r\n"
            elif target.startswith("/bytes/"):
                body = bytes(int(target[7:]))
            writer.write(f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()
    writer.close()


async def greeting_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Speaks first, as SSH and mail servers do, then echoes."""
    with contextlib.suppress(OSError):
        writer.write(b"220 hello\r\n")
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def origin_servers(world: World) -> AsyncIterator[World]:
    """HTTP at 80 and 8080, HTTPS at 443 and 8443, and something else at every other port."""
    made = [
        await asyncio.start_server(http_server, "127.0.0.1", 0),
        await asyncio.start_server(http_server, "127.0.0.1", 0, ssl=origin_context(world.roots)),
        await asyncio.start_server(greeting_server, "127.0.0.1", 0),
    ]
    plain, tls, raw = (each.sockets[0].getsockname()[1] for each in made)
    world.servers |= {80: plain, 8080: plain, 443: tls, 8443: tls, 0: raw}
    try:
        yield world
    finally:
        for each in made:
            each.close()


@contextlib.asynccontextmanager
async def serving(world: World, network: NetworkGrant, listeners: Listeners, box: str = "box") -> AsyncIterator[Proxy]:
    proxy = Proxy(world.outside())
    proxy.attach(box, network, listeners)
    try:
        yield proxy
    finally:
        await proxy.close()


def local_listeners(*ports: int) -> Listeners:
    """Listeners on our own loopback, for what does not need a captured network."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    return Listeners(proxy=_tcp(), dns_udp=udp, dns_tcp=_tcp(), tcp={port: _tcp() for port in ports})


def _tcp() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0), backlog=1024)
    made.setblocking(False)
    return made


# --- a captured network -----------------------------------------------------------------------------------------------

PORTS = (22, 80, 443, 5432, 8080, 8443, 25)
_INSIDE = """
import array, json, os, socket, subprocess, sys
ip = sys.argv[2]
for words in (["link", "set", "lo", "up"], ["addr", "add", "198.18.0.1/32", "dev", "lo"],
              ["route", "add", "local", "0.0.0.0/0", "dev", "lo", "src", "198.18.0.1"]):
    subprocess.run([ip, *words], check=True)
subprocess.run([ip, "-6", "route", "add", "local", "::/0", "dev", "lo"], check=False)
out = socket.socket(fileno=int(sys.argv[1]))
def give(*given):
    fds = array.array("i", [each.fileno() for each in given])
    out.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    for each in given:
        each.close()
def listener(kind, port):
    made = socket.socket(socket.AF_INET6, kind)
    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if kind == socket.SOCK_DGRAM:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        made.setsockopt(socket.IPPROTO_IP, 8, 1)
        made.setsockopt(socket.IPPROTO_IPV6, 78, 1)  # IPV6_FREEBIND
    made.bind(("::", port))
    if kind == socket.SOCK_STREAM:
        made.listen(4096)
    return made
while order := out.recv(65536):
    order = json.loads(order)
    try:
        if order[0] == "listen":
            give(listener(socket.SOCK_STREAM, order[1]), listener(socket.SOCK_DGRAM, 53),
                 listener(socket.SOCK_STREAM, 53), *(listener(socket.SOCK_STREAM, port) for port in order[2]))
        elif order[0] == "connect":
            give(socket.create_connection((order[1], order[2]), 5))
        elif order[0] == "udp":
            made = socket.socket(socket.AF_INET6 if ":" in order[1] else socket.AF_INET, socket.SOCK_DGRAM)
            made.connect((order[1], order[2]))
            give(made)
    except OSError as fault:
        out.send(str(fault).encode())
"""


class Captured:
    """A network in which every address leads to us, made as an ordinary user can make it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(20)
        self._socket = ours
        inside = (sys.executable, "-I", "-c", _INSIDE, str(theirs.fileno()), "/usr/sbin/ip")
        command = ("unshare", "--user", "--map-root-user", "--net", "--", *inside)
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)

    def listeners(self, *ports: int) -> Listeners:
        self._socket.send(json.dumps(["listen", PROXY_PORT, ports]).encode())
        proxy, udp, tcp, *rest = self._taken()
        for each in (proxy, udp, tcp, *rest):
            each.setblocking(False)
        return Listeners(proxy=proxy, dns_udp=udp, dns_tcp=tcp, tcp=dict(zip(ports, rest, strict=True)))

    def connect(self, address: str, port: int) -> socket.socket:
        """A connection from inside, as any program there would make it."""
        self._socket.send(json.dumps(["connect", address, port]).encode())
        (made,) = self._taken()
        made.settimeout(10)
        return made

    def udp(self, address: str, port: int) -> socket.socket:
        self._socket.send(json.dumps(["udp", address, port]).encode())
        (made,) = self._taken()
        made.settimeout(10)
        return made

    @property
    def entering(self) -> tuple[str, ...]:
        """The words before a program that is to be in that network."""
        return ("/usr/bin/nsenter", "--preserve-credentials", "-U", "-n", "-t", str(self._process.pid), "--")

    async def run(self, *argv: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
        """A program in that network."""
        process = await asyncio.create_subprocess_exec(
            *self.entering, *argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        return process.returncode or 0, out.decode(errors="replace")

    def close(self) -> None:
        self._socket.close()
        self._process.wait(10)

    def _taken(self) -> list[socket.socket]:
        data, ancillary, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(4 * 64), socket.MSG_CMSG_CLOEXEC)
        found = array.array("i")
        for _, _, raw in ancillary:
            found.frombytes(raw)
        if not found:
            raise ConnectionRefusedError(data.decode())
        return [socket.socket(fileno=each) for each in found]


@contextlib.contextmanager
def captured() -> Iterator[Captured]:
    made = Captured()
    try:
        yield made
    finally:
        made.close()


def written_roots(world: World, directory: Path) -> str:
    """A file with the certificates of the world's servers, for clients."""
    path = directory / "roots.pem"
    path.write_bytes(world.roots.certificate_pem + world.authority.certificate_pem)
    return os.fspath(path)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine, run in a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run
