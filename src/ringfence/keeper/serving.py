"""A keeper at work: accepts calls, forks a child for each, passes signals on, says how each ended, goes when idle.

    accept -> whose is it? -> fork -> (child: become the caller's process, run the command line)
                                   \\-> parent: signals there, the end back; a caller that is gone takes its child along

One thread and no lock: a fork must never meet one. The environment and words of a call come in a file that only the
child reads, so that nothing of a caller stays in the keeper's memory. A child dies with its keeper, and the guardian of
its box sees to the rest, as when the command line itself is killed.
"""

import array
import ctypes
import gc
import json
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version

from ringfence.keeper import wire
from ringfence.keeper.becoming import Image, OutOfDate, Request, become
from ringfence.keeper.leaving import run_to_the_end

_BACKLOG = 4096
_LOOK_SECONDS = 30.0
"""How often a keeper that nobody calls looks for its socket: a runtime directory goes with the session."""
_PR_SET_PDEATHSIG = 1
_SO_PEERPIDFD = 77
"""From Linux 6.5 on."""
_UCRED = struct.Struct("3i")


@dataclass(slots=True)
class Keeper:
    """`lock` is held as long as this keeper is the one of its place."""

    place: wire.Place
    lock: int
    image: Image
    main: Callable[[], None]
    idle_seconds: float
    began: float = field(default_factory=time.time)
    calls: int = 0
    _listener: socket.socket | None = None
    _running: dict[int, socket.socket] = field(default_factory=dict)
    _waiting: dict[int, socket.socket] = field(default_factory=dict)
    """Accepted, and nothing said yet."""
    _poll: select.poll = field(default_factory=select.poll)
    _identity: tuple[int, int] = (0, 0)
    _is_ending: bool = False
    _libc: ctypes.CDLL = field(default_factory=lambda: ctypes.CDLL(None, use_errno=True))

    def serve(self) -> None:
        """Until nobody has called for a while, somebody says stop, or what is installed has changed."""
        wake = self._wake_by_signals()
        self._listen()
        self._poll.register(wake, select.POLLIN)
        gc.collect()
        gc.freeze()
        last_used = time.monotonic()
        while self._listener is not None or self._running:
            left = max(0.0, min(_LOOK_SECONDS, last_used + self.idle_seconds - time.monotonic()))
            events = self._poll.poll(left * 1000)
            for descriptor, _ in events:
                if descriptor == wake:
                    with suppress(BlockingIOError):
                        os.read(wake, 4096)
                elif self._listener is not None and descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor in self._waiting:
                    self._begin(self._waiting.pop(descriptor))
                else:
                    self._pass_on(descriptor)
            self._reap()
            if events or self._running:
                last_used = time.monotonic()
            elif time.monotonic() - last_used >= self.idle_seconds or not self._is_still_there():
                self._is_ending = True
            if self._is_ending:
                self.stop()

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

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:  # gone again, or there are too many descriptors: its caller goes the plain way in time
            return
        connection.setblocking(False)
        if _peer(connection)[1] != os.getuid():
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
        numbers = said[len(wire.CALL) :]
        if said.startswith(wire.CALL) and is_whole and len(numbers) == 4 * (len(descriptors) - wire.OWN_DESCRIPTORS):
            self._fork(connection, Request(descriptors, struct.unpack(f"{len(numbers) // 4}i", numbers)))
            return
        self._poll.unregister(connection)
        if said in (wire.STATUS, wire.STOP):
            with suppress(OSError):
                connection.send(json.dumps(self._state()).encode())
        connection.close()
        if said == wire.STOP:
            self.stop()

    def _state(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "version": version("ringfence"),
            "since": self.began,
            "calls": self.calls,
            "running": len(self._running),
            "idle_seconds": self.idle_seconds,
        }

    def _fork(self, connection: socket.socket, request: Request) -> None:
        keeper = os.getpid()
        try:
            child = os.fork()
        except OSError:  # the plain way may get one yet
            self._poll.unregister(connection)
            connection.close()
            return
        if child == 0:
            self._be_a_child(connection, request, keeper)
        self._running[child] = connection

    def _be_a_child(self, connection: socket.socket, request: Request, keeper: int) -> None:
        """Never returns."""
        try:
            signal.set_wakeup_fd(-1)
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != keeper:
                os._exit(1)
            os.setpgid(0, 0)
            peer, _ = _peer(connection)
            if not _is_same_process(connection, peer) or not become(request, peer, self.image):
                os._exit(1)
        except OutOfDate:
            os.kill(keeper, signal.SIGTERM)
            os._exit(1)
        except BaseException:
            os._exit(1)
        run_to_the_end(self.main)

    def _pass_on(self, descriptor: int) -> None:
        """A signal for a child; or its caller is gone, and it goes too."""
        found = next(((pid, each) for pid, each in self._running.items() if each.fileno() == descriptor), None)
        if found is None:
            return
        pid, connection = found
        try:
            said = connection.recv(16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said == wire.BEGUN:
            self.calls += 1
        elif len(said) == 2 and said[0] == wire.SIGNAL:
            with suppress(ProcessLookupError, ValueError):
                os.kill(pid, said[1])
        else:
            self._poll.unregister(connection)
            os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        for pid in tuple(self._running):
            done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if done == 0:
                continue
            if os.WIFSTOPPED(status):
                self._tell(pid, wire.STOPPED, os.WSTOPSIG(status))
            elif os.WIFSIGNALED(status):
                self._tell(pid, wire.KILLED, os.WTERMSIG(status))
                self._forget(pid)
            else:
                self._tell(pid, wire.EXITED, os.WEXITSTATUS(status))
                self._forget(pid)

    def _tell(self, pid: int, kind: bytes, number: int) -> None:
        with suppress(OSError):  # the caller is gone
            self._running[pid].send(kind + bytes([number]))

    def _forget(self, pid: int) -> None:
        connection = self._running.pop(pid)
        with suppress(OSError):  # one that began and has ended at once still counts
            self.calls += connection.recv(16) == wire.BEGUN
        with suppress(KeyError):
            self._poll.unregister(connection)
        connection.close()


def _peer(connection: socket.socket) -> tuple[int, int]:
    """The pid and the uid of whoever connected, as the kernel noted them."""
    pid, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def _is_same_process(connection: socket.socket, pid: int) -> bool:
    """Whether the process that connected is still the one with that pid, and not a later one."""
    try:
        handle = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:  # an older kernel, or the process is gone
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
    try:
        return not select.select([handle], [], [], 0)[0]
    finally:
        os.close(handle)
