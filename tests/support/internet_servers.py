"""The servers of a small internet (`internet.py`): web by HTTP/1.1, HTTP/2 and WebSocket, git, gRPC.

The web servers are as indiscreet as servers get: what they are sent they send back, in every form.
"""

import asyncio
import base64
import contextlib
import json
import ssl
import subprocess
import sys
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
from hypercorn.asyncio import serve
from hypercorn.config import Config

from tests.support.git_server import git_server, run_git
from tests.support.internet import HOSTS, OPEN_PASSWORD
from tests.support.ssh_git_server import CHANGED, KNOWN, UNKNOWN, serve_ssh

_PAGE = b"<html><head><title>A page</title></head><body><h1>Hello</h1><p>from outside</p></body></html>"
_PACKAGES = b"""Package: greeting
Version: 1.0
Architecture: all
Maintainer: A <a@example.com>
Filename: ./greeting_1.0_all.deb
Size: 1
SHA256: 0000000000000000000000000000000000000000000000000000000000000000
Description: hello from outside
"""


class Web:
    """An ASGI application."""

    def __init__(self, root: Path) -> None:
        self._seen = (root / "seen.jsonl").open("a", buffering=1)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        self._seen.write(json.dumps({"path": scope["path"], "headers": headers}) + "\n")
        if scope["type"] == "websocket":
            await self._talk(receive, send)
        else:
            await self._answer(scope, headers, receive, send)

    async def _talk(self, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while (event := await receive())["type"] != "websocket.disconnect":
            if event["type"] == "websocket.receive":
                await send({"type": "websocket.send", "text": f"you said {event['text']}"})

    async def _answer(self, scope: Any, headers: dict[str, str], receive: Any, send: Any) -> None:
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        status, kind, more = 200, b"text/plain", []
        content = f"hello from outside by HTTP/{scope['http_version']}\n".encode()
        if scope["path"].startswith("/apt/"):  # a repository of one package, whose index is all there is
            is_index = scope["path"].endswith("/Packages")
            status, content = (200, _PACKAGES) if is_index else (404, b"nothing\n")
        elif scope["path"] == "/page":
            kind, content = b"text/html", _PAGE
        elif scope["path"] in ("/echo", "/error"):
            given = headers.get("authorization", "").encode("latin-1")
            word = given.rpartition(b" ")[2]
            forms = (
                given,
                word,
                base64.b64encode(word),
                urllib.parse.quote(word, safe="").encode(),
                word.hex().encode(),
            )
            content = b"\n".join((*forms, body, json.dumps(headers).encode()))
            status = 500 if scope["path"] == "/error" else 200
            more = [(b"x-echo", given), (b"set-cookie", b"token=" + word)]
        length = (b"content-length", str(len(content)).encode())
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), length, *more]}
        )
        await send({"type": "http.response.body", "body": content})


def web_config(root: Path, name: str) -> Config:
    made = Config()
    made.bind = [f"{HOSTS[name]}:443"]
    made.insecure_bind = [f"{HOSTS[name]}:80"]
    made.certfile = made.keyfile = str(root / f"{name}.pem")
    made.alpn_protocols = ["h2", "http/1.1"]
    made.errorlog = None
    return made


def grpc_server(root: Path) -> grpc.Server:
    server = grpc.server(ThreadPoolExecutor(4))
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request.upper())
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Peer", {"Unary": handler}),))
    chain = (root / "grpc.example.pem").read_bytes()
    server.add_secure_port(f"{HOSTS['grpc.example']}:443", grpc.ssl_server_credentials([(chain, chain)]))
    return server


def fill(repository: Path, root: Path) -> None:
    """A first commit."""
    work = root / "tmp" / f"first-{repository.parent.name}-{repository.name}"
    run_git("init", "-q", "--initial-branch=main", str(work))
    (work / "README").write_text("hello from outside\n")
    run_git("-C", str(work), "add", "README")
    run_git("-C", str(work), "commit", "-q", "-m", "first")
    run_git("-C", str(work), "push", "-q", str(repository), "main")


async def main() -> None:
    root = Path(sys.argv[1])
    print("here", flush=True)
    sys.stdin.readline()
    ip = [["link", "set", "lo", "up"], ["link", "set", "there", "up"], ["addr", "add", "172.31.0.2/24", "dev", "there"]]
    ip += [["addr", "add", f"{address}/32", "dev", "there"] for address in HOSTS.values()]
    for words in ip:
        subprocess.run(["ip", *words], check=True, timeout=30)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        for name, token in (("git.example", (root / "git-token").read_text()), ("open-git.example", OPEN_PASSWORD)):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(root / f"{name}.pem")
            server = git_server(root / "repositories" / name, context, token, HOSTS[name], 443)
            fill(stack.enter_context(server).make_repository("first"), root)
        for name in ("org/first.git", "org/second.git", "other/secret.git"):
            repository = root / "repositories/ssh" / name
            run_git("init", "-q", "--bare", "--initial-branch=main", str(repository))
            fill(repository, root)
        by_ssh = await serve_ssh(root, {name: HOSTS[name] for name in (KNOWN, CHANGED, UNKNOWN)})
        calls = grpc_server(root)
        calls.start()
        webs = [
            asyncio.ensure_future(serve(Web(root), web_config(root, name), shutdown_trigger=ended.wait))
            for name in ("web.example", "other.example")
        ]
        for name in ("web.example", "other.example"):
            await answering(HOSTS[name])
        print("serving", flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)
        ended.set()
        await asyncio.wait(webs, timeout=5)
        calls.stop(None)
        for acceptor in by_ssh:
            acceptor.close()


async def answering(address: str) -> None:
    """Return once somebody listens there."""
    for port in (80, 443):
        async with asyncio.timeout(30):
            while True:
                try:
                    _, writer = await asyncio.open_connection(address, port)
                except ConnectionRefusedError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break


if __name__ == "__main__":
    asyncio.run(main())
