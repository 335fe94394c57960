"""Starts what waits inside a box before it is asked for: a shell for one command, interpreters that keep their state.

A shell that waits has its pipes already, so it serves only a command without input of its own, in the box's own
directory and environment; any other command gets a shell of its own. What is passed to it is exactly what `bash -c`
would be given: the text is evaluated with the same line numbers, `$0` and options, and the exit status is that of the
shell itself.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import socket
import termios
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from importlib.util import MAGIC_NUMBER
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass
from ringfence.deferred import deferred
from ringfence.engines.boxes.protocol import Manner

if TYPE_CHECKING:
    from ringfence.engines.boxes.context import Context
    from ringfence.engines.boxes.control import Control, Job
    from ringfence.engines.boxes.programs import Programs
    from ringfence.engines.drivers.python import joined
else:
    Context = deferred("ringfence.engines.boxes.context", "Context")
    joined = deferred("ringfence.engines.drivers.python", "joined")

COMMAND_MAX = 4000
"""Bytes of a command that a waiting shell takes: it reads them one by one, and they fit into a pipe at once."""

_WAIT = (
    'IFS= read -r -d "" -u 9 REPLY || exit; exec 9<&-; SECONDS=0; BASH_EXECUTION_STRING=$REPLY; unset REPLY; '
    'eval "$BASH_EXECUTION_STRING"'
)
_GREETING = b"trap : INT; printf 'ready 0\\n' >&9\n"
"""A shell that keeps its state reads its commands as a script, from a socket: no loop of ours is around them. It
survives an interrupt, what it runs does not."""
_BOOTSTRAP = """\
import os, sys, marshal, _frozen_importlib_external as f
b = os.pread(8, 1 << 22, 0)
os.close(8)
os.chdir(sys.argv.pop(1))
n = 8 + int.from_bytes(b[4:8], "little")
c = marshal.loads(b[8:n]) if b[:4] == f.MAGIC_NUMBER else compile(b[n:], "<driver>", "exec", 0, True, 2)
del b
exec(c, {"__name__": "__main__"})"""

Pipe = Callable[[], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Starters:
    """How lines and code are run in a box that has neither a shell nor an interpreter of its own for them."""

    line: tuple[str, ...]
    """Before a line."""
    script: tuple[str, ...]
    """Reads the line from descriptor 9."""
    waiting: tuple[str, ...]
    """Waits for one line at descriptor 9, which a zero ends."""
    waiting_max: int
    """Bytes of a line that it takes."""
    interpreter: tuple[str, ...]
    """Keeps its state, and takes code over the socket at descriptor 9."""


@dataclass(frozen=True, slots=True)
class BoxSetting:
    """What everything that waits in a box starts with."""

    cwd: str
    env: tuple[str, ...]
    programs: Programs
    shell: str
    python: str | None
    preload: tuple[str, ...]
    starters: Starters | None = None
    """None: the shell, and the interpreter."""
    resumes: bool = False
    """Whether PID 1 has an interpreter that stands ready, and need not start one."""

    @property
    def waiting(self) -> tuple[str, ...]:
        """What waits for one line; empty if nothing here can."""
        if self.starters is not None:
            return self.starters.waiting
        return (self.shell, "-c", _WAIT) if self.shell.endswith("bash") else ()

    @property
    def waiting_max(self) -> int:
        """Bytes of a line that it takes."""
        return COMMAND_MAX if self.starters is None else self.starters.waiting_max


@dataclass(slots=True, eq=False)
class WaitingShell:
    """A shell that has been started and waits for its one command."""

    job: Job
    script: int
    script_end: int
    """The shell's own end, to see what it has read."""
    outputs: tuple[int, int]

    @property
    def alive(self) -> bool:
        return self.job.runs

    def tell(self, command: bytes) -> bool:
        """Give it the command; false if it has gone."""
        script, self.script = self.script, -1
        try:
            return os.write(script, command + b"\0") == len(command) + 1
        except BrokenPipeError:
            return False
        finally:
            os.close(script)

    def finish(self) -> bool:
        """It has ended; whether it had not read the command to its end, so that nothing of it was run."""
        unread = array("i", [0])
        try:
            fcntl.ioctl(self.script_end, termios.FIONREAD, unread)
        finally:
            self.close()
        return unread[0] > 0

    def close(self) -> None:
        for descriptor in (self.script, self.script_end, *self.outputs):
            if descriptor >= 0:
                os.close(descriptor)
        self.script, self.script_end, self.outputs = -1, -1, (-1, -1)

    def take_outputs(self) -> tuple[int, int]:
        taken, self.outputs = self.outputs, (-1, -1)
        return taken


