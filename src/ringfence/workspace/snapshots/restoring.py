"""Make a directory equal to a snapshot, by descriptors and step by step, whatever is in it now.

Every object is checked against its name before its bytes are used. Where others can look on, files get their content
under a temporary name and are renamed; what has to go is removed without following anything; directories get their mode
last, because one that nobody may write could not be filled. Set-uid, set-gid and sticky bits are given back to nobody.

One directory is open at a time, and the way back is `..`, taken only if it leads to where we came from: an agent that
still runs can disturb this, and is then told so, but cannot lead it elsewhere.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress

from ringfence.dataclass import dataclass
from ringfence.workspace.names import join
from ringfence.workspace.removing import remove_at
from ringfence.workspace.snapshots.cache import Cache
from ringfence.workspace.snapshots.objects import Objects
from ringfence.workspace.snapshots.tree import (
    OVERLAY_ATTRIBUTES,
    Attributes,
    DirectoryNode,
    FileNode,
    LinkNode,
    Node,
    Tree,
    WhiteoutNode,
    decode,
)

_PERMISSION_BITS = 0o777
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class RestoreOwner:
    uid: int
    gid: int


@dataclass(slots=True)
class _Level:
    """A directory on the way down."""

    path: bytes
    node: DirectoryNode
    identity: tuple[int, int]
    below: list[tuple[bytes, DirectoryNode]]
    """Directories in it that are still to be entered."""


@dataclass(frozen=True, slots=True)
class Restoring:
    """One run over a directory.

    Args:
        owner: whom what is made belongs to; only root can give things away.
        known: which files are there already, as the last save saw them.
        is_private: nobody else can see the directory yet, so that files need no temporary name.
    """

    objects: Objects
    owner: RestoreOwner | None
    known: Cache | None
    is_private: bool

    def make_equal(self, top: int, root: DirectoryNode) -> None:
        """
        Raises:
            Damaged: an object is missing or damaged; what was done until then stays.
            OSError: what the system said; EAGAIN, a directory was moved while we were in it.
        """
        here = os.open(b".", _OPEN_DIRECTORY, dir_fd=top)
        try:
            levels = [self._fill(here, b"", root)]
            while levels:
                level = levels[-1]
                if level.below:
                    name, node = level.below.pop()
                    here = _swap(here, os.open(name, _OPEN_DIRECTORY, dir_fd=here))
                    levels.append(self._fill(here, join(level.path, name), node))
                    continue
                self._finish(here, level.node)
                levels.pop()
                if levels:
                    here = _swap(here, os.open(b"..", _OPEN_DIRECTORY, dir_fd=here))
                    if _identity(here) != levels[-1].identity:
                        raise OSError(errno.EAGAIN, "a directory was moved while it was restored")
        finally:
            os.close(here)

    def _fill(self, here: int, path: bytes, node: DirectoryNode) -> _Level:
        """Do in one directory all but its directories, which are made and still empty, or whatever they were."""
        tree = decode(self.objects.get(node.digest))
        there = dict(_clear(here, tree))
        below: list[tuple[bytes, DirectoryNode]] = []
        for name, wanted in tree.items():
            match wanted:
                case DirectoryNode():
                    self._make_directory(here, name, is_there=name in there)
                    below.append((name, wanted))
                case FileNode():
                    self._make_file(here, name, join(path, name), wanted, there.get(name))
                case LinkNode():
                    self._make_link(here, name, wanted)
                case WhiteoutNode():
                    if name not in there:
                        os.mknod(name, stat.S_IFCHR, 0, dir_fd=here)
        return _Level(path, node, _identity(here), below)

    def _make_directory(self, here: int, name: bytes, *, is_there: bool) -> None:
        if not is_there:
            os.mkdir(name, 0o700, dir_fd=here)
        # Ours to fill, whatever its mode was; by descriptor, so that no link is followed.
        found = os.open(name, getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        try:
            os.chmod(f"/proc/self/fd/{found}", 0o700)
        finally:
            os.close(found)

    def _make_link(self, here: int, name: bytes, wanted: LinkNode) -> None:
        with suppress(OSError):
            if os.readlink(name, dir_fd=here) == wanted.target:
                return
        temporary = _temporary_name()
        os.symlink(wanted.target, temporary, dir_fd=here)
        try:
            if self.owner is not None:
                os.chown(temporary, self.owner.uid, self.owner.gid, dir_fd=here, follow_symlinks=False)
            os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            os.unlink(temporary, dir_fd=here)
            raise

    def _make_file(self, here: int, name: bytes, path: bytes, wanted: FileNode, status: os.stat_result | None) -> None:
        if status is not None and self._is_unchanged(path, wanted, status):
            return
        temporary = name if self.is_private else _temporary_name()
        descriptor = os.open(temporary, _NEW_FILE, 0o600, dir_fd=here)
        try:
            for piece in wanted.pieces:
                _write_at(descriptor, piece.offset, self.objects.get(piece.digest))
            os.ftruncate(descriptor, wanted.size)
            self._finish_file(descriptor, wanted)
            if not self.is_private:
                os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=here)
            raise
        finally:
            os.close(descriptor)

    def _is_unchanged(self, path: bytes, wanted: FileNode, status: os.stat_result) -> bool:
        if self.known is None or self.known.get(os.fsdecode(path), status) != wanted.pieces:
            return False
        is_ours = self.owner is None or (status.st_uid, status.st_gid) == (self.owner.uid, self.owner.gid)
        is_alike = (stat.S_IMODE(status.st_mode), status.st_mtime_ns) == (_mode(wanted), wanted.mtime_ns)
        return is_alike and is_ours and status.st_nlink == 1 and not wanted.attributes

    def _finish_file(self, descriptor: int, wanted: FileNode) -> None:
        self._give(descriptor)
        if wanted.attributes:
            _set_attributes(descriptor, wanted.attributes)
        os.fchmod(descriptor, _mode(wanted))
        os.utime(descriptor, ns=(wanted.mtime_ns, wanted.mtime_ns))

    def _finish(self, here: int, node: DirectoryNode) -> None:
        self._give(here)
        _set_attributes(here, node.attributes)
        os.fchmod(here, _mode(node))

    def _give(self, descriptor: int) -> None:
        if self.owner is not None:
            os.fchown(descriptor, self.owner.uid, self.owner.gid)


def _clear(here: int, tree: Tree) -> Iterator[tuple[bytes, os.stat_result]]:
    """Remove what must not be in a directory, or not as this kind; what stays, and what it is."""
    for text in os.listdir(here):
        name = os.fsencode(text)
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
            wanted = tree.get(name)
            if wanted is not None and _is_kind(status, wanted):
                yield name, status
            else:
                remove_at(here, name)


def _is_kind(status: os.stat_result, node: Node) -> bool:
    match node:
        case FileNode():
            return stat.S_ISREG(status.st_mode)
        case LinkNode():
            return stat.S_ISLNK(status.st_mode)
        case DirectoryNode():
            return stat.S_ISDIR(status.st_mode)
        case WhiteoutNode():
            return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _mode(node: FileNode | DirectoryNode) -> int:
    return node.mode & _PERMISSION_BITS


def _set_attributes(descriptor: int, attributes: Attributes) -> None:
    wanted = dict(attributes)
    for name in os.listxattr(descriptor):
        if name.startswith(OVERLAY_ATTRIBUTES) and name not in wanted:
            os.removexattr(descriptor, name)
    for name, value in attributes:
        os.setxattr(descriptor, name, value)


def _write_at(descriptor: int, offset: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, offset)
        view, offset = view[count:], offset + count


def _temporary_name() -> bytes:
    return f".ringfence-{secrets.token_hex(8)}.tmp".encode()


def _swap(old: int, new: int) -> int:
    os.close(old)
    return new


def _identity(directory: int) -> tuple[int, int]:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino
