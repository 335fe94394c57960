"""Finds what has to be covered inside a writable directory, and makes placeholders for protected names that are not there.

One walk over the directory, by name only. Three kinds come out: what the blacklist matches, and sockets that some program of the
host listens on, are hidden; protected paths are frozen; git directories are anchored, so that they cannot be moved aside
together with what is frozen in them.

A name that is not there cannot be covered by a mount, so an empty placeholder is made for it, hidden inside, and removed
afterwards by the launcher, whatever happens to us. Boxes that share a workspace share its placeholders: each holds a shared lock on
it, and only the last one removes it. A placeholder is recognised by its modification time, which no editor sets.

What this does not protect against: files that the host saves anew during the run, hard links made beforehand, links in
place of a protected name (the link's target is frozen if it lies inside, the link itself can be replaced).
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from ringfence.confinement.base import Cover, How
from ringfence.errors import PermissionDenied
from ringfence.policy.globs import PathRules

_MARK_NS = 86_400 * 1_000_000_000 + 52_656_667  # one day after the epoch, and a fraction that means nothing to anybody else
_GIT = ".git"
UNCOVERED = frozenset({".git/commondir"})
"""Protected names that git cannot bear as an unreadable file: left open, and removed after the run if they have appeared."""
_TRIES = 50


@dataclass(slots=True)
class Masks:
    """What to cover below one root, and what to clean up afterwards. Close it when the launcher has the descriptors."""

    covers: list[Cover] = field(default_factory=list)
    placeholders: list[tuple[int, str, str]] = field(default_factory=list)
    """(descriptor that holds the lock, root, name below it)"""
    sweeps: list[tuple[str, str]] = field(default_factory=list)

    def close(self) -> None:
        for descriptor, _, _ in self.placeholders:
            with suppress(OSError):
                os.close(descriptor)
        self.placeholders.clear()


def find_masks(roots: tuple[str, ...], *, rules: PathRules, protected: tuple[str, ...]) -> Masks:
    """Walk the roots and decide what is covered how.

    Raises:
        PermissionDenied: a placeholder cannot be made.
    """
    masks = Masks()
    try:
        for root in roots:
            _scan(masks, root, rules)
            repositories = [cover.below for cover in masks.covers if cover.root == root and cover.how is How.ANCHOR]
            for name in protected:
                first, _, rest = name.partition("/")
                for parent in repositories if first == _GIT and rest else [""]:
                    _protect(masks, root, os.path.join(parent, rest) if parent else name, plain=name)
    except BaseException:
        masks.close()
        raise
    return masks


def _scan(masks: Masks, root: str, rules: PathRules) -> None:
    inside = root.rstrip("/") + "/"
    named = {path.removeprefix(inside) for path in rules.literals if path.startswith(inside)}
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        for entry in _entries(os.path.join(root, directory)):
            below = os.path.join(directory, entry.name)
            if entry.is_symlink():
                continue  # a link to something hidden leads to what is hidden
            if entry.name in rules.names or below in named or (rules.globs and rules.matches(inside + below)):
                masks.covers.append(Cover(root, below, How.HIDE))
            elif entry.is_dir(follow_symlinks=False):
                if entry.name == _GIT:
                    masks.covers.append(Cover(root, below, How.ANCHOR))
                    continue  # what is protected in there is found by name; objects need no walk
                waiting.append(below)
            elif entry.name == _GIT or (not entry.is_file(follow_symlinks=False) and _is_socket(entry)):
                # A .git file points to a git directory elsewhere; replaced, it would point to the agent's.
                masks.covers.append(Cover(root, below, How.FREEZE if entry.name == _GIT else How.HIDE))


def _entries(path: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            yield from entries
    except (PermissionError, FileNotFoundError, NotADirectoryError):
        return  # what we cannot list, the box cannot either


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False


def _protect(masks: Masks, root: str, below: str, *, plain: str) -> None:
    """Freeze what is there, else hide a placeholder in its place."""
    path = os.path.join(root, below)
    if any(cover.root == root and cover.below == below for cover in masks.covers):
        return
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        if plain in UNCOVERED:
            masks.sweeps.append((root, below))
        elif os.path.isdir(os.path.dirname(path)):
            masks.placeholders.append((_make_placeholder(path), root, below))
            masks.covers.append(Cover(root, below, How.HIDE))
        return
    if stat.S_ISLNK(info.st_mode):
        target = os.path.realpath(path)
        if target.startswith(root.rstrip("/") + "/") and os.path.exists(target):
            masks.covers.append(Cover(root, os.path.relpath(target, root), How.FREEZE))
    elif _is_placeholder(info):
        masks.placeholders.append((_make_placeholder(path), root, below))
        masks.covers.append(Cover(root, below, How.HIDE))
    else:
        masks.covers.append(Cover(root, below, How.FREEZE))


def _is_placeholder(info: os.stat_result) -> bool:
    return stat.S_ISREG(info.st_mode) and info.st_size == 0 and info.st_mtime_ns == _MARK_NS


def _make_placeholder(path: str) -> int:
    """An empty file at `path`, new or another box's, with our shared lock on it."""
    for _ in range(_TRIES):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o444)
        except OSError as fault:
            raise PermissionDenied(
                f"cannot protect {path}: {fault.strerror}", hint="give a workspace that you may write to"
            ) from fault
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            os.utime(descriptor, ns=(_MARK_NS, _MARK_NS))
            # The last owner may have removed it between our open and our lock.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
    raise PermissionDenied(f"cannot protect {path}: somebody else holds it", hint="try again")
