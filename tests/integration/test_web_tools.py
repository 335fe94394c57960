"""The tools fetch and http against a real server over TLS, through a double of the proxy."""

import asyncio
import gzip
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ringfence.errors import (
    InvalidArgument,
    NetworkAccessDenied,
    PathTraversalError,
    ResourceLimitExceeded,
    Timeout,
)
from ringfence.tools.carrying import Carrier
from ringfence.tools.fetch import Fetched, FetchTool, file_name
from ringfence.tools.http import HttpAnswer, HttpTool
from ringfence.workspace.agent import AgentWorkspace
from tests.support.certificates import TestAuthority
from tests.support.proxy_double import ProxyDouble
from tests.support.web_server import Reply, WebServer, web_server

pytestmark = pytest.mark.req("A6", "E8")
T = TypeVar("T")
HOST = "web.example"
OTHER = "other.example"
PAGE = b"""<!doctype html><html><head><title> A  page </title><script>var no = 1</script></head><body>
<h1>Head</h1><p>Some <b>bold</b> text with <a href="/next?x=1#y">a link</a> and <a href="javascript:no()">no</a></p>
<ul><li>one</li><li>two</li></ul><table><tr><th>k</th></tr><tr><td>v</td></tr></table><img src="p.png" alt="picture">
</body></html>"""


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path)


@pytest.fixture
def server(authority: TestAuthority) -> Iterator[WebServer]:
    with web_server(authority.server_context(HOST, OTHER)) as running:
        running.replies["/page"] = Reply(headers={"content-type": "text/html; charset=utf-8"}, body=PAGE)
        yield running


@pytest.fixture
def plain() -> Iterator[WebServer]:
    with web_server() as running:
        yield running


class Stage:
    """Tools and the double, in one event loop at a time."""

    def __init__(self, server: WebServer, plain: WebServer, authority: TestAuthority) -> None:
        self.ports = {f"{HOST}:443": server.port, f"{OTHER}:443": server.port, f"{HOST}:80": plain.port}
        self.authority = authority
        self.inspects = False
        """Whether the server's certificates are those of the proxy's own authority."""
        self.asked: list[str] = []

    def run(self, work: Callable[[ProxyDouble, Carrier], Awaitable[T]]) -> T:
        async def inner() -> T:
            double = ProxyDouble(self.ports, self.asked)
            ours = self.authority.bundle.read_bytes() if self.inspects else b""
            carrier = Carrier(double.opener, ours, context=self.authority.client_context())
            try:
                return await work(double, carrier)
            finally:
                await double.close()

        return asyncio.run(inner())

    def http(self, method: str, url: str, *, settings: dict[str, Any] | None = None, **given: Any) -> HttpAnswer:
        return self.run(
            lambda double, carrier: HttpTool(double.opener, carrier=carrier, **(settings or {})).execute(
                method, url, **given
            )
        )

    def fetch(self, url: str, workspace: AgentWorkspace | None = None, **given: Any) -> Fetched:
        return self.run(
            lambda double, carrier: FetchTool(double.opener, carrier=carrier, workspace=workspace).execute(url, **given)
        )


@pytest.fixture
def stage(server: WebServer, plain: WebServer, authority: TestAuthority) -> Stage:
    return Stage(server, plain, authority)


# --- http -------------------------------------------------------------------------------------------------------------


def test_a_request_goes_by_the_proxy_and_comes_back(stage: Stage, server: WebServer) -> None:
    server.replies["/api"] = lambda asked: Reply(201, {"x-one": "1", "content-type": "application/json"}, b'{"a": [1]}')

    answer = stage.http("POST", f"https://{HOST}/api?q=1", headers={"X-Mine": "yes"}, json={"b": 2})

    assert (answer.status, answer.json(), answer.header("X-One")) == (201, {"a": [1]}, "1")
    assert stage.asked == [f"{HOST}:443"]
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/api?q=1", b'{"b": 2}')
    assert asked.headers["x-mine"] == "yes"
    assert asked.headers["content-type"] == "application/json"


def test_plain_http_goes_by_the_proxy_too(stage: Stage, plain: WebServer) -> None:
    plain.replies["/"] = Reply(body=b"clear")

    assert stage.http("GET", f"http://{HOST}/").body == b"clear"
    assert stage.asked == [f"{HOST}:80"]


