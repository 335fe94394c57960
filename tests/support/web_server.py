"""A web server of the tests' own, behind TLS or not: answers by path, remembers what it was asked."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Reply:
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    raw: bytes = b""
    """Sent as it is instead, and the connection ends."""
    wait: threading.Event | None = None


@dataclass
class WebServer:
    port: int
    replies: dict[str, Reply | Callable[[Asked], Reply]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def web_server(context: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    server = _Server(("127.0.0.1", 0), _Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.web = WebServer(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    web: WebServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    server: _Server

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        self.server.web.asked.append(asked)
        found = self.server.web.replies.get(self.path.partition("?")[0], Reply(404, body=b"nothing here"))
        reply = found(asked) if callable(found) else found
        if reply.wait is not None:
            reply.wait.wait(20)
        if reply.raw:
            self.wfile.write(reply.raw)
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Into `asked`, not onto the terminal."""
