"""Landlock: which rights exist on this kernel, and the words that make PID 1 restrict itself to a view.

Applied inside, after the mounts, by PID 1 on itself, so that every command shares one domain. It repeats what the
mounts
say: if a mount were ever undone, or a kernel file turned out writable, Landlock would still refuse.

What this does not protect against: stat, chmod, chown and extended attributes, for which Landlock has no right;
pathname sockets before ABI 9; anything on a kernel without Landlock (the probe says so, and the result carries a
note).
"""

import ctypes
from collections.abc import Iterable
from enum import IntFlag
from functools import cache

_CREATE_RULESET = 444
_VERSION_FLAG = 1


class Right(IntFlag):
    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13  # ABI 2: rename and link between directories
    TRUNCATE = 1 << 14  # ABI 3
    IOCTL_DEV = 1 << 15  # ABI 5


READ = Right.EXECUTE | Right.READ_FILE | Right.READ_DIR
WRITE = (
    READ
    | Right.WRITE_FILE
    | Right.REMOVE_DIR
    | Right.REMOVE_FILE
    | Right.MAKE_DIR
    | Right.MAKE_REG
    | Right.MAKE_SOCK
    | Right.MAKE_FIFO
    | Right.MAKE_SYM
    | Right.REFER
    | Right.TRUNCATE
)
MAKE = Right.MAKE_DIR | Right.MAKE_REG | Right.MAKE_FIFO | Right.MAKE_SYM
"""To make names, and to give a file another one. Not sockets: `bind` cannot be called for somebody else, because it
remembers the path that it was given, and nothing reads a socket."""
DEVICES = Right.READ_FILE | Right.READ_DIR | Right.WRITE_FILE | Right.TRUNCATE | Right.IOCTL_DEV
PROCESS = READ | Right.WRITE_FILE | Right.TRUNCATE
ON_FILES = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
"""The rights that the kernel takes for a rule on a file; the others are for directories only."""

APART = 2
"""The version from which on each command can be put into a domain of its own: with the first, none could move files."""
_TCP = 3  # bind and connect, ABI 4
_SCOPES = 3  # abstract sockets and signals, ABI 6


@cache
def abi() -> int:
    """The kernel's Landlock version, 0 if there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    version = int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG))
    return max(version, 0)


def handled(version: int) -> Right:
    """All file-system rights that this version knows."""
    known = (1 << 13) - 1
    if version >= 2:
        known |= Right.REFER
    if version >= 3:
        known |= Right.TRUNCATE
    if version >= 5:
        known |= Right.IOCTL_DEV
    return Right(known)


def words(rules: Iterable[tuple[str, Right]], *, version: int, tcp: bool, scoped: bool) -> tuple[str, ...]:
    """Words for PID 1 (docs/box-protocol.md): make the ruleset, fill it, restrict.

    Args:
        tcp: whether TCP is refused by Landlock as well; off where a network namespace leaves a harmless loopback.
        scoped: whether signals and abstract sockets that leave the domain are refused.
    """
    if version < 1:
        return ()
    rights = int(handled(version))  # as numbers: an operation on flags takes longer than the kernel takes for a rule
    net = _TCP if tcp and version >= 4 else 0
    scopes = _SCOPES if scoped and version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    out = ["landlock", str(size), str(rights), str(net), str(scopes)]
    for path, access in rules:
        out += ["beneath", str(int(access) & rights), path]
    if version >= APART:
        # Every domain refuses to move files between directories unless a rule allows it: the one that each command is
        # put into, to keep it apart from the others, has to.
        out += ["apart", str(int(Right.REFER))]
    return (*out, "restrict")
