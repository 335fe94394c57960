"""Stands around the process that runs one case: counts what it leaves, ends what it left, holds the machine safe.

Theory of operation: the guard adopts orphans (PR_SET_CHILD_SUBREAPER), so that whatever the case starts stays its
descendant, and the kernel's parent links are the evidence: nothing inside a box can write them. The worker tells the
guard when `ringfence.run` has returned and waits; at that moment every other descendant is a survivor. As root the
worker sits in a cgroup of its own (version 1: pids and memory) as a last safety; everywhere the guard polls for the
same bounds. The guard ends its descendants by their ids, and reports what was left in the cgroup, among the
mounts and in the temporary directory.

Run as `python guard.py`: each line of input names a JSON file that holds a `Spec`, and is answered by a line that holds
the `Report`, or `{}` after a fault of the guard itself, which is told on standard error.

What this does not protect against: a kernel that is taken over. The safety bounds keep a leak small, they are no wall.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NoReturn

if __name__ == "__main__":  # as a script, by its path: the checkout is not on the path then
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.attacks import worker
from tests.support import users
from tests.support.leaks import SHARED

SAFETY_PROCESSES = 450
SAFETY_BYTES = 1536 * 1024 * 1024

GRACE_SECONDS = 0.5
"""How long something may take to vanish after the return before it counts as a survivor."""
_POLL_SECONDS = 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")

# linux/prctl.h
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    argv: list[str]
    """The worker as a program of its own; its last word is the job."""
    uid: int
    gid: int
    places: list[str]
    """What the worker must be able to reach: see `users.become`."""
    base: str
    """The fixture's own directory."""
    hard_seconds: float
    stderr: str
    stdout: str | None = None
    """A file that is the worker's standard output; it is opened for writing at its end."""
    terminal: str | None = None
    """If set, the worker's three standard descriptors are a terminal, and what it shows goes to this file."""
    processes_seen: str | None = None
    """If set, the arguments of all processes during the run are written here."""
    connections_seen: str | None = None
    """If set, the TCP tables during the run are written here."""
    cgroup: str | None = None
    """Name for the safety cgroup; only root can have one."""
    watched: list[str] = field(default_factory=list)
    """Directories that must be empty afterwards."""


@dataclass(slots=True, kw_only=True)
class Report:
    survivors: int = 0
    """Processes left after the first command had returned and the grace was over."""
    at_return: int = 0
    """The same at the very moment of the return."""
    safety_hit: bool = False
    overdue: bool = False
    """Whether the worker itself had to be ended."""
    left: list[str] = field(default_factory=list)
    """What else was left behind."""


@dataclass(frozen=True, slots=True)
class Process:
    parent: int
    state: str
    threads: int
    resident_bytes: int


def descendants(root: int) -> dict[int, Process]:
    """All processes below `root`, by the kernel's parent links."""
    processes: dict[int, Process] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            # proc_pid_stat(5), from the third field on: the second one is a name in parentheses, with anything in it.
            fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
            parent, threads, pages = int(fields[1]), int(fields[17]), int(fields[21])
            processes[int(entry)] = Process(parent, fields[0].decode(), threads, pages * _PAGE)
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found: dict[int, Process] = {}
    waiting = [root]
    while waiting:
        for pid in children.get(waiting.pop(), ()):
            found[pid] = processes[pid]
            waiting.append(pid)
    return found


class Cgroup:
    """One safety cgroup per version 1 controller, below the one that we are in."""

    def __init__(self, name: str) -> None:
        self.directories: dict[str, Path] = {}
        for controller, limit, value in (
            ("pids", "pids.max", SAFETY_PROCESSES),
            ("memory", "memory.limit_in_bytes", SAFETY_BYTES),
        ):
            if (parent := _own_cgroup(controller)) is not None:
                directory = parent / name
                directory.mkdir()
                self.directories[controller] = directory
                (directory / limit).write_text(str(value))

    def join(self) -> None:
        for directory in self.directories.values():
            (directory / "cgroup.procs").write_text(str(os.getpid()))

    def was_hit(self) -> bool:
        peaks = (("pids", "pids.peak", SAFETY_PROCESSES), ("memory", "memory.max_usage_in_bytes", SAFETY_BYTES))
        for controller, name, bound in peaks:
            file = self.directories.get(controller, Path()) / name
            if file.exists() and int(file.read_text()) >= bound:
                return True
        return False

    def members(self) -> set[int]:
        found: set[int] = set()
        for directory in self._all():
            with contextlib.suppress(OSError):
                found |= {int(pid) for pid in (directory / "cgroup.procs").read_text().split()}
        return found

    def remove(self) -> list[str]:
        """Remove them, and name those inside them that somebody else forgot."""
        forgotten = []
        for directory in self._all():
            if directory not in self.directories.values():
                forgotten.append(f"cgroup {directory.name}")
            _retry(directory.rmdir)
        return forgotten

    def _all(self) -> list[Path]:
        """Deepest first."""
        return [
            Path(where) for directory in self.directories.values() for where, _, _ in os.walk(directory, topdown=False)
        ]


