"""Reads and writes the one form in which a bundle travels: a zip archive that is the same bytes for the same content.

Entries are stored, not compressed, in the order of their names, with the date and rights of no machine, and nothing is
before, between or behind them. What is read is written again and compared, byte by byte. So whatever an archive could
say twice or differently to two readers (two entries of one name, a second directory, links, sizes that differ, data in
front) is refused by one rule, and an archive cannot unpack to more than its own size.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ringfence.bundles.manifest import BYTES_MAX, FILES_MAX, MANIFEST, SIGNATURE, wrong_with_name
from ringfence.bundles.reasons import Reason
from ringfence.errors import BundleRefused, FileError

SUFFIX: Final = ".rfb"
_ARCHIVE_MAX: Final = BYTES_MAX + 4 * 1024 * 1024
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_FORM: Final = "write it with `ringfence bundle build`: entries stored, in order, without dates, comments or links"


def pack(files: Mapping[str, bytes]) -> bytes:
    """The archive of these files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = _UNIX
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def unpack(data: bytes, source: str = "") -> dict[str, bytes]:
    """The files of an archive.

    Raises:
        BundleRefused: it is none, or not in the one form.
    """
    if len(data) > _ARCHIVE_MAX:
        raise BundleRefused(Reason.TOO_LARGE, f"is larger than {_ARCHIVE_MAX} bytes", source=source)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries, source)
            files = {entry.filename: archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, ValueError, OSError) as fault:
        raise BundleRefused(
            Reason.NOT_A_BUNDLE, f"is no archive that can be read: {fault}", source=source, hint=_FORM
        ) from None
    except RuntimeError as fault:  # an encrypted entry
        raise BundleRefused(Reason.NOT_CANONICAL, str(fault), source=source, hint=_FORM) from None
    if pack(files) != data:
        raise BundleRefused(Reason.NOT_CANONICAL, "is not in the one form of bundles", source=source, hint=_FORM)
    return files


def _check_entries(entries: list[zipfile.ZipInfo], source: str) -> None:
    if len(entries) > FILES_MAX + 2:
        raise BundleRefused(Reason.TOO_LARGE, f"has more than {FILES_MAX} files", source=source)
    names: set[str] = set()
    for entry in entries:
        if entry.filename in names:
            raise BundleRefused(Reason.NOT_CANONICAL, f"has two entries {entry.filename!r}", source=source, hint=_FORM)
        names.add(entry.filename)
        if why := wrong_with_name(entry.filename):
            raise BundleRefused(Reason.BAD_NAME, f"{entry.filename!r}: {why}", source=source)
        if entry.compress_type != zipfile.ZIP_STORED:
            raise BundleRefused(Reason.NOT_CANONICAL, f"{entry.filename!r} is compressed", source=source, hint=_FORM)


def read_bundle(path: str | os.PathLike[str]) -> dict[str, bytes]:
    """The files of a bundle that is an archive, or a directory with a manifest.

    Raises:
        BundleRefused: it is no bundle.
        FileError: it cannot be read.
    """
    source = os.fspath(path)
    try:
        kind = os.stat(source).st_mode
        if stat.S_ISDIR(kind):
            return _read_directory(Path(source))
        if not stat.S_ISREG(kind):
            raise BundleRefused(Reason.NOT_A_BUNDLE, "is neither a file nor a directory", source=source)
        with open(source, "rb") as file:
            data = file.read(_ARCHIVE_MAX + 1)
    except OSError as fault:
        raise FileError.of(fault.errno or 0, source) from None
    return unpack(data, source)


def _read_directory(top: Path) -> dict[str, bytes]:
    """Only regular files count, and a link is none; how many bytes they have is bounded before they are read."""
    files: dict[str, bytes] = {}
    room = _ARCHIVE_MAX
    waiting = [top]
    while waiting:
        with os.scandir(waiting.pop()) as found:
            entries = list(found)
        for entry in entries:
            name = os.path.relpath(entry.path, top).replace(os.sep, "/")
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
                continue
            if not entry.is_file(follow_symlinks=False):
                raise BundleRefused(Reason.BAD_NAME, f"{name!r} is no regular file", source=os.fspath(top))
            with open(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                files[name] = file.read(room + 1)
            room -= len(files[name])
            if room < 0 or len(files) > FILES_MAX + 2:
                raise BundleRefused(Reason.TOO_LARGE, "holds more than a bundle may", source=os.fspath(top))
    if MANIFEST not in files:
        raise BundleRefused(Reason.NOT_A_BUNDLE, f"holds no {MANIFEST}", source=os.fspath(top))
    return files


def content_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those that the manifest has to name."""
    return {name: data for name, data in files.items() if name not in (MANIFEST, SIGNATURE)}
