"""Puts a shadow's changes that were kept in memory onto the disk, above what its upper directory has already.

Both are directories of overlayfs: a whiteout hides what lies below, an opaque directory all that lies below it. Nobody
has either mounted any more. What was in memory is an agent's work, so it is walked by descriptor, and nothing in it is
followed.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from ringfence.workspace.copying import copy_content
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.tree import Tree, join

_MARKS: Final = "user.overlay."
_OPAQUE: Final = "user.overlay.opaque"


def absorb(memory: int, upper: Path) -> None:
    """Put what lies in `upper` of an open directory above what the disk has.

    Raises:
        OSError: the disk is full, or something cannot be read; doing it again goes on where it ended.
    """
    with Tree(f"/proc/self/fd/{memory}/upper") as source, Tree(upper) as target:
        owner = os.stat(upper)
        waiting = [""]
        directories: list[tuple[str, os.stat_result]] = []
        while waiting:
            directory = waiting.pop()
            for name in os.listdir(source.directory(directory)):
                path = join(directory, name)
                status = _put(source, target, path, owner)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
                    directories.append((path, status))
        for path, status in sorted(directories, key=lambda pair: -pair[0].count("/")):  # one may be closed to us too
            directory, _, name = path.rpartition("/")
            _finish(target.directory(directory), name, status)


def _put(source: Tree, target: Tree, path: str, owner: os.stat_result) -> os.stat_result:
    """Put one entry in its place; a directory is still open and empty, or as it was."""
    directory, _, name = path.rpartition("/")
    here, there = source.directory(directory), target.directory(directory)
    status = os.stat(name, dir_fd=here, follow_symlinks=False)
    is_directory = stat.S_ISDIR(status.st_mode)
    if is_directory or stat.S_ISREG(status.st_mode):
        os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=here)  # an agent may have closed it
    merges = is_directory and _is_directory(there, name) and _OPAQUE not in _marks(here, name)
    if not merges:
        _clear(target, there, name)
    if is_directory:
        if not merges:
            os.mkdir(name, 0o700, dir_fd=there)
    elif stat.S_ISREG(status.st_mode):
        _copy(here, there, name)
    elif stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=here), name, dir_fd=there)
    else:  # a whiteout, or something that a commit refuses
        os.mknod(name, status.st_mode, status.st_rdev, dir_fd=there)
    _dress(here, there, name, status, owner)
    return status


def _is_directory(parent: int, name: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _clear(target: Tree, parent: int, name: str) -> None:
    if _is_directory(parent, name):
        remove_tree(f"/proc/self/fd/{parent}/{name}")
        target.forget()
    else:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)


def _copy(here: int, there: int, name: str) -> None:
    source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(name, flags, 0o600, dir_fd=there)
        try:
            copy_content(source, target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def _marks(parent: int, name: str) -> dict[str, bytes]:
    path = f"/proc/self/fd/{parent}/{name}"
    found = os.listxattr(path, follow_symlinks=False)
    return {mark: os.getxattr(path, mark, follow_symlinks=False) for mark in found if mark.startswith(_MARKS)}


def _dress(here: int, there: int, name: str, status: os.stat_result, owner: os.stat_result) -> None:
    """Owner, overlay's own marks, and then the rest: a change of owner clears bits of the mode."""
    if os.geteuid() == 0:
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=there, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode) or stat.S_ISCHR(status.st_mode):
        return
    for mark, value in _marks(here, name).items():
        os.setxattr(f"/proc/self/fd/{there}/{name}", mark, value, follow_symlinks=False)
    if not stat.S_ISDIR(status.st_mode):
        _finish(there, name, status)


def _finish(there: int, name: str, status: os.stat_result) -> None:
    os.chmod(name, stat.S_IMODE(status.st_mode), dir_fd=there)
    os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=there, follow_symlinks=False)
