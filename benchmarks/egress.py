"""What the network costs, in one table with its goals: requests, large bodies, opening a box, memory at 100 boxes.

All ways go to TLS servers on loopback. Requests are measured twice, since what is added to one weighs the more the less
it costs by itself: between a client and a server that do as little as one can, where a direct request
takes some 30 microseconds, and between `http.client` and a server of asyncio's streams, as a small tool and a small
service of Python's are. The proxy runs in a process of its own, built as in production but for its
resolver and dialer, which lead to that server. mitmproxy and the proxy of Anthropic's srt, which people would use
instead, are measured in the same rounds where `make alternatives` has installed them. Figures are medians of
interleaved rounds: read the ratios. `python -m benchmarks.egress [ROUNDS]`; `--json` for the figures alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import multiprocessing
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import egress_inspect, egress_open
from benchmarks.alternatives import HERE
from ringfence.egress.base import NetworkAnswer, NetworkQuestion, SecretValue
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.service import EgressService
from ringfence.egress.ssh.base import SshLogin
from ringfence.values.hosts import canonical_host
from ringfence.values.network import NetworkGrant, NetworkRule, SecretGrant
from ringfence.values.network_event import NetworkEvent
from tests.support.egress import World, local_listeners

HOST = "bench.example"
INSPECTED = "seen.example"
ORDINARY_PORT = 8443
LOCAL = "localhost"
"""As proxies of others ask for the server."""
LARGE = 64 * 1024 * 1024
BOXES = 100
SRT = HERE / "node/node_modules/@anthropic-ai/sandbox-runtime/dist/sandbox"
MITMDUMP = HERE / "mitmproxy/bin/mitmdump"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    way: str
    shown: str
    ratio: float
    """To direct; of large bodies, the share of direct's speed."""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def goal(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}" if self.at_least is not None else ""

    @property
    def met(self) -> str:
        if not self.goal:
            return ""
        return "yes" if self.ratio <= (self.at_most or self.ratio) and self.ratio >= (self.at_least or 0) else "NO"


