"""A keeper at work: accepts calls, hands each to a child, passes signals on, says how each ended, goes when idle.

    accept -> whose is it? -> a child: with a box that waits for such a call, or the spare one, or a new one
                           \\-> signals there, the end back; a caller that is gone takes its child along

One thread and no lock: a fork must never meet one. Children are forked ahead (`child.py`), and wait for an order. One
that has served a call may open a box for the next of its kind (`shelf.py`). The environment and words of a call come in
a file that only the child reads, so that nothing of a caller is ever in the keeper's memory.
"""

import array
import gc
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version

from ringfence.keeper import wire
from ringfence.keeper.becoming import FIRST_OWN, Image
from ringfence.keeper.child import CommandLine, be_a_child, peer_of
from ringfence.keeper.settings import Settings
from ringfence.keeper.shelf import Shelf

_BACKLOG = 4096
_LOOK_SECONDS = 30.0
"""How often a keeper that nobody calls looks for its socket: a runtime directory goes with the session."""


@dataclass(slots=True, eq=False)
class Child:
    pid: int
    channel: socket.socket
    connection: socket.socket | None = None
    """To its caller, once it has one."""
    kind: int = 0
    is_over: bool = False
    """Its caller has been answered."""


@dataclass(slots=True)
class Keeper:
    """`lock` is held as long as this keeper is the one of its place."""

    place: wire.Place
    lock: int
    image: Image
    line: CommandLine
    settings: Settings
    began: float = field(default_factory=time.time)
    calls: int = 0
    taken: int = 0
    """Calls that found a box."""
    _listener: socket.socket | None = None
    _children: dict[int, Child] = field(default_factory=dict)
    _by_descriptor: dict[int, Child] = field(default_factory=dict)
    """By that of its channel, and of its connection."""
    _waiting: dict[int, socket.socket] = field(default_factory=dict)
    """Accepted, and nothing said yet."""
    _spare: Child | None = None
    _shelf: Shelf[Child] = field(init=False)
    _poll: select.poll = field(default_factory=select.poll)
    _identity: tuple[int, int] = (0, 0)
    _is_ending: bool = False

    def __post_init__(self) -> None:
        self._shelf = Shelf(self.settings.boxes, self.settings.box_seconds)

    @property
    def _running(self) -> int:
        return sum(child.connection is not None and not child.is_over for child in self._children.values())

    def serve(self) -> None:
        """Until nobody has called for a while, somebody says stop, or what is installed has changed."""
        wake = self._wake_by_signals()
        self._listen()
        self._poll.register(wake, select.POLLIN)
        gc.collect()
        gc.freeze()
        last_used = time.monotonic()
        while self._listener is not None or self._children:
            events = self._poll.poll(self._patience(last_used) * 1000)
            for descriptor, _ in events:
                self._handle(descriptor, wake)
            self._reap()
            now = time.monotonic()
            for child in self._shelf.expired(now):
                self._dismiss(child)
            if any(descriptor != wake for descriptor, _ in events) or self._running:
                last_used = now
            elif now - last_used >= self.settings.idle_seconds or not self._is_still_there():
                self._is_ending = True
            if self._is_ending:
                self.stop()
                self._dismiss_idle()
            elif not events and self._spare is None and self._listener is not None:
                self._spare = self._fork()

    def _patience(self, last_used: float) -> float:
        """How long there is nothing to do, unless somebody calls."""
        if self._spare is None and self._listener is not None:
            return 0.0  # a child ahead, when nobody waits for anything else
        if self._listener is None:
            return _LOOK_SECONDS  # calls that still run; their ends wake it
        now = time.monotonic()
        left = last_used + self.settings.idle_seconds - now
        shelf = self._shelf.seconds_left(now)
        return max(0.0, min(_LOOK_SECONDS, left, _LOOK_SECONDS if shelf is None else shelf))

    def _handle(self, descriptor: int, wake: int) -> None:
        if descriptor == wake:
            with suppress(BlockingIOError):
                os.read(wake, 4096)
        elif self._listener is not None and descriptor == self._listener.fileno():
            self._accept_all()
        elif descriptor in self._waiting:
            self._begin(self._waiting.pop(descriptor))
        elif (child := self._by_descriptor.get(descriptor)) is not None:
            if descriptor == child.channel.fileno():
                self._hear(child)
            else:
                self._pass_on(child)

    def stop(self) -> None:
        """Take no more calls; those that run go on. The next caller finds the place free."""
        if self._listener is None:
            return
        self._poll.unregister(self._listener)
        if self._is_still_there():
            with suppress(OSError):
                os.unlink(self.place.socket, dir_fd=self.place.directory)
        self._listener.close()
        self._listener = None
        for waiting in self._waiting.values():
            self._poll.unregister(waiting)
            waiting.close()
        self._waiting.clear()
        for child in (*self._shelf.clear(), *([self._spare] if self._spare else [])):
            self._dismiss(child)
        self._spare = None
        os.close(self.lock)

    def _wake_by_signals(self) -> int:
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note_end)
        return reading

    def _note_end(self, *_: object) -> None:
        self._is_ending = True

    def _listen(self) -> None:
        with suppress(FileNotFoundError):  # of one that was killed: the lock says that nobody listens there
            os.unlink(self.place.socket, dir_fd=self.place.directory)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(self.place.address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        status = os.stat(self.place.socket, dir_fd=self.place.directory, follow_symlinks=False)
        self._identity = (status.st_dev, status.st_ino)
        self._listener = listener
        self._poll.register(listener, select.POLLIN)

    def _is_still_there(self) -> bool:
        try:
            status = os.stat(self.place.socket, dir_fd=self.place.directory, follow_symlinks=False)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._identity

    # --- callers ------------------------------------------------------------------------------------------------------

    def _accept_all(self) -> None:
        """Everybody who waits, before anything else is done: who is not accepted soon goes the plain way."""
        while self._listener is not None:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # nobody, or gone again, or there are too many descriptors
                return
            self._accept(connection)

    def _accept(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        if peer_of(connection)[1] != os.getuid():
            connection.close()
            return
        with suppress(OSError):
            connection.send(wire.ACCEPTED)
        self._waiting[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)

    def _begin(self, connection: socket.socket) -> None:
        descriptors = array.array("i")
        try:
            said, ancillary, flags, _ = connection.recvmsg(
                wire.LONGEST_REQUEST, socket.CMSG_SPACE(descriptors.itemsize * wire.MOST_DESCRIPTORS)
            )
        except BlockingIOError:  # the event was of an earlier one with this number
            self._waiting[connection.fileno()] = connection
            return
        except OSError:
            said, ancillary, flags = b"", [], 0
        for _, _, data in ancillary:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        try:
            self._answer(connection, said, tuple(descriptors), is_whole=not flags & socket.MSG_CTRUNC)
        finally:
            for each in descriptors:
                os.close(each)

    def _answer(self, connection: socket.socket, said: bytes, descriptors: tuple[int, ...], *, is_whole: bool) -> None:
        head = len(wire.CALL) + wire.KIND_BYTES
        numbers = said[head:]
        is_call = said.startswith(wire.CALL) and len(said) >= head and is_whole
        if is_call and len(numbers) == 4 * (len(descriptors) - wire.OWN_DESCRIPTORS):
            self._serve(connection, said[len(wire.CALL) : head], numbers, descriptors)
            return
        self._poll.unregister(connection)
        if said in (wire.STATUS, wire.STOP):
            with suppress(OSError):
                connection.send(json.dumps(self._state()).encode())
        connection.close()
        if said == wire.STOP:
            self._is_ending = True

    def _state(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "version": version("ringfence"),
            "since": self.began,
            "calls": self.calls,
            "running": self._running,
            "idle_seconds": self.settings.idle_seconds,
            "boxes": [round(age, 1) for age in self._shelf.ages(time.monotonic())],
            "boxes_most": self.settings.boxes,
            "box_seconds": self.settings.box_seconds,
            "boxes_taken": self.taken,
        }

    def _serve(self, connection: socket.socket, kind: bytes, numbers: bytes, descriptors: tuple[int, ...]) -> None:
        """Hand a call to a child; where that fails, the plain way may get one yet."""
        child = None
        if all(number < FIRST_OWN for (number,) in struct.iter_unpack("i", numbers)):
            child = self._shelf.take(int.from_bytes(kind, "little"))
            self.taken += child is not None
            if child is None:
                child, self._spare = self._spare or self._fork(), None
        if child is None or not _order(child, wire.SERVE + numbers, (connection.fileno(), *descriptors)):
            self._poll.unregister(connection)
            connection.close()
            return
        child.connection, child.kind, child.is_over = connection, int.from_bytes(kind, "little"), False
        self._by_descriptor[connection.fileno()] = child

    def _pass_on(self, child: Child) -> None:
        """A signal for a child; or its caller is gone, and it goes too."""
        assert child.connection is not None
        try:
            said = child.connection.recv(16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if len(said) == 2 and said[0] == wire.SIGNAL:
            if child.is_over:
                return
            with suppress(ProcessLookupError, ValueError):
                os.kill(child.pid, said[1])
            return
        self._hear(child)  # what it said before its caller went
        self._leave_caller(child)
        if not child.is_over:
            os.kill(child.pid, signal.SIGKILL)

    # --- children -----------------------------------------------------------------------------------------------------

    def _fork(self) -> Child | None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keeper = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            return None
        if pid == 0:
            be_a_child(theirs, self.image, self.line, keeper)
        theirs.close()
        ours.setblocking(False)
        child = self._children[pid] = self._by_descriptor[ours.fileno()] = Child(pid, ours)
        self._poll.register(ours, select.POLLIN)
        return child

    def _hear(self, child: Child) -> None:
        try:
            said = child.channel.recv(16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said == wire.PREPARED:
            self._leave_caller(child)  # who was answered long ago
            if self._listener is None:
                self._dismiss(child)
            else:
                self._shelf.ready(child, time.monotonic())
        elif said.startswith(wire.OVER) and not child.is_over:
            child.is_over = True
            self.calls += 1
            if said[1:] == b"\1":
                self._prepare(child)
        elif not said:  # it is gone, or about to be
            with suppress(KeyError):
                self._poll.unregister(child.channel)

    def _prepare(self, child: Child) -> None:
        """Have it open a box for the next call of its kind, or end."""
        if self._listener is None or not self._shelf.wants(child.kind) or not _order(child, wire.PREPARE):
            with suppress(OSError):
                child.channel.shutdown(socket.SHUT_RDWR)
            return
        gone = self._shelf.put(child.kind, child, time.monotonic())
        if gone is not None:
            self._dismiss(gone)

    def _dismiss(self, child: Child) -> None:
        """One that serves nobody; the guardian of its box takes that down."""
        self._shelf.forget(child)
        if self._spare is child:
            self._spare = None
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)

    def _dismiss_idle(self) -> None:
        """Whoever has no call, and will get none."""
        for child in tuple(self._children.values()):
            if child.connection is None and not child.is_over:
                self._dismiss(child)

    def _reap(self) -> None:
        for pid in tuple(self._children):
            done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if done == 0:
                continue
            child = self._children[pid]
            if os.WIFSTOPPED(status):
                if child.connection is None:  # who waits for a call must be able to take it
                    self._dismiss(child)
                self._tell(child, wire.STOPPED, os.WSTOPSIG(status))
                continue
            self._hear(child)
            if os.WIFSIGNALED(status):
                self._tell(child, wire.KILLED, os.WTERMSIG(status))
            else:
                self._tell(child, wire.EXITED, os.WEXITSTATUS(status))
            self._forget(child)

    def _tell(self, child: Child, kind: bytes, number: int) -> None:
        if child.connection is not None:
            with suppress(OSError):  # the caller is gone
                child.connection.send(kind + bytes([number]))

    def _forget(self, child: Child) -> None:
        del self._children[child.pid]
        self._shelf.forget(child)
        if self._spare is child:
            self._spare = None
        self._leave_caller(child)
        del self._by_descriptor[child.channel.fileno()]
        with suppress(KeyError):
            self._poll.unregister(child.channel)
        child.channel.close()

    def _leave_caller(self, child: Child) -> None:
        if child.connection is None:
            return
        del self._by_descriptor[child.connection.fileno()]
        self._poll.unregister(child.connection)
        child.connection.close()
        child.connection = None


def _order(child: Child, words: bytes, descriptors: Sequence[int] = ()) -> bool:
    """Whether it could be told; one that is gone is reaped soon."""
    fds = array.array("i", descriptors)
    try:
        child.channel.sendmsg([words], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if descriptors else [])
    except OSError:
        return False
    return True
