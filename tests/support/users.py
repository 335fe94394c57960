"""Runs programs of the tests as an ordinary user, also when the suite runs as root.

The suite's interpreter, its packages and the checkout may lie below directories that only root can enter (a version
manager in root's home, a private checkout). So a program of root's starts in a mount namespace of its own, in which
each such directory is covered by an empty one that everybody may enter, with what the program needs bound back to its
place; nothing else of that directory is visible there. Where everything can be reached anyway, nothing is mounted.

The uid has no entry in the user database and belongs to no group but its own.

What this does not do: open up files inside those trees that are not readable for everybody.
"""

from __future__ import annotations

import ctypes
import json
import os
import pwd
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

# Above what Debian gives to people and services, below what systemd gives to dynamic users and containers.
_FIRST_UID = 61234
_LAST_UID = 61999

# linux/sched.h and linux/mount.h
_CLONE_NEWNS = 0x20000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int

    @property
    def is_me(self) -> bool:
        return self.uid == os.geteuid()


def me() -> User:
    return User(os.geteuid(), os.getegid())


def ordinary() -> User:
    """Whoever runs the suite, or a uid that nobody has if that is root."""
    return me() if os.geteuid() != 0 else unused(0)


def unused(index: int) -> User:
    """The `index`-th uid of our range that has no entry in the user database."""
    free = [uid for uid in range(_FIRST_UID, _LAST_UID) if not _is_known(uid)]
    return User(free[index], free[index])


def argv_as(user: User, argv: Sequence[str]) -> list[str]:
    """The command that runs `argv` as `user`, in the same process, from a process of ours."""
    if user.is_me:
        return list(argv)
    return [sys.executable, "-I", __file__, json.dumps([user.uid, user.gid, [*map(str, reach())]]), *argv]


def reach() -> tuple[Path, ...]:
    """What a program of the suite needs: its interpreter, its packages, the checkout."""
    places = [PROJECT, Path(sys.prefix), Path(sys.base_prefix), *map(Path, sys.path)]
    found: list[Path] = []
    for place in sorted({place.resolve() for place in places if place.is_absolute() and place.exists()}):
        if not any(place.is_relative_to(other) for other in found):
            found.append(place)
    return tuple(found)


def become(user: User, places: Iterable[Path]) -> None:
    """Turn this process, which is root's and about to exec, into one of `user` that can read `places`."""
    if user.is_me:
        return
    os.umask(0o022)
    _uncover([place for place in places if _barrier(place) is not None])
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)


def _is_known(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _barrier(place: Path) -> Path | None:
    """The topmost directory on the way to `place` (itself included) that not everybody may enter."""
    for directory in [*reversed(place.parents), place]:
        needed = stat.S_IXOTH | (stat.S_IROTH if directory == place else 0)
        if directory.stat().st_mode & needed != needed:
            return directory
    return None


def _uncover(places: Sequence[Path]) -> None:
    if not places:
        return
    _call("unshare", ctypes.c_int(_CLONE_NEWNS))
    _mount("none", Path("/"), None, _MS_REC | _MS_PRIVATE)
    # Opened before they are covered; the descriptors are the way back to them.
    sources = [(path, os.open(path, os.O_PATH)) for place in places for path in _pieces(place)]
    for cover in sorted({cover for place in places if (cover := _barrier(place)) is not None}):
        _mount("tmpfs", cover, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=0755,size=1m")
    for path, source in sources:
        if stat.S_ISDIR(os.fstat(source).st_mode):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        _mount(f"/proc/self/fd/{source}", path, None, _MS_BIND | _MS_REC)
        os.close(source)


def _pieces(place: Path) -> Iterator[Path]:
    """`place` itself, or its entries if its own mode is what bars the way: a bind keeps the mode."""
    if place.stat().st_mode & (stat.S_IXOTH | stat.S_IROTH) == stat.S_IXOTH | stat.S_IROTH:
        yield place
    else:
        yield from (entry for entry in sorted(place.iterdir()) if entry.exists() and not entry.is_symlink())


def _mount(source: str, target: Path, kind: str | None, flags: int, data: str | None = None) -> None:
    _call(
        "mount",
        ctypes.c_char_p(os.fsencode(source)),
        ctypes.c_char_p(os.fsencode(target)),
        ctypes.c_char_p(kind.encode() if kind else None),
        ctypes.c_ulong(flags),
        ctypes.c_char_p(data.encode() if data else None),
    )


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[name](*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _main() -> None:
    uid, gid, places = json.loads(sys.argv[1])
    become(User(uid, gid), map(Path, places))
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    _main()
