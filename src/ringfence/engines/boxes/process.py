"""A command that goes on while others run in the same box: its output, its input, its signals, its end."""

import asyncio
import fcntl
import os
import signal
import struct
import termios
import time
from collections.abc import Callable
from contextlib import suppress

from ringfence.engines.boxes.control import Control, Job
from ringfence.engines.boxes.protocol import Kind, Reply
from ringfence.engines.boxes.watch import Watch
from ringfence.engines.streams import Capture, Reader, write_all
from ringfence.errors import Internal, SpawnFailed
from ringfence.limits.base import Holder
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import Ending, Result
from ringfence.values.request import Overflow, Request, Stream


class BoxProcess:
    def __init__(
        self,
        control: Control,
        job: Job,
        request: Request,
        stdin: int,
        outputs: tuple[int, int],
        limits: Limits,
        make_result: "Callable[[BoxProcess, Reply], Result]",
    ) -> None:
        self.id = job.id
        self.command = request.shown
        self.killed_for: Limit | None = None
        self._control = control
        self._job = job
        self._limits = limits
        self._stdin = stdin
        self._make_result = make_result
        self._begin = time.monotonic()
        self._end: float | None = None
        self._result: Result | None = None
        self._watch: Watch | None = None
        self._writing = asyncio.Lock()
        self._input_closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._on_terminal = outputs[1] < 0
        self._captures = {stream: Capture(limits.output_bytes, Overflow.KEEP_ENDS) for stream in Stream}
        self._readers = [
            Reader(descriptor, stream, self._captures[stream], request.on_output, _nothing, _ignore)
            for stream, descriptor in zip(Stream, outputs, strict=True)
            if descriptor >= 0
        ]
        for reader in self._readers:
            reader.listen()
        job.ended.add_done_callback(self._on_ended)

    def watch(self, holder: Holder, roots: tuple[str, ...]) -> None:
        """Hold it to the limits; CPU time is held by the kernel, for the box's own counts the other commands too."""
        if self._job.runs:
            pid = self._control.first_pid
            self._watch = Watch(holder, self._limits, roots, pid, self._stop, looks_at_cpu=False)

    @property
    def alive(self) -> bool:
        return self._job.runs

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it runs."""
        return self._result.ending if self._result is not None else None

    @property
    def seconds(self) -> float:
        return (self._end or time.monotonic()) - self._begin

    def read(self) -> tuple[bytes, bytes]:
        """What it has said since the last time, on each stream; the middle of more than the output limit is lost."""
        for reader in self._readers:
            reader.drain()
        said = tuple(capture.kept() for capture in self._captures.values())
        for stream in self._captures:
            self._captures[stream] = Capture(self._limits.output_bytes, Overflow.KEEP_ENDS)
        for reader, capture in zip(self._readers, self._captures.values(), strict=False):
            reader.capture = capture
        return said[0], said[1]

    async def write(self, data: bytes) -> bool:
        """Give it input, as it takes it; false if it does not listen any more."""
        async with self._writing:  # one after the other, each whole
            if self._stdin < 0:
                return False
            descriptor = os.dup(self._stdin)  # ours until it is written, whatever happens to the input meanwhile
            os.set_blocking(descriptor, False)
            writing = asyncio.ensure_future(write_all(descriptor, data))
            try:
                ends = (writing, self._job.ended, self._input_closed)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                return writing.done() and writing.exception() is None
            finally:
                writing.cancel()
                await asyncio.wait((writing,))
                os.close(descriptor)

    def close_input(self) -> None:
        """Let it read the end of its input; on a terminal, as Ctrl-D does."""
        if self._stdin >= 0 and self._on_terminal:
            with suppress(OSError):
                os.write(self._stdin, b"\x04")
        elif self._stdin >= 0:
            self._close_stdin()

    def _close_stdin(self) -> None:
        os.close(self._stdin)
        self._stdin = -1
        if not self._input_closed.done():
            self._input_closed.set_result(None)

    def resize(self, rows: int, columns: int) -> None:
        if self._on_terminal and self._stdin >= 0:
            fcntl.ioctl(self._stdin, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""
        self._control.signal(self._job, int(signal.Signals(number)))

    def kill(self) -> None:
        self._control.kill(self._job)

    async def wait(self, timeout: float | None = None) -> Result | None:
        """Its result; None if it still runs after that time. Its output is read by `read`.

        Raises:
            SpawnFailed: it could not be started.
            Internal: the box was lost.
        """
        await asyncio.wait((self._job.ended,), timeout=timeout)
        if not self._job.ended.done():
            return None
        reply = self._job.ended.result()
        if reply.kind is Kind.FAILED:
            raise SpawnFailed(self.command, os.strerror(min(reply.numbers[0], 4095)))
        return self._result

    def _stop(self, limit: Limit) -> None:
        self.killed_for = self.killed_for or limit
        self.kill()

    def _on_ended(self, ended: asyncio.Future[Reply]) -> None:
        self._end = time.monotonic()
        if self._watch is not None:
            self._watch.cancel()
        for reader in self._readers:
            reader.drain()
            reader.close()
        if self._stdin >= 0:
            self._close_stdin()
        with suppress(Internal):
            reply = ended.result()
            if reply.kind is Kind.ENDED:
                self._result = self._make_result(self, reply)

    def __repr__(self) -> str:
        return f"<Process {self.id} {self.command[:60]!r} {self.ending or 'running'}>"


def _nothing() -> None:
    """More output than is kept: the middle is dropped."""


def _ignore(fault: Exception) -> None:
    """A callback of the caller failed: it is not called again, and the process goes on."""
