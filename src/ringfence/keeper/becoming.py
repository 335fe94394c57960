"""A forked child of a keeper becomes the process that its caller would have started.

It looks at the caller first (`image.py`, `installed.py`); where it cannot be the same, it leaves the call to the plain
way. Then it takes over the caller's descriptors, directory, umask, variables, signals and standard streams, says READY,
and goes on when the caller says GO: whoever has given up waiting says nothing, and nothing runs.
"""

import fcntl
import io
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ringfence.keeper.image import Surroundings, image_variables, surroundings
from ringfence.keeper.installed import Stamp, stamp, watched_files
from ringfence.keeper.wire import GO, NOT_ME, OWN_DESCRIPTORS, READY

_ABOUT_THE_SHELL = ("--install-completion", "--show-completion")
"""These look for the shell among the parents of the process."""
_FREE = 16
"""Room below which nothing of our own is put while descriptors are laid out."""


class NotMe(Exception):
    """This call is not for a keeper, or not for this one; the words say why."""


class OutOfDate(NotMe):
    """Nor is any later one."""


@dataclass(frozen=True, slots=True)
class StreamKind:
    """How the interpreter has made a standard stream, which the locale and PYTHON* variables say."""

    encoding: str
    errors: str | None
    is_unbuffered: bool


@dataclass(frozen=True, slots=True)
class Image:
    """What a keeper was when it began to serve."""

    surroundings: Surroundings
    variables: dict[bytes, bytes]
    added: dict[bytes, bytes]
    """What an interpreter with these variables sets by itself: LC_CTYPE, where there is no locale (PEP 538)."""
    installed: Stamp
    streams: tuple["StreamKind", ...]
    """Of standard input, output and error."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a caller was called with."""

    umask: int
    ignored: frozenset[int]
    blocked: frozenset[int]
    argv: tuple[bytes, ...]
    environment: dict[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Request:
    """What came with the first message: descriptors, and which numbers they have for the caller."""

    descriptors: tuple[int, ...]
    numbers: tuple[int, ...]


def take_image() -> Image:
    streams = tuple(
        StreamKind(each.encoding, each.errors, getattr(each, "write_through", False))
        for each in (sys.stdin, sys.stdout, sys.stderr)
    )
    given = _variables(Path("/proc/self/environ").read_bytes().split(b"\0")[:-1])
    added = {name: os.environb[name] for name in (b"LC_CTYPE",) if name in os.environb and name not in given}
    return Image(surroundings("self"), image_variables(given.items()), added, stamp(watched_files()), streams)


def become(request: Request, peer: int, image: Image) -> bool:
    """False if the caller was told to go the plain way, or has gone."""
    line = _lay_out(request)
    with socket.socket(fileno=line[0]) as control:
        try:
            words = _read_words(line[1])
            _require_same(words, peer, image)
            _take_over(words, line[2], image)
            control.send(READY)
        except NotMe as reason:
            with suppress(OSError):
                control.send(NOT_ME + str(reason).encode())
            if isinstance(reason, OutOfDate):
                raise
            return False
        except OSError:
            return False
        return control.recv(1) == GO


def _lay_out(request: Request) -> tuple[int, int, int]:
    """Every descriptor to its number, and nothing else open but the first three, which are returned."""
    above = max((*request.numbers, _FREE)) + 1
    moved = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, above) for each in request.descriptors]
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in moved:
            with suppress(OSError):  # that of the listing itself
                os.close(int(name))
    for number, each in zip(request.numbers, moved[OWN_DESCRIPTORS:], strict=True):
        os.dup2(each, number, inheritable=True)
        os.close(each)
    control, words, here = moved[:OWN_DESCRIPTORS]
    return control, words, here


def _read_words(descriptor: int) -> Words:
    with open(descriptor, "rb") as file:
        file.seek(0)
        head, _, rest = file.read().partition(b"\n")
    umask, ignored, blocked, count = head.split()
    parts = rest.split(b"\0")[:-1]
    environment = _variables(parts[int(count) :])
    return Words(
        int(umask, 8), _signals(int(ignored, 16)), _signals(int(blocked, 16)), tuple(parts[: int(count)]), environment
    )


def _variables(entries: Sequence[bytes]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals and name:
            found.setdefault(name, value)  # as Python does, the first of two
    return found


def _signals(mask: int) -> frozenset[int]:
    return frozenset(number for number in range(1, 65) if mask >> (number - 1) & 1)


def _require_same(words: Words, peer: int, image: Image) -> None:
    """
    Raises:
        NotMe: something that cannot be taken over is not as it was when the keeper began.
    """
    if image_variables(words.environment.items()) != image.variables:
        raise NotMe("a variable that an interpreter reads once is another")
    if any(word.startswith(name.encode()) for word in words.argv[1:] for name in _ABOUT_THE_SHELL):
        raise NotMe("it is about the shell that called")
    if stamp(tuple(image.installed)) != image.installed:
        raise OutOfDate("what is installed has changed")
    try:
        of_the_caller = surroundings(str(peer))
    except OSError:
        raise NotMe("the caller cannot be looked at") from None
    if of_the_caller != image.surroundings:
        raise NotMe("the caller has other namespaces, privileges, limits or another cgroup")


def _take_over(words: Words, here: int, image: Image) -> None:
    os.fchdir(here)
    os.close(here)
    os.umask(words.umask)
    os.environb.clear()
    os.environb.update(words.environment)
    os.environb.update(image.added)
    time.tzset()
    _set_signals(words)
    sys.argv[:] = map(os.fsdecode, words.argv)
    _open_streams(image.streams)


def _set_signals(words: Words) -> None:
    """As an interpreter does that is started with these."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if number in words.ignored or number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        elif number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        elif signal.getsignal(number) is not signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, words.blocked)


def _open_streams(kinds: Sequence[StreamKind]) -> None:
    """Standard streams as an interpreter makes them (`create_stdio` of its pylifecycle.c)."""
    for number, (name, kind) in enumerate(zip(("stdin", "stdout", "stderr"), kinds, strict=True)):
        stream = _stream(number, name, kind)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _stream(number: int, name: str, kind: StreamKind) -> io.TextIOWrapper | None:
    mode = "r" if number == 0 else "w"
    is_unbuffered = kind.is_unbuffered and number != 0
    try:
        buffer: Any = open(number, f"{mode}b", buffering=0 if is_unbuffered else -1, closefd=False)  # noqa: SIM115
    except OSError:  # closed
        return None
    raw = buffer if is_unbuffered else buffer.raw
    raw.name = f"<{name}>"
    stream: Any = io.TextIOWrapper(
        buffer,
        encoding=kind.encoding,
        errors=kind.errors,
        newline=None if number == 0 else "\n",
        line_buffering=not is_unbuffered and (number == 2 or raw.isatty()),
        write_through=is_unbuffered,
    )
    stream.mode = mode
    return cast(io.TextIOWrapper, stream)
