"""One interpreter that serves call after call: its process, its pipes, and the socket on which it is told what to run.

What comes from it is a hint. That a call is over, and what it showed, is its own word, for what else could know; that
it crashed, was killed or left is the word of PID 1.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass, field
from ringfence.engines.frames import Frames, read_done, read_error, read_shown
from ringfence.engines.loops import forget_reader
from ringfence.engines.streams import Capture, Reader
from ringfence.errors import Internal
from ringfence.values.display import CodeError, DisplayData
from ringfence.values.request import Overflow, Stream

if TYPE_CHECKING:
    from ringfence.engines.boxes.control import Job

_PIECE = 64 * 1024
"""Read at once: other sessions wait while the frames in it are taken apart, of which there may be one per ten bytes."""
_STALE_PIECES = 8
"""More than a socket holds: what a call finds there is not its own."""
_MANY = 100
"""Frames that nobody asked for, from which on it is a flood; a socket holds some hundred of the smallest."""
_LAST_WORDS = 4096
_SHORT_SECONDS = 0.005
"""In this time the kernel hands out some tens of megabytes at most."""
_CREDENTIALS = struct.Struct("=iII")
_SHOWN_BYTES = 512
"""What each thing shown costs besides its bytes, ours included; else things without any would cost nothing."""
_TOO_MUCH = DisplayData((("text/plain", "(what follows is more than the output limit, and is not kept)"),))
_TOLD = b'RINGFENCE_CALL="%b $?"; printf \'done %%d\\n%%s\' "${#RINGFENCE_CALL}" "$RINGFENCE_CALL" >&9\n'
"""What a shell is told after a call's lines: to say that it is over."""
_CPU_CLOCK = 2  # CPUCLOCK_SCHED of all threads: clock_getcpuclockid(3)


@dataclass(slots=True, eq=False)
class Cell:
    """One call: what it has shown so far, and when it is over."""

    room: int
    """Bytes that it may still show; negative when it wanted to show more."""
    call: bytes
    """A number that nobody knows before: its end has to carry it, so that none forged earlier, or for another call,
    answers it."""
    over: asyncio.Future[int | None]
    """Its exit code; None when the interpreter has ended instead."""
    shown: list[DisplayData] = field(default_factory=list)
    error: CodeError | None = None


