"""Turn what the system said about a path into an error of ours: the one table, and the refusals that several share."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ringfence.errors import InvalidConfig, PathAccessDenied, PathTraversalError, PermissionDenied, RingfenceError
from ringfence.workspace.names import Asked

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def translating(asked: Asked) -> Iterator[None]:
    """The one place where errors of the system become ours."""
    try:
        yield
    except OSError as error:
        raise _translated(asked, error) from error


def _translated(asked: Asked, error: OSError) -> RingfenceError:
    number = error.errno
    is_out = number == errno.EXDEV or (number in (errno.ENOENT, errno.ENOTDIR) and asked.names is None)
    if is_out:
        return PathTraversalError(asked.text, "leads out of the workspace", hint="stay below the workspace")
    if number == errno.EAGAIN:
        return PathAccessDenied(asked.text, "is held or changed by another process", hint="try again")
    if number == errno.ENOTEMPTY:
        return PathAccessDenied(asked.text, "is a directory that is not empty", hint="delete it recursively")
    if number == errno.EISDIR:
        return PathAccessDenied(asked.text, "is a directory, not a file")
    if number in (errno.ENXIO, errno.ENODEV):
        return PathAccessDenied(asked.text, "is a special file")
    source = repr(asked.text)
    if number == errno.ENOENT:
        return InvalidConfig("there is no such file or directory", source=source)
    if number == errno.ENOTDIR:
        return InvalidConfig("a file is used as a directory", source=source)
    if number == errno.ELOOP:
        return InvalidConfig("too many links, or links in a circle", source=source)
    if number == errno.ENAMETOOLONG:
        return InvalidConfig("a name in the path is too long", source=source)
    return PermissionDenied(f"{source}: {os.strerror(number) if number else error}")


def require_file(asked: Asked, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PathAccessDenied(asked.text, f"is {kind_in_words(status.st_mode)}, not a file")


def require_directory(asked: Asked, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise PathAccessDenied(asked.text, "is not a directory")


def kind_in_words(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something special")


def too_large(asked: Asked, limit_bytes: int) -> PathAccessDenied:
    return PathAccessDenied(
        asked.text,
        f"is larger than {limit_bytes} bytes",
        rule="limit_bytes",
        hint="raise limit_bytes or read it in the box",
    )


def keeps_changing(asked: Asked) -> PathAccessDenied:
    return PathAccessDenied(asked.text, "keeps changing while it is opened", hint="try again when nothing writes to it")
