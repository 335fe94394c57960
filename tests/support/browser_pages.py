"""Pages for tests of the browser, served on this machine's loopback; and the browsers that a run has."""

import asyncio
import os
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import ringfence
from ringfence import BrowserAction, BrowserResult, BrowserRouter, BrowserSettings, Network, Sandbox
from ringfence.browser.browser import Browser
from ringfence.browser.finding import BrowserKind, find_program, programs

KINDS = ("boxed", "boxed-chromium", "host", "remote")
"""The browsers that the suite of actions runs on."""
ALL = os.environ.get("RINGFENCE_TEST_BROWSERS") == "all"
"""`make test-browser`: on each of them; otherwise on the one in a box that is the default."""
HAVE = {program.kind for program in programs()}

FORM = """<!doctype html><title>Form</title><h1>Orders</h1>
<form id=f onsubmit="out.textContent='sent '+n.value; return false">
<label>Name <input name=n id=n></label>
<select aria-label=Colour id=c><option>red<option>blue</select>
<button>Send</button></form><p id=out></p>
<button onclick="out.textContent='alert '+(confirm('Sure?') ? 'yes' : 'no')">Ask</button>
<button ondblclick="out.textContent='twice'">Double</button>
<div id=h onmouseover="out.textContent='over'" style="width:80px;height:20px">hover me</div>
<input type=file id=up aria-label=File onchange="out.textContent=this.files[0].name+' '+this.files[0].size">
<a href="/file.bin" download="../../evil&#9;name.bin">get</a> <a href="/second">second</a>
<div id=box style="width:50px;height:50px;background:red" onmousedown="window.d=1" ></div>
<div id=drop style="width:50px;height:50px" onmouseup="if(window.d)out.textContent='dropped'">here</div>
<div style="height:3000px"></div><button id=low>Low</button>
<p id=late></p>
<script>console.log('hello from the page'); setTimeout(() => late.textContent = 'it is late', 300)</script>"""
SECOND = """<!doctype html><title>Second</title><h1>Second</h1><p>More <b>text</b></p>
<table><tr><th>a<th>b<tr><td>1<td>2</table>"""
FRAMES = """<!doctype html><title>Frames</title><h1>Outer</h1>
<iframe src="http://localhost:{port}/inner" title=other width=300 height=120></iframe>
<iframe src="/inner" title=same width=300 height=120></iframe>
<div id=open></div><div id=closed></div><script>
for (const [id, mode] of [['open', 'open'], ['closed', 'closed']]) {{
  const root = document.getElementById(id).attachShadow({{mode}});
  root.innerHTML = `<button>In ${{mode}}</button>`;
  root.querySelector('button').onclick = () => document.title = mode;
}}</script>"""
INNER = """<!doctype html><title>Inner</title>
<button onclick="this.textContent='Pressed at '+location.hostname">Inside</button>"""
MANY = "<!doctype html><title>Many</title>" + "".join(f"<button>Button {n}</button>" for n in range(5000))
AWKWARD = """<!doctype html><title>Awkward</title>
<style>@keyframes m {from {margin-left:0} to {margin-left:400px}}</style>
<button id=covered>Covered</button>
<div style="position:fixed;left:0;top:0;width:300px;height:60px;background:#fffa" id=lid></div>
<div style="height:80px"></div><div><button style="animation:m .4s linear infinite alternate">Moving</button></div>
<button disabled>Disabled</button><button style="visibility:hidden">Hidden</button>
<button onclick="this.remove()">Vanishing</button>"""


@dataclass
class Seen:
    """What came to the server."""

    paths: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@contextmanager
def pages(more: dict[str, str | bytes] | None = None) -> Iterator[tuple[int, Seen]]:
    """A server of the pages; gives its port, and what came to it."""
    seen = Seen()
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            seen.paths.append(self.path)
            if path == "/never":
                over.wait(20)
            known: dict[str, str | bytes] = {
                "/": FORM,
                "/second": SECOND,
                "/frames": FRAMES.format(port=server.server_port),
                "/inner": INNER,
                "/many": MANY,
                "/awkward": AWKWARD,
                "/file.bin": b"x" * 1000,
                **(more or {}),
            }
            found = known.get(path)
            body = found.encode() if isinstance(found, str) else found or b"nothing"
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8" if isinstance(found, str) else _kind(path))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            seen.paths.append(self.path)
            seen.bodies.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None: ...

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A browser that goes away in the middle is what some tests are about."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port, seen
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _kind(path: str) -> str:
    return "text/javascript" if path.endswith(".js") else "application/octet-stream"


class Driver:
    """A router with less to write."""

    def __init__(self, router: BrowserRouter, context: dict[str, bool], sandbox: Sandbox, port: int) -> None:
        self.router, self.sandbox, self.context = router, sandbox, context
        self.at = f"http://127.0.0.1:{port}"

    @property
    def browser(self) -> Browser:
        """The one that runs."""
        assert self.router._router.browser is not None
        return self.router._router.browser

    async def do(self, action: str, **params: Any) -> BrowserResult:
        return await self.router.execute(BrowserAction(action, params), context=self.context)

    async def go(self, path: str, **params: Any) -> BrowserResult:
        return await self.do("navigate", url=self.at + path, **params)

    async def js(self, script: str, **params: Any) -> Any:
        return (await self.do("evaluate", script=script, **params)).values.get("value")

    async def fails(self, kind: type[ringfence.RingfenceError], action: str, **params: Any) -> str:
        """Its message."""
        try:
            await self.do(action, **params)
        except kind as fault:
            return str(fault)
        raise AssertionError(f"{action} {params} was done")


@asynccontextmanager
async def driving(
    kind: str, workspace: Path, port: int, *, reach: tuple[int, ...] = (), **settings: Any
) -> AsyncIterator[Driver]:
    """A browser of one kind, for a sandbox that reaches the pages."""
    program = BrowserKind.CHROMIUM if kind == "boxed-chromium" else None
    is_boxed = kind.startswith("boxed")
    async with asyncio.timeout(110), Sandbox(workspace=workspace, network=Network(reach=(port, *reach))) as sandbox:
        if kind == "remote":
            async with _remote() as endpoint:
                chosen = BrowserSettings(endpoint=endpoint, **settings)
                async with BrowserRouter("s", session=sandbox, settings=chosen) as router:
                    yield Driver(router, {}, sandbox, port)
            return
        chosen = BrowserSettings(kind=program, **settings)
        async with BrowserRouter("s", session=sandbox, settings=chosen) as router:
            yield Driver(router, {"is_research": is_boxed}, sandbox, port)


@asynccontextmanager
async def _remote() -> AsyncIterator[str]:
    """A browser that somebody else runs, with its port."""
    words = ["--headless", "--remote-debugging-port=0", "--disable-gpu", "--site-per-process", "about:blank"]
    words += ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [find_program().path, f"--user-data-dir={profile}", *words],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stderr is not None
        try:
            line = await asyncio.to_thread(_listening, process)
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield f"http://{line.split('/')[2]}"
        finally:
            os.killpg(process.pid, 9)
            await asyncio.to_thread(process.wait)
            process.stderr.close()


def _listening(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if b"listening on ws" in line:
            return line.decode().split("listening on ")[1]
    raise AssertionError("the browser does not listen")