def _own_cgroup(controller: str) -> Path | None:
    ours = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        ours.update(dict.fromkeys(controllers.split(","), path))
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        root, point = left.split()[3:5]
        if kind == "cgroup" and controller in options.split(",") and controller in ours:
            return Path(point, os.path.relpath(ours[controller], root))
    return None


def _retry(action: object) -> None:
    """A cgroup stays busy for a moment after its last process was reaped."""
    assert callable(action)
    for _ in range(100):
        with contextlib.suppress(OSError):
            action()
            return
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    said: int
    """The pipe on which the worker says who it is and that a command has returned."""
    answer: int
    master: int | None
    """The other side of its terminal."""


class Guard:
    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.report = Report()
        self.cgroup = Cgroup(spec.cgroup) if spec.cgroup else None
        self.ours: set[int] = set()
        """The worker, and the stand-in for the person's shell if there is one: no survivors."""

    def run(self) -> Report:
        mounts = _mounts(self.spec.base)
        try:
            with contextlib.ExitStack() as undo:
                self._watch(self._start(undo))
        finally:
            self._end_all()
            if self.cgroup is not None:
                self.report.safety_hit |= self.cgroup.was_hit()
                self.report.left += self.cgroup.remove()
        self.report.left += sorted(f"mount on {point}" for point in _mounts(self.spec.base) - mounts)
        for directory in self.spec.watched:
            self.report.left += [f"file {name}" for name in sorted(os.listdir(directory))]
        return self.report

    def _start(self, undo: contextlib.ExitStack) -> Started:
        said, says = os.pipe()
        hears, answer = os.pipe()
        master = None
        if self.spec.terminal:
            master, slave = os.openpty()
            os.fchown(slave, self.spec.uid, -1)
            undo.callback(os.close, master)
            stdio = (slave, slave, slave)
        else:
            # Somebody's input, and no end of it: a box that takes it over would steal it, and hang.
            stdin, feed = os.pipe()
            os.write(feed, b"typed by a person\n")
            undo.callback(os.close, feed)
            stderr = os.open(self.spec.stderr, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            stdout = os.open(self.spec.stdout, os.O_WRONLY | os.O_APPEND) if self.spec.stdout else os.dup(stderr)
            stdio = (stdin, stdout, stderr)
        pid = os.fork()
        if pid == 0:
            self._be_worker(stdio, says, hears)
        for descriptor in {*stdio, says, hears}:
            os.close(descriptor)
        undo.callback(os.close, said)
        undo.callback(os.close, answer)
        return Started(pid, said, answer, master)

    def _be_worker(self, stdio: tuple[int, int, int], says: int, hears: int) -> NoReturn:
        """In the child. A terminal needs a shell around the worker, which is a program of its own then."""
        try:
            for number, source in enumerate(stdio):
                os.dup2(source, number)
            _close_all_but({0, 1, 2, says, hears})
            if self.cgroup is not None:
                self.cgroup.join()
            users.become(users.User(self.spec.uid, self.spec.gid), map(Path, self.spec.places))
            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            libc.prctl(_PR_SET_DUMPABLE, 1)  # a change of uid takes it away; a program that was started has it
            if self.spec.terminal:
                os.set_inheritable(says, True)
                os.set_inheritable(hears, True)
                os.execv(self.spec.argv[0], [*self.spec.argv, str(says), str(hears)])
            os.setsid()
            worker.main(self.spec.argv[-1], says, hears)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _watch(self, started: Started) -> None:
        deadline = time.monotonic() + self.spec.hard_seconds
        ended = os.pidfd_open(started.pid)
        sources = {started.said, ended} | ({started.master} if started.master is not None else set())
        returns = 0
        while ended in sources:
            readable, _, _ = select.select(sources, [], [], _POLL_SECONDS)
            if started.master is not None and started.master in readable:
                self._show(started.master)
            if started.said in readable:
                message = os.read(started.said, 64)
                if not message:
                    sources.discard(started.said)  # it has closed the pipe and is about to exit
                elif message.isdigit():
                    self.ours = {started.pid, int(message)}
                else:
                    returns += 1
                    if returns == 1:
                        self._count_survivors()
                with contextlib.suppress(BrokenPipeError):
                    os.write(started.answer, b"k")
            self._observe()
            if ended in readable:
                sources.discard(ended)
            elif time.monotonic() > deadline or self.report.safety_hit:
                self.report.overdue = time.monotonic() > deadline
                signal.pidfd_send_signal(ended, signal.SIGKILL)
        os.close(ended)
        os.waitpid(started.pid, 0)
        if started.master is not None:
            self._show(started.master)

    def _show(self, master: int) -> None:
        assert self.spec.terminal is not None
        with open(self.spec.terminal, "ab") as file, contextlib.suppress(OSError):  # EIO: nobody holds the other end
            while select.select([master], [], [], 0)[0]:
                file.write(os.read(master, 65536))

    def _observe(self) -> None:
        below = descendants(os.getpid()).values()
        threads, resident = sum(one.threads for one in below), sum(one.resident_bytes for one in below)
        if threads > SAFETY_PROCESSES or resident > SAFETY_BYTES:
            self.report.safety_hit = True
        if self.spec.processes_seen:
            with open(self.spec.processes_seen, "ab") as file:
                for entry in filter(str.isdigit, os.listdir("/proc")):
                    with contextlib.suppress(OSError):
                        arguments = Path(f"/proc/{entry}/cmdline").read_bytes()
                        file.write(entry.encode() + b" " + arguments.replace(b"\0", b" ") + b"\n")
        if self.spec.connections_seen:
            with open(self.spec.connections_seen, "ab") as file:
                for table in ("/proc/net/tcp", "/proc/net/tcp6"):
                    with contextlib.suppress(OSError):
                        file.write(Path(table).read_bytes())

    def _count_survivors(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        self.report.at_return = now = self._survivors()
        while now and time.monotonic() < deadline:
            time.sleep(0.02)
            now = self._survivors()
        self.report.survivors = now

    def _survivors(self) -> int:
        self._reap()
        below = set(descendants(os.getpid()))
        if self.cgroup is not None:
            below |= self.cgroup.members()
        return len(below - self.ours)

    def _reap(self) -> None:
        """Collect orphans that have ended; the worker is waited for elsewhere."""
        for pid, process in descendants(os.getpid()).items():
            if process.state == "Z" and pid not in self.ours:
                with contextlib.suppress(ChildProcessError):  # somebody else's child
                    os.waitpid(pid, os.WNOHANG)

    def _end_all(self) -> None:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            self.ours = set()
            self._reap()
            left = {pid for pid, process in descendants(os.getpid()).items() if process.state != "Z"}
            if self.cgroup is not None:
                left |= self.cgroup.members()
            if not left:
                return
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.report.left.append("processes that do not die")


def _mounts(ours: str) -> set[str]:
    """Where something of ringfence is mounted, but for the temporary files of others."""
    points = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return {point for point in points if "ringfence" in point and point.startswith(ours) >= point.startswith(SHARED)}


def _close_all_but(kept: set[int]) -> None:
    for number in map(int, os.listdir("/proc/self/fd")):
        if number not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing itself
                os.close(number)


def serve() -> None:
    """One guard per line of input, by fork: what is imported here is paid for once, also by the workers."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(ImportError):  # a worker that needs it says so itself
        importlib.import_module("ringfence")
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
                report = Guard(Spec(**json.loads(Path(line.rstrip("\n")).read_text()))).run()
                print(json.dumps(asdict(report)), flush=True)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        if os.waitpid(pid, 0)[1] != 0:
            print("{}", flush=True)


if __name__ == "__main__":
    serve()
