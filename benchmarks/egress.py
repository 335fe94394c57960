"""What the proxy costs: requests of 1 kB over one kept connection, and 64 MiB, spliced and direct, one after the other.

Both ways go to the same TLS server in one process on loopback; the proxy runs in a process of its own, built as in
production but for its resolver and dialer, which lead to that server. Figures are medians of interleaved rounds: read
the ratios. `python benchmarks/egress.py [--rounds N]`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import socket
import ssl
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.fspath(Path(__file__).resolve().parent.parent))

from ringfence.egress.inspection.authority import Authority
from ringfence.values.hosts import canonical_host
from ringfence.values.network import NetworkGrant, NetworkRule
from tests.support.egress import World, local_listeners

HOST = "bench.example"
INSPECTED = "seen.example"
LARGE = 64 * 1024 * 1024


def server(roots: Authority, out: Any) -> None:
    """HTTP over TLS, threads and blocking sockets: `/N` is so many bytes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    out.send(listener.getsockname()[1])
    contexts = {name: roots.context_for(canonical_host(name)) for name in (HOST, INSPECTED)}
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


def proxy(world: World, port: int, out: Any) -> None:
    """The proxy, alone in its process."""

    async def run() -> None:
        from ringfence.egress.proxy import Proxy

        world.servers = {443: port}
        listeners = local_listeners()
        made = Proxy(world.outside())
        rules = (NetworkRule(host=HOST), NetworkRule(host=INSPECTED, methods=("GET",)))
        made.attach("bench", NetworkGrant(rules=rules), listeners)
        out.send(listeners.proxy.getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(run())


class Connection:
    """A kept connection of a client that does as little as possible."""

    def __init__(self, roots: bytes, address: tuple[str, int], host: str, *, by_proxy: bool) -> None:
        raw = socket.create_connection(address)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if by_proxy:
            raw.sendall(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
            assert raw.recv(4096).startswith(b"HTTP/1.1 200")
        context = ssl.create_default_context(cadata=roots.decode())
        self._tls = context.wrap_socket(raw, server_hostname=host)
        self._host = host
        self._buffer = bytearray(2**18)

    def get(self, size: int) -> float:
        began = time.perf_counter()
        self._tls.sendall(f"GET /{size} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        got = b""
        while b"\r\n\r\n" not in got:
            got += self._tls.recv(65536)
        left = size - len(got.partition(b"\r\n\r\n")[2])
        while left > 0:
            left -= self._tls.recv_into(self._buffer)
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


def measure(rounds: int) -> dict[str, float]:
    world = World()
    roots = world.roots.certificate_pem + world.authority.certificate_pem
    with started(server, world.roots) as at, started(proxy, world, at) as by:
        ways = {
            "direct": Connection(roots, ("127.0.0.1", at), HOST, by_proxy=False),
            "spliced": Connection(roots, ("127.0.0.1", by), HOST, by_proxy=True),
            "inspected": Connection(roots, ("127.0.0.1", by), INSPECTED, by_proxy=True),
        }
        small: dict[str, list[float]] = {name: [] for name in ways}
        large: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                small[name].append(statistics.median(way.get(1024) for _ in range(20)))
        for _ in range(max(3, rounds // 10)):
            for name, way in ways.items():
                large[name].append(way.get(LARGE))
    found: dict[str, float] = {}
    for name in ways:
        found[f"{name}_1kb_ms"] = statistics.median(small[name]) * 1000
        found[f"{name}_64mib_mb_s"] = LARGE / 1e6 / statistics.median(large[name])
    for name in ("spliced", "inspected"):
        found[f"{name}_1kb_ratio"] = found[f"{name}_1kb_ms"] / found["direct_1kb_ms"]
        found[f"{name}_64mib_share"] = found[f"{name}_64mib_mb_s"] / found["direct_64mib_mb_s"]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    found = measure(parser.parse_args().rounds)
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=1))
