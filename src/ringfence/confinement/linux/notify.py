"""Which calls are looked at from outside while they happen, and what is plainly fine without asking.

The filter stops a call; the guardian (native/supervise.c) reads what it is about, lets it go on if these rules say that
it is plainly fine, and asks the manager otherwise. Everything here may be generous: what it calls fine still has to
pass the wall, and what it does not is only asked about.

What this does not protect against: anything. It is how a refusal gets its reason; the wall refuses.
"""

import os
import re
from collections.abc import Iterator
from enum import IntEnum
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Final

from ringfence.confinement.base import How, View
from ringfence.confinement.linux.bpf import USER_NOTIF, AnyBit, CallRow, Condition, OneOf, translate
from ringfence.confinement.linux.syscalls import MACHINES
from ringfence.dataclass import dataclass
from ringfence.policy.globs import PathRules, compiled
from ringfence.values.grant import Grant, Trace
from ringfence.values.network import PROXY_PORT


class CallShape(IntEnum):
    """Where a call's arguments name what it is about; native/supervise.c has the same list."""

    OPEN = 0
    OPENAT = 1
    CREAT = 2
    OPENAT2 = 3
    EXEC = 4
    EXECAT = 5
    PATH = 6
    PATHAT = 7
    FOLLOWED = 8
    FOLLOWEDAT = 9
    PAIR = 10
    PAIRAT = 11
    SYMLINK = 12
    SYMLINKAT = 13
    ADDRESS = 14
    SENDTO = 15
    DESCRIPTOR = 16
    MASK = 17


@dataclass(frozen=True, slots=True)
class WatchedCall:
    call: str
    shape: CallShape
    operation: str
    """What a violation calls it; an open is called `read` or `write` by its flags."""
    when: tuple[Condition, ...] = ()


_CHANGING: Final = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC

_OPENS: Final = (
    WatchedCall("open", CallShape.OPEN, "open", (AnyBit(1, _CHANGING),)),
    WatchedCall("openat", CallShape.OPENAT, "open", (AnyBit(2, _CHANGING),)),
)
_HERE: Final = OneOf(0, (0xFFFFFF9C,))  # AT_FDCWD; who walks through a tree names files from its directories
_CLOSE_ON_EXEC: Final = (
    0o2000000  # set by loaders and the runtimes of languages, which open much; not by cat, cp or sed
)
_PLACE_ONLY: Final = 0o10000000  # O_PATH
_PLAIN_READS: Final = (
    WatchedCall("open", CallShape.OPEN, "open", (OneOf(1, (0,), _CLOSE_ON_EXEC | _PLACE_ONLY),)),
    WatchedCall("openat", CallShape.OPENAT, "open", (_HERE, OneOf(2, (0,), _CLOSE_ON_EXEC | _PLACE_ONLY))),
)
_READS: Final = (
    WatchedCall("open", CallShape.OPEN, "open", (OneOf(1, (0,), _PLACE_ONLY),)),
    WatchedCall("openat", CallShape.OPENAT, "open", (_HERE, OneOf(2, (0,), _PLACE_ONLY))),
)
_ALL_OPENS: Final = (WatchedCall("open", CallShape.OPEN, "open"), WatchedCall("openat", CallShape.OPENAT, "open"))
_FILES: Final = (
    WatchedCall("creat", CallShape.CREAT, "open"),
    WatchedCall("openat2", CallShape.OPENAT2, "open"),  # its flags lie behind a pointer
    WatchedCall("truncate", CallShape.FOLLOWED, "write"),
    WatchedCall("chmod", CallShape.FOLLOWED, "chmod"),
    WatchedCall("fchmodat", CallShape.FOLLOWEDAT, "chmod"),
    WatchedCall("fchmodat2", CallShape.FOLLOWEDAT, "chmod"),
    WatchedCall("chown", CallShape.FOLLOWED, "chown"),
    WatchedCall("lchown", CallShape.PATH, "chown"),
    WatchedCall("fchownat", CallShape.FOLLOWEDAT, "chown"),
    WatchedCall("setxattr", CallShape.FOLLOWED, "write"),
    WatchedCall("lsetxattr", CallShape.PATH, "write"),
    WatchedCall("removexattr", CallShape.FOLLOWED, "write"),
    WatchedCall("lremovexattr", CallShape.PATH, "write"),
    # A descriptor that is open for reading is enough for these.
    WatchedCall("fchmod", CallShape.DESCRIPTOR, "chmod"),
    WatchedCall("fchown", CallShape.DESCRIPTOR, "chown"),
    WatchedCall("fsetxattr", CallShape.DESCRIPTOR, "write"),
    WatchedCall("fremovexattr", CallShape.DESCRIPTOR, "write"),
    WatchedCall("utime", CallShape.FOLLOWED, "utime"),
    WatchedCall("utimes", CallShape.FOLLOWED, "utime"),
    WatchedCall("futimesat", CallShape.FOLLOWEDAT, "utime"),
    WatchedCall("utimensat", CallShape.FOLLOWEDAT, "utime"),
)
"""What changes a file itself, and not only its name."""
_OTHERS: Final = (
    *_FILES,
    WatchedCall("execve", CallShape.EXEC, "exec"),
    WatchedCall("execveat", CallShape.EXECAT, "exec"),
    WatchedCall("unlink", CallShape.PATH, "delete"),
    WatchedCall("unlinkat", CallShape.PATHAT, "delete"),
    WatchedCall("rmdir", CallShape.PATH, "delete"),
    WatchedCall("mkdir", CallShape.PATH, "create"),
    WatchedCall("mkdirat", CallShape.PATHAT, "create"),
    WatchedCall("mknod", CallShape.PATH, "create"),
    WatchedCall("mknodat", CallShape.PATHAT, "create"),
    WatchedCall("rename", CallShape.PAIR, "rename"),
    WatchedCall("renameat", CallShape.PAIRAT, "rename"),
    WatchedCall("renameat2", CallShape.PAIRAT, "rename"),
    WatchedCall("link", CallShape.PAIR, "link"),
    WatchedCall("linkat", CallShape.PAIRAT, "link"),
    WatchedCall("symlink", CallShape.SYMLINK, "create"),
    WatchedCall("symlinkat", CallShape.SYMLINKAT, "create"),
    WatchedCall("connect", CallShape.ADDRESS, "connect"),
    WatchedCall("bind", CallShape.ADDRESS, "bind"),
    WatchedCall("sendto", CallShape.SENDTO, "connect"),
)
_NAME_SERVICE: Final = 53
_MASK: Final = (WatchedCall("umask", CallShape.MASK, "mask"),)
"""Who makes names for a process has to know its umask, and looking it up for each takes too long."""

