"""The manager's end of the control socket: what PID 1 is told, and which of its replies belongs to what."""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ringfence.engines.boxes import protocol
from ringfence.engines.boxes.protocol import Kind, Manner, Reply
from ringfence.errors import Internal


@dataclass(slots=True, eq=False)
class Job:
    """One process of the box that we asked for, with all that it starts."""

    id: int
    ended: asyncio.Future[Reply]
    """ENDED when nothing of it is left, FAILED when it could not be started; a fault when the box was lost."""
    terminal: asyncio.Future[int] | None = field(default=None)
    """Our end of its terminal, if it was started on one."""

    @property
    def runs(self) -> bool:
        return not self.ended.done()


class Control:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[int, Job] = {}
        self._count = 0
        self._waiting: deque[tuple[Kind, int, tuple[str, ...], tuple[int, ...]]] = deque()
        """Messages that did not fit into the socket, with copies of their descriptors."""
        self._tell: Callable[[], None] | None = None
        self.ready: asyncio.Future[None] = self._loop.create_future()
        self._listener = -1
        self._windows: dict[int, int] = {}
        self.first_pid = 0
        """PID 1 of the box, as our own pid namespace names it."""
        self.lost = False
        self._loop.add_reader(self._socket.fileno(), self._on_message)

    def configure(self, words: Iterable[str], descriptors: Sequence[int]) -> None:
        """Let PID 1 confine itself; `ready` is settled when it has."""
        with suppress(OSError):
            protocol.send(self._socket, Kind.CONFIGURE, 0, words, descriptors)

    def fileno(self) -> int:
        """Where replies come from."""
        return self._socket.fileno()

    def start(
        self,
        words: Iterable[str],
        descriptors: Sequence[int],
        manner: Manner = Manner.PLAIN,
        *,
        terminal: tuple[int, int] | None = None,
    ) -> Job:
        """Have a process started.

        Raises:
            OSError: nobody is there any more; with E2BIG, it is longer than a box takes.
        """
        self._count += 1
        job = Job(self._count, self._loop.create_future())
        size: tuple[str, ...] = ()
        if terminal is not None:
            manner |= Manner.ON_TERMINAL
            size = (str(terminal[0]), str(terminal[1]))
            job.terminal = self._loop.create_future()
        self._post(Kind.SPAWN, job.id, (str(int(manner)), *size, *words), descriptors)
        self._jobs[job.id] = job
        return job

    def kill(self, job: Job) -> None:
        self._order(job, Kind.KILL)

    def signal(self, job: Job, number: int) -> None:
        """Send a signal to the job's process group."""
        self._order(job, Kind.SIGNAL, str(number))

    def _order(self, job: Job, kind: Kind, *words: str) -> None:
        """Tell PID 1 something about a job that runs."""
        if job.runs and not self.lost:
            with suppress(OSError):  # it is gone, and whoever waits is told
                self._post(kind, job.id, words, ())

    def _post(self, kind: Kind, id: int, words: Iterable[str], descriptors: Sequence[int]) -> None:
        """Send a message; one that finds the socket full, and all that come after it, wait their turn.

        Raises:
            OSError: as `protocol.send`.
        """
        words = tuple(words)
        if not self._waiting:
            try:
                protocol.send(self._socket, kind, id, words, descriptors)
                return
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._send_waiting)
        self._waiting.append((kind, id, words, tuple(map(os.dup, descriptors))))

    def _send_waiting(self) -> None:
        while self._waiting:
            kind, id, words, descriptors = self._waiting[0]
            try:
                protocol.send(self._socket, kind, id, words, descriptors)
            except BlockingIOError:
                return
            except OSError:
                pass  # it is gone, and whoever waits is told
            self._waiting.popleft()
            for descriptor in descriptors:
                os.close(descriptor)
        self._loop.remove_writer(self._socket.fileno())

    def _drop_waiting(self) -> None:
        if self._waiting:
            self._loop.remove_writer(self._socket.fileno())
        for *_, descriptors in self._waiting:
            for descriptor in descriptors:
                os.close(descriptor)
        self._waiting.clear()

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def still_there(self) -> bool:
        """Whether PID 1 has its end open, by the kernel's word of this moment."""
        if self.lost:
            return False
        self._on_message()
        return not self.lost

    @property
    def window(self) -> int:
        """The workspace as the box sees it, where that is a shadow; else -1."""
        return self._windows.get(0, -1)

    @property
    def memory(self) -> int:
        """What holds a shadow's changes, where they are kept in memory; else -1."""
        return self._windows.get(1, -1)

    def take_listener(self) -> int:
        """The listener that READY brought, now the caller's to close; -1 if there is none, or somebody has it."""
        listener, self._listener = self._listener, -1
        return listener

    def close(self) -> None:
        """Listen no more; the socket itself is closed by whoever made it."""
        if self._listener >= 0:
            os.close(self.take_listener())
        for descriptor in self._windows.values():
            os.close(descriptor)
        self._windows.clear()
        if not self.lost:
            self._loop.remove_reader(self._socket.fileno())
            self._drop_waiting()
            self.lost = True

    def fail(self, fault: Internal) -> None:
        """Whoever still waits for a reply waits in vain."""
        self.lost = True
        waiting: list[asyncio.Future[None] | asyncio.Future[int] | asyncio.Future[Reply]] = [self.ready]
        for job in self._jobs.values():
            waiting.append(job.ended)
            if job.terminal is not None:
                waiting.append(job.terminal)
        self._jobs.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(fault)
                future.exception()  # looked at, so that nobody complains when no one waits for it

    def _on_message(self) -> None:
        try:
            received = protocol.receive(self._socket)
        except BlockingIOError:
            return
        except Internal as fault:
            self.lose(fault)
            return
        if received is None:
            self.lose(Internal("the box is gone", hint="open a new one"))
            return
        reply = received.reply
        job = self._jobs.get(reply.id)
        match reply.kind:
            case Kind.WINDOW if reply.id in self._windows and not self.ready.done():
                os.close(received.descriptor)
            case Kind.WINDOW if not self.ready.done():
                self._windows[reply.id] = received.descriptor
            case Kind.WINDOW:
                os.close(received.descriptor)
            case Kind.READY:
                self.first_pid = received.sender
                if received.descriptor >= 0:
                    if self._listener >= 0:
                        os.close(self._listener)
                    self._listener = received.descriptor
                if not self.ready.done():
                    self.ready.set_result(None)
            case Kind.TERMINAL if job is not None and job.terminal is not None and not job.terminal.done():
                job.terminal.set_result(received.descriptor)
            case Kind.TERMINAL:
                os.close(received.descriptor)
            case Kind.ENDED | Kind.FAILED if job is not None:
                del self._jobs[job.id]
                if job.terminal is not None and not job.terminal.done():
                    job.terminal.cancel()
                if not job.ended.done():
                    job.ended.set_result(reply)

    def lose(self, fault: Internal) -> None:
        """PID 1 is gone, or as good as gone: whoever waits for it is told, and so is whoever wants to know."""
        if self.lost:
            return
        self._loop.remove_reader(self._socket.fileno())
        self._drop_waiting()
        self.fail(fault)
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()
