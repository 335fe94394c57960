"""The manager's end of the control socket: what PID 1 is told, and which of its replies belongs to what."""

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from ringfence.dataclass import dataclass, field
from ringfence.engines.boxes import protocol
from ringfence.engines.boxes.protocol import Manner, MessageKind, Reply
from ringfence.engines.loops import forget_reader, forget_writer
from ringfence.errors import Internal

_IN_FLIGHT_SECONDS = 0.005
"""The kernel counts descriptors that are on their way, for all processes of an ordinary user, against the limit of open
files; when there are too many, a message waits until others have arrived."""


@dataclass(slots=True, eq=False)
class Job:
    """One process of the box that we asked for, with all that it starts."""

    id: int
    ended: asyncio.Future[Reply]
    """ENDED when nothing of it is left, FAILED when it could not be started; a fault when the box was lost."""
    over: asyncio.Future[Reply]
    """The same, unless what it leaves running may live on: then LEFT when its first process has ended and something is
    left, else as `ended`."""
    terminal: asyncio.Future[int] | None = field(default=None)
    """Our end of its terminal, if it was started on one."""
    measuring: list[asyncio.Future[Reply]] = field(default_factory=list)
    """Who waits to hear what it uses."""

    @property
    def runs(self) -> bool:
        return not self.ended.done()


