"""Take the edge off leftovers, where that can be done without breaking what the agent was asked for.

A hook gets another name beside it, which git does not run; set-uid bits and capabilities are taken away. Settings and
workflows are somebody's to read: they are only reported.

What may have been there before the run keeps its name and its rights: a person's own hook, say one that looks for
secrets, must not be switched off by an agent that touches it.

Everything goes by the descriptor of the directory and without following links, neither at the end nor on the way, since
the agent may still run: a directory of its own that has become a link to a person's hooks leads nowhere. A name that a
link has taken is renamed like any other: what the link leads to is not touched.
"""

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress

from ringfence.errors import FileError
from ringfence.workspace.beneath import O_PATH, open_directory
from ringfence.workspace.leftovers.base import Leftover, LeftoverKind
from ringfence.workspace.leftovers.gitfiles import DISARMED

SUFFIX = DISARMED
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID


def disarm(root: str | os.PathLike[str], leftovers: Iterable[Leftover]) -> tuple[Leftover, ...]:
    """Disarm what can be; those that were.

    Raises:
        NotFound, NotADirectory: `root` is not a directory.
    """
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileError.of(error.errno or 0, os.fspath(root), f"is not a directory: {error.strerror}") from error
    try:
        return tuple(each for each in leftovers if not each.is_old and _disarm(top, each))
    finally:
        os.close(top)


def _disarm(top: int, leftover: Leftover) -> bool:
    head, name = os.path.split(leftover.path)
    try:
        parent = open_directory(top, os.fsencode(head))
    except OSError:
        return False
    try:
        match leftover.kind:
            case LeftoverKind.GIT_HOOK if os.path.basename(head).casefold() == "hooks":
                return _rename(parent, name)
            case LeftoverKind.SET_UID:
                return _drop_special_bits(parent, name)
            case LeftoverKind.FILE_CAPABILITY:
                os.removexattr(f"/proc/self/fd/{parent}/{name}", "security.capability", follow_symlinks=False)
                return True
            case _:
                return False
    except OSError:
        return False
    finally:
        os.close(parent)


def _rename(parent: int, name: str) -> bool:
    new = name + SUFFIX
    with suppress(FileNotFoundError):
        os.stat(new, dir_fd=parent, follow_symlinks=False)
        new += f"-{secrets.token_hex(4)}"
    os.rename(name, new, src_dir_fd=parent, dst_dir_fd=parent)
    return True


def _drop_special_bits(parent: int, name: str) -> bool:
    found = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode):
            return False
        os.chmod(f"/proc/self/fd/{found}", stat.S_IMODE(mode) & ~_SPECIAL_BITS)
        return True
    finally:
        os.close(found)