def test_nothing_of_the_host_is_sent(
    stage: Stage, server: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text(f"machine {HOST} login me password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    for name, value in {
        "HOME": str(tmp_path),
        "NETRC": str(tmp_path / ".netrc"),
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "ALL_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "*",
    }.items():
        monkeypatch.setenv(name, value)
    server.replies["/set"] = Reply(302, {"location": "/see", "set-cookie": "session=1"})
    server.replies["/see"] = Reply(body=b"seen")

    assert stage.http("GET", f"https://{HOST}/set").body == b"seen"
    for asked in server.asked:
        assert set(asked.headers) == {"host", "accept", "accept-encoding", "user-agent"}


def test_a_host_that_no_rule_allows_is_refused_and_says_what_would(stage: Stage) -> None:
    with pytest.raises(NetworkAccessDenied) as refused:
        stage.http("GET", "https://nobody.example/")

    assert "no rule allows nobody.example:443" in refused.value.message
    assert refused.value.hint == "to allow it: --allow nobody.example:443"


def test_a_refusal_inside_an_inspected_connection_is_one(stage: Stage, server: WebServer) -> None:
    server.replies["/secret"] = Reply(403, {"x-ringfence-refused": "1"}, b"DELETE is not allowed by rule 2\n")
    server.replies["/other"] = Reply(403, {}, b"the server's own no\n")

    assert stage.http("DELETE", f"https://{HOST}/secret").status == 403  # a server that says so in our name
    stage.inspects = True
    with pytest.raises(NetworkAccessDenied, match="not allowed by rule 2"):
        stage.http("DELETE", f"https://{HOST}/secret")
    assert stage.http("DELETE", f"https://{HOST}/other").status == 403


def test_redirects_are_judged_anew(stage: Stage, server: WebServer) -> None:
    server.replies["/ok"] = Reply(302, {"location": f"https://{OTHER}/end"})
    server.replies["/bad"] = Reply(302, {"location": "https://169.254.169.254/latest/meta-data"})
    server.replies["/end"] = Reply(body=b"end")

    answer = stage.http("GET", f"https://{HOST}/ok", headers={"Authorization": "Bearer x", "X-Kept": "1"})

    assert (answer.url, answer.redirects) == (f"https://{OTHER}/end", (f"https://{HOST}/ok",))
    assert stage.asked == [f"{HOST}:443", f"{OTHER}:443"]
    assert server.asked[0].headers["authorization"] == "Bearer x"
    assert "authorization" not in server.asked[1].headers
    assert server.asked[1].headers["x-kept"] == "1"
    with pytest.raises(NetworkAccessDenied, match=r"169\.254\.169\.254:443"):
        stage.http("GET", f"https://{HOST}/bad")


def test_a_redirect_on_one_host_keeps_the_credentials(stage: Stage, server: WebServer) -> None:
    server.replies["/a"] = Reply(307, {"location": "b"})
    server.replies["/b"] = lambda asked: Reply(body=asked.body)

    assert stage.http("POST", f"https://{HOST}/a", headers={"Authorization": "x"}, body="kept").body == b"kept"
    assert server.asked[1].headers["authorization"] == "x"


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
def test_a_redirect_changes_the_method_as_browsers_do(
    stage: Stage, server: WebServer, status: int, method: str
) -> None:
    server.replies["/a"] = Reply(status, {"location": "/b"})
    server.replies["/b"] = Reply()

    stage.http("POST", f"https://{HOST}/a", json={"x": 1})

    assert server.asked[1].method == method
    assert bool(server.asked[1].body) is (method == "POST")


def test_a_redirect_into_cleartext_is_refused(stage: Stage, server: WebServer, plain: WebServer) -> None:
    server.replies["/down"] = Reply(302, {"location": f"http://{HOST}/x"})

    with pytest.raises(NetworkAccessDenied, match="HTTPS to HTTP"):
        stage.http("GET", f"https://{HOST}/down")
    assert plain.asked == []


@pytest.mark.parametrize(
    "place", ["file:///etc/passwd", "ftp://x.example/", "https://u:p@web.example/", "http://[", "//"]
)
def test_a_redirect_to_what_is_no_url_of_the_web_is_refused(stage: Stage, server: WebServer, place: str) -> None:
    server.replies["/x"] = Reply(302, {"location": place})

    with pytest.raises(NetworkAccessDenied):
        stage.http("GET", f"https://{HOST}/x")


def test_ten_redirects_pass_and_eleven_do_not(stage: Stage, server: WebServer) -> None:
    for number in range(11):
        server.replies[f"/r{number}"] = Reply(302, {"location": f"/r{number + 1}"})
    server.replies["/r11"] = Reply(body=b"end")

    assert stage.http("GET", f"https://{HOST}/r1").body == b"end"
    with pytest.raises(NetworkAccessDenied, match="redirects"):
        stage.http("GET", f"https://{HOST}/r0")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda data: zlib.compress(data)[2:-4]])