class Control:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[int, Job] = {}
        self._count = 0
        self._waiting: deque[tuple[MessageKind, int, tuple[str, ...], tuple[int, ...]]] = deque()
        """Messages that did not fit into the socket, with copies of their descriptors."""
        self._later: asyncio.TimerHandle | None = None
        self._making: dict[int, asyncio.Future[int]] = {}
        """Who waits for a socket of the box's network."""
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
            protocol.send(self._socket, MessageKind.CONFIGURE, 0, words, descriptors)

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
        ended: asyncio.Future[Reply] = self._loop.create_future()
        over: asyncio.Future[Reply] = self._loop.create_future() if manner & Manner.KEEPS else ended
        job = Job(self._count, ended, over)
        size: tuple[str, ...] = ()
        if terminal is not None:
            manner |= Manner.ON_TERMINAL
            size = (str(terminal[0]), str(terminal[1]))
            job.terminal = self._loop.create_future()
        self._post(MessageKind.SPAWN, job.id, (str(int(manner)), *size, *words), descriptors)
        self._jobs[job.id] = job
        return job

    def kill(self, job: Job) -> None:
        self._order(job, MessageKind.KILL)

    def signal(self, job: Job, number: int) -> None:
        """Send a signal to the job's process group."""
        self._order(job, MessageKind.SIGNAL, str(number))

    def measure(self, job: Job) -> "asyncio.Future[Reply]":
        """Ask what it and all that it started use at the moment."""
        measured: asyncio.Future[Reply] = self._loop.create_future()
        if job.runs and not self.lost:
            job.measuring.append(measured)
            self._order(job, MessageKind.MEASURE)
        else:
            measured.cancel()
        return measured

    def make_socket(self, kind: MessageKind, which: int) -> "asyncio.Future[int]":
        """Have PID 1 make a socket; the descriptor is the caller's to close.

        Raises:
            OSError: nobody is there any more.
        """
        self._count += 1
        made: asyncio.Future[int] = self._loop.create_future()
        self._post(kind, self._count, (str(which),), ())
        self._making[self._count] = made
        return made

    def _order(self, job: Job, kind: MessageKind, *words: str) -> None:
        """Tell PID 1 something about a job that runs."""
        if job.runs and not self.lost:
            with suppress(OSError):  # it is gone, and whoever waits is told
                self._post(kind, job.id, words, ())

    def _post(self, kind: MessageKind, id: int, words: Iterable[str], descriptors: Sequence[int]) -> None:
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
            except OSError as fault:
                if fault.errno != errno.ETOOMANYREFS:
                    raise
                self._later = self._loop.call_later(_IN_FLIGHT_SECONDS, self._send_waiting)
        self._waiting.append((kind, id, words, tuple(map(os.dup, descriptors))))

    def _send_waiting(self) -> None:
        while self._waiting:
            kind, id, words, descriptors = self._waiting[0]
            try:
                protocol.send(self._socket, kind, id, words, descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._socket.fileno(), self._send_waiting)
                return
            except OSError as fault:  # or it is gone, and whoever waits is told
                if fault.errno == errno.ETOOMANYREFS:
                    self._loop.remove_writer(self._socket.fileno())
                    self._later = self._loop.call_later(_IN_FLIGHT_SECONDS, self._send_waiting)
                    return
            self._waiting.popleft()
            for descriptor in descriptors:
                os.close(descriptor)
        self._loop.remove_writer(self._socket.fileno())

    def _drop_waiting(self) -> None:
        if self._waiting:
            forget_writer(self._loop, self._socket.fileno())
        if self._later is not None:
            self._later.cancel()
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
            forget_reader(self._loop, self._socket.fileno())
            self._drop_waiting()
            self.lost = True

    def fail(self, fault: Internal) -> None:
        """Whoever still waits for a reply waits in vain."""
        self.lost = True
        waiting: list[asyncio.Future[None] | asyncio.Future[int] | asyncio.Future[Reply]] = [self.ready]
        for job in self._jobs.values():
            waiting += (job.ended, job.over, *job.measuring)
            if job.terminal is not None:
                waiting.append(job.terminal)
        waiting += self._making.values()
        self._making.clear()
        self._jobs.clear()
        for future in waiting:
            if not future.done():
                with suppress(RuntimeError):  # its loop is closed: whoever waited there is gone
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
            case MessageKind.WINDOW if reply.id in self._windows and not self.ready.done():
                os.close(received.descriptor)
            case MessageKind.WINDOW if not self.ready.done():
                self._windows[reply.id] = received.descriptor
            case MessageKind.WINDOW:
                os.close(received.descriptor)
            case MessageKind.READY:
                self.first_pid = received.sender
                if received.descriptor >= 0:
                    if self._listener >= 0:
                        os.close(self._listener)
                    self._listener = received.descriptor
                if not self.ready.done():
                    self.ready.set_result(None)
            case MessageKind.TERMINAL if job is not None and job.terminal is not None and not job.terminal.done():
                job.terminal.set_result(received.descriptor)
            case MessageKind.TERMINAL:
                os.close(received.descriptor)
            case MessageKind.ENDED | MessageKind.FAILED if job is not None:
                del self._jobs[job.id]
                if job.terminal is not None and not job.terminal.done():
                    job.terminal.cancel()
                for future in (job.ended, job.over):
                    if not future.done():
                        future.set_result(reply)
                for measured in job.measuring:
                    measured.cancel()
            case MessageKind.MADE:
                self._on_socket(self._making.pop(reply.id, None), reply, received.descriptor)
            case MessageKind.LEFT if job is not None and job.over is not job.ended and not job.over.done():
                job.over.set_result(reply)
            case MessageKind.MEASURED if job is not None and job.measuring:
                measured = job.measuring.pop(0)
                if not measured.done():
                    measured.set_result(reply)

    def _on_socket(self, made: "asyncio.Future[int] | None", reply: Reply, descriptor: int) -> None:
        (error,) = reply.numbers
        if made is not None and not made.done() and descriptor >= 0 and not error:
            made.set_result(descriptor)
            return
        if descriptor >= 0:
            os.close(descriptor)
        if made is not None and not made.done():
            number = error if 0 < error < 4096 else errno.EPROTO
            made.set_exception(OSError(number, os.strerror(number)))

    def lose(self, fault: Internal) -> None:
        """PID 1 is gone, or as good as gone: whoever waits for it is told, and so is whoever wants to know."""
        if self.lost:
            return
        forget_reader(self._loop, self._socket.fileno())
        self._drop_waiting()
        self.fail(fault)
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()
