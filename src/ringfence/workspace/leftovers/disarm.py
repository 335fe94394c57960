"""Take the edge off leftovers, where that can be done without breaking what the agent was asked for.

A hook gets another name beside it, which git does not run; set-uid bits and capabilities are taken away. Settings and
workflows are somebody's to read: they are only reported.

Everything goes by the descriptor of the directory and without following links, since the agent may still run. A name
that a link has taken is renamed like any other: what the link leads to is not touched.
"""

import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress

from ringfence.errors import InvalidConfig
from ringfence.workspace.beneath import O_PATH, Resolver, choose_resolver
from ringfence.workspace.leftovers.base import Leftover, LeftoverKind
from ringfence.workspace.leftovers.gitfiles import HOOKS

SUFFIX = ".disarmed"
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID


def disarm(root: str | os.PathLike[str], leftovers: Iterable[Leftover]) -> tuple[Leftover, ...]:
    """Disarm what can be; those that were.

    Raises:
        InvalidConfig: `root` is no directory.
    """
    try:
        top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidConfig(f"is no directory: {error.strerror}", source=repr(os.fspath(root))) from error
    try:
        resolver = choose_resolver(top)
        return tuple(leftover for leftover in leftovers if _disarm(top, resolver, leftover))
    finally:
        os.close(top)


def _disarm(top: int, resolver: Resolver, leftover: Leftover) -> bool:
    head, name = os.path.split(leftover.path)
    try:
        parent = resolver(top, os.fsencode(head or "."), os.O_DIRECTORY)
    except OSError:
        return False
    try:
        match leftover.kind:
            case LeftoverKind.GIT_HOOK if name.casefold() in HOOKS:
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
