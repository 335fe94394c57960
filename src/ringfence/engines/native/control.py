"""The manager's end of the control socket: what PID 1 is told, and which of its replies belongs to what."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ringfence.engines.native import protocol
from ringfence.engines.native.protocol import Kind, Manner, Reply
from ringfence.engines.native.starting import Started
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
    def __init__(self, started: Started) -> None:
        self._started = started
        self._socket = started.control
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[int, Job] = {}
        self._count = 0
        self._tell: Callable[[], None] | None = None
        self.ready: asyncio.Future[int] = self._loop.create_future()
        """The listener of the notification filter, -1 if there is none; whoever waits for it closes it."""
        self.first_pid = 0
        """PID 1 of the box, as our own pid namespace names it."""
        self.lost = False
        self._loop.add_reader(self._socket.fileno(), self._on_message)

    def configure(self) -> None:
        """Let PID 1 confine itself; `ready` is settled when it has."""
        descriptors = [each for each in (self._started.seccomp, self._started.notify) if each >= 0]
        with suppress(OSError):
            protocol.send(self._socket, Kind.CONFIGURE, 0, self._started.configure, descriptors)

    def start(self, words: Iterable[str], descriptors: Sequence[int], manner: Manner = Manner.PLAIN) -> Job:
        """Have a process started.

        Raises:
            OSError: nobody is there any more; with E2BIG, it is longer than a box takes.
        """
        self._count += 1
        job = Job(self._count, self._loop.create_future())
        if manner & Manner.ON_TERMINAL:
            job.terminal = self._loop.create_future()
        protocol.send(self._socket, Kind.SPAWN, job.id, (str(int(manner)), *words), descriptors)
        self._jobs[job.id] = job
        return job

    def kill(self, job: Job) -> None:
        with suppress(OSError):
            protocol.send(self._socket, Kind.KILL, job.id)

    def signal(self, job: Job, number: int) -> None:
        """Send a signal to the job's process group."""
        with suppress(OSError):
            protocol.send(self._socket, Kind.SIGNAL, job.id, (str(number),))

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._tell = tell

    def still_there(self) -> bool:
        """Whether PID 1 has its end open, by the kernel's word of this moment."""
        if self.lost:
            return False
        self._on_message()
        return not self.lost

    def close(self) -> None:
        """Listen no more; the socket itself is closed by whoever made it."""
        if not self.lost:
            self._loop.remove_reader(self._socket.fileno())
            self.lost = True

    def fail(self, fault: Internal) -> None:
        """Whoever still waits for a reply waits in vain."""
        self.lost = True
        waiting: list[asyncio.Future[int] | asyncio.Future[Reply]] = [self.ready]
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
            self._lose(fault)
            return
        if received is None:
            self._lose(Internal("the box is gone", hint="open a new one"))
            return
        reply = received.reply
        job = self._jobs.get(reply.id)
        match reply.kind:
            case Kind.READY:
                self.first_pid = received.sender
                if not self.ready.done():
                    self.ready.set_result(received.descriptor)
                elif received.descriptor >= 0:
                    os.close(received.descriptor)
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

    def _lose(self, fault: Internal) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self.fail(fault)
        if self._tell is not None:
            tell, self._tell = self._tell, None
            tell()
