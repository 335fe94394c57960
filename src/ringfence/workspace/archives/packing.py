"""Pack a directory of a workspace into an archive, as a stream.

The tree is walked without following anything. What a rule denies is left out without a word, as in a listing; devices,
fifos, sockets, files with a second name and links that may lead out are left out and named. Members carry names, modes
(without set-uid) and times, and nothing about owners.

What this does not protect against: files that change while they are packed. One whose size changes ends the download
with an error, because the archive already says another size.
"""

import os
import stat
import tarfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, BinaryIO, Protocol

from ringfence.dataclass import dataclass
from ringfence.errors import PathAccessDenied
from ringfence.workspace.archives.base import Archive, ArchiveLimits, Packed, over
from ringfence.workspace.beneath import O_PATH
from ringfence.workspace.changing import PERMISSION_BITS
from ringfence.workspace.faults import kind_in_words, require_directory, translating
from ringfence.workspace.names import PathText, climb, join, split
from ringfence.workspace.root_handle import RootHandle, reopened
from ringfence.workspace.walking import LeftOut, Level, Walk

_CHUNK_BYTES = 256 * 1024
_FIRST_ZIP_YEAR = 1980
_LAST_ZIP_YEAR = 2107


class _Writer(Protocol):
    """An archive that is being written."""

    def directory(self, path: str, status: os.stat_result) -> None: ...

    def link(self, path: str, target: str, status: os.stat_result) -> None: ...

    def file(self, path: str, status: os.stat_result, content: IO[bytes]) -> None: ...


@dataclass(slots=True)
class _Count:
    members: int = 0
    total_bytes: int = 0


def pack(ground: RootHandle, path: PathText, target: BinaryIO, form: Archive, limits: ArchiveLimits) -> Packed:
    """
    Raises:
        PathAccessDenied: a limit, or a file that changed; the target then holds part of an archive.
    """
    asked = ground.ask(path)
    left_out: list[LeftOut] = []
    count = _Count()
    with translating(asked), ground.opened(asked) as found, ExitStack() as stack:
        require_directory(asked, found.status)
        top = stack.enter_context(reopened(found.descriptor, os.O_RDONLY | os.O_DIRECTORY))
        walk = Walk(top, limits.members)
        writer = _open_writer(target, form, stack)
        for level in walk:
            entered: set[bytes] = set()
            for entry in level.entries:
                name = os.fsencode(entry.name)
                place = join(found.place, level.path, name)
                if ground.rule_against(place) is not None:
                    continue
                entered.add(name)
                why = _add(ground, writer, level, entry, place, count, limits)
                if why is not None:
                    left_out.append(LeftOut(os.fsdecode(join(level.path, name)), why))
            level.below = [name for name in level.below if name in entered]
        left_out += walk.unread
        if walk.is_cut:
            raise over("members", f"would have more than {limits.members} members")
    return Packed(count.members, count.total_bytes, tuple(left_out))


def _add(
    ground: RootHandle,
    writer: _Writer,
    level: Level,
    entry: os.DirEntry[str],
    place: bytes,
    count: _Count,
    limits: ArchiveLimits,
) -> str | None:
    """Add one entry; or say why it is left out."""
    path = os.fsdecode(join(level.path, os.fsencode(entry.name)))
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            writer.directory(path, status)
        elif stat.S_ISLNK(status.st_mode):
            target = os.readlink(os.fsencode(entry.name), dir_fd=level.descriptor)
            if target.startswith(b"/") or climb(split(place)[:-1], target) is None:
                return "is a link that leads out"
            writer.link(path, os.fsdecode(target), status)
        elif stat.S_ISREG(status.st_mode):
            return _add_file(ground, writer, level, entry.name, path, count, limits)
        else:
            return f"is {kind_in_words(status.st_mode)}"
    except FileNotFoundError:
        return "went away while it was packed"
    except UnicodeEncodeError:
        return "has a name that this form cannot hold"
    count.members += 1
    return None


