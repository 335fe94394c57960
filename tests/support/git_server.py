"""A git server of the tests' own: `git http-backend` behind TLS, for whoever knows the token."""

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_SECONDS = 60


@dataclass
class GitServer:
    """What a test knows of the server."""

    port: int
    root: Path
    token: str
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """(method, path, the Authorization that came)"""

    def make_repository(self, name: str) -> Path:
        """An empty repository that can be fetched from and pushed to, at `/NAME`."""
        path = self.root / name
        run_git("init", "-q", "--bare", "--initial-branch=main", str(path))
        run_git("-C", str(path), "config", "http.receivepack", "true")
        return path


def run_git(*arguments: str, env: dict[str, str] | None = None) -> str:
    """Git without anybody's settings."""
    bare = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.com",
    }
    done = subprocess.run(
        ["git", "-c", "safe.directory=*", *arguments],
        env={**bare, **(env or {})},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr}")
    return done.stdout


@contextmanager
def git_server(
    root: Path, context: ssl.SSLContext, token: str, address: str = "127.0.0.1", port: int = 0
) -> Iterator[GitServer]:
    """Serve the repositories below a directory until the block ends; any user name does, the token has to be right."""
    root.mkdir(parents=True, exist_ok=True)
    server = _Server((address, port), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.git = GitServer(server.server_address[1], root, token)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.git
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    git: GitServer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    server: _Server

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Into `asked`, not onto the terminal."""

    def _serve(self) -> None:
        given = self.headers.get("authorization", "")
        self.server.git.asked.append((self.command, self.path, given))
        body = self._body()
        if not self._is_welcome(given):
            self._answer(401, [("www-authenticate", 'Basic realm="git"')], b"no\n")
            return
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.git.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": self.headers.get("git-protocol", ""),
            "REMOTE_USER": "somebody",
            "REMOTE_ADDR": self.client_address[0],
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, timeout=_SECONDS, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for name, value in headers if name.lower() == "status"), 200)
        kept = [(name, value) for name, value in headers if name.lower() not in ("status", "content-length")]
        self._answer(status if done.returncode == 0 else 500, kept, content)

    def _is_welcome(self, given: str) -> bool:
        scheme, _, pair = given.partition(" ")
        if scheme.lower() != "basic":
            return False
        return base64.b64decode(pair).decode("utf-8", "replace").partition(":")[2] == self.server.git.token

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        whole = bytearray()
        while size := int(self.rfile.readline().split(b";")[0], 16):
            whole += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return bytes(whole)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
