"""Finds what has to be covered in a writable directory, and which protected names must not be made in it.

One walk over the directory, by name only. Three kinds come out: what the blacklist matches, and sockets that some
program of the host listens on, are hidden; protected paths are frozen; git directories are anchored, so that they
cannot be moved aside together with what is frozen in them. Every directory on the way to one of these is pinned: else
a box could rename it, put another in its place, or move it to where the next box's walk does not look.

A directory that we may not list, or whose path is too long, is hidden whole: its owner in the box could list it. Run by
root, so is one of another owner than the workspace's that is closed to strangers: nobody in the box may enter it, nor
may who builds the wall, to cover what is in it.

A name that is not there cannot be covered by a mount. Where the guardian makes names for the box, it refuses to make
this one (`naming`), and nothing is put into the directory; elsewhere a placeholder is made (`placeholders`). Boxes that
share a workspace share its placeholders: each holds a shared lock on the directory, and only the last one removes them.

What this does not protect against: files that the host saves anew during the run, hard links made beforehand, a
repository that is made anew (also a bare one), hooks that core.hooksPath puts among the tracked files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ringfence.confinement.base import Cover, How, Shared, Unmade
from ringfence.confinement.linux.naming import keeps_names
from ringfence.confinement.linux.placeholders import (
    NEUTRAL,
    Placeholders,
    is_placeholder,
    lstat,
    open_beneath,
    remove_below,
    write_neutral,
)
from ringfence.dataclass import dataclass, field
from ringfence.errors import Busy, PermissionDenied

if TYPE_CHECKING:
    from ringfence.policy.globs import PathRules

_GIT = ".git"
_GIT_DATA = frozenset(("objects", "refs", "logs", "lfs"))
"""Directories of a git directory that hold git's own data under git's own names, and often thousands of them."""
_PER_WORKTREE = ("commondir", "gitdir", "config.worktree")
"""Names in `.git/worktrees/*`: each leads the git commands of another directory to its configuration."""
_LOCK_SECONDS = 5.0
_PATH_MAX = 4000
"""Bytes of a path that are walked; the kernel takes 4095."""
_COVERS_MAX = 10_000
"""The kernel takes 100,000 mounts in a namespace; these many cost about a second."""


@dataclass(slots=True)
class Masks:
    """What to cover, and what to clean up afterwards. Close it when the launcher has the locks."""

    covers: list[Cover] = field(default_factory=list)
    unmade: list[Unmade] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)

    def close(self) -> None:
        for shared in self.shared:
            shared.close()

    def give_up(self) -> None:
        """There will be no box, and so no launcher: remove the placeholders here, unless another box shares them."""
        for shared in self.shared:
            with suppress(OSError):
                fcntl.flock(shared.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for below in shared.placeholders:
                    remove_below(shared.lock, below)
        self.close()


def find_masks(
    roots: tuple[str, ...],
    *,
    rules: PathRules,
    protected: tuple[str, ...],
    own: tuple[str, ...] = (),
    as_files: bool = False,
    names: bool = False,
) -> Masks:
    """Walk the roots and decide what is covered how.

    Args:
        protected: relative to each root; what is not there must not be made, if its directory is there.
        own: absolute; the same for what lies below a root, wherever it would lie.
        as_files: whether placeholders are empty files instead of sockets.
        names: whether the guardian makes names, so that no placeholder is needed.

    Raises:
        PermissionDenied: a placeholder cannot be made, or there is more to cover than a box can bear.
    """
    masks = Masks()
    try:
        for root in filter(os.path.isdir, roots):  # a single file has nothing in it to cover
            shared = Shared(_lock(root), root, [])
            masks.shared.append(shared)
            here = tuple(path.removeprefix(f"{root}/") for path in own if path.startswith(f"{root}/"))
            if names and protected and not os.access(root, os.W_OK, effective_ids=True):
                raise _cannot_protect(root, os.strerror(errno.EACCES))
            finder = _Finder(shared, rules, protected, here, as_files=as_files, names=names)
            masks.covers += finder.find()
            masks.unmade += finder.unmade
    except BaseException:
        masks.give_up()
        raise
    return masks


def _lock(root: str) -> int:
    """A shared lock on a directory; held exclusively only for the moment in which a last box cleans up."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as fault:
        raise PermissionDenied(
            f"cannot look into {root}: {fault.strerror}", hint="give a directory of yours"
        ) from fault
    try:
        _share(descriptor, root)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _share(descriptor: int, root: str) -> None:
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise Busy(
                    f"another program holds {root} locked", hint="end it; boxes share a lock on their workspace"
                ) from None
            time.sleep(0.002)