_UNSURE: Final = re.compile(r"\[.*\]|[?\[\\]")
"""What C and Python may read differently in a glob, such as how long a character is: any name may be meant."""

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd")
_DEVICE_PATHS: Final = tuple(f"/dev/{name}" for name in _DEVICES)


def shared_roots(grant: Grant) -> tuple[str, ...]:
    """Directories of the host's that the box writes to: by a hard link, a file in them may be one elsewhere, too.

    A shadow is none, since what is written there is a copy. Where nobody looks otherwise, nor are directories that are
    empty when the box is made: what comes into them is the box's own.
    """
    roots = grant.writable if grant.shadow is not None else grant.writable_roots
    names = tuple(map(os.fspath, roots))
    if grant.trace is Trace.OFF and not grant.mediate_opens:
        return tuple(name for name in names if not _is_empty(name))
    return names


def _is_empty(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def is_known_machine() -> bool:
    """Whether the numbers of this machine's calls are known."""
    return os.uname().machine in MACHINES


def makes_names(grant: Grant) -> bool:
    """Whether the guardian sees every call that makes a name, and so can make it instead of the box."""
    return grant.trace is not Trace.OFF or grant.mediate_opens


def watched(
    trace: Trace, *, mediate_opens: bool = False, shares: bool = True, named: bool = False
) -> tuple[WatchedCall, ...]:
    """Args:
    shares: whether there are `shared_roots`.
    named: whether the guardian makes names.
    """
    mask = _MASK if named else ()
    if mediate_opens:  # the guardian makes these calls itself
        return (*_ALL_OPENS, *_OTHERS, *mask)
    match trace:
        case Trace.OFF:
            return (*_OPENS, *_FILES) if shares else ()
        case Trace.CHANGES:
            return (*_OPENS, *_PLAIN_READS, *_OTHERS, *mask)
        case Trace.READS:
            return (*_OPENS, *_READS, *_OTHERS, *mask)
        case Trace.FULL:
            return (*_ALL_OPENS, *_OTHERS, *mask)


@cache
def assemble(trace: Trace, *, mediate_opens: bool = False, shares: bool = True, named: bool = False) -> bytes:
    """The filter that stops these calls; empty on a machine whose numbers are not known."""
    machine = MACHINES.get(os.uname().machine)
    rows = watched(trace, mediate_opens=mediate_opens, shares=shares, named=named)
    if machine is None or not rows:
        return b""
    return translate((CallRow((row.call,), USER_NOTIF, row.when) for row in rows), machine)


def led_out(grant: Grant) -> tuple[int, ...]:
    """Ports of any address by which connections of the box come to the proxy, which judges them."""
    return () if grant.network is None else (_NAME_SERVICE, PROXY_PORT, *grant.network.captured_ports)


def rules(grant: Grant, view: View, owner: tuple[int, int] | None = None) -> tuple[str, ...]:
    """Words for the guardian: docs/box-protocol.md."""
    words: list[str] = [] if owner is None else ["as", str(owner[0]), str(owner[1])]
    if grant.trace is Trace.FULL:
        words.append("full")
    if grant.trace is Trace.OFF:
        words.append("quiet")
    for port in led_out(grant):
        words += ("port", str(port))
    for root in shared_roots(grant):
        words += ("root", root)
    words += _call_words(grant.trace, mediate_opens=grant.mediate_opens, named=bool(view.named))
    private = ("/tmp", "/var/tmp", *([view.home] if view.home not in view.readable else []))
    for path in (*view.writable, *private, *_DEVICE_PATHS):
        words += ("write", path)
    links = tuple(name for name, _ in view.links)
    # Not the private directories: the host has others there, and what a command looks for in them says something.
    for path in (*view.system, *links, *view.readable, *view.writable, "/etc", "/dev", "/proc"):
        words += ("read", path)
    for path in (*view.system, *links):
        words += ("system", path)
    for cover in view.covers:
        if cover.how in (How.HIDE, How.FREEZE):
            words += ("cover", os.path.join(cover.root, cover.below))
    words += _naming_words(grant, view)
    words += _denied_words(grant.denied)
    return tuple(words)


@cache
def _call_words(trace: Trace, *, mediate_opens: bool, named: bool) -> tuple[str, ...]:
    numbers = MACHINES[os.uname().machine].numbers
    rows = {row.call: row for row in watched(trace, mediate_opens=mediate_opens, named=named)}
    known = ((numbers[call], row) for call, row in rows.items() if call in numbers)
    return tuple(word for at, row in known for word in ("call", str(at), str(int(row.shape)), row.operation))


def _naming_words(grant: Grant, view: View) -> Iterator[str]:
    """Where the guardian makes names, and which ones it must not make or move."""
    for path in view.made_outside:
        yield from ("made", path)
    for each in view.unmade:
        path = each.path
        yield from ("cover", path, "unmade", str(each.device), str(each.inode), os.path.basename(path), path)
    if view.named or grant.mediate_opens:
        for path in sorted(_fixed(view)):
            yield from ("fixed", path)


def _fixed(view: View) -> set[str]:
    """Names that may neither be removed nor renamed: a mount is there, or on the way to one.

    For a process of the box the kernel sees to it (the ways to a granted directory excepted, which lie in the box's own
    home); the guardian is in another mount namespace, where these names are as good as any.
    """
    mounts = {os.path.join(cover.root, cover.below) for cover in view.covers} | {*view.writable, *view.readable}
    mounts |= {os.path.join(each.root, each.below) for each in view.replaced}
    return mounts | {os.fspath(parent) for mount in mounts for parent in PurePosixPath(mount).parents}


@lru_cache(maxsize=16)
def _denied_words(rows: tuple[str, ...]) -> tuple[str, ...]:
    """Where a row of the blacklist may have a say: below a path, or wherever a name is met."""
    return tuple(_denied_one_by_one(compiled(rows)))


def _denied_one_by_one(denied: PathRules) -> Iterator[str]:
    for path in denied.literals:
        yield from ("cover", path)
    for name in sorted(denied.names):  # C takes a name with a star for a glob
        yield from ("name", _UNSURE.sub("*", name) if "*" in name else name)
    for row in denied.globs:
        last = row.rstrip("/").rpartition("/")[2]
        if set(last) <= {"*"}:
            fixed = row[: min(row.index(char) for char in "*?[" if char in row)]
            yield from ("cover", os.path.dirname(fixed) or "/")
        else:
            yield from ("name", _UNSURE.sub("*", last))
