"""System calls that the standard library lacks: renames that swap or refuse to replace, birth times, and syncing."""

import ctypes
import errno
import os
from functools import cache

_RENAME_NOREPLACE = 1  # linux/fs.h
_RENAME_EXCHANGE = 2
_STATX_BTIME = 0x800  # linux/stat.h
_AT_SYMLINK_NOFOLLOW = 0x100
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
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST), other)  # Python makes it a FileExistsError
        os.rename(name, other, src_dir_fd=directory, dst_dir_fd=other_directory)


def sync_file_system(descriptor: int) -> None:
    """Have everything on the disk that the descriptor's file system holds: one wait instead of one for each file."""
    if _libc().syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class _Statx(ctypes.Structure):
    """The kernel's `struct statx`, as far as it is used."""

    _fields_ = (
        ("mask", ctypes.c_uint32),
        ("before", ctypes.c_uint8 * 76),
        ("birth_seconds", ctypes.c_int64),
        ("birth_ns", ctypes.c_uint32),
        ("after", ctypes.c_uint8 * 164),
    )


def birth_ns(directory: int, name: str) -> int | None:
    """When a file was made, which nobody can set; None where the file system or the kernel does not say.

    Raises:
        OSError: it is not there, or may not be looked at.
    """
    call = getattr(_libc(), "statx", None)
    if call is None:
        return None
    found = _Statx()
    if call(directory, os.fsencode(name), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, ctypes.byref(found)) != 0:
        number = ctypes.get_errno()
        if number in _UNSUPPORTED:
            return None
        raise OSError(number, os.strerror(number), name)
    if not found.mask & _STATX_BTIME or not found.birth_seconds:
        return None
    return int(found.birth_seconds) * 1_000_000_000 + int(found.birth_ns)


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
