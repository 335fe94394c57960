"""A forked child of a keeper becomes the process that its caller would have started.

It looks at the caller first (`image.py`, `installed.py`); where it cannot be the same, it leaves the call to the plain
way. Then it says READY, takes over the caller's descriptors, directory, umask, variables, signals and standard streams,
and goes on when the caller has said GO: whoever has given up waiting says nothing, and nothing runs.

One that has a box for the next call has served one before, and serves only a caller who has the same directory, umask,
variables and signals.
"""

import io
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ringfence.keeper.image import Surroundings, image_variables, surroundings
from ringfence.keeper.installed import Stamp, stamp, watched_files
from ringfence.keeper.wire import GO, NOT_ME, READY

_ABOUT_THE_SHELL = ("--install-completion", "--show-completion")
"""These look for the shell among the parents of the process."""
STANDARD = (0, 1, 2)
_SETTABLE = tuple(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
FIRST_OWN = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
"""Nothing of our own is open below, but standard streams: there the caller's descriptors go, by their numbers."""


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
    """What came with the call: descriptors, and which numbers they have for the caller."""

    line: int
    """To the caller."""
    words: int
    here: int
    """The caller's directory."""
    descriptors: tuple[int, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Peer:
    """Who connected."""

    pid: int
    is_there: Callable[[], bool]
    """Whether the pid is still that process's."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose process a child has become."""

    line: socket.socket
    words: Words
    place: tuple[int, int]
    """Which directory he called from."""
    numbers: tuple[int, ...]

    def leave(self) -> None:
        """He has been answered: nothing that he had open stays open."""
        self.line.close()
        nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        for number in self.numbers:
            if number in STANDARD:
                os.dup2(nothing, number)
            else:
                with suppress(OSError):
                    os.close(number)
        os.close(nothing)


def take_image() -> Image:
    streams = tuple(
        StreamKind(each.encoding, each.errors, getattr(each, "write_through", False))
        for each in (sys.stdin, sys.stdout, sys.stderr)
    )
    given = _variables(Path("/proc/self/environ").read_bytes().split(b"\0")[:-1])
    added = {name: os.environb[name] for name in (b"LC_CTYPE",) if name in os.environb and name not in given}
    return Image(surroundings("self"), image_variables(given.items()), added, stamp(watched_files()), streams)


def become(request: Request, peer: Peer, image: Image, before: Caller | None) -> Caller | None:
    """The caller, who has said go; None if he was told to go the plain way, or has gone.

    Args:
        before: whom this process has served.

    Raises:
        OutOfDate: nobody else is to be served either.
    """
    line = socket.socket(fileno=request.line)
    try:
        words = _read_words(request.words)
        _require_same(words, peer, image)
        found = os.fstat(request.here)
        caller = Caller(line, words, (found.st_dev, found.st_ino), request.numbers)
        _require_free(request.numbers)
        if before is not None:
            _require_alike(caller, before)
        os.fchdir(request.here)
        os.close(request.here)
        line.send(READY)
        _free_numbers()
        for number, each in zip(request.numbers, request.descriptors, strict=True):
            os.dup2(each, number, inheritable=True)
            os.close(each)
        _take_over(words, image)
    except NotMe as reason:
        with suppress(OSError), line:
            line.send(NOT_ME + str(reason).encode())
        if isinstance(reason, OutOfDate):
            raise
        return None
    except OSError:
        return None
    return caller if line.recv(1) == GO else None


_reserved: set[int] = set()


def reserve_numbers() -> None:
    """Take the numbers that callers' descriptors have, so that none of ours gets one."""
    nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    last = nothing
    while last < FIRST_OWN - 1:
        _reserved.add(last)
        last = os.dup(nothing)
    if last < FIRST_OWN:
        _reserved.add(last)
    else:
        os.close(last)


def _free_numbers() -> None:
    """By runs: one call for hundreds."""
    first = last = min(_reserved, default=0)
    for number in sorted(_reserved):
        if number > last + 1:
            os.closerange(first, last + 1)
            first = number
        last = number
    if _reserved:
        os.closerange(first, last + 1)
    _reserved.clear()


def _require_free(numbers: Sequence[int]) -> None:
    """
    Raises:
        NotMe: something of ours is open by a number that the caller's has.
    """
    for number in numbers:
        if number not in STANDARD and number not in _reserved:
            with suppress(OSError):
                os.fstat(number)
                raise NotMe("the number of a descriptor is taken")


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


def _require_same(words: Words, peer: Peer, image: Image) -> None:
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
        of_the_caller = surroundings(str(peer.pid))
    except OSError:
        raise NotMe("the caller cannot be looked at") from None
    if not peer.is_there():  # after the look, which was at whoever has the pid
        raise NotMe("the caller is gone")
    if of_the_caller != image.surroundings:
        raise NotMe("the caller has other namespaces, privileges, limits or another cgroup")


def _require_alike(caller: Caller, before: Caller) -> None:
    """
    Raises:
        NotMe: the caller is not like the one for whom the box was opened.
    """
    is_there = caller.place == before.place
    new, old = caller.words, before.words
    is_so = (new.umask, new.ignored, new.blocked) == (old.umask, old.ignored, old.blocked)
    if not is_there or not is_so or new.environment != old.environment:
        raise NotMe("the box that waits is for another")


def _take_over(words: Words, image: Image) -> None:
    os.umask(words.umask)
    wanted = words.environment | image.added
    if dict(os.environb) != wanted:  # else it was the same the last time
        os.environb.clear()
        os.environb.update(wanted)
        time.tzset()
    _set_signals(words)
    sys.argv[:] = map(os.fsdecode, words.argv)
    _open_streams(image.streams)


def _set_signals(words: Words) -> None:
    """As an interpreter does that is started with these."""
    for number in _SETTABLE:
        if number in words.ignored or number in (signal.SIGPIPE, signal.SIGXFSZ):
            wanted: Any = signal.SIG_IGN
        else:
            wanted = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        if signal.getsignal(number) is not wanted:
            signal.signal(number, wanted)
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