class Context:
    def __init__(
        self,
        name: str,
        language: str,
        job: Job,
        channel: socket.socket,
        outputs: tuple[int, int],
        on_breach: Callable[[], None],
    ) -> None:
        self.name = name
        self.language = language
        self.job = job
        self.readers = tuple(
            Reader(descriptor, stream, _nowhere(), None, _nothing, _ignore)
            for stream, descriptor in zip(Stream, outputs, strict=True)
        )
        for reader in self.readers:
            reader.listen()
        self.calls = 0
        self.pid = 0
        """As our own pid namespace names it, by the kernel's word; 0 if it is not known yet."""
        self.busy: Cell | None = None
        self._channel = channel
        self._frames = Frames()
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._on_breach = on_breach
        self._peak = 0
        self._sending: asyncio.Task[None] | None = None
        self._is_unread = False
        """Whether something lies in the socket that nobody has asked for. It stays there: who floods it has to wait."""
        self._unasked = 0
        self._is_broken = False
        """Whether nothing more can come from it."""
        self.was_flooded = False
        """Whether, between calls, more was said than anybody would read."""
        channel.setblocking(False)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._loop.add_reader(channel.fileno(), self._on_readable)
        job.ended.add_done_callback(self._on_ended)

    @property
    def alive(self) -> bool:
        return self.job.runs

    async def clear(self) -> None:
        """Before a call: drop what was said since the last one, a piece at a time, for others have turns, too."""
        self.was_flooded |= any(reader.is_flooded for reader in self.readers)
        if not self._is_unread:
            return
        self._is_unread = False
        self._unasked = 0
        for _ in range(_STALE_PIECES):
            if self._channel.fileno() < 0 or not self._read_some():
                break
            await asyncio.sleep(0)
        self.was_flooded |= self._unasked > _MANY
        if self._channel.fileno() >= 0 and not self._is_broken:
            self._loop.add_reader(self._channel.fileno(), self._on_readable)

    def begin(self, code: bytes, show_bytes: int, directory: bytes = b"") -> Cell:
        """Have a piece of code run, or the lines of a script; code in that directory, if one is given."""
        self.calls += 1
        cell = self.busy = Cell(show_bytes, os.urandom(8).hex().encode(), self._loop.create_future())
        if self.job.ended.done():
            cell.over.set_result(None)
            return cell
        if self.language == "shell":
            self._send(b"%b; %b" % (code, _TOLD % cell.call))
        else:
            place = b" " + directory.hex().encode() if directory else b""
            self._send(b"run %d %b%b\n%b" % (len(code), cell.call, place, code))
        return cell

    def cpu_seconds(self) -> float:
        """What its own threads have used so far, children not counted."""
        if not self.pid:
            return 0.0
        with suppress(OSError):
            return time.clock_gettime((~self.pid << 3) | _CPU_CLOCK)
        return 0.0

    def peak_memory_bytes(self, seconds: float) -> int:
        """The most that its own process has used so far; looked up only after a call that had time to use more."""
        if seconds > _SHORT_SECONDS or not self._peak:
            self._peak = self._read_peak()
        return self._peak

    def _read_peak(self) -> int:
        with suppress(OSError, ValueError, IndexError):
            descriptor = os.open(f"/proc/{self.pid}/status", os.O_RDONLY | os.O_CLOEXEC)
            try:
                text = os.read(descriptor, 4096)
            finally:
                os.close(descriptor)
            return int(text.partition(b"VmHWM:")[2].split(None, 1)[0]) * 1024
        return 0

    def close(self) -> None:
        """Let our ends go; the process sees its socket close, and the box ends it if that is not enough."""
        if self._channel.fileno() >= 0:
            forget_reader(self._loop, self._channel.fileno())
            self._channel.close()
            for reader in self.readers:
                reader.close()
        if not self.ready.done():
            self.ready.set_exception(Internal("the interpreter ended before it was ready"))
            self.ready.exception()
        self._settle(None)

    def hush(self) -> None:
        """The call is over: take what it has said, and let what comes later fall."""
        for reader in self.readers:
            reader.drain()
            reader.point(_nowhere(), None, _nothing, _ignore)
            reader.is_unheard = True

    def _send(self, data: bytes) -> None:
        try:
            sent = self._channel.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it is ending, and PID 1 will say so
        if sent < len(data):
            self._sending = self._loop.create_task(self._send_rest(data[sent:]))

    async def _send_rest(self, data: bytes) -> None:
        with suppress(OSError):
            await self._loop.sock_sendall(self._channel, data)

    def _on_ended(self, _: object) -> None:
        """The process is gone; what it said before that still counts, as far as it fits into a socket."""
        for _ in range(_STALE_PIECES):
            if self._channel.fileno() < 0 or not self._read_some():
                break
        if not self.ready.done():
            self.ready.set_exception(Internal("the interpreter ended before it was ready"))
            self.ready.exception()
        self._settle(None)

    def fileno(self) -> int:
        """Where its words come from; -1 if that is closed."""
        return self._channel.fileno()

    def hear(self) -> None:
        """Take what it has said."""
        if self._channel.fileno() >= 0:
            self._read_some()

    def _on_readable(self) -> None:
        if self.busy is None and self.ready.done() and self.pid:
            self._is_unread = True
            self._loop.remove_reader(self._channel.fileno())
        else:
            self._read_some()

    def _read_some(self) -> bool:
        try:
            data = self._receive()
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        if not data:
            self._is_broken = True
            self._loop.remove_reader(self._channel.fileno())
            return False
        try:
            for kind, body in self._frames.feed(data):
                self._on_frame(kind, body)
        except Internal as fault:
            self._is_broken = True
            self._loop.remove_reader(self._channel.fileno())
            if self.busy is not None:
                self.busy.error = CodeError("Internal", fault.message, "")
            self._on_breach()
            return False
        return True

    def _receive(self) -> bytes:
        if self.pid:
            return self._channel.recv(_PIECE)
        data, ancillary, _, _ = self._channel.recvmsg(_PIECE, socket.CMSG_SPACE(_CREDENTIALS.size))
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS and len(content) >= _CREDENTIALS.size:
                self.pid = _CREDENTIALS.unpack_from(content)[0]
                self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        return data

    def _on_frame(self, kind: str, body: bytes) -> None:
        cell = self.busy
        if kind == "ready":
            if not self.ready.done():
                self.ready.set_result(None)
            return
        if cell is None:  # a thread that goes on after its call: nobody asked
            self._unasked += 1
            return
        match kind:
            case "done":
                code = read_done(body, cell.call)
                if code is not None:
                    self._settle(code)
            case "error":
                cell.error = read_error(body)
            case _ if cell.room < 0:
                pass
            case _ if cell.room < len(body) + _SHOWN_BYTES:
                cell.room = -1
                cell.shown.append(_TOO_MUCH)
            case _:
                cell.room -= len(body) + _SHOWN_BYTES
                cell.shown.append(read_shown(body, is_value=kind == "result"))

    def _settle(self, code: int | None) -> None:
        cell, self.busy = self.busy, None
        if cell is not None and not cell.over.done():
            cell.over.set_result(code)


def _nowhere() -> Capture:
    """Between calls nobody listens; the last that was said is kept, for whoever asks why it did not start."""
    return Capture(_LAST_WORDS, Overflow.KEEP_ENDS)


def _nothing() -> None:
    """More than is kept: the middle is dropped."""


def _ignore(fault: Exception) -> None:
    """There is no callback that could fail."""
