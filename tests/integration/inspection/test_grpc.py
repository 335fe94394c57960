"""gRPC (its own HTTP/2 in C) through inspection: one answer, streams in each direction and in both, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ringfence.egress.base import Refusal, RequestHead, Swapped
from ringfence.egress.inspection.authority import Authority
from ringfence.policy.reach import Judged
from ringfence.values.hosts import Host, canonical_host
from tests.support.inspected import ALLOWED, Front, Loop, NoSecrets, Rules

PEERS = Path(__file__).parent / "grpc_peers.py"


class Injects(NoSecrets):
    """A desk that puts a secret in."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    async def swap(self, host: Host, port: int, head: RequestHead, *, tls: bool) -> Swapped | Refusal:
        kept = tuple(each for each in head.headers if each[0] != b"authorization")
        return Swapped(RequestHead(head.method, head.path, (*kept, (b"authorization", b"Bearer real"))), ("token",))


def test_grpc_in_every_direction_with_a_secret(loop: Loop, tmp_path: Path) -> None:
    origin = Authority.make()
    pem = tmp_path / "origin.pem"
    pem.write_bytes(origin.chain_pem(canonical_host("api.test")))
    server = subprocess.Popen([sys.executable, PEERS, "serve", pem], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdout and server.stdin
    try:

        def decide(head: RequestHead) -> Judged | Refusal:
            return Refusal(403, "Ringfence: Denied is 100% denied") if head.path.endswith("/Denied") else ALLOWED

        address = ("127.0.0.1", int(server.stdout.readline()))
        front = Front(loop, address, origin=origin, rules=Rules(decide), desk=Injects())
        try:
            ca = front.trust(tmp_path)
            client = subprocess.run(
                [sys.executable, PEERS, "call", str(front.port), ca], capture_output=True, timeout=80
            )
            got = json.loads(client.stdout or b"{}")
            assert got.get("unary") == ["HELLO", "42"], client.stderr.decode()
            assert got["fail"] == ["NOT_FOUND", "there is none"]
            assert got["denied"] == ["PERMISSION_DENIED", "Ringfence: Denied is 100% denied"]
            assert got["count"] == "4000000"
            assert got["many"] == 500
            assert got["chat"] == ["you said one", "you said two", "you said three"]
            assert got["after"] == "STILL HERE"
            assert front.rules.dials == 1
            assert all(event.secrets == ("token",) for event in front.rules.events)
        finally:
            front.close()
    finally:
        server.stdin.close()
        server.wait(20)
        server.stdout.close()
