"""Remove a directory that an agent filled: as deep as it liked, without permissions, full of links.

Something of the agent's may still run and hold parts of the tree open. So nothing is followed, not even to change a
mode; nothing recurses, no path grows, and one directory is open at a time. The way back is `..`, taken only if it leads
to the directory that we came from: where a directory was moved away under us, the removal ends with EAGAIN.
"""

import errno
import os
import stat

_FIND = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory that nobody uses any more.

    Raises:
        OSError: something in it cannot be removed, even after we gave ourselves the permission.
    """
    _empty(os.fspath(path), None)
    os.rmdir(path)


def remove_at(parent: int, name: bytes) -> None:
    """Remove whatever has this name in a directory that is open.

    Raises:
        OSError: as `remove_tree`.
    """
    if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        _empty(os.fsdecode(name), parent)
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


def _empty(path: str, parent: int | None) -> None:
    here = _open(path, parent)
    way: list[tuple[str, tuple[int, int]]] = []
    try:
        while True:
            below = _unlink_files(here)
            if below is not None:
                way.append((below, _identity(here)))
                left, here = here, _open(below, here)
                os.close(left)
            elif way:
                name, above = way.pop()
                left, here = here, os.open("..", _DIRECTORY, dir_fd=here)
                os.close(left)
                if _identity(here) != above:
                    raise OSError(errno.EAGAIN, "a directory was moved while it was removed")
                os.rmdir(name, dir_fd=here)
            else:
                return
    finally:
        os.close(here)


def _open(name: str, parent: int | None) -> int:
    """Open a directory; the agent may have closed it to us, who are no more than its owner."""
    found = os.open(name, _FIND, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{found}", stat.S_IRWXU)
        return os.open(f"/proc/self/fd/{found}", _DIRECTORY)
    finally:
        os.close(found)


def _identity(directory: int) -> tuple[int, int]:
    status = os.fstat(directory)
    return status.st_dev, status.st_ino


def _unlink_files(directory: int) -> str | None:
    """Remove what is not a directory, up to the first one; its name, or None if all is gone."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name, dir_fd=directory)
    return None
