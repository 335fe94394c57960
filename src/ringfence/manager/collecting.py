"""Lists and reads the files that a run made in its workspace.

The directory is the agent's, and something of it may still run: nothing is followed, everything is opened by the
descriptor of its directory and only as what it is meant to be, so that neither a link leads out nor a fifo holds us up;
count, size and depth are bounded. Which files are new is known by the time of their last change, which the agent cannot
set back.
"""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ringfence.dataclass import dataclass
from ringfence.values.outcome import OutputFile

_FILES_MAX = 1000
_ENTRIES_MAX = 20_000
_LEVELS_MAX = 64
"""Each level takes a descriptor; what lies deeper is not listed."""
_BYTES_MAX = 32 * 1024 * 1024
"""Of all contents together; what does not fit is listed without its content."""
_COARSE = getattr(time, "CLOCK_REALTIME_COARSE", 5)
"""The clock that file times are taken from: a finer one would be ahead of them."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(slots=True)
class _Level:
    """One directory on the way from the workspace down."""

    descriptor: int
    path: str
    files: list[str]
    below: list[str]
    """Directories in it that are still to be looked at; the last one is next."""


def now_ns() -> int:
    """A time to compare file times with."""
    return time.clock_gettime_ns(_COARSE)


def is_untouched(workspace: Path, since_ns: int) -> bool:
    """Whether nothing was made in the directory, nor in those that were in it when it was new, which were empty."""
    if os.stat(workspace).st_ctime_ns >= since_ns:
        return False
    with os.scandir(workspace) as entries:
        return all(entry.stat(follow_symlinks=False).st_ctime_ns < since_ns for entry in entries)


def collect(workspace: Path, since_ns: int, skip: dict[str, int]) -> tuple[OutputFile, ...]:
    """The files that changed since then.

    Args:
        skip: files that we wrote ourselves, with their times; listed only if they have changed again.
    """
    found: list[OutputFile] = []
    room = _BYTES_MAX
    for level in _walk(workspace):
        for name in level.files:
            path = os.path.join(level.path, name)
            with suppress(OSError):
                info = os.stat(name, dir_fd=level.descriptor, follow_symlinks=False)
                if not stat.S_ISREG(info.st_mode) or info.st_ctime_ns < since_ns:
                    continue
                if skip.get(path) == info.st_ctime_ns:
                    continue
                data = _read(name, level.descriptor, room) if info.st_size <= room else None
                room -= len(data or b"")
                found.append(OutputFile(path, info.st_size, data))
                if len(found) >= _FILES_MAX:
                    return tuple(found)
    return tuple(found)


def _walk(workspace: Path) -> Iterator[_Level]:
    """The directories, each before those below it. A descriptor is good until the next directory is asked for."""
    left = _ENTRIES_MAX
    try:
        levels = [_look(os.open(workspace, _DIRECTORY), "", left)]
    except OSError:  # the agent may have taken our right to it away
        return
    try:
        left -= len(levels[0].files) + len(levels[0].below)
        yield levels[0]
        while levels:
            level = levels[-1]
            if not level.below or len(levels) == _LEVELS_MAX or left <= 0:
                os.close(levels.pop().descriptor)
                continue
            name = level.below.pop()
            try:
                descriptor = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=level.descriptor)
                level = _look(descriptor, os.path.join(level.path, name), left)
            except OSError:  # it is not a directory any more, or not for us
                continue
            levels.append(level)
            left -= len(level.files) + len(level.below)
            yield level
    finally:
        for level in levels:
            os.close(level.descriptor)


def _look(descriptor: int, path: str, most: int) -> _Level:
    """What is in a directory, `most` entries of it. Takes the descriptor over.

    Raises:
        OSError: it cannot be read.
    """
    level = _Level(descriptor, path, [], [])
    try:
        with os.scandir(descriptor) as entries:
            for entry in islice(entries, most):
                (level.below if entry.is_dir(follow_symlinks=False) else level.files).append(entry.name)
    except BaseException:
        os.close(descriptor)
        raise
    level.files.sort()
    level.below.sort(reverse=True)
    return level


def _read(name: str, directory: int, room: int) -> bytes | None:
    descriptor = os.open(name, _FILE, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(room + 1)
        return data if len(data) <= room else None
    finally:
        os.close(descriptor)
