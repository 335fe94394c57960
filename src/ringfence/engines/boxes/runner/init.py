"""Inside the wall: PID 1 of the box. Step by step what native/init.c does, which says why.

Two things are done otherwise. A program is started by fork, and the copy says by a pipe what went wrong; the pipe
closes when it has become the program. And signals are first put back to what they were before the interpreter started:
the kernel shields PID 1 from its own processes only where it has no handler.

All modules are imported before the first command runs, and none after: `main` has cleared the path.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource  # os.wait4 would import it later
import select
import struct
import time

from .kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    RLIM_INFINITY,
    RLIMIT_CPU,
    add_rule,
    apply_filter,
    close_range,
    create_ruleset,
    execvpe,
    hard_limit,
    prctl,
    restrict_self,
    set_limit,
    signal_file,
)
from .words import (
    BODY_MAX,
    CONFIGURE,
    ENDED,
    FAILED,
    INLINE_MAX,
    KILL,
    LONG_LIVED,
    ON_TERMINAL,
    PROTOCOL_VERSION,
    READY,
    SIGNAL,
    SPAWN,
    TERMINAL,
    WINDOW,
    Deadly,
    Harmless,
    Words,
    children_file,
    die_because,
    kill,
    kill_children,
    slurp,
    take_back_signals,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable
    from typing import NoReturn
else:
    import _signal as signal
    import _socket as socket

FILTER_MAX = 4096  # instructions that the kernel takes
EXTRA_FD = 9  # where a command finds a fourth descriptor; a fifth is at the number below
FDS_MAX = 6  # five, and a long body
JOBS_MAX = 256
STRAYS_MAX = 4096
PATIENCE_MS = 200  # how long left-overs may go on forking before everything is killed
_FIRST_FREE = 64  # out of the way of the descriptors that commands are given
_INSTRUCTION_BYTES = 8
_PID_BYTES = 8  # of one in a list, with the blank
_HEADER = struct.Struct("=IIII")
_INT = struct.Struct("=i")
_LOCK, _NUMBER, _TAKE = 0x40045431, 0x80045430, 0x540E  # TIOCSPTLCK, TIOCGPTN, TIOCSCTTY
_SET_SIZE = 0x5414  # TIOCSWINSZ


def init(control: int) -> NoReturn:
    with Deadly("undumpable"):
        prctl(PR_SET_DUMPABLE, 0)
    with Deadly("parent-death signal"):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    take_back_signals()
    with Deadly("control socket"):
        moved = fcntl.fcntl(control, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
        plug = socket.socket(fileno=moved)
    with Deadly("descriptors"):
        close_range(3, moved - 1)
        close_range(moved + 1)
    with Deadly("signalfd"):
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
        ended = signal_file(signal.SIGCHLD)
    _First(plug).serve(ended)
    os._exit(0)


class _Job:
    """One command: its first process, and what all of it has used."""

    __slots__ = ("first", "id", "peak", "status", "system", "user")

    def __init__(self, id: int, first: int) -> None:
        self.id = id
        self.first = first
        self.status = self.user = self.system = self.peak = 0

    def count(self, used: resource.struct_rusage) -> None:
        self.user += round(used.ru_utime * 1_000_000)
        self.system += round(used.ru_stime * 1_000_000)
        self.peak = max(self.peak, used.ru_maxrss)


class _Command:
    """What SPAWN asks for."""

    __slots__ = ("argv", "cwd", "env", "extra", "manner", "size", "streams", "terminal")

    def __init__(self, words: Words, descriptors: list[int]) -> None:
        self.manner = words.number()
        self.size = tuple(words.numbers(2)) if self.on_terminal else ()
        self.cwd = words.word()
        argc, envc = words.numbers(2)
        if not argc or argc > BODY_MAX or envc > BODY_MAX:
            die_because("a command has no arguments")
        self.argv = [words.word() for _ in range(argc)]
        self.env = [words.word() for _ in range(envc)]
        self.terminal = -1
        wanted = 0 if self.on_terminal else 3
        self.streams, self.extra = descriptors[:wanted], descriptors[wanted:]

    @property
    def on_terminal(self) -> bool:
        return bool(self.manner & ON_TERMINAL)

    @property
    def is_complete(self) -> bool:
        return self.on_terminal or len(self.streams) == 3


class _First:
    """PID 1: what it was told, and what runs."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._configured = False
        self._rules = self._domain = self._list = -1
        self._cpu_seconds = RLIM_INFINITY
        self._jobs: dict[int, _Job] = {}
        """By the id that the manager gave."""
        self._firsts: dict[int, _Job] = {}
        """By the pid of the first process, until that is reaped."""

    def serve(self, ended: int) -> None:
        """Until the control socket closes."""
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(ended, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if ended in ready:
                _drain(ended)
                self._reap()
            if self._control.fileno() in ready and not self._take_message():
                return

    # --- messages -----------------------------------------------------------------------------------------------------

    def _take_message(self) -> bool:
        """One message with its descriptors; false at the end."""
        space = socket.CMSG_SPACE(_INT.size * FDS_MAX)
        try:
            packet, ancillary, flags, _ = self._control.recvmsg(
                _HEADER.size + INLINE_MAX, space, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if not packet:
            return False
        if len(packet) < _HEADER.size or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            die_because("a message is too short")
        descriptors: list[int] = []
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                whole = len(data) - len(data) % _INT.size
                descriptors += (number for (number,) in _INT.iter_unpack(data[:whole]))
        if len(descriptors) > FDS_MAX:
            die_because("a message has too many descriptors")
        version, kind, id, length = _HEADER.unpack_from(packet)
        if version != PROTOCOL_VERSION:
            die_because("the manager speaks another version")
        body = packet[_HEADER.size :]
        if length > INLINE_MAX:
            if not descriptors:
                die_because("a long message has no body")
            last = descriptors.pop()
            body = slurp(last)
            os.close(last)
        if len(body) != length:
            die_because("a message has the wrong length")
        action = MESSAGES.get(kind)
        if action is None:
            die_because("a message of unknown kind")
        action(self, id, Words(body), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _send(self, kind: int, id: int, *numbers: int, descriptor: int = -1) -> None:
        body = struct.pack(f"={len(numbers)}Q", *numbers)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _INT.pack(descriptor))] if descriptor >= 0 else []
        try:
            packet = _HEADER.pack(PROTOCOL_VERSION, kind, id, len(body)) + body
            self._control.sendmsg([packet], rights, socket.MSG_NOSIGNAL)
        except OSError:
            os._exit(0)  # nobody listens any more

    # --- what a message asks for --------------------------------------------------------------------------------------

    def configure(self, id: int, words: Words, descriptors: list[int]) -> None:
        if self._configured or not words.more():
            die_because("a configuration is empty, or not the first")
        self._configured = True
        while words.more():
            verb = words.word()
            step = CONFIGURATION.get(verb)
            if step is None:
                die_because("a configuration holds an unknown verb")
            with Deadly(verb):
                step(self, words, descriptors)
        with Deadly("/dev/null"):
            null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
            for number in range(3):
                os.dup2(null, number)
            # The numbers that commands are given stay taken, so that no descriptor that comes later has one of them.
            while null <= EXTRA_FD:
                null = fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, 3)
            os.close(null)
            self._list = os.open(children_file(), os.O_RDONLY | os.O_CLOEXEC)
        self._send(READY, id)

    def spawn(self, id: int, words: Words, descriptors: list[int]) -> None:
        if not self._configured:
            die_because("a command came before the configuration")
        command = _Command(words, descriptors)
        if len(self._jobs) >= JOBS_MAX or id in self._jobs or not command.is_complete:
            self._send(FAILED, id, errno.EAGAIN)
            return
        master = -1
        try:
            if command.on_terminal:
                master, command.terminal = _open_terminal(command.size)
                command.streams = [command.terminal] * 3
            pid = self._start(command)
        except OSError as fault:
            self._send(FAILED, id, fault.errno or errno.EIO)
        else:
            self._jobs[id] = self._firsts[pid] = _Job(id, pid)
            if master >= 0:
                self._send(TERMINAL, id, descriptor=master)
        for descriptor in (master, command.terminal):
            if descriptor >= 0:
                os.close(descriptor)

    def kill(self, id: int, words: Words, descriptors: list[int]) -> None:
        job = self._jobs.get(id)
        if not id:
            self._end_all(None)
        elif job is not None:
            kill(job.first, signal.SIGKILL)
            _, job.status, used = os.wait4(job.first, 0)
            job.count(used)
            self._end_job(job)

    def signal(self, id: int, words: Words, descriptors: list[int]) -> None:
        job, which = self._jobs.get(id), words.number()
        if job is not None:
            kill(-job.first, which)  # it leads a session and a group of its own

    # --- starting -----------------------------------------------------------------------------------------------------

    def _start(self, command: _Command) -> int:
        """The pid of the program, when the copy of us has become it.

        Raises:
            OSError: it could not be started.
        """
        told, tell = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(told)
            os.close(tell)
            raise
        if not pid:
            problem = errno.EIO
            try:
                self._become(command)
            except OSError as fault:
                problem = fault.errno or problem
            finally:
                try:
                    os.write(tell, _INT.pack(problem))
                finally:
                    os._exit(127)  # whatever happened, there is one PID 1 only
        os.close(tell)
        answer = os.read(told, _INT.size)
        os.close(told)
        if answer:
            os.waitpid(pid, 0)
            (problem,) = _INT.unpack(answer)
            raise OSError(problem, os.strerror(problem))
        return pid

    def _become(self, command: _Command) -> None:
        os.setsid()
        if command.terminal >= 0:
            fcntl.ioctl(command.terminal, _TAKE, 0)
        for number, descriptor in enumerate(command.streams):
            os.dup2(descriptor, number)
        for back, descriptor in enumerate(command.extra):
            os.dup2(descriptor, EXTRA_FD - back)
        os.chdir(command.cwd)
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        if not command.manner & LONG_LIVED and self._cpu_seconds != RLIM_INFINITY:
            set_limit(RLIMIT_CPU, self._cpu_seconds)
        if self._domain >= 0:
            restrict_self(self._domain)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        execvpe(command.argv, command.env)

    # --- ending -------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            job = self._firsts.get(pid)
            if job is not None:
                job.count(used)
                job.status = status
                self._end_job(job)

    def _end_job(self, job: _Job) -> None:
        """The first process has been reaped; what it left behind is ours now, and is killed until there is none."""
        if len(self._jobs) == 1:
            self._end_all(job)
            return
        del self._firsts[job.first]
        begin = 0.0
        while strays := self._find_strays():
            for pid in strays:
                kill(pid, signal.SIGKILL)
            for pid in strays:
                with Harmless(ChildProcessError):
                    job.count(os.wait4(pid, 0)[2])
            begin = begin or time.monotonic()
            if (time.monotonic() - begin) * 1000 > PATIENCE_MS:
                self._end_all(job)
                return
        self._report(job)

    def _end_all(self, blamed: _Job | None) -> None:
        """Kill and reap everything; what it used counts for `blamed`."""
        while True:
            kill_children()
            try:
                pid, status, used = os.wait4(-1, 0)
            except ChildProcessError:
                break
            job = self._firsts.get(pid)
            if job is not None:
                job.status = status
            if counted := job or blamed:
                counted.count(used)
        for job in list(self._jobs.values()):
            self._report(job)

    def _report(self, job: _Job) -> None:
        del self._jobs[job.id]
        self._firsts.pop(job.first, None)
        self._send(ENDED, job.id, job.status & 0xFFFFFFFF, job.user, job.system, job.peak)

    def _find_strays(self) -> list[int]:
        """Our children that are nobody's first process."""
        with Deadly("children"):
            text = os.pread(self._list, STRAYS_MAX * _PID_BYTES, 0)
        # Half a number would be somebody else's.
        pids = map(int, text[: text.rfind(b" ") + 1].split())
        return [pid for pid in pids if pid not in self._firsts][:STRAYS_MAX]

    # --- confining ourselves ------------------------------------------------------------------------------------------

    def set_umask(self, words: Words, descriptors: list[int]) -> None:
        os.umask(words.number())

    def set_rlimit(self, words: Words, descriptors: list[int]) -> None:
        which, value = words.number(), words.number()
        set_limit(which, min(value, hard_limit(which)))  # never raise what the host set

    def set_cpu(self, words: Words, descriptors: list[int]) -> None:
        self._cpu_seconds = min(words.number(), hard_limit(RLIMIT_CPU))

    def make_rules(self, words: Words, descriptors: list[int]) -> None:
        self._rules = create_ruleset(*words.numbers(4))

    def allow(self, words: Words, descriptors: list[int]) -> None:
        access, path = words.number(), words.word()
        with Deadly(path):
            add_rule(self._rules, access, path)

    def restrict(self, words: Words, descriptors: list[int]) -> None:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        restrict_self(self._rules)
        os.close(self._rules)
        self._rules = -1

    def set_apart(self, words: Words, descriptors: list[int]) -> None:
        """Takes nothing away; what counts is that each command that enters it is in a domain of its own."""
        access = words.number()
        self._domain = create_ruleset(8, access)
        add_rule(self._domain, access, b"/")

    def window(self, words: Words, descriptors: list[int]) -> None:
        path = words.word()
        with Deadly(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._send(WINDOW, 0, descriptor=descriptor)
        os.close(descriptor)

    def reaper(self, words: Words, descriptors: list[int]) -> None:
        prctl(PR_SET_CHILD_SUBREAPER, 1)

    def filter(self, words: Words, descriptors: list[int]) -> None:
        if not descriptors:
            die_because("no filter came with the configuration")
        instructions = slurp(descriptors[0])
        count, rest = divmod(len(instructions), _INSTRUCTION_BYTES)
        if rest or count > FILTER_MAX:
            die_because("no filter has that size")
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        apply_filter(instructions, count)


MESSAGES: dict[int, Callable[[_First, int, Words, list[int]], None]] = {
    CONFIGURE: _First.configure,
    SPAWN: _First.spawn,
    KILL: _First.kill,
    SIGNAL: _First.signal,
}
CONFIGURATION: dict[bytes, Callable[[_First, Words, list[int]], None]] = {
    b"umask": _First.set_umask,
    b"rlimit": _First.set_rlimit,
    b"cpu": _First.set_cpu,
    b"landlock": _First.make_rules,
    b"beneath": _First.allow,
    b"restrict": _First.restrict,
    b"apart": _First.set_apart,
    b"window": _First.window,
    b"reaper": _First.reaper,
    b"filter": _First.filter,
}


def _drain(descriptor: int) -> None:
    with Harmless(BlockingIOError):
        while os.read(descriptor, 2048):
            pass


def _open_terminal(size: tuple[int, ...]) -> tuple[int, int]:
    """A terminal of the box's own: the manager's end, and the one that stays inside."""
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    master = os.open("/dev/ptmx", flags)
    try:
        fcntl.ioctl(master, _LOCK, _INT.pack(0))
        (number,) = _INT.unpack(fcntl.ioctl(master, _NUMBER, _INT.pack(0)))
        fcntl.ioctl(master, _SET_SIZE, struct.pack("4H", *(each & 0xFFFF for each in size), 0, 0))
        return master, os.open(f"/dev/pts/{number}", flags)
    except OSError:
        os.close(master)
        raise
