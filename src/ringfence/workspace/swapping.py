"""Let two paths trade places, or give a name that is not taken, in one step that nobody can get between."""

import errno
import os

from ringfence.workspace import calls

_HERE = -100
"""AT_FDCWD: paths are taken as they are."""


def exchange(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> None:
    """
    Raises:
        OSError: one of them is not there, they lie on two file systems, or the file system cannot do it (EINVAL).
    """
    if not calls.exchange(_HERE, os.fspath(one), _HERE, os.fspath(other)):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fspath(other))


def rename_to_free_name(old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
    """
    Raises:
        FileExistsError: the name is taken.
        OSError: what else the system said.
    """
    calls.rename_to_new(_HERE, os.fspath(old), _HERE, os.fspath(new))