def _add_file(
    ground: RootHandle, writer: _Writer, level: Level, name: str, path: str, count: _Count, limits: ArchiveLimits
) -> str | None:
    descriptor = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=level.descriptor)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return "changed while it was packed"
        if status.st_nlink > 1 and not ground.allow_hard_links:
            return "has a second name (hard link), which may lie outside"
        count.total_bytes += status.st_size
        if count.total_bytes > limits.total_bytes:
            raise over("total_bytes", f"would hold more than {limits.total_bytes} bytes")
        try:
            with reopened(descriptor, os.O_RDONLY) as opened, open(opened, "rb", closefd=False) as content:
                writer.file(path, status, content)
        except PathAccessDenied:
            raise
        except PermissionError:
            count.total_bytes -= status.st_size
            return "cannot be read"
    finally:
        os.close(descriptor)
    count.members += 1
    return None


def _open_writer(target: BinaryIO, form: Archive, stack: ExitStack) -> _Writer:
    if form is Archive.ZIP:
        return _Zip(stack.enter_context(zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED)))
    if form is Archive.TAR_GZ:
        return _Tar(stack.enter_context(tarfile.open(fileobj=target, mode="w|gz")))
    return _Tar(stack.enter_context(tarfile.open(fileobj=target, mode="w|")))


class _Tar:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive

    def directory(self, path: str, status: os.stat_result) -> None:
        self._add(path, tarfile.DIRTYPE, status)

    def link(self, path: str, target: str, status: os.stat_result) -> None:
        self._add(path, tarfile.SYMTYPE, status, target=target)

    def file(self, path: str, status: os.stat_result, content: IO[bytes]) -> None:
        self._add(path, tarfile.REGTYPE, status, content=content)

    def _add(
        self, path: str, kind: bytes, status: os.stat_result, *, target: str = "", content: IO[bytes] | None = None
    ) -> None:
        info = tarfile.TarInfo(path)
        info.type, info.linkname = kind, target
        info.mode = status.st_mode & PERMISSION_BITS
        info.mtime = int(status.st_mtime)
        info.size = status.st_size if content is not None else 0
        if content is None:
            self._archive.addfile(info)
        else:
            self._archive.addfile(info, _Exactly(content, status.st_size, path))
        # tarfile keeps them all, and nobody looks at them again
        self._archive.members.clear()  # type: ignore[attr-defined]  # not in the stubs


class _Zip:
    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive

    def directory(self, path: str, status: os.stat_result) -> None:
        self._archive.writestr(_zip_info(path + "/", status, stat.S_IFDIR), b"")

    def link(self, path: str, target: str, status: os.stat_result) -> None:
        data = os.fsencode(target)
        self._archive.writestr(_zip_info(path, status, stat.S_IFLNK), data)

    def file(self, path: str, status: os.stat_result, content: IO[bytes]) -> None:
        info = _zip_info(path, status, stat.S_IFREG)
        info.file_size = status.st_size
        info.compress_type = zipfile.ZIP_DEFLATED
        with self._archive.open(info, "w") as member:
            for chunk in _chunks(_Exactly(content, status.st_size, path), status.st_size):
                member.write(chunk)


class _Exactly:
    """A content of the size that was promised; more is not taken, less is an error."""

    def __init__(self, content: IO[bytes], size: int, path: str) -> None:
        self._content = content
        self._left = size
        self._path = path

    def read(self, size: int = -1, /) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._content.read(wanted)
        if len(data) < wanted:
            raise PathAccessDenied(self._path, "became shorter while it was packed", hint="try again")
        self._left -= len(data)
        return data


def _chunks(content: _Exactly, size: int) -> Iterator[bytes]:
    while size > 0:
        chunk = content.read(min(size, _CHUNK_BYTES))
        size -= len(chunk)
        yield chunk


def _zip_info(path: str, status: os.stat_result, kind: int) -> zipfile.ZipInfo:
    path.encode("utf-8")  # zipfile would fail later, with half a member written
    when = time.localtime(max(status.st_mtime, 0))[:6]
    if not _FIRST_ZIP_YEAR <= when[0] <= _LAST_ZIP_YEAR:
        when = (_FIRST_ZIP_YEAR, 1, 1, 0, 0, 0)
    info = zipfile.ZipInfo(path, when)
    info.create_system = 3
    info.external_attr = (kind | (status.st_mode & PERMISSION_BITS)) << 16
    return info
