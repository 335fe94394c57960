"""A command that goes on while others run in the same box: its output, its input, its signals, its end."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import struct
import termios
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ringfence.engines.boxes.protocol import MessageKind, Reply, check_own_end
from ringfence.engines.boxes.spawning import start_failed
from ringfence.engines.boxes.work import limits_of
from ringfence.engines.streams import Capture, Reader, feed, write_all
from ringfence.errors import Internal
from ringfence.values.limits import Limit, Limits
from ringfence.values.request import Overflow, Request, Stream
from ringfence.values.sizes import Duration, seconds_of

if TYPE_CHECKING:
    from ringfence.engines.boxes.control import Control, Job
    from ringfence.engines.boxes.watch import Watch
    from ringfence.values.outcome import Ending, Result


class _Said(Capture):
    """What a stream has said since somebody last read it; all of it, up to the same limit, goes to `whole` besides."""

    __slots__ = ("whole",)

    def __init__(self, limit: int, whole: Capture) -> None:
        super().__init__(limit, Overflow.KEEP_ENDS)
        self.whole = whole

    def add(self, piece: bytes) -> bool:
        self.whole.add(piece)
        return super().add(piece)


class BoxProcess:
    """
    Args:
        outputs: what it says, on our ends of its pipes; with a terminal, that alone.
        kills: how often the kernel had killed for memory before it.
        complete: adds to its result what is told a moment later, if there is anything.
    """

    def __init__(
        self,
        control: Control,
        job: Job,
        request: Request,
        stdin: int,
        outputs: Sequence[Reader],
        limits: Limits,
        make_result: Callable[[BoxProcess, Reply], Result],
        complete: Callable[[Request, Result], Coroutine[None, None, Result]] | None,
        *,
        on_terminal: bool = False,
        kills: int = 0,
    ) -> None:
        self.id = job.id
        self.job = job
        self.command = request.shown
        self.limits = limits_of(request, limits)
        self.timeout = request.timeout
        self._cwd = request.cwd
        self.killed_for: Limit | None = None
        self.met = 0
        """How many others have run beside it so far."""
        self.is_shared = False
        self.kills = kills
        self.was_waited_for = False
        """Whether somebody has heard how it ended."""
        self._control = control
        self._stdin = stdin
        self._make_result = make_result
        self._request = request
        self._complete = complete
        self._completing: asyncio.Task[None] | None = None
        self._begin = time.monotonic()
        self._end: float | None = None
        self._result: Result | None = None
        self._watch: Watch | None = None
        self._writing = asyncio.Lock()
        loop = asyncio.get_running_loop()
        self._input_closed: asyncio.Future[None] = loop.create_future()
        self._on_terminal = on_terminal
        self.captures = tuple(Capture(self.limits.output_bytes, Overflow.KEEP_ENDS) for _ in Stream)
        """All that it said on each stream, up to the limit."""
        self._readers = tuple(outputs)
        for reader, whole in zip(self._readers, self.captures, strict=False):
            reader.point(_Said(self.limits.output_bytes, whole), request.on_output, _nothing, _ignore)
            reader.listen()
        self._feeder: asyncio.Task[None] | None = None
        if request.stdin is not None and stdin >= 0:
            self._stdin = -1  # whoever feeds it owns it, and closes it at the end
            self._feeder = loop.create_task(feed(stdin, request.stdin))
            self._feeder.add_done_callback(_heed)
        self._timer = loop.call_later(self.timeout, self.stop, Limit.WALL) if self.timeout is not None else None
        self._on_end: Callable[[BoxProcess], None] | None = None
        job.ended.add_done_callback(self._on_ended)

    def watch(self, watch: Watch, on_end: Callable[[BoxProcess], None]) -> None:
        """Hold it to its limits until it ends, and say then that it has."""
        self._watch, self._on_end = watch, on_end

    @property
    def alive(self) -> bool:
        return self.job.runs

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it runs."""
        return self._result.ending if self._result is not None else None

    @property
    def seconds(self) -> float:
        return (self._end or time.monotonic()) - self._begin

    def read(self) -> tuple[bytes, bytes]:
        """What it has said since the last time, on each stream; the middle of more than the output limit is lost."""
        said = [b"", b""]
        for index, reader in enumerate(self._readers):
            reader.drain()
            said[index] = reader.capture.kept()
            reader.capture = _Said(self.limits.output_bytes, self.captures[index])
        return said[0], said[1]

    async def write(self, data: bytes) -> bool:
        """Give it input, as it takes it; false if it does not listen any more, or was given its input at its start."""
        async with self._writing:  # one after the other, each whole
            if self._stdin < 0:
                return False
            descriptor = os.dup(self._stdin)  # ours until it is written, whatever happens to the input meanwhile
            os.set_blocking(descriptor, False)
            writing = asyncio.ensure_future(write_all(descriptor, data))
            try:
                ends = (writing, self.job.ended, self._input_closed)
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
        self._control.signal(self.job, int(signal.Signals(number)))

    def kill(self) -> None:
        self._control.kill(self.job)

    async def wait(self, timeout: Duration | None = None) -> Result | None:
        """Its result, with what it said up to the output limit; None if it still runs after that time.

        Raises:
            SpawnFailed: it could not be started.
            Internal: the box was lost.
        """
        seconds = None if timeout is None else seconds_of("timeout", timeout)
        await asyncio.wait((self.job.ended,), timeout=seconds)
        if not self.job.ended.done():
            return None
        self.was_waited_for = True
        return await self.wait_end()

    async def wait_end(self) -> Result:
        """The same, without being taken for somebody who has asked how it ended."""
        await asyncio.wait((self.job.ended,))
        if self._end is None:
            await asyncio.sleep(0)  # it had ended before anybody asked: the result is made in the next step
        reply = self.job.ended.result()
        if reply.kind is MessageKind.FAILED:
            raise start_failed(reply, self.command, self._cwd)
        if self.killed_for is None:
            check_own_end(reply)
        if self._completing is not None:
            await asyncio.wait((self._completing,))
        assert self._result is not None, "made when it ended"
        return self._result

    async def _complete_result(self, completed: Coroutine[None, None, Result]) -> None:
        self._result = await completed

    def stop(self, limit: Limit) -> None:
        """End it because it has passed a limit; the first reason counts."""
        if self.alive:
            self.killed_for = self.killed_for or limit
            self.kill()

    def release(self) -> None:
        """Take what is still in its pipes, and let them go: it has ended, or the box is gone."""
        if self._watch is not None:
            self._watch.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if self._feeder is not None:
            with suppress(RuntimeError):  # its loop is closed, and has cancelled it
                self._feeder.cancel()
        for reader in self._readers:
            reader.drain()
            reader.close()
        if self._stdin >= 0:
            with suppress(RuntimeError):
                self._close_stdin()

    def _on_ended(self, ended: asyncio.Future[Reply]) -> None:
        self._end = time.monotonic()
        self.release()
        with suppress(Internal):
            reply = ended.result()
            if reply.kind is MessageKind.ENDED:
                self._result = self._make_result(self, reply)
                if self._complete is not None:
                    completed = self._complete(self._request, self._result)
                    self._completing = asyncio.ensure_future(self._complete_result(completed))
        if self._on_end is not None:
            self._on_end(self)

    def __repr__(self) -> str:
        return f"<Process {self.id} {self.command[:60]!r} {self.ending or 'running'}>"


def _nothing() -> None:
    """More output than is kept: the middle is dropped."""


def _ignore(fault: Exception) -> None:
    """A callback of the caller failed: it is not called again, and the process goes on."""


def _heed(feeder: asyncio.Task[None]) -> None:
    """The caller's stream failed: the process has read the end of its input, and goes on."""
    if not feeder.cancelled():
        feeder.exception()
