"""Finds what has to be covered in a writable directory, and makes placeholders for protected names not there.

One walk over the directory, by name only. Three kinds come out: what the blacklist matches, and sockets that some
program of the host listens on, are hidden; protected paths are frozen; git directories are anchored, so that they
cannot be moved aside together with what is frozen in them.

A name that is not there cannot be covered by a mount, so a placeholder is made for it, hidden inside, and removed
afterwards by the launcher, whatever happens to us. It is a socket that nobody listens on, because git and most other
programs skip sockets when they list a directory, and marked by its time. Boxes that share a workspace share its
placeholders: each holds a shared lock on the directory, and only the last one removes them.

What this does not protect against: files that the host saves anew during the run, hard links made beforehand, links in
place of a protected name (the link's target is frozen if it lies inside, the link itself can be replaced).
"""

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ringfence.confinement.base import Cover, How, Shared
from ringfence.errors import PermissionDenied
from ringfence.policy.globs import PathRules

_MARK_SECONDS = 86_400  # one day after the epoch: no clock of today makes a file of that time
_GIT = ".git"
UNCOVERED = frozenset({".git/commondir"})
"""Protected names that git cannot bear as unreadable files: left open, and removed after the run if there."""
_LOCK_SECONDS = 5.0


@dataclass(slots=True)
class Masks:
    """What to cover, and what to clean up afterwards. Close it when the launcher has the locks."""

    covers: list[Cover] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    sweeps: list[tuple[str, str]] = field(default_factory=list)

    def close(self) -> None:
        for shared in self.shared:
            shared.close()


def find_masks(roots: tuple[str, ...], *, rules: PathRules, protected: tuple[str, ...]) -> Masks:
    """Walk the roots and decide what is covered how.

    Raises:
        PermissionDenied: a placeholder cannot be made.
    """
    masks = Masks()
    try:
        for root in roots:
            shared = Shared(_lock(root), root, [])
            masks.shared.append(shared)
            _scan(masks, root, rules)
            covered = {cover.below: cover.how for cover in masks.covers if cover.root == root}
            repositories = [below for below, how in covered.items() if how is How.ANCHOR]
            for name in protected:
                first, _, rest = name.partition("/")
                for parent in repositories if first == _GIT and rest else [""]:
                    below = os.path.join(parent, rest) if parent else name
                    if below not in covered:
                        _protect(masks, shared, below, plain=name)
    except BaseException:
        masks.close()
        raise
    return masks


def _lock(root: str) -> int:
    """A shared lock on a directory; held exclusively only for the moment in which a last box cleans up."""
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(descriptor)
                raise PermissionDenied(
                    f"another program holds {root} locked", hint="end it; boxes share a lock on their workspace"
                ) from None
            time.sleep(0.002)


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
    """Whether it is a socket that somebody might listen on; placeholders are found by name."""
    try:
        info = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISSOCK(info.st_mode) and not is_placeholder(info)


def _protect(masks: Masks, shared: Shared, below: str, *, plain: str) -> None:
    """Freeze what is there, else hide a placeholder in its place."""
    root = shared.root
    path = os.path.join(root, below)
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        if plain in UNCOVERED:
            masks.sweeps.append((root, below))
        elif _make_placeholder(path, shared):
            shared.placeholders.append(below)
            masks.covers.append(Cover(root, below, How.HIDE))
        return
    if stat.S_ISLNK(info.st_mode):
        target = os.path.realpath(path)
        if target.startswith(root.rstrip("/") + "/") and os.path.exists(target):
            masks.covers.append(Cover(root, os.path.relpath(target, root), How.FREEZE))
    elif is_placeholder(info):
        shared.placeholders.append(below)
        masks.covers.append(Cover(root, below, How.HIDE))
    else:
        masks.covers.append(Cover(root, below, How.FREEZE))


def is_placeholder(info: os.stat_result) -> bool:
    return stat.S_ISSOCK(info.st_mode) and int(info.st_mtime) == _MARK_SECONDS


def _make_placeholder(path: str, shared: Shared) -> bool:
    """False if there is no directory to make it in.

    All placeholders of a directory are links to the first: a link costs a twentieth of a new file.
    """
    try:
        if not (shared.placeholders and _link(os.path.join(shared.root, shared.placeholders[0]), path)):
            os.mknod(path, stat.S_IFSOCK)
            os.utime(path, (_MARK_SECONDS, _MARK_SECONDS), follow_symlinks=False)
    except FileExistsError:
        pass  # another box was faster
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as fault:
        raise PermissionDenied(
            f"cannot protect {path}: {fault.strerror}", hint="give a workspace that you may write to"
        ) from fault
    return True


def _link(first: str, path: str) -> bool:
    """Whether it could be made as a link; not every file system has them, and the first may be somebody else's."""
    try:
        os.link(first, path, follow_symlinks=False)
    except (FileExistsError, FileNotFoundError, NotADirectoryError):
        raise
    except OSError:
        return False
    return True
