"""Walk a tree that somebody else may be changing: nothing is followed, and one directory is open at a time.

Directories are opened by name within the one that is open, never through a link, so that the walk cannot be led away.
The way back is `..`, and is taken only if it leads to the directory that we came from, by device and inode; if it does
not, the directory was moved while we were in it, and the walk ends with EAGAIN.

What this does not protect against: a tree that changes behind the walk. What was seen was there, nothing more.
"""

import errno
import os
from collections.abc import Iterator
from operator import attrgetter

from ringfence.dataclass import dataclass, field
from ringfence.workspace.names import join

MAX_LEVELS = 2048
"""What lies deeper has no path that the kernel would take (PATH_MAX, two bytes for each level)."""
_BY_NAME = attrgetter("name")
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something that was not taken along, and why."""

    path: str
    why: str


@dataclass(slots=True)
class Level:
    """One directory. Its descriptor, and with it `stat()` of its entries, is good until the next one is asked for."""

    descriptor: int
    path: bytes
    """From where the walk began; empty there."""
    entries: list[os.DirEntry[str]]
    """All that is in it, by name."""
    below: list[bytes]
    """Directories that will be entered, the last one first; whoever walks may take some out."""
    identity: tuple[int, int]


@dataclass(slots=True)
class Walk:
    """The directories of a tree, each before those below it.

    Args:
        top: a readable descriptor of the first one; stays the caller's.
        limit_entries: how much is looked at before the walk stops and says so in `is_cut`.
    """

    top: int
    limit_entries: int
    looked_at: int = 0
    is_cut: bool = False
    unread: list[LeftOut] = field(default_factory=list)
    """Directories that could not be entered."""

    def __iter__(self) -> Iterator[Level]:
        """
        Raises:
            OSError: the first directory cannot be read; EAGAIN, a directory was moved while we were in it.
        """
        levels = [self._look(os.open(b".", _OPEN_DIRECTORY, dir_fd=self.top), b"")]
        here = levels[0].descriptor
        try:
            yield levels[0]
            while True:
                level = levels[-1]
                if not level.below or self.is_cut:
                    levels.pop()
                    if not levels:
                        return
                    here = _step_up(here, levels[-1])
                    continue
                name = level.below.pop()
                deeper = self._enter(level, name, is_too_deep=len(levels) >= MAX_LEVELS)
                if deeper is None:
                    continue
                os.close(here)
                here = deeper.descriptor
                levels.append(deeper)
                yield deeper
        finally:
            os.close(here)

    def _enter(self, level: Level, name: bytes, *, is_too_deep: bool) -> Level | None:
        path = join(level.path, name)
        if is_too_deep:
            self.unread.append(LeftOut(os.fsdecode(path), f"is nested deeper than {MAX_LEVELS} directories"))
            return None
        try:
            return self._look(os.open(name, _OPEN_DIRECTORY, dir_fd=level.descriptor), path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                self.unread.append(LeftOut(os.fsdecode(path), f"cannot be read: {error.strerror}"))
            return None

    def _look(self, descriptor: int, path: bytes) -> Level:
        """List a directory. Takes the descriptor over."""
        try:
            status = os.fstat(descriptor)
            level = Level(descriptor, path, [], [], (status.st_dev, status.st_ino))
            with os.scandir(descriptor) as entries:
                for entry in entries:
                    if self.looked_at >= self.limit_entries:
                        self.is_cut = True
                        break
                    self.looked_at += 1
                    level.entries.append(entry)
        except BaseException:
            os.close(descriptor)
            raise
        level.entries.sort(key=_BY_NAME)
        level.below = [os.fsencode(entry.name) for entry in level.entries if entry.is_dir(follow_symlinks=False)]
        level.below.reverse()
        return level


def _step_up(here: int, above: Level) -> int:
    """Open the directory above the one that is open, if it is still the one that we came from; closes the other."""
    parent = os.open(b"..", _OPEN_DIRECTORY, dir_fd=here)
    status = os.fstat(parent)
    if (status.st_dev, status.st_ino) != above.identity:
        os.close(parent)
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    os.close(here)
    above.descriptor = parent
    return parent
