"""What inspection costs: keep-alive GET of 1 kB, a new connection, and 64 MiB each way, against direct TLS on loopback.

python -m benchmarks.egress_inspect [rounds] [--mitmdump PATH]

Server, inspection and client are three processes; the client is Python's own `http.client`. Cases take turns within one
run, so that their ratios can be compared. mitmproxy, which is what one would use instead, is measured beside it where
`make alternatives` has installed it, or `--mitmdump` names its program.
"""

import argparse
import asyncio
import http.client
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.alternatives import HERE
from ringfence.egress.base import Refusal, RequestHead, Stream, Swapped
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.inspection.inspector import HttpInspector
from ringfence.egress.sockets import stream_of
from ringfence.egress.tls import tls_stream_of
from ringfence.policy.reach import Judged
from ringfence.values.hosts import Host, canonical_host
from ringfence.values.network import NetworkDoor, NetworkGrant
from ringfence.values.network_event import NetworkEvent
from ringfence.values.verdict import Verdict

ROUNDS = 200
LARGE_ROUNDS = 5
GOAL_GET = 3.5
GOAL_LARGE = 0.5
LARGE = 64 * 1024 * 1024
HOST = canonical_host("localhost")
PIECE = b"x" * 65536
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: benchmark\r\nContent-Length: %d\r\n\r\n"


@dataclass(slots=True)
class Case:
    name: str
    run: Callable[[], None]
    seconds: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", nargs="?", type=int, default=ROUNDS)
    installed = HERE / "mitmproxy/bin/mitmdump"
    parser.add_argument("--mitmdump", default=str(installed) if installed.exists() else "")
    parser.add_argument("--role", choices=("server", "inspection"))
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.role == "server":
        asyncio.run(serve(options.directory))
    elif options.role == "inspection":
        asyncio.run(inspect(options.directory, options.port))
    else:
        with tempfile.TemporaryDirectory(prefix="ringfence-") as directory:
            compare(Path(directory), options.rounds, options.mitmdump)


# --- the three processes ----------------------------------------------------------------------------------------------


