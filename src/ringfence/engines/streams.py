"""Moves bytes: a command's output to whoever listens, kept up to its limit, and its input from whoever gives it."""

import asyncio
import fcntl
import os
from collections import deque
from collections.abc import AsyncIterable, Callable
from contextlib import suppress

from ringfence.engines.loops import forget_reader
from ringfence.values.request import OnOutput, Overflow, Stream

_PIECE = 256 * 1024
_REST_SECONDS = 0.02
"""How long a stream is left alone, after each piece, of which nobody wants to hear: whoever floods it has to wait."""
_FLOOD = 50
"""Pieces in a row, each after a rest, from which on it is a flood: a second of it."""


class Capture:
    """Keeps what a stream says, up to a limit: all of it, or its head and its tail."""

    __slots__ = ("_head", "_head_left", "_limit", "_overflow", "_tail", "_tail_size", "dropped")

    def __init__(self, limit: int, overflow: Overflow) -> None:
        self._limit = limit
        self._overflow = overflow
        self._head = bytearray()
        self._head_left = limit if overflow is Overflow.STOP else limit - limit // 2
        self._tail: deque[bytearray] = deque()
        self._tail_size = 0
        self.dropped = 0

    def add(self, piece: bytes) -> bool:
        """Take a piece; false when the limit is passed and the command has to stop."""
        if self._head_left:
            taken = piece[: self._head_left]
            self._head += taken
            self._head_left -= len(taken)
            piece = piece[len(taken) :]
        if not piece:
            return True
        if self._overflow is Overflow.STOP:
            self.dropped += len(piece)
            return False
        # Pieces are joined: a stream of two-byte pieces would cost thirty times its size otherwise.
        if self._tail and len(self._tail[-1]) < _PIECE:
            self._tail[-1] += piece
        else:
            self._tail.append(bytearray(piece))
        self._tail_size += len(piece)
        room = self._limit // 2
        while self._tail_size > room:
            oldest = self._tail.popleft()
            surplus = self._tail_size - room
            cut = min(surplus, len(oldest))
            if cut < len(oldest):
                self._tail.appendleft(oldest[cut:])
            self._tail_size -= cut
            self.dropped += cut
        return True

    def kept(self) -> bytes:
        return b"".join((self._head, *self._tail))


class Reader:
    """Reads one pipe as it fills, from `listen` on. Owns the descriptor.

    A stream of which nobody wants to hear (`is_unheard`) is read a piece at a time, with rests between: it must not
    fill up, or a thread that logs would stand still, and it must not keep us busy.
    """

    def __init__(
        self,
        descriptor: int,
        stream: Stream,
        capture: Capture,
        on_output: OnOutput | None,
        on_overflow: Callable[[], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._descriptor = descriptor
        self._stream = stream
        self.capture = capture
        self._on_output = on_output
        self._on_overflow = on_overflow
        self._on_fault = on_fault
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resting: asyncio.TimerHandle | None = None
        self._rests = 0
        self._held_by: asyncio.Future[None] | None = None
        """What the listener wants to have done before it hears more."""
        self.is_unheard = False
        os.set_blocking(descriptor, False)

    def listen(self) -> None:
        """Have the event loop say when there is something; before, only `drain` reads."""
        if self._loop is None and self._descriptor >= 0:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._descriptor, self._ready)

    def point(
        self,
        capture: Capture,
        on_output: OnOutput | None,
        on_overflow: Callable[[], None],
        on_fault: Callable[[Exception], None],
    ) -> None:
        """From now on, what comes goes there: one pipe of an interpreter serves many calls."""
        self.capture = capture
        self._on_output = on_output
        self._on_overflow = on_overflow
        self._on_fault = on_fault
        self.is_unheard = False
        self._rests = 0
        if self._resting is not None:
            self._resume()
        if self._held_by is not None:
            self._go_on(self._held_by)

    @property
    def is_flooded(self) -> bool:
        """Whether more comes, and for longer, than anybody who is not heard has to say."""
        return self._rests >= _FLOOD

    def _hold(self, until: asyncio.Future[None]) -> None:
        """Listen no more until the listener is ready for it."""
        if self._loop is not None and self._resting is None and self._held_by is None and self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._held_by = until
            until.add_done_callback(self._go_on)

    def _go_on(self, held_by: asyncio.Future[None]) -> None:
        if self._held_by is held_by:
            self._held_by = None
            if self._loop is not None and self._descriptor >= 0:
                self._loop.add_reader(self._descriptor, self._ready)

    def _ready(self) -> None:
        if self._read_some() and self._held_by is None and self.is_unheard and self._loop is not None:
            self._loop.remove_reader(self._descriptor)
            self._rests += 1
            self._resting = self._loop.call_later(_REST_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._resting is not None and self._loop is not None and self._descriptor >= 0:
            self._resting.cancel()
            self._loop.add_reader(self._descriptor, self._ready)
        self._resting = None

    def _read_some(self) -> bool:
        """Read one piece; false at the end, or when there is nothing just now."""
        if self._descriptor < 0:
            return False
        try:
            piece = os.read(self._descriptor, _PIECE)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece:
            self.close()
            return False
        before = self.capture.dropped
        if not self.capture.add(piece):
            self._on_overflow()
            piece = piece[: len(piece) - (self.capture.dropped - before)]
        if piece and self._on_output is not None:
            try:
                told = self._on_output(self._stream, piece)
                if isinstance(told, asyncio.Future) and not told.done():
                    self._hold(told)
            except Exception as fault:  # the caller's own: it goes to the caller, not to the event loop's log
                self._on_output = None
                self._on_fault(fault)
        return True

    def drain(self) -> None:
        """Read what is left; called when every process of the box is dead.

        At most what the pipe holds: a command may have handed its end to another box, which goes on writing.
        """
        if self._read_some():
            for _ in range(_reads(self._descriptor)):
                if not self._read_some():
                    return

    def close(self) -> None:
        if self._descriptor >= 0:
            if self._resting is not None:
                self._resting.cancel()
                self._resting = None
            elif self._held_by is not None:
                self._held_by = None
            elif self._loop is not None:
                forget_reader(self._loop, self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def _reads(descriptor: int) -> int:
    """How many reads take all that is in a pipe, or in a terminal, which gives 4 KiB at a time."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) // _PIECE + 1
    except OSError:  # it is no pipe
        return 64


async def feed(descriptor: int, data: bytes | AsyncIterable[bytes]) -> None:
    """Write a command's input into its pipe, as it takes it, then close. Owns the descriptor."""
    try:
        os.set_blocking(descriptor, False)
        if isinstance(data, bytes):
            await write_all(descriptor, data)
        else:
            async for piece in data:
                await write_all(descriptor, piece)
    except BrokenPipeError:
        pass  # it stopped listening, which is its right
    finally:
        os.close(descriptor)


async def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it to a descriptor that does not block, waiting where there is no room."""
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        with suppress(BlockingIOError):
            view = view[os.write(descriptor, view) :]
            continue
        writable = loop.create_future()
        loop.add_writer(descriptor, _settle, writable)
        try:
            await writable
        finally:
            loop.remove_writer(descriptor)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