class _Finder:
    """What is covered how below one root."""

    def __init__(
        self,
        shared: Shared,
        rules: PathRules,
        protected: tuple[str, ...],
        own: tuple[str, ...],
        *,
        as_files: bool,
        names: bool,
    ) -> None:
        self._shared = shared
        self._root = shared.root
        self._owner = os.fstat(shared.lock)
        self._inside = shared.root.rstrip("/") + "/"
        self._rules = rules
        self._protected = protected
        self._own = own
        self._placeheld = frozenset(protected).union(own, *map(_above, own))
        self._repositories: list[str] = []
        self._how: dict[str, How] = {}
        self._as_files = as_files
        self._names = names
        self._kept: dict[str, os.stat_result | None] = {}
        self.unmade: list[Unmade] = []
        self._placeholders = Placeholders(stat.S_IFREG if as_files else stat.S_IFSOCK)

    def find(self) -> list[Cover]:
        with self._placeholders:
            self._find()
        return self._covers()

    def _find(self) -> None:
        self._scan()
        for name in self._protected:
            first, _, rest = name.partition("/")
            for repository in self._repositories if first == _GIT and rest else [""]:
                self._protect(os.path.join(repository, rest) if repository else name, NEUTRAL.get(name))
        for name in self._own:
            if not any(self._how.get(directory) is How.FREEZE for directory in _above(name)):
                self._protect(self._first_missing(name), None)
        for repository in self._repositories:
            self._protect_worktrees(os.path.join(repository, "worktrees"))

    def _covers(self) -> list[Cover]:
        """Parents first; nothing below what is hidden, where it could not be found any more."""
        wanted: dict[str, How] = {}
        for below, how in self._how.items():
            above = list(_above(below))
            if any(self._how.get(directory) is How.HIDE for directory in above):
                continue
            wanted[below] = how
            wanted |= {directory: How.PIN for directory in above if directory not in self._how}
        for each in self.unmade:  # else another directory, with that name in it, could be put in their place
            wanted |= {directory: How.PIN for directory in _above(each.below) if directory not in self._how}
        if len(wanted) > _COVERS_MAX:
            raise PermissionDenied(
                f"there are {len(wanted)} names to cover in {self._root}, more than a box can bear",
                hint=f"what is it that has left them? One is {next(iter(self._how))!r}",
            )
        return [Cover(self._root, below, wanted[below]) for below in sorted(wanted, key=lambda name: name.count("/"))]

    # --- what is there --------------------------------------------------------------------------------------------

    def _scan(self) -> None:
        named = {path.removeprefix(self._inside) for path in self._rules.literals if path.startswith(self._inside)}
        names, globs, matches = self._rules.names, self._rules.globs, self._rules.matches
        waiting, looked_into = [""], 0
        while waiting or looked_into < len(self._repositories):
            if waiting:
                directory = waiting.pop()
            else:
                directory = self._repositories[looked_into]
                looked_into += 1
            is_git = f"/{_GIT}/" in f"/{directory}/"
            for entry in self._entries(directory):
                below = f"{directory}/{entry.name}" if directory else entry.name
                if is_git and entry.name in _GIT_DATA:
                    continue
                if self._is_our_placeholder(entry, below):
                    continue  # found by name, and removed when the last box ends
                if entry.name in names or below in named or (globs and matches(self._inside + below)):
                    self._hide(below, is_link=entry.is_symlink())
                elif entry.name == _GIT:
                    self._found_git(below, entry)
                elif entry.is_symlink():
                    continue  # it leads to what is covered in its own place, or to nothing that the box sees
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(below)
                elif not entry.is_file(follow_symlinks=False) and _is_socket(entry):
                    self._how[below] = How.HIDE

    def _entries(self, directory: str) -> Iterator[os.DirEntry[str]]:
        path = os.path.join(self._root, directory)
        try:
            if len(os.fsencode(path)) > _PATH_MAX:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            with os.scandir(path) as entries:
                if self._is_shut(path):
                    raise PermissionError  # names alone do not say what is below them
                yield from entries
        except (FileNotFoundError, NotADirectoryError):
            return  # there is none, or it has just gone
        except OSError:
            self._how[directory] = How.HIDE

    def _hide(self, below: str, *, is_link: bool) -> None:
        self._how[below] = How.HIDE
        target = self._inside_target(below) if is_link else None
        if target is not None and target not in _above(below):
            self._how[target] = How.HIDE

    def _found_git(self, below: str, entry: os.DirEntry[str]) -> None:
        """A git directory; or a file or link that leads to one, and replaced would lead to the agent's."""
        directory: str | None = below
        if not entry.is_dir(follow_symlinks=False):
            self._how[below] = How.FREEZE
            directory = self._inside_target(below) if entry.is_symlink() else None
        if directory is None or not os.path.isdir(os.path.join(self._root, directory)):
            return
        path = os.path.join(self._root, directory)
        if os.access(path, os.R_OK) and not self._is_shut(path):
            self._how.setdefault(directory, How.ANCHOR)
            self._repositories.append(directory)
        else:
            self._how[directory] = How.HIDE

    def _is_shut(self, path: str) -> bool:
        """Whether the box's user may not enter a directory: run by root, whoever stands in for the workspace's owner,
        and has no power over files of others, as root has it outside."""
        if os.geteuid() != 0:
            return not os.access(path, os.X_OK)
        found = os.stat(path, follow_symlinks=False)
        is_own = (found.st_uid, found.st_gid) == (self._owner.st_uid, self._owner.st_gid)
        return not is_own and not found.st_mode & stat.S_IXOTH

    def _inside_target(self, below: str) -> str | None:
        """Where a link leads, if that is something below the root."""
        target = os.path.realpath(os.path.join(self._root, below))
        return target.removeprefix(self._inside) if target.startswith(self._inside) and os.path.exists(target) else None

    def _is_our_placeholder(self, entry: os.DirEntry[str], below: str) -> bool:
        if below not in self._placeheld:
            return False
        try:
            return is_placeholder(entry.stat(follow_symlinks=False))
        except OSError:
            return False

    # --- what is protected ----------------------------------------------------------------------------------------

    def _protect_worktrees(self, directory: str) -> None:
        for entry in self._entries(directory):
            if entry.is_dir(follow_symlinks=False):
                for name in _PER_WORKTREE:
                    self._protect(f"{directory}/{entry.name}/{name}", None)

    def _first_missing(self, below: str) -> str:
        """The path, or the first directory on the way to it that is missing: whoever made that could make the rest."""
        for directory in reversed(list(_above(below))):
            path = os.path.join(self._root, directory)
            if not os.path.isdir(path) and not os.path.islink(path):
                return directory
        return below

    def _protect(self, below: str, neutral: bytes | None) -> None:
        """Freeze what is there, else put a placeholder there: hidden, or saying `neutral`."""
        if below in self._how:
            return
        directory, name = os.path.split(below)
        try:
            parent = open_beneath(self._shared.lock, directory)
        except PermissionError:
            self._how[directory] = How.HIDE
            return
        except OSError:
            return  # there is no such directory, so nothing reads the name
        try:
            info = lstat(parent, name)
            if self._is_held_by_name(directory, parent, below) and info is None:
                return
            if info is not None and self._is_unfit(info) and self._remove_stale(parent, name):
                info = None
            if info is None:
                self._make_placeholder(parent, below, neutral)
            if info is None or is_placeholder(info):
                self._shared.placeholders.append(below)
                self._how[below] = How.HIDE if neutral is None else How.FREEZE
                return
        finally:
            os.close(parent)
        self._how[below] = How.FREEZE
        target = self._inside_target(below) if stat.S_ISLNK(info.st_mode) else None
        if target is not None:
            self._how.setdefault(target, How.FREEZE)

    def _is_held_by_name(self, directory: str, parent: int, below: str) -> bool:
        """Whether the guardian refuses to make it; also what is there now, since the host may remove it."""
        if not self._names:
            return False
        if directory not in self._kept:
            self._kept[directory] = os.fstat(parent) if keeps_names(parent) else None
        place = self._kept[directory]
        if place is None:
            return False
        self.unmade.append(Unmade(self._root, below, place.st_dev, place.st_ino))
        return True

    def _is_unfit(self, info: os.stat_result) -> bool:
        """Whether it is a placeholder of the other kind, over which this wall can put no mount."""
        return self._as_files and stat.S_ISSOCK(info.st_mode) and is_placeholder(info)

    def _remove_stale(self, parent: int, name: str) -> bool:
        """Remove what a dead box left, or the agent of one made up; not while another box lives in the workspace."""
        try:
            fcntl.flock(self._shared.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name, dir_fd=parent)
        except OSError:
            return False
        finally:
            _share(self._shared.lock, self._root)
        return True

    def _make_placeholder(self, parent: int, below: str, neutral: bytes | None) -> None:
        name = os.path.basename(below)
        try:
            if neutral is None:
                self._placeholders.make(parent, name)
            else:
                write_neutral(parent, name, neutral)
        except FileExistsError:
            pass  # another box was faster
        except OSError as fault:
            raise _cannot_protect(os.path.join(self._root, below), fault.strerror) from fault


def _cannot_protect(path: str, why: str | None) -> PermissionDenied:
    return PermissionDenied(f"cannot protect {path}: {why}", hint="give a workspace that you may write to")


def _above(below: str) -> Iterator[str]:
    """The directories on the way to a path, from the nearest up."""
    while "/" in below:
        below = below.rpartition("/")[0]
        yield below


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False
