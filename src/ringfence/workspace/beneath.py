"""Turn a path into a descriptor that lies beneath a directory, whatever the links on the way say.

A path that is checked first and opened afterwards is a race: whoever can write to the directory swaps a part of it for
a link in between. So nothing here looks at a path as text to decide where it leads. Two resolvers, the same answers:

- `by_kernel` is one openat2 call. RESOLVE_BENEATH refuses every step that leaves (`..`, an absolute path, an absolute
  link), also when a later step would come back; RESOLVE_NO_MAGICLINKS refuses the links of /proc that are no text.
- `by_walk` is for kernels and system-call filters without openat2. It opens one name at a time with O_NOFOLLOW, so that
  a swapped name is seen for what it is, reads a link from the descriptor that it has just opened, and takes `..` as
  "one name fewer, again from the root", never as the kernel's `..`.

An absolute link leads out, unless it begins with a name of the root itself: `following_own_links` takes that for
a link from the root, and walks; the kernel has no such rule.

Both return O_PATH descriptors, which open nothing: a fifo does not block and a device is not touched until the caller
has looked at what it is. Both raise OSError: EXDEV for a path that leaves, ELOOP for too many links, ENOENT and ENOTDIR
as usual.

What this does not protect against: a file that has a second name outside (a hard link), a file system mounted
somewhere beneath the root, and a directory that is moved out of the root after its descriptor was taken.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from functools import cache
from typing import Protocol

from ringfence.workspace.names import strip

_SYS_OPENAT2 = 437
"""The same on every architecture that Python runs on but alpha: calls since 5.1 share their numbers."""
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08

_MAX_LINKS = 40
"""The kernel's own limit (MAXSYMLINKS), so that both resolvers give up on the same chains."""
_MAX_STEPS = 20_000
"""Links may repeat long stretches of `..`, each of which is walked anew; ten times the longest path is enough."""
_TRIES = 64
"""openat2 answers EAGAIN when a rename anywhere on the machine ran beside a `..`, so one refusal means nothing."""

O_PATH: int = getattr(os, "O_PATH", 0)


class Resolver(Protocol):
    """Give the O_PATH descriptor of `path` beneath the directory `root`; `flags` may hold O_NOFOLLOW and O_DIRECTORY.

    Raises:
        OSError: EXDEV when the path leaves `root`, else what the system said.
    """

    def __call__(self, root: int, path: bytes, flags: int = 0) -> int: ...


def choose_resolver(root: int) -> Resolver:
    """Return the kernel's resolver where it works on this machine, else the walk."""
    try:
        os.close(by_kernel(root, b"."))
    except OSError as error:
        # EPERM: older container profiles give it, instead of ENOSYS, for every call that they do not know.
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return by_walk
        raise
    return by_kernel


def by_kernel(root: int, path: bytes, flags: int = 0) -> int:
    """Resolve with one openat2 call."""
    how = _OpenHow(O_PATH | os.O_CLOEXEC | flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    number = errno.EAGAIN
    for _ in range(_TRIES):
        descriptor: int = _syscall()(_SYS_OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise _error(number)


OwnNames = tuple[tuple[bytes, ...], ...]
"""Absolute paths of the root, each as its names."""


def following_own_links(resolver: Resolver, own_names: Callable[[], OwnNames]) -> Resolver:
    """The same, with absolute links that begin with a name of the root followed from the root."""

    def resolve(root: int, path: bytes, flags: int = 0) -> int:
        try:
            return resolver(root, path, flags)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        return by_walk(root, path, flags, own_names())

    return resolve


def from_root(target: bytes, own_names: OwnNames) -> bytes:
    """What an absolute link means from the root.

    Raises:
        OSError: EXDEV, it leads out.
    """
    for prefix in own_names:
        rest = strip(prefix, target)
        if rest is not None:
            return rest
    raise _error(errno.EXDEV)


def by_walk(root: int, path: bytes, flags: int = 0, own_names: OwnNames = ()) -> int:
    """Resolve name by name, following links by hand."""
    if path.startswith(b"/"):
        raise _error(errno.EXDEV)
    if not path:
        raise _error(errno.ENOENT)
    names: list[bytes] = []
    links = steps = 0
    todo = path.split(b"/")[::-1]
    here = _descend(root, names)
    try:
        while todo:
            steps += 1 if todo[-1] != b".." else len(names)
            if steps > _MAX_STEPS:
                raise _error(errno.ELOOP)
            if not stat.S_ISDIR(os.fstat(here).st_mode):
                raise _error(errno.ENOTDIR)
            name = todo.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                if not names:
                    raise _error(errno.EXDEV)
                names.pop()
                here = _replace(here, _descend(root, names))
                continue
            child = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            is_last = not todo
            if _is_link(child) and not (is_last and flags & os.O_NOFOLLOW):
                target = _read_link(child)
                links += 1
                if links > _MAX_LINKS:
                    raise _error(errno.ELOOP)
                if target.startswith(b"/"):
                    target, names = from_root(target, own_names), []
                    here = _replace(here, _descend(root, names))
                todo.extend(target.split(b"/")[::-1])
                continue
            names.append(name)
            here = _replace(here, child)
        if flags & os.O_DIRECTORY and not stat.S_ISDIR(os.fstat(here).st_mode):
            raise _error(errno.ENOTDIR)
    except BaseException:
        os.close(here)
        raise
    return here


def open_directory(root: int, path: bytes) -> int:
    """The O_PATH descriptor of a directory that `path` names itself: no link on the way is followed, for a path that
    was found once and has to mean the same place still.

    Raises:
        OSError: ENOTDIR for a link on the way, EXDEV for a path that leaves.
    """
    names = [name for name in path.split(b"/") if name not in (b"", b".")]
    if path.startswith(b"/") or b".." in names:
        raise _error(errno.EXDEV)
    return _descend(root, names)


class _OpenHow(ctypes.Structure):
    """The kernel's `struct open_how`."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _syscall() -> "ctypes._NamedFuncPointer":
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = ctypes.c_long
    return function


def _descend(root: int, names: list[bytes]) -> int:
    """Open real directories one below the other; a name that has become a link since is ENOTDIR."""
    flags = O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    here = os.open(b".", flags, dir_fd=root)
    for name in names:
        try:
            child = os.open(name, flags, dir_fd=here)
        finally:
            os.close(here)
        here = child
    return here


def _replace(old: int, new: int) -> int:
    os.close(old)
    return new


def _is_link(descriptor: int) -> bool:
    return stat.S_ISLNK(os.fstat(descriptor).st_mode)


def _read_link(link: int) -> bytes:
    """Read the link behind an O_PATH descriptor, which cannot be swapped any more, and close it."""
    try:
        return os.readlink(b"", dir_fd=link)
    finally:
        os.close(link)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
