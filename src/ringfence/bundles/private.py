"""Files and directories that are one person's alone: made so, checked to be so, replaced in one step."""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringfence.errors import FileError, PermissionDenied


def make_private(directory: Path) -> None:
    """Make a directory, if it is not there, that nobody else can look into.

    Raises:
        PermissionDenied: it is somebody else's, or others can write it.
        FileError: it cannot be made.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = os.lstat(directory)
    except OSError as fault:
        raise FileError.of(fault.errno or 0, os.fspath(directory)) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise PermissionDenied(
            "is not a directory of yours that only you can write",
            path=os.fspath(directory),
            hint="make it so (chown, chmod 700), or set RINGFENCE_WASI_DIR to another place",
        )


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time changes what is in a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes, mode: int) -> None:
    """Put a file into its place whole, or not at all.

    Raises:
        FileError: it cannot be written.
    """
    scratch = ""
    try:
        descriptor, scratch = tempfile.mkstemp(prefix=".new-", dir=path.parent)
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(scratch, path)
    except OSError as fault:
        with suppress(OSError):
            os.unlink(scratch)
        raise FileError.of(fault.errno or 0, os.fspath(path)) from None
