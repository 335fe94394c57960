"""Lists and reads the files that a run made in its workspace.

The directory is the agent's: nothing is followed, everything is opened by the descriptor of its directory, and count
and size are bounded. Which files are new is known by the time of their last change, which the agent cannot set back.
"""

import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from ringfence.values.outcome import OutputFile

_FILES_MAX = 1000
_ENTRIES_MAX = 20_000
_BYTES_MAX = 32 * 1024 * 1024
"""Of all contents together; what does not fit is listed without its content."""
_COARSE = getattr(time, "CLOCK_REALTIME_COARSE", 5)
"""The clock that file times are taken from: a finer one would be ahead of them."""


def now_ns() -> int:
    """A time to compare file times with."""
    return time.clock_gettime_ns(_COARSE)


def is_untouched(workspace: Path, since_ns: int) -> bool:
    """Whether nothing was made in the directory itself, which is all if it was empty."""
    return os.stat(workspace).st_mtime_ns < since_ns


def collect(workspace: Path, since_ns: int, skip: dict[str, int]) -> tuple[OutputFile, ...]:
    """The files that changed since then.

    Args:
        skip: files that we wrote ourselves, with their times; listed only if they have changed again.
    """
    found: list[OutputFile] = []
    room, seen = _BYTES_MAX, 0
    for directory, names, files, descriptor in os.fwalk(workspace, follow_symlinks=False):
        names.sort()
        seen += len(names) + len(files)
        for name in sorted(files):
            path = os.path.relpath(os.path.join(directory, name), workspace)
            with suppress(OSError):
                info = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if not stat.S_ISREG(info.st_mode) or info.st_ctime_ns < since_ns:
                    continue
                if skip.get(path) == info.st_ctime_ns:
                    continue
                data = _read(name, descriptor, room) if info.st_size <= room else None
                room -= len(data or b"")
                found.append(OutputFile(path, info.st_size, data))
        if seen > _ENTRIES_MAX or len(found) >= _FILES_MAX:
            break
    return tuple(found[:_FILES_MAX])


def _read(name: str, directory: int, room: int) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(room + 1)
        return data if len(data) <= room else None
    finally:
        os.close(descriptor)
