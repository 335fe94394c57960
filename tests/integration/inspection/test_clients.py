"""Programs and libraries of others, unmodified, through inspection, to a server that is not ours (Node.js)."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import httpx
import pytest
import requests

from ringfence.egress.base import Refusal, RequestHead
from ringfence.policy.reach import Judged
from tests.support.inspected import ALLOWED, Front, Loop, NodeOrigin, Rules

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
MIB = 1024 * 1024


def decide(head: RequestHead) -> Judged | Refusal:
    return Refusal(403, "Ringfence: this path is not allowed") if head.path.startswith("/denied") else ALLOWED


@pytest.fixture
def front(loop: Loop, tmp_path: Path) -> Iterator[Front]:
    origin = NodeOrigin(tmp_path)
    front = Front(loop, origin.address, origin=origin.authority, rules=Rules(decide))
    front.trust(tmp_path)
    yield front
    front.close()
    origin.close()


def curl(front: Front, tmp_path: Path, *options: str, data: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [
            "curl",
            "-sS",
            "--suppress-connect-headers",
            "--cacert",
            tmp_path / "authority.pem",
            "-x",
            front.url,
            "--max-time",
            "60",
            *options,
        ],
        capture_output=True,
        input=data,
        timeout=90,
    )


@pytest.mark.parametrize("version", ["--http1.1", "--http2"])
def test_curl(front: Front, tmp_path: Path, version: str) -> None:
    kind = "1.1" if version == "--http1.1" else "2"
    got = curl(front, tmp_path, version, "-w", "%{http_version}", "https://api.test/1k", "https://api.test/1k")
    assert got.stdout == (b"x" * 1024 + kind.encode()) * 2, got.stderr

    up = curl(front, tmp_path, version, "-T", "-", "https://api.test/count", data=b"z" * (8 * MIB))
    assert up.stdout == b"%d" % (8 * MIB), up.stderr
    down = curl(front, tmp_path, version, f"https://api.test/large?{8 * MIB}")
    assert len(down.stdout) == 8 * MIB, down.stderr
    both = curl(front, tmp_path, version, "--data-binary", "@-", "https://api.test/echo", data=b"e" * 300_000)
    assert both.stdout == b"e" * 300_000, both.stderr

    head = curl(front, tmp_path, version, "-I", "https://api.test/1k")
    assert b" 200" in head.stdout.splitlines()[0]
    refused = curl(front, tmp_path, version, "-i", "https://api.test/denied", "https://api.test/1k")
    assert b" 403" in refused.stdout.splitlines()[0] and b"this path is not allowed" in refused.stdout
    assert refused.stdout.endswith(b"x" * 1024)
    fronted = curl(front, tmp_path, version, "-H", "Host: evil.test", "-i", "https://api.test/1k")
    assert b" 421" in fronted.stdout.splitlines()[0]


def test_curl_ends_with_an_error_where_our_authority_is_not_trusted(front: Front, tmp_path: Path) -> None:
    (tmp_path / "authority.pem").write_bytes(b"")
    assert curl(front, tmp_path, "https://api.test/1k").returncode in (60, 77)


def test_urllib(front: Front) -> None:
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"https": front.url}), urllib.request.HTTPSHandler(context=front.client_context())
    )
    with opener.open("https://api.test/1k", timeout=20) as answer:
        assert answer.read() == b"x" * 1024


def test_requests(front: Front, tmp_path: Path) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.proxies, session.verify = {"https": front.url}, str(tmp_path / "authority.pem")
        for _ in range(3):
            assert session.get("https://api.test/1k", timeout=20).content == b"x" * 1024
        pieces = (bytes([65 + number]) * 50_000 for number in range(20))
        assert session.post("https://api.test/count", data=pieces, timeout=20).text == "1000000"
        refused = session.get("https://api.test/denied", timeout=20)
        assert (refused.status_code, refused.reason) == (403, "Ringfence: this path is not allowed")
    assert front.rules.dials == 1


@pytest.mark.parametrize("http2", [False, True])
def test_httpx(front: Front, http2: bool) -> None:
    with httpx.Client(http2=http2, proxy=front.url, verify=front.client_context(), timeout=20) as client:
        answer = client.get("https://api.test/1k")
        assert (answer.content, answer.http_version) == (b"x" * 1024, "HTTP/2" if http2 else "HTTP/1.1")
        assert client.post("https://api.test/echo", content=b"q" * MIB).content == b"q" * MIB
        cookies = client.get("https://api.test/headers", headers=[("cookie", "a=1"), ("cookie", "b=2")]).json()
        assert cookies["cookie"] == "a=1; b=2"
        assert client.get("https://api.test/denied").status_code == 403


def test_many_streams_of_httpx_at_once_each_with_its_own_verdict(front: Front, loop: Loop) -> None:
    async def go() -> list[int]:
        context = front.client_context()
        async with httpx.AsyncClient(http2=True, proxy=front.url, verify=context, timeout=30) as client:
            await client.get("https://api.test/1k")  # until it knows HTTP/2, it opens a connection for each
            paths = ["/denied" if number % 3 == 0 else f"/large?{200_000}" for number in range(60)]
            answers = await asyncio.gather(*(client.get(f"https://api.test{path}") for path in paths))
            assert all(len(answer.content) == 200_000 for answer in answers if answer.status_code == 200)
            return [answer.status_code for answer in answers]

    assert loop.run(go()) == [403 if number % 3 == 0 else 200 for number in range(60)]
    assert front.rules.dials == 1


def test_aiohttp(front: Front, loop: Loop) -> None:
    async def go() -> tuple[bytes, str]:
        async with aiohttp.ClientSession() as session:
            tls = front.client_context()
            async with session.get("https://api.test/1k", proxy=front.url, ssl=tls) as answer:
                body = await answer.read()
            async with session.post("https://api.test/count", data=b"a" * MIB, proxy=front.url, ssl=tls) as answer:
                return body, await answer.text()

    assert loop.run(go()) == (b"x" * 1024, str(MIB))


NODE = """
const [port, ca] = [process.argv[1], require('fs').readFileSync(process.argv[2])];
const http2 = require('http2'), https = require('https');
const session = http2.connect('https://api.test', { ca, createConnection: () =>
  require('tls').connect({ host: '127.0.0.1', port, servername: 'api.test', ca, ALPNProtocols: ['h2'] }) });
