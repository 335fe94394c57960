"""Copies a project into a shadow, and remembers what it copied.

For projects that overlayfs cannot take. The manifest says for every path what the host had (kind, mode, size, times,
inode, link target, a hash of the content) and which inode and time the copy got: whatever has others was touched in the
shadow, whatever the host has others of was touched there.

Content is shared with the host's file where the file system can (FICLONE), holes stay holes, links stay links. Two
names of one file become two files. Special files, and what cannot be read, are left out and named. Everything belongs
to the one owner that the box knows.

What this does not protect against: a project that is changed while it is copied is not copied as of one moment; only
each file is.
"""

import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from ringfence.dataclass import dataclass
from ringfence.errors import Damaged
from ringfence.values.change import NodeKind
from ringfence.workspace.statefile import read_json, write_json
from ringfence.workspace.tree import LONGEST_PATH, Tree, join, kind_of

MANIFEST_FILE: Final = "manifest.json"
_FICLONE = 0x40049409  # linux/fs.h
_CHUNK_BYTES = 1024 * 1024
_TRIES = 3
"""For a file that is written while it is read."""
_TELL_EVERY = 256
"""Files between two calls of `progress`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the making of a shadow has come."""

    files: int
    size_bytes: int
    path: str


def no_progress(_: Progress) -> None:
    """Tells nobody."""


class Copied(NamedTuple):
    """One line of the manifest; a tuple, because there may be a million."""

    kind: str
    mode: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    target: str
    digest: str
    copy_inode: int
    copy_ctime_ns: int

    def is_host(self, status: os.stat_result) -> bool:
        """Whether the host's entry is untouched."""
        return (status.st_ino, status.st_ctime_ns, status.st_size, status.st_mtime_ns) == (
            self.inode,
            self.ctime_ns,
            self.size_bytes,
            self.mtime_ns,
        )

    def is_copy(self, status: os.stat_result) -> bool:
        """Whether the shadow's entry is untouched; the kernel's time of a change cannot be set by who changes."""
        return (status.st_ino, status.st_ctime_ns) == (self.copy_inode, self.copy_ctime_ns)


Manifest = dict[str, Copied]


def copy_tree(
    lower: Path, directory: Path, *, hidden: Iterable[tuple[str, str]], progress: Callable[[Progress], None]
) -> tuple[tuple[str, str], ...]:
    """Fill `directory/upper`, which is there and empty, and write the manifest; what was left out is returned."""
    with Tree(lower) as source, Tree(directory / "upper") as target:
        copier = _Copier(source, target, frozenset(path for path, _ in hidden), progress)
        copier.run()
    write_manifest(directory, copier.manifest)
    return tuple(copier.left_out)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    write_json(directory / MANIFEST_FILE, manifest)


def read_manifest(directory: Path) -> Manifest:
    """
    Raises:
        Damaged: it is not there, or makes no sense.
    """
    path = directory / MANIFEST_FILE
    try:
        return {str(name): _checked(fields) for name, fields in read_json(path).items()}
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise Damaged(f"is not a manifest: {fault}", source=str(path), hint="discard the shadow") from fault


def _checked(fields: Any) -> Copied:
    entry = Copied(*fields)
    for value, kind in zip(entry, Copied.__annotations__.values(), strict=True):
        if type(value) is not kind:
            raise ValueError(f"{value!r} is no {kind.__name__}")
    return entry