def server(roots: Authority, out: Any) -> None:
    """HTTP over TLS, threads and blocking sockets: `/N` is so many bytes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    out.send(listener.getsockname()[1])
    contexts = {name: roots.context_for(canonical_host(name)) for name in (HOST, INSPECTED, LOCAL)}
    for context in contexts.values():
        context.set_alpn_protocols(["http/1.1"])

    def serve(connection: socket.socket) -> None:
        chosen = contexts[HOST]
        chosen.sni_callback = lambda tls, name, _: setattr(tls, "context", contexts.get(name or HOST, contexts[HOST]))
        with contextlib.suppress(OSError), chosen.wrap_socket(connection, server_side=True) as tls:
            tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pending = b""
            while data := tls.recv(65536):
                pending += data
                while b"\r\n\r\n" in pending:
                    head, _, pending = pending.partition(b"\r\n\r\n")
                    size = int(head.split(b" ", 2)[1][1:])
                    tls.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + (bytes(size) if size < 2**20 else b"")
                    )
                    block = bytes(2**20)
                    for _ in range(size // 2**20 if size >= 2**20 else 0):
                        tls.sendall(block)

    import threading

    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def ordinary_server(roots: Authority, out: Any) -> None:
    """The same on asyncio's streams."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.split(b" ", 2)[1][1:])
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
                await writer.drain()
        writer.close()

    async def run() -> None:
        contexts = {name: roots.context_for(canonical_host(name)) for name in (HOST, INSPECTED)}
        for context in contexts.values():
            context.set_alpn_protocols(["http/1.1"])
        first = contexts[HOST]
        first.sni_callback = lambda tls, name, _: setattr(tls, "context", contexts.get(name or HOST, first))
        made = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=first)
        out.send(made.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(run())


def proxy(world: World, ports: dict[int, int], out: Any) -> None:
    """The proxy, alone in its process."""

    async def run() -> None:
        from ringfence.egress.proxy import Proxy

        world.servers = ports
        listeners = local_listeners()
        made = Proxy(world.outside())
        at = tuple(ports)
        rules = (NetworkRule(host=HOST, ports=at), NetworkRule(host=INSPECTED, ports=at, methods=("GET",)))
        made.attach("bench", NetworkGrant(rules=rules), listeners)
        out.send(listeners.proxy.getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(run())


class Connection:
    """A kept connection of a client that does as little as possible."""

    def __init__(
        self, roots: bytes, address: tuple[str, int], host: str, *, by_proxy: bool = True, port: int = 443
    ) -> None:
        raw = socket.create_connection(address)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if by_proxy:
            raw.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        context = ssl.create_default_context(cadata=roots.decode())
        self._tls = context.wrap_socket(raw, server_hostname=host)
        self._named = host if port == 443 else f"{host}:{port}"
        self._buffer = bytearray(2**18)

    def get(self, size: int) -> float:
        began = time.perf_counter()
        self._tls.sendall(f"GET /{size} HTTP/1.1\r\nHost: {self._named}\r\n\r\n".encode())
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._tls.recv(65536)
        left = size - len(got.partition(b"\r\n\r\n")[2])
        while left > 0:
            left -= self._tls.recv_into(self._buffer)
        return time.perf_counter() - began


class Ordinary:
    """A kept connection of `http.client`."""

    def __init__(self, roots: bytes, address: tuple[str, int], host: str, *, by_proxy: bool = True) -> None:
        context = ssl.create_default_context(cadata=roots.decode())
        self._connection = http.client.HTTPSConnection(*address, context=context)
        if by_proxy:
            self._connection.set_tunnel(host, ORDINARY_PORT)
        else:
            context.check_hostname = False  # the address is no name of it

    def get(self, size: int) -> float:
        began = time.perf_counter()
        self._connection.request("GET", f"/{size}")
        assert len(self._connection.getresponse().read()) == size
        return time.perf_counter() - began


@contextlib.contextmanager
def started(target: Any, *args: Any) -> Iterator[int]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=target, args=(*args, theirs), daemon=True)
    process.start()
    try:
        yield int(ours.recv())
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def started_program(words: Sequence[str | Path], environment: dict[str, str]) -> Iterator[int]:
    """A program that says its port, or takes the one that is named `PORT`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    given = [str(port) if word == "PORT" else os.fspath(word) for word in words]
    process = subprocess.Popen(
        given,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], **environment},
    )
    try:
        assert process.stdout is not None
        if "PORT" not in words:
            port = int(process.stdout.readline())
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield port
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def others(directory: Path, roots: bytes, at: int) -> Iterator[dict[str, Connection]]:
    """What people would use instead, as far as it is installed."""
    (directory / "roots.pem").write_bytes(roots)
    ways: dict[str, Connection] = {}
    with contextlib.ExitStack() as stack:
        if MITMDUMP.exists():
            settings = (f"confdir={directory}", f"ssl_verify_upstream_trusted_ca={directory / 'roots.pem'}")
            words = [
                "-q",
                "-p",
                "PORT",
                *(word for each in (*settings, "stream_large_bodies=1m") for word in ("--set", each)),
            ]
            port = stack.enter_context(started_program([MITMDUMP, *words], {"HOME": str(directory)}))
            trusted = (directory / "mitmproxy-ca-cert.pem").read_bytes()
            ways["mitmproxy, inspected"] = Connection(trusted, ("127.0.0.1", port), LOCAL, port=at)
        if SRT.exists() and shutil.which("node"):
            script, trust = (
                Path(__file__).with_name("srt_proxy.mjs"),
                {"NODE_EXTRA_CA_CERTS": str(directory / "roots.pem")},
            )
            port = stack.enter_context(started_program(["node", script, SRT], trust))
            ways["srt, spliced"] = Connection(roots, ("127.0.0.1", port), LOCAL, port=at)
            port = stack.enter_context(started_program(["node", script, SRT, directory / "srt.pem"], trust))
            trusted = (directory / "srt.pem").read_bytes()
            ways["srt, inspected"] = Connection(trusted, ("127.0.0.1", port), LOCAL, port=at)
        yield ways


def carried(rounds: int) -> list[Row]:
    """Requests and large bodies."""
    world = World()
    roots = world.roots.certificate_pem + world.authority.certificate_pem
    with (
        tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory,
        started(server, world.roots) as at,
        started(ordinary_server, world.roots) as ordinary_at,
        started(proxy, world, {443: at, ORDINARY_PORT: ordinary_at}) as by,
        others(Path(directory), world.roots.certificate_pem, at) as more,
    ):
        ways = {
            "direct": Connection(roots, ("127.0.0.1", at), HOST, by_proxy=False),
            "spliced": Connection(roots, ("127.0.0.1", by), HOST),
            "inspected": Connection(roots, ("127.0.0.1", by), INSPECTED),
            **more,
        }
        ordinary = {
            "direct": Ordinary(roots, ("127.0.0.1", ordinary_at), HOST, by_proxy=False),
            "spliced": Ordinary(roots, ("127.0.0.1", by), HOST),
            "inspected": Ordinary(roots, ("127.0.0.1", by), INSPECTED),
        }
        small: dict[str, list[float]] = {name: [] for name in ways}
        usual: dict[str, list[float]] = {name: [] for name in ordinary}
        large: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                small[name].append(statistics.median(way.get(1024) for _ in range(20)))
            for name, client in ordinary.items():
                usual[name].append(statistics.median(client.get(1024) for _ in range(20)))
        for _ in range(max(3, rounds // 10)):
            for name, way in ways.items():
                large[name].append(way.get(LARGE))
    found = []
    down = statistics.median(large["direct"])
    for what, measured in (("GET of 1 kB, leanest", small), ("GET of 1 kB, ordinary", usual)):
        get = statistics.median(measured["direct"])
        for name, times in measured.items():
            taken = statistics.median(times)
            goal = {"spliced": 2.2, "inspected": egress_inspect.GOAL_GET}.get(name)
            found.append(Row(what, name, f"{taken * 1000:.2f} ms", taken / get, at_most=goal))
    for name, times in large.items():
        taken = statistics.median(times)
        goal = egress_inspect.GOAL_LARGE if name in ("spliced", "inspected") else None
        found.append(Row("64 MiB down", name, f"{LARGE / 1e6 / taken:.0f} MB/s", down / taken, at_least=goal))
    return found


class _Nobody:
    """Whoever runs the proxy here answers nothing."""

    def happened(self, event: NetworkEvent) -> None:
        pass

    async def ask(self, question: NetworkQuestion) -> NetworkAnswer:
        return NetworkAnswer(False, "nobody")

    async def secret(self, box: str, secret: SecretGrant) -> SecretValue:
        raise OSError("there is none")

    async def ssh_login(self, box: str, host: str, port: int) -> SshLogin:
        raise OSError("there is none")

    async def ssh_sign(self, box: str, host: str, secret: str, public: bytes, data: bytes, flags: int) -> bytes:
        raise OSError("there is none")


async def memory() -> Row:
    """Of the real process, with the listeners of so many boxes."""
    service = EgressService(_Nobody())
    network = NetworkGrant(rules=(NetworkRule(host=HOST), NetworkRule(host=INSPECTED, methods=("GET",))))
    try:
        for number in range(BOXES):
            await service.attach(f"box-{number}", network, local_listeners())
        megabytes = egress_inspect.memory_mb(service.pid)
    finally:
        await service.close()
    return Row(f"memory, {BOXES} boxes", "proxy", f"{megabytes:.0f} MB", megabytes, at_most=60)


def opened(rounds: int) -> list[Row]:
    """A box until its first command has ended."""
    cases = asyncio.run(egress_open.measured(rounds, None, Console(stderr=True)))
    base = cases[0].median
    return [
        Row("opening a box", case.name, f"{case.median * 1000:.1f} ms", case.median / base, at_most=case.at_most)
        for case in cases
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [*carried(options.rounds), *opened(options.rounds), asyncio.run(memory())]
    if options.json:
        print(json.dumps([{"what": row.what, "way": row.way, "ratio": round(row.ratio, 3)} for row in rows], indent=1))
        return
    table = Table("what", "way", "median", "ratio", "goal", "met", title="the network", title_justify="left")
    for before, row in zip([rows[0], *rows], rows, strict=False):
        if before.what != row.what:
            table.add_section()
        table.add_row(row.what, row.way, row.shown, f"{row.ratio:.2f}", row.goal, row.met)
    console = Console()
    console.print(table)
    console.print(
        "ratios are to direct, or to a box without a network; of 64 MiB, the share of direct's speed", style="dim"
    )
    for name, path in (("mitmproxy", MITMDUMP), ("srt", SRT)):
        if not path.exists():
            console.print(f"not measured: {name}: `make alternatives` installs it", style="dim")


if __name__ == "__main__":
    main()