def test_packed_answers_are_unpacked(stage: Stage, server: WebServer, pack: Callable[[bytes], bytes]) -> None:
    coding = "gzip" if pack is gzip.compress else "deflate"
    server.replies["/"] = Reply(headers={"content-encoding": coding}, body=pack(b"unpacked " * 1000))

    assert stage.http("GET", f"https://{HOST}/").body == b"unpacked " * 1000


def test_a_bomb_is_bounded_in_memory_and_time(stage: Stage, server: WebServer) -> None:
    bomb = gzip.compress(b"\0" * (200 * 1024 * 1024), 9)
    server.replies["/bomb"] = Reply(headers={"content-encoding": "gzip"}, body=bomb)
    server.replies["/twice"] = Reply(headers={"content-encoding": "gzip, gzip"}, body=gzip.compress(bomb))
    started = time.monotonic()

    with pytest.raises(ResourceLimitExceeded):
        stage.http("GET", f"https://{HOST}/bomb")
    with pytest.raises(NetworkAccessDenied, match="not asked for"):
        stage.http("GET", f"https://{HOST}/twice")
    assert time.monotonic() - started < 20


def test_an_answer_that_is_too_long_is_refused(stage: Stage, server: WebServer) -> None:
    server.replies["/long"] = Reply(body=b"x" * 2000)

    with pytest.raises(ResourceLimitExceeded):
        stage.http("GET", f"https://{HOST}/long", settings={"most_bytes": 1999})
    assert len(stage.http("GET", f"https://{HOST}/long", settings={"most_bytes": 2000}).body) == 2000


def test_a_server_that_does_not_answer_is_given_up(stage: Stage, server: WebServer) -> None:
    gate = threading.Event()
    server.replies["/slow"] = Reply(wait=gate)
    try:
        with pytest.raises(Timeout):
            stage.http("GET", f"https://{HOST}/slow", settings={"seconds": 0.5})
    finally:
        gate.set()


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"no http at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 9\r\n\r\nabc",
        b"\xff",
    ],
)
def test_a_server_that_breaks_the_rules_is_an_error_of_ours(stage: Stage, server: WebServer, raw: bytes) -> None:
    server.replies["/bad"] = Reply(raw=raw)

    with pytest.raises(NetworkAccessDenied):
        stage.http("GET", f"https://{HOST}/bad")


def test_a_certificate_for_another_name_is_refused(stage: Stage, server: WebServer) -> None:
    stage.ports["wrong.example:443"] = server.port

    with pytest.raises(NetworkAccessDenied, match="certificate"):
        stage.http("GET", "https://wrong.example/")
    assert server.asked == []


BAD_URLS = ["", "web.example", "ftp://web.example/", "https://", "https://u:p@web.example/", "https://web.example:0/"]
BAD_URLS += ["https://web.example/a b", "https://web.example/\r\nX: y", "https://web.example:99999/", "http://[::1"]
BAD_URLS += ["https://web.example\\@evil.example/", "file:///etc/passwd"]


@pytest.mark.parametrize("url", BAD_URLS)
def test_what_is_no_url_is_refused_before_anything_is_sent(stage: Stage, url: str) -> None:
    with pytest.raises(InvalidArgument):
        stage.http("GET", url)
    assert stage.asked == []


@pytest.mark.parametrize(
    "given",
    [
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X Y": "a"}},
        {"headers": {"Host": "evil.example"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"Content-Length": "5"}},
        {"body": "a", "json": 1},
    ],
)
def test_headers_that_change_the_framing_are_refused(stage: Stage, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        stage.http("POST", f"https://{HOST}/", **given)


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "GET /", "", "G\r\nT"])
def test_methods_that_are_none_are_refused(stage: Stage, method: str) -> None:
    with pytest.raises(InvalidArgument):
        stage.http(method, f"https://{HOST}/")


# --- fetch ------------------------------------------------------------------------------------------------------------


def test_a_page_becomes_markdown_with_title_and_links(stage: Stage) -> None:
    page = stage.fetch(f"https://{HOST}/page")

    assert page.title == "A page"
    assert "# Head" in page.text
    assert "**bold**" in page.text
    assert f"[a link](https://{HOST}/next?x=1#y)" in page.text
    assert "- one\n- two" in page.text
    assert "var no" not in page.text
    assert "javascript:" not in page.text
    assert page.links == (("a link", f"https://{HOST}/next?x=1#y"),)
    assert (page.length, page.next_offset) == (len(page.text), None)


