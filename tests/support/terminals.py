"""A real terminal for a test: a program on a pseudo-terminal, what it says, and keys that are typed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_ESCAPES = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?>]*[a-zA-Z]|\x1b[=>]")
_SECONDS = 60.0


class Terminal:
    """A program on a terminal of its own, with that many rows and columns."""

    def __init__(
        self,
        words: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path,
        env: Mapping[str, str],
        rows: int = 24,
        columns: int = 80,
    ) -> None:
        self._master, inner = pty.openpty()
        self.resize(rows, columns, tell=False)
        self.said = b""
        self.process = subprocess.Popen(
            words,
            cwd=cwd,
            env={"TERM": "xterm-256color", **env},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGHUP)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """What it has said, without escape sequences."""
        return _ESCAPES.sub(b"", self.said).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")

    def type(self, keys: str | bytes) -> None:
        data = keys.encode() if isinstance(keys, str) else keys
        os.write(self._master, data)

    def wait_for(self, mark: str, times: int = 1) -> str:
        """Read until the text is there so often; all that was said."""
        until = time.monotonic() + _SECONDS
        while self.text.count(mark) < times:
            assert time.monotonic() < until, f"{mark!r} did not come; it said: {self.text[-2000:]!r}"
            if not self._read(0.2):
                break
        assert self.text.count(mark) >= times, f"{mark!r} did not come; it said: {self.text[-2000:]!r}"
        return self.text

    def resize(self, rows: int, columns: int, *, tell: bool = True) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
        if tell:
            os.killpg(self.process.pid, signal.SIGWINCH)

    def is_raw(self) -> bool:
        """Whether keys go to the program one by one, without an echo."""
        modes = termios.tcgetattr(self._master)[3]
        return not modes & (termios.ICANON | termios.ECHO)

    def end(self) -> int:
        """Read to its end; its exit code."""
        until = time.monotonic() + _SECONDS
        while self._read(0.2):
            assert time.monotonic() < until, f"it goes on: {self.text[-2000:]!r}"
        return self.process.wait(20)

    def _read(self, seconds: float) -> bool:
        """Whether it may still say something."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:  # every other end is closed
            return False
        self.said += data
        return bool(data)


def on_terminal(
    words: Sequence[str | os.PathLike[str]], *, cwd: Path, env: Mapping[str, str], columns: int = 80
) -> tuple[int, bytes]:
    """Run something that asks nothing: its exit code, and what it wrote to the terminal."""
    with Terminal(words, cwd=cwd, env=env, columns=columns) as terminal:
        code = terminal.end()
        return code, terminal.said
