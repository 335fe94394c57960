"""Remembers git directories, and files whose content decides, that were made inside: what they were when judged last.

A record of a call names the paths that the call was about. It does not name what is written through a second link, a
descriptor that was kept, or a mapping; nor what a process writes between two calls, or a thread that changes a path
while the call waits. So what was made once is compared with itself after every later call, by what is there and not
by times: names, inodes and modes of what git would run or follow, and the content of settings.

Each is known by device and inode, and found again where it or a directory above it was renamed.

A state is taken first and judged afterwards: what is written meanwhile is different from it at the next look.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.workspace.leftovers.gitconfig import LIMIT_BYTES
from ringfence.workspace.leftovers.gitfiles import CONFIGS, STEPS, STORED

WATCHED_MAX: Final = 256
"""Directories and files that are remembered for one box."""
_PLACES: Final = ("hooks", "objects/info", "remotes", "branches", *dict.fromkeys(STEPS.values()))
"""Where in a git directory, beside itself, lies what git runs or follows."""
_READ: Final = CONFIGS | {"commondir", *STEPS}
_RIGHT_IN: Final = CONFIGS | {"commondir", "gitdir"}
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ENTRIES: Final = 500_000
_SECONDS: Final = 3.0

Identity = tuple[int, int]
"""Device and inode."""
Sign = tuple[int, int, int, bytes]
"""What one name was: inode, mode, ctime of a directory, digest of settings."""


@dataclass(frozen=True, slots=True)
class WatchedNames:
    """A git directory or a file, as it was when it was judged last."""

    path: str
    state: Mapping[str, Sign]
    """By names below the path; a file itself has the empty one."""


def identity(path: str) -> Identity | None:
    """What has a name; None if nothing has it."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def state_of(path: str) -> dict[str, Sign]:
    """What is there now. What cannot be looked at is as if it were not there: the search says that it is closed."""
    try:
        status = os.lstat(path)
    except OSError:
        return {}
    if not stat.S_ISDIR(status.st_mode):
        return {"": (status.st_ino, status.st_mode, 0, _digest(path))}
    state: dict[str, Sign] = {}
    for entry, found in _entries(path):
        name, mode = entry.name.casefold(), found.st_mode
        if stat.S_ISDIR(mode):
            if name not in STORED:
                state[entry.name] = (found.st_ino, mode, found.st_ctime_ns, b"")
        elif name in _RIGHT_IN or stat.S_ISLNK(mode):
            state[entry.name] = (found.st_ino, mode, 0, _digest(entry.path) if name in _READ else b"")
    for place in _PLACES:
        for entry, found in _entries(f"{path}/{place}"):
            content = _digest(entry.path) if entry.name.casefold() in _READ else b""
            state[f"{place}/{entry.name}"] = (found.st_ino, found.st_mode, 0, content)
    return state


def changed(before: WatchedNames, now: Mapping[str, Sign]) -> Iterator[str]:
    """The paths of what is not what it was."""
    for name, sign in now.items():
        if before.state.get(name) != sign:
            yield f"{before.path}/{name}" if name else before.path


def find_again(roots: Iterable[str], lost: Mapping[Identity, str]) -> dict[Identity, str] | None:
    """Where they are now that had these paths; those that are nowhere are not in it. None: there is too much to look
    through. A file means something by its name, and may have links of other names: these are not it."""
    found: dict[Identity, str] = {}
    deadline = time.monotonic() + _SECONDS
    left = _ENTRIES
    waiting = list(roots)
    while waiting and len(found) < len(lost):
        for entry, status in _entries(waiting.pop()):
            left -= 1
            is_directory = stat.S_ISDIR(status.st_mode)
            if is_directory:
                waiting.append(entry.path)
            key = status.st_dev, status.st_ino
            if key in lost and (is_directory or entry.name.casefold() == os.path.basename(lost[key]).casefold()):
                found[key] = entry.path
        if left < 0 or time.monotonic() > deadline:
            return None
    return found


def _entries(directory: str) -> Iterator[tuple["os.DirEntry[str]", os.stat_result]]:
    """What is in a directory that is none by a link; nothing if it cannot be read."""
    try:
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            return
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield entry, status
    except OSError:
        return


def _digest(path: str) -> bytes:
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return b""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return hashlib.sha256(os.read(descriptor, LIMIT_BYTES + 1)).digest()
    except OSError:
        return b""
    finally:
        os.close(descriptor)
