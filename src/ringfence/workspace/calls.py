"""System calls that the standard library lacks: renames that swap or refuse to replace, and syncing one file system."""

import ctypes
import errno
import os
from functools import cache

_RENAME_NOREPLACE = 1  # linux/fs.h
_RENAME_EXCHANGE = 2
_UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def exchange(directory: int, name: str, other_directory: int, other: str) -> bool:
    """Swap two names at once; False where the file system cannot.

    Raises:
        OSError: as a rename does.
    """
    return _rename(directory, name, other_directory, other, _RENAME_EXCHANGE)


def rename_to_new(directory: int, name: str, other_directory: int, other: str) -> None:
    """Rename to a name that nothing has.

    Raises:
        FileExistsError: something has it.
        OSError: as a rename does.
    """
    if not _rename(directory, name, other_directory, other, _RENAME_NOREPLACE):
        if _is_there(other_directory, other):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other)
        os.rename(name, other, src_dir_fd=directory, dst_dir_fd=other_directory)


def sync_file_system(descriptor: int) -> None:
    """Have everything on the disk that the descriptor's file system holds: one wait instead of one for each file."""
    if _libc().syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _rename(directory: int, name: str, other_directory: int, other: str, flags: int) -> bool:
    call = getattr(_libc(), "renameat2", None)
    if call is None:
        return False
    if call(directory, os.fsencode(name), other_directory, os.fsencode(other), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), other)


def _is_there(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
