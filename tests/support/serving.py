"""A real server process for tests, and clients of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

_START_SECONDS = 60.0


class RunningServer:
    """One `ringfence serve` with a home and a state of its own, on its socket and on loopback."""

    def __init__(self, home: Path, *options: str, environ: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.state = home / "state"
        self._options = options
        self._environ = {**os.environ, "HOME": str(home), "RINGFENCE_KEEPER": "off", **(environ or {})}
        self.process: subprocess.Popen[str] | None = None
        self.token = ""
        self.url = ""

    @property
    def socket(self) -> Path:
        return self.state / "server.sock"

    def start(self) -> None:
        command = [sys.executable, "-m", "ringfence.cli.app", "serve", "--state", str(self.state), *self._options]
        self.log = open(self.home / "server.log", "a+")  # noqa: SIM115  closed with the server
        begin = self.log.tell()
        self.process = subprocess.Popen(
            [*command, "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=self._environ,
            cwd=self.home,
        )
        assert self.process.stdout is not None
        self.token = self.process.stdout.readline().strip()
        with open(self.home / "server.log") as said:
            said.seek(begin)
            lines = [line for line in said if "listening at http" in line]
        assert lines, self.said()
        self.url = lines[-1].split("listening at ")[1].strip()
        deadline = time.monotonic() + _START_SECONDS
        with httpx.Client() as client:
            while time.monotonic() < deadline:
                try:
                    if client.get(f"{self.url}/readyz").status_code == 200:
                        return
                except httpx.TransportError:
                    time.sleep(0.02)
        raise AssertionError(self.said())

    def said(self) -> str:
        return (self.home / "server.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()
        self.process = None
        return code

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Another command line over the same state."""
        return subprocess.run(
            [sys.executable, "-m", "ringfence.cli.app", *words, "--state", str(self.state)],
            env=self._environ,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )

    def new_token(self, name: str, *scopes: str, tenant: str = "default") -> str:
        """One that `ringfence token` makes while the server runs."""
        words = [word for scope in scopes for word in ("--scope", scope)]
        made = self.command("token", "create", name, "--tenant", tenant, *words)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def client(self, token: str | None = None, **options: object) -> httpx.Client:
        """By loopback, with a token."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, **{"timeout": 60, **options})  # type: ignore[arg-type]

    def owner(self) -> httpx.Client:
        """By the Unix socket."""
        return httpx.Client(
            transport=httpx.HTTPTransport(uds=str(self.socket)), base_url="http://localhost", timeout=60
        )


@contextmanager
def running_server(home: Path, *options: str, environ: Mapping[str, str] | None = None) -> Iterator[RunningServer]:
    server = RunningServer(home, *options, environ=environ)
    server.start()
    try:
        yield server
    finally:
        server.stop()
