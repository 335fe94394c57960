"""A directory tree by descriptor: every step is one name, no step follows a link.

The tree may be what an agent wrote, or a project that an agent's links point into. So a path is never given to the
kernel as a whole: its directories are opened one below the other with O_NOFOLLOW, and what happens at its end is
relative to the last of them. A name that has become a link is ENOTDIR or ELOOP, whoever swapped it and whenever.

What this does not protect against: a directory that is moved elsewhere while its descriptor is open.
"""

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from ringfence.values.change import Node, NodeKind
from ringfence.values.paths import is_below

LONGEST_PATH = 4000
"""Bytes; the kernel takes 4095 from a root, and what the host's programs cannot name is not committed."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT_OPEN = 128
"""Directories: changes come sorted, so that most share their parent with the one before."""
_CHUNK_BYTES = 1024 * 1024


class Tree:
    """Owns the descriptor of the top, and some of directories below it; close it, or use it in a `with`."""

    def __init__(self, top: str | os.PathLike[str]) -> None:
        """
        Raises:
            OSError: it is not a directory, or may not be opened.
        """
        self.top = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.device = os.fstat(self.top).st_dev
        self._open: OrderedDict[str, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptors back; a second time does nothing."""
        self.forget()
        descriptor, self.top = self.top, -1
        if descriptor >= 0:
            os.close(descriptor)

    def forget(self) -> None:
        """Close the directories that are kept open, since what they are called may have changed."""
        while self._open:
            os.close(self._open.popitem()[1])

    def forget_one(self, path: str) -> None:
        """Close one directory, which is about to go."""
        if (descriptor := self._open.pop(path, None)) is not None:
            os.close(descriptor)

    def directory(self, path: str) -> int:
        """The descriptor of a directory; it stays ours and is good until the next call.

        Raises:
            OSError: ENOENT, or ENOTDIR and ELOOP where something else, such as a link, has the name.
        """
        if not path:
            return self.top
        if (found := self._open.get(path)) is not None:
            self._open.move_to_end(path)
            return found
        known = next((above for above in ancestors(path) if above in self._open), "")
        here = self._open[known] if known else self.top
        for name in path[len(known) :].lstrip("/").split("/"):
            known = join(known, name)
            here = os.open(name, _DIRECTORY, dir_fd=here)
            self._open[known] = here
            if len(self._open) > _KEPT_OPEN:
                os.close(self._open.popitem(last=False)[1])
        return here

    def status(self, path: str) -> os.stat_result | None:
        """What is there, itself and not what it points to; None if nothing is."""
        if not path:
            return os.fstat(self.top)
        above, name = split(path)
        try:
            return os.stat(name, dir_fd=self.directory(above), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as fault:
            if fault.errno == errno.ELOOP:
                return None
            raise

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """A regular file, for reading.

        Raises:
            OSError: it is not there, or something else is.
        """
        above, name = split(path)
        # O_NONBLOCK: a fifo that has just taken the name must not make us wait.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=self.directory(above))
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, path: str) -> bytes:
        """The whole content of a regular file."""
        with self.opened(path) as descriptor:
            return read_all(descriptor)

    def target(self, path: str) -> str:
        """Where a link leads."""
        above, name = split(path)
        return os.readlink(name, dir_fd=self.directory(above))

    def names(self, path: str) -> list[str]:
        """What is in a directory, sorted."""
        return sorted(os.listdir(self.directory(path)))

    def node(self, path: str, status: os.stat_result | None = None) -> Node | None:
        """What is there, as a value."""
        status = status or self.status(path)
        if status is None:
            return None
        kind = kind_of(status.st_mode)
        target = self.target(path) if kind is NodeKind.LINK else ""
        size = status.st_size if kind is NodeKind.FILE else 0
        return Node(kind, stat.S_IMODE(status.st_mode), size, target)


def split(path: str) -> tuple[str, str]:
    """The directory of a relative path, and the last name."""
    above, _, name = path.rpartition("/")
    return above, name


def join(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name


def is_in_tree(path: str, above: str) -> bool:
    """Whether `path` is `above`, or lies in it; everything lies in the empty path."""
    return not above or is_below(path, above)


def ancestors(path: str) -> Iterator[str]:
    """The directories on the way to a path, from the nearest up; the top is not among them."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def kind_of(mode: int) -> NodeKind:
    if stat.S_ISREG(mode):
        return NodeKind.FILE
    if stat.S_ISDIR(mode):
        return NodeKind.DIRECTORY
    return NodeKind.LINK if stat.S_ISLNK(mode) else NodeKind.SPECIAL


def read_all(descriptor: int) -> bytes:
    chunks: list[bytes] = []
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        chunks.append(chunk)
    return b"".join(chunks)


def same_bytes(one: int, other: int) -> bool:
    """Whether two open files have the same content from where they stand."""
    while True:
        left, right = os.read(one, _CHUNK_BYTES), os.read(other, _CHUNK_BYTES)
        if left != right:
            return False
        if not left:
            return True