const got = {};
let left = 3;
const done = () => { if (--left === 0) { console.log(JSON.stringify(got)); session.close(); } };
const ask = (name, path) => {
  const stream = session.request({ ':path': path });
  stream.on('response', head => { got[name] = { status: head[':status'], length: 0 }; });
  stream.on('trailers', trailers => { got[name].sum = trailers['x-sum']; });
  stream.on('data', data => { got[name].length += data.length; });
  stream.on('close', done);
};
ask('trailers', '/trailers');
ask('denied', '/denied');
const old = { host: '127.0.0.1', port, servername: 'api.test', ca, path: '/1k', headers: { host: 'api.test' } };
https.get({ ...old, agent: false }, answer => {
  got.h1 = { status: answer.statusCode, length: 0 };
  answer.on('data', data => { got.h1.length += data.length; });
  answer.on('end', done);
});
"""


def test_node(front: Front, tmp_path: Path) -> None:
    got = subprocess.run(
        ["node", "-e", NODE, str(front.port), tmp_path / "authority.pem"], capture_output=True, timeout=30
    )
    answers = json.loads(got.stdout or b"{}")
    assert answers["trailers"] == {"status": 200, "length": 4, "sum": "42"}, got.stderr
    assert answers["denied"]["status"] == 403 and answers["h1"] == {"status": 200, "length": 1024}


@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load (nghttp2-client) is not installed")
def test_h2load_and_nghttp(loop: Loop, tmp_path: Path) -> None:
    origin = NodeOrigin(tmp_path)
    front = Front(loop, origin.address, origin=origin.authority, rules=Rules(decide))
    try:
        options = ["h2load", "--connect-to", f"127.0.0.1:{front.port}"]
        load = subprocess.run(
            [*options, "-n", "400", "-c", "4", "-m", "20", "https://api.test/1k", "https://api.test/denied"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "400 total, 400 started, 400 done" in load.stdout, load.stdout + load.stderr
        assert "200 2xx, 0 3xx, 200 4xx" in load.stdout, load.stdout
        posted = tmp_path / "posted"
        posted.write_bytes(b"p" * 500_000)
        upload = subprocess.run(
            [*options, "-n", "8", "-c", "2", "-m", "4", "-d", posted, "https://api.test/echo"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "8 succeeded" in upload.stdout and f"{8 * 500_000}) data" in upload.stdout, upload.stdout
    finally:
        front.close()
        origin.close()


def test_a_stream_that_the_server_resets_ends_alone(front: Front) -> None:
    with httpx.Client(http2=True, proxy=front.url, verify=front.client_context(), timeout=20) as client:
        answer = client.get("https://api.test/reset")
        assert answer.status_code == 502 and "ENHANCE_YOUR_CALM" in answer.text
        assert client.get("https://api.test/1k").status_code == 200
    assert front.rules.dials == 1


def test_a_server_that_says_goodbye_finishes_what_it_has_begun(front: Front) -> None:
    with httpx.Client(http2=True, proxy=front.url, verify=front.client_context(), timeout=20) as client:
        with ThreadPoolExecutor(1) as other:
            slow = other.submit(client.get, "https://api.test/goaway")
            assert slow.result(20).text == "first,second"
        assert client.get("https://api.test/1k").status_code == 200
    assert front.rules.dials == 2


def test_http2_only_servers_are_reached(loop: Loop, tmp_path: Path) -> None:
    origin = NodeOrigin(tmp_path, only_http2=True)
    front = Front(loop, origin.address, origin=origin.authority)
    try:
        with httpx.Client(http2=True, proxy=front.url, verify=front.client_context(), timeout=20) as client:
            assert client.get("https://api.test/1k").status_code == 200
    finally:
        front.close()
        origin.close()
