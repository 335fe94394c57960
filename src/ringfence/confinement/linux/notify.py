"""Which calls are looked at from outside while they happen, and what is plainly fine without asking.

The filter stops a call; the guardian (native/supervise.c) reads what it is about, lets it go on if these rules say that
it is plainly fine, and asks the manager otherwise. Everything here may be generous: what it calls fine still has to
pass the wall, and what it does not is only asked about.

What this does not protect against: anything. It is how a refusal gets its reason; the wall refuses.
"""

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final

from ringfence.confinement.base import How, View
from ringfence.confinement.linux.bpf import USER_NOTIF, AnyBit, Condition, Row, translate
from ringfence.confinement.linux.syscalls import MACHINES
from ringfence.policy.globs import compiled
from ringfence.values.grant import Explain, Grant


class Shape(IntEnum):
    """Where a call's arguments name what it is about; native/supervise.c has the same list."""

    OPEN = 0
    OPENAT = 1
    OPENAT2 = 2
    EXEC = 3
    EXECAT = 4
    PATH = 5
    PATHAT = 6
    FOLLOWED = 7
    FOLLOWEDAT = 8
    PAIR = 9
    PAIRAT = 10
    SYMLINK = 11
    SYMLINKAT = 12
    ADDRESS = 13
    SENDTO = 14


@dataclass(frozen=True, slots=True)
class Watched:
    call: str
    shape: Shape
    operation: str
    """What a violation calls it; an open is called `read` or `write` by its flags."""
    when: tuple[Condition, ...] = ()


_CHANGING: Final = 0o1 | 0o2 | 0o100 | 0o1000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC

_OPENS: Final = (
    Watched("open", Shape.OPEN, "open", (AnyBit(1, _CHANGING),)),
    Watched("openat", Shape.OPENAT, "open", (AnyBit(2, _CHANGING),)),
)
_ALL_OPENS: Final = (Watched("open", Shape.OPEN, "open"), Watched("openat", Shape.OPENAT, "open"))
_OTHERS: Final = (
    Watched("creat", Shape.PATH, "write"),
    Watched("openat2", Shape.OPENAT2, "open"),  # its flags lie behind a pointer
    Watched("execve", Shape.EXEC, "exec"),
    Watched("execveat", Shape.EXECAT, "exec"),
    Watched("unlink", Shape.PATH, "delete"),
    Watched("unlinkat", Shape.PATHAT, "delete"),
    Watched("rmdir", Shape.PATH, "delete"),
    Watched("mkdir", Shape.PATH, "create"),
    Watched("mkdirat", Shape.PATHAT, "create"),
    Watched("mknod", Shape.PATH, "create"),
    Watched("mknodat", Shape.PATHAT, "create"),
    Watched("rename", Shape.PAIR, "rename"),
    Watched("renameat", Shape.PAIRAT, "rename"),
    Watched("renameat2", Shape.PAIRAT, "rename"),
    Watched("link", Shape.PAIR, "link"),
    Watched("linkat", Shape.PAIRAT, "link"),
    Watched("symlink", Shape.SYMLINK, "create"),
    Watched("symlinkat", Shape.SYMLINKAT, "create"),
    Watched("truncate", Shape.FOLLOWED, "write"),
    Watched("chmod", Shape.FOLLOWED, "chmod"),
    Watched("fchmodat", Shape.FOLLOWEDAT, "chmod"),
    Watched("fchmodat2", Shape.FOLLOWEDAT, "chmod"),
    Watched("chown", Shape.FOLLOWED, "chown"),
    Watched("lchown", Shape.PATH, "chown"),
    Watched("fchownat", Shape.FOLLOWEDAT, "chown"),
    Watched("setxattr", Shape.FOLLOWED, "write"),
    Watched("lsetxattr", Shape.PATH, "write"),
    Watched("connect", Shape.ADDRESS, "connect"),
    Watched("bind", Shape.ADDRESS, "bind"),
    Watched("sendto", Shape.SENDTO, "connect"),
)

_UNSURE: Final = re.compile(r"\[.*\]|[?\[\\]")
"""What C and Python may read differently in a glob, such as how long a character is: any name may be meant."""

_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "fd")


def watched(explain: Explain, *, strict: bool = False) -> tuple[Watched, ...]:
    if strict:  # the guardian makes these calls itself
        return (*_ALL_OPENS, *_OTHERS)
    match explain:
        case Explain.OFF:
            return ()
        case Explain.CHANGES:
            return (*_OPENS, *_OTHERS)
        case Explain.FULL:
            return (*_ALL_OPENS, *_OTHERS)


@cache
def assemble(explain: Explain, *, strict: bool = False) -> bytes:
    """The filter that stops these calls; empty on a machine whose numbers are not known."""
    machine = MACHINES.get(platform.machine())
    rows = watched(explain, strict=strict)
    if machine is None or not rows:
        return b""
    return translate((Row((row.call,), USER_NOTIF, row.when) for row in rows), machine)


def rules(grant: Grant, view: View) -> tuple[str, ...]:
    """Words for the guardian: docs/box-protocol.md."""
    return tuple(_words(grant, view))


def _words(grant: Grant, view: View) -> Iterator[str]:
    numbers = MACHINES[platform.machine()].numbers
    if grant.explain is Explain.FULL:
        yield "full"
    for row in watched(grant.explain, strict=grant.strict):
        if row.call in numbers:
            yield from ("call", str(numbers[row.call]), str(int(row.shape)), row.operation)
    private = ("/tmp", "/var/tmp", *([view.home] if view.home not in view.readable else []))
    devices = tuple(f"/dev/{name}" for name in _DEVICES)
    for path in (*view.writable, *private, *devices):
        yield from ("write", path)
    links = tuple(name for name, _ in view.links)
    # Not the private directories: the host has others there, and what a command looks for in them says something.
    for path in (*view.system, *links, *view.readable, *view.writable, "/etc", "/dev", "/proc"):
        yield from ("read", path)
    for cover in view.covers:
        if cover.how in (How.HIDE, How.FREEZE):
            yield from ("cover", os.path.join(cover.root, cover.below))
    yield from _denied_words(grant)


def _denied_words(grant: Grant) -> Iterator[str]:
    """Where a row of the blacklist may have a say: below a path, or wherever a name is met."""
    denied = compiled(grant.denied)
    for path in denied.literals:
        yield from ("cover", path)
    for name in sorted(denied.names):
        yield from ("name", name)
    for row in denied.globs:
        last = row.rstrip("/").rpartition("/")[2]
        if set(last) <= {"*"}:
            fixed = row[: min(row.index(char) for char in "*?[" if char in row)]
            yield from ("cover", os.path.dirname(fixed) or "/")
        else:
            yield from ("name", _UNSURE.sub("*", last))