def start_shell(control: Control, setting: BoxSetting, pipe: Pipe) -> WaitingShell:
    """Start a shell that waits.

    Raises:
        OSError: the box is gone, or there are no descriptors left.
    """
    with _ends(pipe) as (_, ours, undo):
        script_end, script = os.pipe()
        undo.callback(os.close, script_end)
        undo.callback(os.close, script)
        words = command_words(setting.cwd, setting.waiting, setting.env)
        job = control.start(words, [*ours.given, script_end])
        undo.pop_all()
        return WaitingShell(job, script, script_end, ours.kept)


def start_context(control: Control, setting: BoxSetting, pipe: Pipe, language: str, name: str) -> Context:
    """Start an interpreter that keeps its state.

    Raises:
        OSError: the box is gone, or there are no descriptors left.
    """
    with _ends(pipe) as (theirs, ours, undo):
        channel, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        theirs.callback(far.close)
        undo.callback(channel.close)
        descriptors = [*ours.given, far.fileno()]
        argv: tuple[str, ...] = (setting.shell, "-s")
        cwd, manner = setting.cwd, Manner.LONG_LIVED
        if language == "python" and setting.starters is not None:
            argv = setting.starters.interpreter
        elif language == "python" and setting.resumes:
            argv, manner = setting.preload, manner | Manner.RESUMES
        elif language == "python":
            # Not started in the workspace: from Python 3.13 on, `-c` itself imports modules that could lie there.
            argv = (setting.python or "python3", "-c", _BOOTSTRAP, setting.cwd, *setting.preload)
            cwd = "/"
            descriptors.append(driver_file(theirs))
        else:
            descriptors[0] = far.fileno()
            channel.send(_GREETING)
        job = control.start(command_words(cwd, argv, setting.env), descriptors, manner)
        undo.pop_all()
        return Context(name, language, job, channel, ours.kept, partial(control.kill, job))


def command_words(cwd: str, argv: Sequence[str], env: Iterable[str]) -> list[str]:
    """The words of SPAWN after its manner."""
    env = tuple(env)
    return [cwd, str(len(argv)), str(len(env)), *argv, *env]


@dataclass(frozen=True, slots=True)
class _Ours:
    given: tuple[int, int, int]
    kept: tuple[int, int]


@contextmanager
def _ends(pipe: Pipe) -> Iterator[tuple[ExitStack, _Ours, ExitStack]]:
    """Two pipes for output and no input: what is theirs is closed at the end, what is ours if something fails."""
    with ExitStack() as theirs, ExitStack() as undo:
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        theirs.callback(os.close, null)
        kept: list[int] = []
        given = [null]
        for _ in range(2):
            ours, end = pipe()
            undo.callback(os.close, ours)
            theirs.callback(os.close, end)
            kept.append(ours)
            given.append(end)
        yield theirs, _Ours((given[0], given[1], given[2]), (kept[0], kept[1])), undo


def driver_file(undo: ExitStack) -> int:
    """A memory file with the interpreter's program."""
    descriptor = os.memfd_create("ringfence-driver", os.MFD_CLOEXEC)
    undo.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(_driver_bytes())
    return descriptor


@cache
def _driver_bytes() -> bytes:
    """The program as code for interpreters of our own version, and as text for others: compiling takes each as long as
    starting, and leaves it twice as large."""
    text = joined().encode()
    code = marshal.dumps(compile(text, "<driver>", "exec", dont_inherit=True, optimize=2))
    return MAGIC_NUMBER + len(code).to_bytes(4, "little") + code + text