async def serve(directory: Path) -> None:
    """A server that does as little as one can, so that what is between shows."""
    authority = Authority.make()
    (directory / "server.pem").write_bytes(authority.certificate_pem)
    context = authority.context_for(HOST)
    context.set_alpn_protocols(["http/1.1"])
    short = HEAD % 1024 + b"y" * 1024

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                if head.startswith(b"GET /large"):
                    writer.write(HEAD % LARGE)
                    for _ in range(LARGE // len(PIECE)):
                        writer.write(PIECE)
                        await writer.drain()
                else:
                    if head.startswith(b"PUT"):
                        left = LARGE
                        while left:
                            left -= len(await reader.read(min(left, 262144)))
                    writer.write(short)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    await _listen(handle, context)


async def inspect(directory: Path, port: int) -> None:
    authority = Authority.make()
    (directory / "inspection.pem").write_bytes(authority.certificate_pem)
    trusted = ssl.create_default_context(cafile=directory / "server.pem")
    trusted.set_alpn_protocols(["http/1.1"])
    inspector = HttpInspector(authority, lambda box: _NoSecrets())

    async def handle(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = await stream_of(connection)
        await inspector.inspect(_Flow(port, trusted), stream, await stream.reader.read(65536), tls=True)

    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    print(listener.getsockname()[1], flush=True)
    loop.run_in_executor(None, lambda: (sys.stdin.read(), os._exit(0)))
    served = set()
    while True:
        connection, _ = await loop.sock_accept(listener)
        served.add(loop.create_task(handle(connection)))


async def _listen(handle: Any, context: ssl.SSLContext | None) -> None:
    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # whatever is open ends with us


class _Flow:
    """Allows everything to one server: the judge has a benchmark of its own."""

    box, door, host, network = "benchmark", NetworkDoor.TRANSPARENT, HOST, NetworkGrant()

    def __init__(self, port: int, trusted: ssl.SSLContext) -> None:
        self.port, self._trusted = port, trusted

    async def decide(self, head: RequestHead) -> Judged | Refusal:
        return Judged(verdict=Verdict.ALLOW, reason="")

    async def dial(self, *, tls: bool, alpn: Sequence[str] = ()) -> Stream:
        connected = socket.create_connection(("127.0.0.1", self.port))
        connected.setblocking(False)
        return await tls_stream_of(connected, self._trusted, HOST)

    def spend(self, sent: int) -> bool:
        return True

    def record(self, event: NetworkEvent) -> None:
        pass


class _NoSecrets:
    async def swap(self, host: Host, port: int, head: RequestHead, *, tls: bool) -> Swapped | Refusal:
        return Swapped(head, ())

    async def sign(self, host: Host, swapped: Swapped, body: bytes | None) -> RequestHead | Refusal:
        return swapped.head

    def canary(self, raw: bytes) -> str:
        return ""


# --- the client -------------------------------------------------------------------------------------------------------


class Way:
    """One way to the server: its clients' context, and where to connect."""

    def __init__(self, name: str, port: int, server_port: int, trusted: Path, *, tunnel: bool = False) -> None:
        self.name = name
        self._port, self._server_port, self._tunnel = port, server_port, tunnel
        self._context = ssl.create_default_context(cafile=trusted)
        self._kept = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection("localhost", self._port, context=self._context, timeout=60)
        if self._tunnel:
            connection.set_tunnel("localhost", self._server_port)
        return connection

    def _ask(self, connection: http.client.HTTPSConnection, method: str, path: str, body: Any = None) -> int:
        headers = {"Host": f"localhost:{self._server_port}"}
        if body is not None:
            headers["Content-Length"] = str(LARGE)
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        size = 0
        while data := answer.read(262144):
            size += len(data)
        return size

    def get(self) -> None:
        assert self._ask(self._kept, "GET", "/1k") == 1024

    def new(self) -> None:
        connection = self._connect()
        assert self._ask(connection, "GET", "/1k") == 1024
        connection.close()

    def download(self) -> None:
        assert self._ask(self._kept, "GET", "/large") == LARGE

    def upload(self) -> None:
        assert self._ask(self._kept, "PUT", "/", (PIECE for _ in range(LARGE // len(PIECE)))) == 1024


class Started:
    """A process that says its port."""

    def __init__(self, *arguments: str | Path) -> None:
        # The real path of the interpreter would lose the virtual environment; what is measured does not start anything.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.egress_inspect", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    @property
    def memory_mb(self) -> float:
        return memory_mb(self.process.pid)


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def compare(directory: Path, rounds: int, mitmdump: str) -> None:
    console = Console()
    server = Started("--role", "server", "--directory", directory)
    inspection = Started("--role", "inspection", "--directory", directory, "--port", str(server.port))
    mitm = _start_mitmdump(mitmdump, directory) if mitmdump else None
    try:
        ways = [
            Way("direct", server.port, server.port, directory / "server.pem"),
            Way("inspected", inspection.port, server.port, directory / "inspection.pem"),
        ]
        if mitm is not None:
            ways.append(Way("mitmproxy", mitm[1], server.port, directory / "mitmproxy-ca-cert.pem", tunnel=True))
        _report(console, ways, rounds)
        console.print(f"memory of the process that inspects: {inspection.memory_mb:.0f} MB", end="")
        console.print(f"; of mitmproxy: {memory_mb(mitm[0].pid):.0f} MB" if mitm else "")
        if mitm is None:
            console.print("left out: mitmproxy (`make alternatives`, or --mitmdump PATH)")
    finally:
        for each in (server, inspection):
            each.close()
        if mitm is not None:
            mitm[0].terminate()
            mitm[0].wait(10)


def _start_mitmdump(program: str, directory: Path) -> tuple[subprocess.Popen[bytes], int]:
    port = 18080
    settings = (
        f"confdir={directory}",
        f"ssl_verify_upstream_trusted_ca={directory / 'server.pem'}",
        "stream_large_bodies=1m",
    )
    process = subprocess.Popen(
        [program, "-q", "-p", str(port), *(word for setting in settings for word in ("--set", setting))]
    )
    deadline = time.monotonic() + 30
    while not (directory / "mitmproxy-ca-cert.pem").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    return process, port


def _report(console: Console, ways: list[Way], rounds: int) -> None:
    table = Table(title="inspection of TLS, against direct on loopback", box=None, pad_edge=False)
    for column in ("what", "way", "median", "ratio", "goal", "met"):
        table.add_column(column)
    counts = {"get": rounds, "new": max(rounds // 4, 5), "download": LARGE_ROUNDS, "upload": LARGE_ROUNDS}
    for what, times in counts.items():
        cases = [Case(way.name, getattr(way, what)) for way in ways]
        for number in range(times + 3):
            for case in cases:
                begun = time.perf_counter()
                case.run()
                if number >= 3:
                    case.seconds.append(time.perf_counter() - begun)
        direct = median(cases[0].seconds)
        for case in cases:
            _row(table, what, case, direct)
    console.print(table)


def _row(table: Table, what: str, case: Case, direct: float) -> None:
    taken = median(case.seconds)
    ratio = taken / direct
    is_large = what in ("download", "upload")
    shown = f"{LARGE / taken / 1e6:.0f} MB/s" if is_large else f"{taken * 1000:.2f} ms"
    goal, met = "", ""
    if case.name == "inspected" and what == "get":
        goal, met = f"at most {GOAL_GET}", "yes" if ratio <= GOAL_GET else "NO"
    elif case.name == "inspected" and is_large:
        goal, met = f"at least {GOAL_LARGE} of direct", "yes" if 1 / ratio >= GOAL_LARGE else "NO"
    table.add_row(what, case.name, shown, f"{1 / ratio:.2f} of direct" if is_large else f"{ratio:.2f}", goal, met)


if __name__ == "__main__":
    main()
