"""Let two names trade places, or give a name that is not taken, in one step that nobody can get between."""

import ctypes
import os

_HERE = -100
"""AT_FDCWD: paths are taken as they are."""
_NOREPLACE = 1
_EXCHANGE = 2


def exchange(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> None:
    """
    Raises:
        OSError: one of them is not there, they lie on two file systems, or the file system cannot do it (EINVAL).
    """
    _rename(one, other, _EXCHANGE)


def rename_to_free_name(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
    """
    Raises:
        FileExistsError: the name is taken.
        OSError: what else the system said.
    """
    _rename(old, new, _NOREPLACE)


def _rename(old: str | os.PathLike[str], new: str | os.PathLike[str], flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(old), _HERE, os.fsencode(new), flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(old), None, os.fsdecode(new))