def test_a_page_becomes_text_or_stays_as_it_is(stage: Stage) -> None:
    assert "**" not in stage.fetch(f"https://{HOST}/page", form="text").text
    assert stage.fetch(f"https://{HOST}/page", form="raw").text == PAGE.decode()


def test_a_page_is_read_in_pieces(stage: Stage, server: WebServer) -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    server.replies["/long.txt"] = Reply(headers={"content-type": "text/plain"}, body=text.encode())
    got, offset = "", 0
    while True:
        piece = stage.fetch(f"https://{HOST}/long.txt", offset=offset, limit=3000)
        got += piece.text
        assert piece.length == len(text)
        if piece.next_offset is None:
            break
        offset = piece.next_offset

    assert got == text
    assert stage.fetch(f"https://{HOST}/long.txt", offset=10**9).text == ""


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=iso-8859-1", "Grüße €".encode("cp1252"), "Grüße €"),
        ("text/html", '<meta charset="shift_jis"><p>日本'.encode("shift_jis"), "日本"),
        ("text/plain; charset=utf-16", "wide".encode("utf-16"), "wide"),
        ("text/plain; charset=rot13", b"plain", "plain"),
        ("text/plain; charset=hex", b"6162", "6162"),
        ('text/plain; charset="no such"', "é".encode(), "é"),
        ("text/plain", b"\xff\xfeo\0k\0", "ok"),
        ("text/plain", b"bro\xffken", "bro\ufffdken"),
        ("", b"<!doctype html><p>guessed", "guessed"),
    ],
)
def test_charsets(stage: Stage, server: WebServer, kind: str, body: bytes, text: str) -> None:
    server.replies["/t"] = Reply(headers={"content-type": kind} if kind else {}, body=body)

    assert stage.fetch(f"https://{HOST}/t").text == text


def test_a_picture_and_a_pdf_go_into_the_workspace(stage: Stage, server: WebServer, tmp_path: Path) -> None:
    server.replies["/a/pic"] = Reply(headers={"content-type": "image/png"}, body=b"\x89PNG\0")
    server.replies["/doc.pdf"] = Reply(headers={"content-type": "application/pdf"}, body=b"%PDF-1.7")
    (tmp_path / "w").mkdir()
    with AgentWorkspace("s", root=tmp_path / "w") as workspace:
        one = stage.fetch(f"https://{HOST}/a/pic", workspace)
        two = stage.fetch(f"https://{HOST}/a/pic", workspace)
        three = stage.fetch(f"https://{HOST}/doc.pdf", workspace, save_to="papers/mine.pdf")
        with pytest.raises(PathTraversalError):
            stage.fetch(f"https://{HOST}/doc.pdf", workspace, save_to="../outside.pdf")

    assert (one.saved, two.saved, three.saved) == ("downloads/pic.png", "downloads/pic-1.png", "papers/mine.pdf")
    assert (tmp_path / "w/downloads/pic.png").read_bytes() == b"\x89PNG\0"
    assert not (tmp_path / "outside.pdf").exists()
    with pytest.raises(InvalidArgument, match="workspace"):
        stage.fetch(f"https://{HOST}/a/pic")


def test_a_link_in_the_workspace_leads_no_file_outside(stage: Stage, server: WebServer, tmp_path: Path) -> None:
    server.replies["/p"] = Reply(headers={"content-type": "image/png"}, body=b"x")
    (tmp_path / "w").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "w/downloads").symlink_to(tmp_path / "out")

    with AgentWorkspace("s", root=tmp_path / "w") as workspace, pytest.raises(PathTraversalError):
        stage.fetch(f"https://{HOST}/p", workspace)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "kind", "name"),
    [
        ("https://x/a/b.tar.gz", "application/gzip", ("b.tar", ".gz")),
        ("https://x/..%2f..%2fetc%2fpasswd", "application/octet-stream", ("passwd", ".bin")),
        ("https://x/.bashrc", "image/png", ("bashrc", ".png")),
        ("https://x/", "application/pdf", ("file", ".pdf")),
        ("https://x/%00%0a%E2%80%AE.exe", "image/png", ("exe", ".png")),
        ("https://x/" + "a" * 500, "image/png", ("a" * 80, ".png")),
    ],
)
def test_names_of_files_are_harmless(url: str, kind: str, name: tuple[str, str]) -> None:
    assert file_name(url, kind) == name


def test_boxes_in_boxes_are_no_fault(stage: Stage, server: WebServer) -> None:
    server.replies["/deep"] = Reply(headers={"content-type": "text/html"}, body=b"<div>" * 20_000 + b"inside")

    assert stage.fetch(f"https://{HOST}/deep").text == "inside"
