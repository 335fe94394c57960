"""What both programs share: the protocol's numbers, words, and how a program ends that cannot go on.

The counterpart of box.h and ringfence-box.c; a test holds the numbers together.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` takes longer to import than everything else here
if TYPE_CHECKING:
    import signal
    from types import TracebackType
    from typing import NoReturn
else:
    import _signal as signal  # what the public module adds are enums, at 10 ms

PROTOCOL_VERSION = 3
INLINE_MAX = 48 * 1024
BODY_MAX = 16 * 1024 * 1024

CONFIGURE, SPAWN, KILL, SIGNAL = 1, 2, 3, 4
READY, FAILED, ENDED, TERMINAL, WINDOW = 16, 17, 18, 19, 20
ATTACH, ANSWER, FORGET, ENTRUST, ASKED = 32, 33, 34, 35, 48  # of the guardian in C, which alone can look
ON_TERMINAL, LONG_LIVED = 1, 2


def die_because(what: bytes | str) -> NoReturn:
    os.write(2, b"ringfence-box: %b\n" % (what.encode() if isinstance(what, str) else what))
    os._exit(125)


def die(what: bytes | str, fault: OSError) -> NoReturn:
    what = what.encode() if isinstance(what, str) else what
    die_because(b"%b: %b" % (what, os.strerror(fault.errno or 0).encode()))


class Deadly:
    """A call of the kernel that fails in here ends the program, which says what it was about."""

    __slots__ = ("_what",)

    def __init__(self, what: bytes | str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(fault, OSError):
            die(self._what, fault)


class Harmless:
    """A call of the kernel may fail in here, in this way, and nothing is lost. `contextlib` has it, at 10 ms."""

    __slots__ = ("_kind",)

    def __init__(self, kind: type[OSError] = OSError) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, fault: BaseException | None, trace: TracebackType | None) -> bool:
        return isinstance(fault, self._kind)


class Words:
    """A list of words, each ended by a NUL byte, and the place up to which it has been read."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self._text)

    def word(self) -> bytes:
        if not self.more():
            die_because("a plan ends too soon")
        end = self._text.find(b"\0", self._at)
        if end < 0:
            die_because("a word of a plan has no end")
        begin, self._at = self._at, end + 1
        return self._text[begin:end]

    def number(self) -> int:
        text = self.word()
        if not text.isdigit() or int(text) >= 1 << 64:
            die_because("a plan holds a word where a number belongs")
        return int(text)

    def numbers(self, count: int) -> list[int]:
        return [self.number() for _ in range(count)]


def slurp(descriptor: int) -> bytes:
    """A whole file; its offset, which others share, stays."""
    with Deadly("plan"):
        size = os.fstat(descriptor).st_size
        if size > BODY_MAX:
            die_because("a plan is too large")
        text = b""
        while len(text) < size:
            piece = os.pread(descriptor, size - len(text), len(text))
            if not piece:
                die_because("plan: it became shorter")
            text += piece
        return text


def write_text(path: bytes | str, text: bytes) -> None:
    with Deadly(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        written = os.write(descriptor, text)
        os.close(descriptor)
    if written != len(text):
        die_because("a text was not written whole")


def children_file() -> str:
    return f"/proc/self/task/{os.getpid()}/children"


def kill_children() -> None:
    """All direct children of ours; all other processes if we are PID 1."""
    if os.getpid() == 1:
        kill(-1, signal.SIGKILL)
        return
    with Deadly(children_file()), open(children_file(), "rb") as file:
        pids = file.read().split()
    for pid in pids:
        kill(int(pid), signal.SIGKILL)


def kill(pid: int, number: int) -> None:
    """As kill(2), for somebody who may be gone already."""
    with Harmless():
        os.kill(pid, number)


def take_back_signals() -> None:
    """Undo what an interpreter does to signals when it starts.

    A handler would let signals through from inside a box, from which the kernel shields PID 1 only where it has none;
    and what is ignored stays so in every program that is started.
    """
    for number in range(1, 32):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
