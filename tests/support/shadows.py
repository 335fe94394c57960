"""Shadows under a real overlay: mounted in a child process, as whoever the test asks for."""

from __future__ import annotations

import ctypes
import errno
import os
import pickle
import stat
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from ringfence.workspace.mounted import takes_attributes
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.shadow import Shadow
from tests.support.users import User

T = TypeVar("T")

# linux/sched.h and linux/mount.h
_UNSHARE_TRIES = 40
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
_PR_SET_DUMPABLE = 4  # linux/prctl.h
_MS_REC, _MS_PRIVATE = 16384, 1 << 18

_MEMORY = "/dev/shm"

Look = dict[str, tuple[str, int, bytes]]
"""What is in a tree: kind, permission bits, content or target."""


@contextmanager
def a_place(user: User) -> Iterator[Path]:
    """A directory of the user's own, gone afterwards; in memory where that can hold an overlay, for speed."""
    place = Path(tempfile.mkdtemp(prefix="shadow-", dir=_in_memory()))
    os.chown(place, user.uid, user.gid)
    try:
        yield place
    finally:
        remove_tree(place)


@cache
def _in_memory() -> str | None:
    with tempfile.TemporaryDirectory(prefix="shadow-", dir=_MEMORY if os.path.isdir(_MEMORY) else None) as place:
        return _MEMORY if place.startswith(_MEMORY) and takes_attributes(place) else None


def as_user(user: User, work: Callable[[], T]) -> T:
    """Run `work` in a child of this process that is the user, and return what it returned."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _answer(writing, user, work)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    answer: tuple[str, T] = pickle.loads(data)
    if answer[0]:
        raise AssertionError(answer[0])
    return answer[1]


def _answer(writing: int, user: User, work: Callable[[], object]) -> None:
    answer: tuple[str, object]
    try:
        if not user.is_me:
            os.umask(0o022)
            os.setgroups([])
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self, and so the maps, would be root's
        answer = ("", work())
    except BaseException:
        answer = (traceback.format_exc(), None)
    try:
        with open(writing, "wb") as out:
            out.write(pickle.dumps(answer))
    finally:
        os._exit(0)


def inside(shadow: Shadow, work: Callable[[], T]) -> T:
    """Run `work` in the top directory of the mounted shadow; a copy needs no mount."""
    point = shadow.directory / "point"
    point.mkdir(exist_ok=True)

    def mounted() -> T:
        if shadow.kind == "overlay":
            mount(shadow, point)
            os.chdir(point)
        else:
            os.chdir(shadow.upper)
        return work()

    try:
        return as_user(User(os.geteuid(), os.getegid()), mounted)
    finally:
        point.rmdir()


def mount(shadow: Shadow, point: Path) -> None:
    """Mount the overlay in namespaces of this process's own, which must be about to end."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        _call("unshare", ctypes.c_int(_CLONE_NEWNS))
    else:
        _unshare_user()
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE, None)
    options = f"userxattr,lowerdir={shadow.lower},upperdir={shadow.upper},workdir={shadow.work}"
    _mount("overlay", str(point), "overlay", 0, options)


def _unshare_user() -> None:
    """User and mount namespaces of our own. On a busy machine the kernel has refused that now and then as if this child
    had a second thread, which comes and goes: then again, and in the end with the names of the threads."""
    for patience in range(_UNSHARE_TRIES, -1, -1):
        try:
            _call("unshare", ctypes.c_int(_CLONE_NEWUSER | _CLONE_NEWNS))
            return
        except OSError as fault:
            threads = []
            for thread in os.listdir("/proc/self/task"):
                with suppress(OSError):  # it has just ended
                    threads.append(Path(f"/proc/self/task/{thread}/comm").read_text())
            if fault.errno != errno.EINVAL or patience == 0:
                raise OSError(fault.errno, f"{fault.strerror}, with the threads {threads}") from fault
        time.sleep(0.05)


def mount_memory(point: Path, size: str) -> None:
    """Mount a small file system in a mount namespace of this process's own; needs root."""
    _call("unshare", ctypes.c_int(_CLONE_NEWNS))
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE, None)
    _mount("tmpfs", str(point), "tmpfs", 0, f"size={size},mode=755")


def look(top: str | os.PathLike[str] = ".") -> Look:
    """Everything below a directory."""
    found: Look = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            key = os.path.relpath(path, top)
            if stat.S_ISLNK(status.st_mode):
                found[key] = ("link", 0, os.fsencode(os.readlink(path)))
            elif stat.S_ISDIR(status.st_mode):
                found[key] = ("directory", mode, b"")
            elif stat.S_ISREG(status.st_mode):
                found[key] = ("file", mode, Path(path).read_bytes())
            else:
                found[key] = ("special", mode, b"")
    return found


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    def raw(text: str | None) -> bytes | None:
        return None if text is None else os.fsencode(text)

    _call("mount", raw(source), raw(target), raw(kind), ctypes.c_ulong(flags), raw(data))


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
