"""Placeholders: what lies under a protected name that is not there, so that a mount can cover it.

A name that is not there cannot be covered by a mount. Where nobody makes names for a box from outside (`naming`), a
placeholder is made for it on the host, hidden inside, and removed afterwards by the launcher, whatever happens to us.
It is a socket that nobody listens on, because git and most other programs skip sockets when they list a directory, and
marked by its time. Where git has to read the name it is a file that says what git believes anyway; where a wall cannot
put a mount over a socket, it is an empty file.
"""

import os
import stat

MARK_SECONDS = 86_400  # one day after the epoch: no clock of today makes a file of that time
NEUTRAL = {".git/commondir": b".\n"}
"""Protected names that git does not take as unreadable files, and what to say there to change nothing."""


class Placeholders:
    """Makes them: sockets are all links to the first, because a link costs a twentieth of a new file.

    Files are not: whoever wrote into one of them, such as a box in a directory that he may write to, would have written
    into all.
    """

    def __init__(self, kind: int) -> None:
        self._kind = kind
        self._first: tuple[int, str] | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self._first is not None:
            os.close(self._first[0])

    def make(self, parent: int, name: str) -> None:
        if self._first is not None and self._link(*self._first, parent, name):
            return
        os.mknod(name, self._kind, dir_fd=parent)
        os.utime(name, (MARK_SECONDS, MARK_SECONDS), dir_fd=parent, follow_symlinks=False)
        if self._first is None and self._kind == stat.S_IFSOCK:
            self._first = os.dup(parent), name

    def _link(self, directory: int, first: str, parent: int, name: str) -> bool:
        """Whether it could be made as a link; not every file system has them, and the first may be gone."""
        try:
            os.link(first, name, src_dir_fd=directory, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:
            return False
        return True


def write_neutral(parent: int, name: str, text: bytes) -> None:
    descriptor = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=parent
    )
    try:
        os.write(descriptor, text)
        os.utime(descriptor, (MARK_SECONDS, MARK_SECONDS))
    finally:
        os.close(descriptor)


def open_beneath(root: int, directory: str) -> int:
    """A directory below a root, without following a link that another box may put on the way."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(".", flags, dir_fd=root)
    for name in directory.split("/") if directory else ():
        try:
            deeper = os.open(name, flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = deeper
    return descriptor


def remove_below(root: int, below: str) -> None:
    directory, name = os.path.split(below)
    parent = open_beneath(root, directory)
    try:
        info = lstat(parent, name)
        if info is not None and is_placeholder(info):
            os.unlink(name, dir_fd=parent)
    finally:
        os.close(parent)


def lstat(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def is_placeholder(info: os.stat_result) -> bool:
    kind = stat.S_ISSOCK(info.st_mode) or (stat.S_ISREG(info.st_mode) and info.st_size <= 2)
    return kind and int(info.st_mtime) == MARK_SECONDS
