"""Read the members of an archive one after the other, as a stream, without believing what the archive says.

Sizes are counted, not read from headers: what comes out of the decompressor goes through `Meter`, which stops at the
limits. A header may itself be a bomb (the extended headers of tar are read into memory whole), so between two members
only so much may be read. Of zip's methods only stored and deflate are taken: the others allocate by what the archive
says.

What this does not protect against: faults in zlib, and in the tar and zip modules of the standard library.
"""

import gzip
import io
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import IO, BinaryIO, Protocol, Self

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, PathAccessDenied
from ringfence.workspace.archives.base import ARCHIVE, Archive, ArchiveLimits, over

_CHUNK_BYTES = 256 * 1024
_HEADER_BYTES = 1024 * 1024
"""Between two members of a tar: headers are of 512 bytes, and a name has at most 4096."""
_DIRECTORY_BYTES = 64 * 1024 * 1024
"""Of zip's central directory, which is read into memory whole; room for several hundred thousand members."""
_LONGEST_TARGET = 4095
_UNIX = 3
"""In zip, the system whose permission bits a member carries."""
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError)


class MemberKind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    HARD_LINK = "hard link"
    OTHER = "something special"


class Readable(Protocol):
    """What can be read from; more is asked of nobody."""

    def read(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One member; its chunks have to be read before the next one is asked for."""

    name: str
    kind: MemberKind
    mode: int | None
    """Permission bits and more; None if the archive does not say."""
    target: str = ""
    chunks: Iterable[bytes] = ()


class Meter:
    """Counts what goes in and what comes out, and stops at the limits."""

    def __init__(self, limits: ArchiveLimits) -> None:
        self._limits = limits
        self.packed_bytes = 0
        self.unpacked_bytes = 0
        self._members = 0

    def member(self) -> None:
        self._members += 1
        if self._members > self._limits.members:
            raise over("members", f"has more than {self._limits.members} members")

    def unpacked(self, count: int) -> None:
        self.unpacked_bytes += count
        if self.unpacked_bytes > self._limits.total_bytes:
            raise over("total_bytes", f"unpacks to more than {self._limits.total_bytes} bytes")
        is_large = self.unpacked_bytes > self._limits.ratio_from_bytes
        if is_large and self.unpacked_bytes > self._limits.ratio * max(self.packed_bytes, 1):
            raise over("ratio", f"unpacks to more than {self._limits.ratio:g} times its size")


def members(source: Readable, form: Archive | None, meter: Meter, limits: ArchiveLimits) -> Iterator[ArchiveMember]:
    """
    Args:
        form: by default what its first bytes say.

    Raises:
        InvalidArgument: it is no such archive, or it is damaged.
        PathAccessDenied: a limit.
    """
    packed = _Packed(source, meter)
    chosen = form or packed.guess()
    with _saying_damaged(f"is no {chosen} archive, or a damaged one"):
        if chosen is Archive.ZIP:
            yield from _zip_members(packed, meter, limits)
        elif chosen is Archive.TAR_GZ:
            with gzip.GzipFile(fileobj=packed) as unpacked:  # type: ignore[call-overload]  # it only reads
                yield from _tar_members(unpacked, meter)
        else:
            yield from _tar_members(packed, meter)


@contextmanager
def _saying_damaged(what: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise InvalidArgument(f"{what}: {error}", source=ARCHIVE) from error


class _Packed:
    """The source, counted, with its first bytes looked at."""

    def __init__(self, source: Readable, meter: Meter) -> None:
        self._source = source
        self._meter = meter
        self._ahead = b""

    def guess(self) -> Archive:
        while len(self._ahead) < 4 and (more := self._source.read(4 - len(self._ahead))):
            self._ahead += more
        if self._ahead.startswith(b"PK"):
            return Archive.ZIP
        return Archive.TAR_GZ if self._ahead.startswith(b"\x1f\x8b") else Archive.TAR

    def read(self, size: int = -1, /) -> bytes:
        size = _CHUNK_BYTES if size < 0 else size
        data, self._ahead = self._ahead[:size], self._ahead[size:]
        if len(data) < size:
            data += self._source.read(size - len(data))
        self._meter.packed_bytes += len(data)
        return data


# --- tar --------------------------------------------------------------------------------------------------------------


class _Headers:
    """What tarfile reads from: bounded while it looks for the next header, free while we read a content."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self.left: int | None = None

    def read(self, size: int = -1, /) -> bytes:
        if self.left is not None and self.left <= 0:
            raise over("members", f"has headers of more than {_HEADER_BYTES} bytes for one member")
        data = self._source.read(size)
        if self.left is not None:
            self.left -= len(data)
        return data


class _TarInfo(tarfile.TarInfo):
    """A header; one that is damaged or cut off is an error, where tarfile takes it for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # two blocks of zeros, as it should be
                raise
            raise InvalidArgument(f"is not a tar archive, or a damaged one: {error}", source=ARCHIVE) from error


def _tar_members(unpacked: Readable, meter: Meter) -> Iterator[ArchiveMember]:
    headers = _Headers(unpacked)
    headers.left = _HEADER_BYTES
    stream: IO[bytes] = headers  # type: ignore[assignment]  # tarfile asks for `read` only in this mode
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_TarInfo) as archive:
        while (info := archive.next()) is not None:
            # tarfile keeps them all, and we never go back
            archive.members.clear()  # type: ignore[attr-defined]  # not in the stubs
            meter.member()
            headers.left = None
            yield _tar_member(archive, info, meter)
            headers.left = _HEADER_BYTES
    while headers.read(_CHUNK_BYTES):  # to the end, where gzip keeps its checksum
        pass


def _tar_member(archive: tarfile.TarFile, info: tarfile.TarInfo, meter: Meter) -> ArchiveMember:
    if info.isdir():
        return ArchiveMember(info.name, MemberKind.DIRECTORY, info.mode)
    if info.issym():
        return ArchiveMember(info.name, MemberKind.LINK, info.mode, info.linkname)
    if info.islnk():
        return ArchiveMember(info.name, MemberKind.HARD_LINK, info.mode, info.linkname)
    if not info.isreg():
        return ArchiveMember(info.name, MemberKind.OTHER, info.mode)
    content = archive.extractfile(info)
    assert content is not None, "a regular member has a content"
    return ArchiveMember(info.name, MemberKind.FILE, info.mode, chunks=_counted(content, info.size, meter))


# --- zip --------------------------------------------------------------------------------------------------------------


class _Careful:
    """What zipfile reads from: refuses to be read in one piece of any size that the archive names."""

    def __init__(self, file: BinaryIO, meter: Meter) -> None:
        self._file = file
        self._meter = meter

    def read(self, size: int = -1, /) -> bytes:
        if size > _DIRECTORY_BYTES:
            raise over("members", f"has a directory of {size} bytes")
        data = self._file.read(_DIRECTORY_BYTES if size < 0 else size)
        self._meter.packed_bytes += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


def _zip_members(source: Readable, meter: Meter, limits: ArchiveLimits) -> Iterator[ArchiveMember]:
    """Zip has its directory at the end, so that the whole has to be there first; it waits on disk."""
    with tempfile.TemporaryFile() as file:
        while chunk := source.read(_CHUNK_BYTES):
            if file.tell() + len(chunk) > limits.total_bytes:
                raise over("total_bytes", f"is itself larger than {limits.total_bytes} bytes")
            file.write(chunk)
        meter.packed_bytes = 0  # counted again, as it is read for each member
        file.seek(0)
        careful: IO[bytes] = _Careful(file, meter)  # type: ignore[assignment]  # zipfile asks for no more than it has
        with zipfile.ZipFile(careful) as archive:
            for info in archive.infolist():
                meter.member()
                yield _zip_member(archive, info, meter)


def _zip_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, meter: Meter) -> ArchiveMember:
    name = info.orig_filename  # zipfile cuts `filename` at a NUL
    if info.flag_bits & 1:
        raise PathAccessDenied(name, "is encrypted", hint="pack it without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise PathAccessDenied(name, f"is packed by method {info.compress_type}", hint="use deflate")
    mode = info.external_attr >> 16 if info.create_system == _UNIX else 0
    kind = stat.S_IFMT(mode)
    if name.endswith("/") or kind == stat.S_IFDIR:
        return ArchiveMember(name, MemberKind.DIRECTORY, mode or None)
    if kind not in (0, stat.S_IFREG, stat.S_IFLNK):
        return ArchiveMember(name, MemberKind.OTHER, mode)
    content = archive.open(info)
    if kind == stat.S_IFLNK:
        with content:
            target = content.read(_LONGEST_TARGET + 1)
        return ArchiveMember(name, MemberKind.LINK, mode, target.decode("utf-8", "surrogateescape"))
    return ArchiveMember(name, MemberKind.FILE, mode or None, chunks=_counted(content, None, meter))


def _counted(content: IO[bytes], size: int | None, meter: Meter) -> Iterator[bytes]:
    """The content, counted; a content that is shorter than `size` was cut off."""
    got = 0
    with content, _saying_damaged("is damaged"):
        while chunk := content.read(_CHUNK_BYTES):
            got += len(chunk)
            meter.unpacked(len(chunk))
            yield chunk
    if size is not None and got != size:
        raise InvalidArgument("is not a whole archive: a member is cut off", source=ARCHIVE)
