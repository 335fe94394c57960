"""A file of a box as the box itself sees it, and what can be done to one."""

import posixpath
import stat
from enum import IntFlag, StrEnum

from ringfence.dataclass import dataclass


class FileKind(StrEnum):
    """What a file is."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, mode: int) -> "FileKind":
        """By the type in a mode."""
        return _BY_TYPE.get(stat.S_IFMT(mode), cls.UNKNOWN)


_BY_TYPE = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.DIRECTORY,
    stat.S_IFLNK: FileKind.LINK,
    stat.S_IFIFO: FileKind.FIFO,
    stat.S_IFSOCK: FileKind.SOCKET,
    stat.S_IFCHR: FileKind.DEVICE,
    stat.S_IFBLK: FileKind.DEVICE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """One file, directory or link.

    A name that is no UTF-8 has its odd bytes as lone surrogates, as everywhere in Python; `os.fsencode` returns them.
    """

    path: str
    """As it was asked for; of a listing, the directory's path and the name."""
    kind: FileKind
    size_bytes: int
    mode: int
    """Permission bits."""
    modified_seconds: float
    uid: int
    """The owner, as the box numbers its users."""
    gid: int
    links: int
    """How many names it has."""
    inode: int
    target: str | None = None
    """Where a link leads, as it is written."""

    @property
    def name(self) -> str:
        return posixpath.basename(self.path.rstrip("/"))

    @property
    def is_file(self) -> bool:
        return self.kind is FileKind.FILE

    @property
    def is_directory(self) -> bool:
        return self.kind is FileKind.DIRECTORY

    @property
    def is_link(self) -> bool:
        return self.kind is FileKind.LINK


class FileFlag(IntFlag):
    NONE = 0
    FOLLOW = 1
    APPEND = 2
    PARENTS = 4
    EXIST_OK = 8
    RECURSIVE = 16
    WITH_MODE = 32
    MISSING_OK = 64
    PART = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOperation:
    """One operation on a file. Paths are absolute, as the box sees them."""

    name: str
    """`read`, `stat`, `list`, `realpath`, `write`, `mkdir`, `remove` or `rename`."""
    path: str
    second: str = ""
    flags: FileFlag = FileFlag.NONE
    mode: int = 0
    limit: int = 0
    """Of `read`, in bytes; of `list`, in names."""
    offset: int = 0
    """Of `read` with `PART`: where it begins, in bytes."""

    @property
    def changes(self) -> bool:
        return self.name in ("write", "mkdir", "remove", "rename")


@dataclass(frozen=True, slots=True)
class Performed:
    """What came of it."""

    places: tuple[str, ...] = ()
    """Where the paths really led."""
    content: bytes = b""
    entries: tuple[FileStat, ...] = ()