class _Copier:
    def __init__(
        self, source: Tree, target: Tree, hidden: frozenset[str], progress: Callable[[Progress], None]
    ) -> None:
        self._source = source
        self._target = target
        self._hidden = hidden
        self._progress = progress
        self._owner = os.fstat(target.top)
        self._files = 0
        self._size_bytes = 0
        self.manifest: Manifest = {}
        self.left_out: list[tuple[str, str]] = []

    def run(self) -> None:
        directories = [""]
        for directory in directories:  # it grows meanwhile
            for name in self._source.names(directory):
                path = join(directory, name)
                if path in self._hidden:
                    continue
                try:
                    if self._copy(path):
                        directories.append(path)
                except OSError as fault:
                    if fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):
                        raise
                    self.left_out.append((path, os.strerror(fault.errno) if fault.errno else str(fault)))
        for path in reversed(directories[1:]):  # the mode of a directory may close it to us
            self._close_directory(path)
        self._progress(Progress(self._files, self._size_bytes, ""))

    def _copy(self, path: str) -> bool:
        """Copy one name; whether it is a directory."""
        status = self._source.status(path)
        if status is None:
            return False
        if len(os.fsencode(path)) > LONGEST_PATH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        match kind_of(status.st_mode):
            case NodeKind.DIRECTORY:
                self._source.directory(path)  # so that one that cannot be opened is left out as a whole
                parent, name = self._place(path)
                os.mkdir(name, 0o700, dir_fd=parent)
                self._note(path, status, "", "")
                return True
            case NodeKind.FILE:
                self._copy_file(path)
            case NodeKind.LINK:
                self._copy_link(path, status)
            case NodeKind.SPECIAL:
                self.left_out.append((path, "neither a file, a directory nor a link"))
        return False

    def _place(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        return self._target.directory(above), name

    def _copy_file(self, path: str) -> None:
        for _ in range(_TRIES):
            with self._source.opened(path) as source:
                before = os.fstat(source)
                parent, name = self._place(path)
                target = os.open(
                    name,
                    os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
                    0o600,
                    dir_fd=parent,
                )
                try:
                    digest = copy_content(source, target)
                    self._give(target)
                    os.fchmod(target, stat.S_IMODE(before.st_mode) & 0o777)
                    os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
                finally:
                    os.close(target)
                after = os.fstat(source)
            if (before.st_ctime_ns, before.st_size) == (after.st_ctime_ns, after.st_size):
                self._note(path, before, "", digest)
                self._count(path, before.st_size)
                return
        os.unlink(name, dir_fd=parent)
        raise OSError(errno.EAGAIN, "kept changing while it was copied")

    def _copy_link(self, path: str, status: os.stat_result) -> None:
        text = self._source.target(path)
        parent, name = self._place(path)
        os.symlink(text, name, dir_fd=parent)
        if os.geteuid() == 0:
            os.chown(name, self._owner.st_uid, self._owner.st_gid, dir_fd=parent, follow_symlinks=False)
        self._note(path, status, text, "")

    def _close_directory(self, path: str) -> None:
        entry = self.manifest[path]
        descriptor = self._target.directory(path)
        self._give(descriptor)
        os.fchmod(descriptor, entry.mode & 0o777)
        self._note_copy(path, entry)

    def _give(self, descriptor: int) -> None:
        if os.geteuid() == 0:
            os.fchown(descriptor, self._owner.st_uid, self._owner.st_gid)

    def _note(self, path: str, status: os.stat_result, target: str, digest: str) -> None:
        entry = Copied(
            kind_of(status.st_mode).value,
            stat.S_IMODE(status.st_mode),
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
            target,
            digest,
            0,
            0,
        )
        self._note_copy(path, entry)

    def _note_copy(self, path: str, entry: Copied) -> None:
        made = self._target.status(path)
        if made is not None:
            self.manifest[path] = entry._replace(copy_inode=made.st_ino, copy_ctime_ns=made.st_ctime_ns)

    def _count(self, path: str, size_bytes: int) -> None:
        self._files += 1
        self._size_bytes += size_bytes
        if self._files % _TELL_EVERY == 0:
            self._progress(Progress(self._files, self._size_bytes, path))


def copy_content(source: int, target: int) -> str:
    """Copy a file into an empty one, and return its hash. Where both can share the blocks, nothing is written."""
    shared = share_content(source, target)
    digest = hashlib.blake2b(digest_size=32)
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        data_at = _next_data(source, at, size)
        _hash_zeros(digest, data_at - at)
        end = _next_hole(source, data_at, size)
        at = data_at
        while at < end:
            chunk = os.pread(source, min(_CHUNK_BYTES, end - at), at)
            if not chunk:
                size = end = at  # it has become shorter; the caller notices by its time
                break
            digest.update(chunk)
            if not shared:
                _write_at(target, chunk, at)
            at += len(chunk)
    if not shared:
        os.ftruncate(target, size)
    return digest.hexdigest()


def digest_of(descriptor: int) -> str:
    """The same hash, of a file that stands at its beginning."""
    digest = hashlib.blake2b(digest_size=32)
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()


def share_content(source: int, target: int) -> bool:
    """Let two files share their blocks; False where the file system cannot."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _next_data(descriptor: int, at: int, size: int) -> int:
    try:
        return min(os.lseek(descriptor, at, os.SEEK_DATA), size)
    except OSError as fault:
        return size if fault.errno == errno.ENXIO else at  # nothing but a hole; or no holes known


def _next_hole(descriptor: int, at: int, size: int) -> int:
    try:
        return min(os.lseek(descriptor, at, os.SEEK_HOLE), size) if at < size else size
    except OSError:
        return size


_ZEROS = bytes(_CHUNK_BYTES)


def _hash_zeros(digest: "hashlib.blake2b", count: int) -> None:
    while count > 0:
        digest.update(_ZEROS[: min(count, _CHUNK_BYTES)])
        count -= _CHUNK_BYTES


def _write_at(target: int, chunk: bytes, at: int) -> None:
    view = memoryview(chunk)
    while view:
        written = os.pwrite(target, view, at)
        view, at = view[written:], at + written
