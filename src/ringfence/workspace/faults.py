"""Turn what the system said about a path into an error of ours: the one table, and the refusals that several share."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from ringfence.errors import (
    Busy,
    FileError,
    IsADirectory,
    NotADirectory,
    PathAccessDenied,
    PathTraversalError,
    RingfenceError,
)
from ringfence.workspace.names import Asked

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

# What the system says in fewer words, and what to do about it.
_SAID = {
    errno.ENOENT: ("there is no such file or directory", ""),
    errno.ENOTDIR: ("a file is used as a directory", ""),
    errno.EISDIR: ("is a directory, not a file", ""),
    errno.ENOTEMPTY: ("is a directory that is not empty", "delete it recursively"),
    errno.ELOOP: ("too many links, or links in a circle", ""),
    errno.ENAMETOOLONG: ("a name in the path is too long", ""),
}


@contextmanager
def translating(asked: Asked) -> Iterator[None]:
    """The one place where errors of the system become ours."""
    try:
        yield
    except RingfenceError:
        raise
    except OSError as error:
        raise _translated(asked, error) from error


def _translated(asked: Asked, error: OSError) -> RingfenceError:
    number = error.errno
    is_out = number == errno.EXDEV or (number in (errno.ENOENT, errno.ENOTDIR) and asked.names is None)
    if is_out:
        return PathTraversalError(asked.text, "leads out of the workspace", hint="stay below the workspace")
    if number == errno.EAGAIN:
        return Busy(f"{asked.text!r} is held or changed by another process", hint="try again")
    if number in (errno.ENXIO, errno.ENODEV):
        return PathAccessDenied(asked.text, "is a special file")
    message, hint = _SAID.get(number or 0, ("", ""))
    return FileError.of(number or errno.EIO, asked.text, message or ("" if number else str(error)), hint=hint)


def require_file(asked: Asked, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        why = f"is {kind_in_words(status.st_mode)}, not a file"
        raise IsADirectory(why, path=asked.text) if stat.S_ISDIR(status.st_mode) else PathAccessDenied(asked.text, why)


def require_directory(asked: Asked, status: os.stat_result) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectory("is not a directory", path=asked.text)


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
