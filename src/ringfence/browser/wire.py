"""The bytes between us and a browser: messages in, messages out, over a pipe.

What comes is hostile: whoever sits at the other end may be a page that has taken the browser over. So a message has a
largest size, and reading stands still while nobody wants the next one; the other end then waits, not our memory.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from contextlib import suppress
from typing import Final, Protocol

from ringfence.errors import BrowserGone

MESSAGE_BYTES: Final = 48 * 1024 * 1024
"""Of one message: a picture of a long page or a PDF in base64 fits."""
_PIECE: Final = 256 * 1024
_END: Final = b"\0"


class Wire(Protocol):
    """Carries whole messages."""

    async def send(self, message: bytes) -> None:
        """
        Raises:
            BrowserGone: nobody is there any more.
        """

    async def receive(self) -> bytes:
        """The next message.

        Raises:
            BrowserGone: there is none, or what comes is no message.
        """

    def abort(self) -> None:
        """End it: whoever sends or receives hears that it is over."""

    def close(self) -> None:
        """Let go of it; nobody sends or receives any more."""


class Frames:
    """Takes a stream of messages, each ended by NUL, apart."""

    def __init__(self, most: int = MESSAGE_BYTES) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """The messages that end in this piece.

        Raises:
            BrowserGone: one of them is longer than any may be.
        """
        *ends, rest = piece.split(_END)
        found: list[bytes] = []
        for end in ends:
            self._add(end)
            found.append(b"".join(self._parts))
            self._parts, self._size = [], 0
        self._add(rest)
        return found

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            self._parts, self._size = [], 0
            raise BrowserGone(f"the browser sent a message of more than {self._most} bytes")
        if part:
            self._parts.append(part)


class PipeWire:
    """The two ends of `--remote-debugging-pipe`, as sockets that do not block. Owns them.

    Args:
        read: where its messages come from.
        write: where ours go; the same socket, if it carries both ways.
    """

    def __init__(self, read: socket.socket, write: socket.socket | None = None) -> None:
        self._read = read
        self._write = write or read
        self._frames = Frames()
        self._ready: deque[bytes] = deque()
        self._sending = asyncio.Lock()
        for each in (self._read, self._write):
            each.setblocking(False)

    async def send(self, message: bytes) -> None:
        async with self._sending:  # each whole
            try:
                await asyncio.get_running_loop().sock_sendall(self._write, message + _END)
            except OSError as fault:
                raise BrowserGone(f"the browser does not listen any more: {fault.strerror or fault}") from None

    async def receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        while not self._ready:
            try:
                piece = await loop.sock_recv(self._read, _PIECE)
            except OSError as fault:
                raise BrowserGone(f"the browser is gone: {fault.strerror or fault}") from None
            if not piece:
                raise BrowserGone("the browser has ended")
            self._ready.extend(self._frames.feed(piece))
        return self._ready.popleft()

    def abort(self) -> None:
        for each in {self._read, self._write}:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in {self._read, self._write}:
            each.close()
