"""Build a tree beside the directory that it is to replace, and let both trade places.

Until the one step in which they do, nothing of the directory has changed; what fails before leaves nothing.
"""

import errno
import os
import secrets
from pathlib import Path

from ringfence.errors import AlreadyExists, FileError, NotADirectory, NotFound, PermissionDenied
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.snapshots.objects import Objects
from ringfence.workspace.snapshots.restoring import RestoreOwner, Restoring
from ringfence.workspace.snapshots.tree import DirectoryNode
from ringfence.workspace.swapping import exchange, rename_to_free_name

StrPath = str | os.PathLike[str]

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def build_beside(objects: Objects, target: Path, root: DirectoryNode) -> Path:
    """A new directory in the one above `target`, with the whole tree in it."""
    built = target.parent / f".{target.name}.ringfence-{secrets.token_hex(8)}.tmp"
    try:
        built.mkdir(mode=0o700)
    except FileNotFoundError:
        raise NotFound("there is no such directory", path=str(target.parent), hint="make it first") from None
    try:
        top = os.open(built, _OPEN_DIRECTORY)
        try:
            Restoring(objects, owner_for(target), None, is_private=True).make_equal(top, root)
        finally:
            os.close(top)
    except BaseException:
        remove_tree(built)
        raise
    return built


def open_tree(path: StrPath) -> int:
    try:
        return os.open(path, _OPEN_DIRECTORY)
    except OSError as error:
        raise FileError.of(
            error.errno or 0, os.fspath(path), f"is not a directory to read: {error.strerror}"
        ) from error


def owner_for(target: Path) -> RestoreOwner | None:
    """Run by root, what is restored belongs to the owner of the directory, or of the one above it."""
    if os.geteuid() != 0:
        return None
    status = os.stat(target if target.is_dir() else target.parent)
    return RestoreOwner(status.st_uid, status.st_gid)


def put_in_place(built: Path, target: Path) -> bool:
    """Give the new tree its name; True if there was nothing before, else the old one is where the new one was."""
    try:
        rename_to_free_name(built, target)
    except FileExistsError:
        if target.is_symlink() or not target.is_dir():
            raise NotADirectory("is not a directory", path=str(target), hint="name a directory") from None
        try:
            exchange(built, target)
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.EXDEV):
                raise PermissionDenied(
                    f"{target} cannot be exchanged: something is mounted on it", hint="restore it in_place"
                ) from error
            raise
        return False
    return True


def remove_or_tell(old: Path) -> str | None:
    try:
        remove_tree(old)
    except OSError:
        return str(old)
    return None


def is_there(target: Path) -> AlreadyExists:
    return AlreadyExists("exists already", path=str(target), hint="choose another name, or use restore")
