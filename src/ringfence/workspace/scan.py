"""One look at a project before its shadow is made: what has to be hidden, and whose files these are.

By name first: most projects hide nothing, and a name costs a quarter of what asking for its owner does. Hidden are

- what the blacklist names, and, if that is a link, the thing inside the project that it leads to;
- the other names of a hidden file (hard links): only if a hidden file has several is every file asked for its inode;
- sockets, which a program of the host listens on;
- directories that cannot be listed, since nobody can tell what is in them.

A link that leads *to* something hidden stays: inside the shadow it leads to nothing.

What this does not protect against: files that get a blacklisted name, or a second one, on the host after the look.
"""

import os
import stat
from collections.abc import Iterable, Iterator

from ringfence.dataclass import dataclass
from ringfence.policy.globs import PathRules
from ringfence.workspace.tree import ancestors, is_in_tree

_UNLISTED = "a directory that cannot be listed"
_SOCKET = "a socket of the host"
_SECOND_NAME = "a second name of a hidden file"
_TARGET = "what a hidden link leads to"


@dataclass(frozen=True, slots=True)
class TreeOwner:
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """The first path that belongs to somebody else, and how many there are."""

    path: str
    owner: TreeOwner
    count: int


@dataclass(frozen=True, slots=True)
class TreeScan:
    hidden: tuple[tuple[str, str], ...]
    """Paths below the project, none below another, each with the rule that hides it."""
    foreign: Foreign | None = None


def scan(lower: str, rules: PathRules, *, owner: TreeOwner | None = None) -> TreeScan:
    """Look at every name below `lower`; with `owner`, also whether everything is theirs."""
    look = _Look(lower, rules, owner)
    look.names()
    look.other_names()
    hidden = look.hidden
    topmost = ((path, rule) for path, rule in hidden.items() if not any(above in hidden for above in ancestors(path)))
    return TreeScan(tuple(sorted(topmost)), look.foreign)


def unmapped(lower: str, uid: int, gid: int) -> Foreign | None:
    """What does not belong to this user and group: overlayfs cannot copy it up where only these two are mapped."""
    return scan(lower, PathRules(()), owner=TreeOwner(uid, gid)).foreign


class _Look:
    def __init__(self, lower: str, rules: PathRules, owner: TreeOwner | None) -> None:
        self._lower = lower
        self._inside = lower.rstrip("/") + "/"
        self._rules = rules
        self._owner = owner
        self._is_root = os.geteuid() == 0
        self.hidden: dict[str, str] = {}
        self.foreign: Foreign | None = None

    def names(self) -> None:
        inside, owner = self._inside, self._owner
        named = {path.removeprefix(inside) for path in self._rules.literals if path.startswith(inside)}
        names, globs, matches = self._rules.names, self._rules.globs, self._rules.matches
        is_simple = not named and not globs  # most are: then a path is only put together for what is hidden
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            prefix = f"{directory}/" if directory else ""
            for entry in self._entries(directory):
                name = entry.name
                if name in names or not (
                    is_simple or (prefix + name not in named and not matches(inside + prefix + name))
                ):
                    self._hide(prefix + name, matches(inside + prefix + name) or name, is_link=entry.is_symlink())
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(prefix + name)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink() and _is_socket(entry):
                    self.hidden[prefix + name] = _SOCKET
                if owner is not None:
                    self._compare(prefix, entry, owner)

    def _entries(self, directory: str) -> Iterable[os.DirEntry[str]]:
        path = self._inside + directory
        try:
            with os.scandir(path) as entries:
                if not self._is_root and not os.access(path, os.X_OK):
                    raise PermissionError
                return tuple(entries)
        except (FileNotFoundError, NotADirectoryError):
            return ()  # it has just gone
        except OSError:
            if not directory:
                raise
            self.hidden[directory] = _UNLISTED
            return ()

    def _compare(self, prefix: str, entry: os.DirEntry[str], owner: TreeOwner) -> None:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return
        if status.st_uid != owner.uid or status.st_gid != owner.gid:
            below = prefix + entry.name
            if self.foreign is None:
                self.foreign = Foreign(below, TreeOwner(status.st_uid, status.st_gid), 1)
            else:
                self.foreign = Foreign(self.foreign.path, self.foreign.owner, self.foreign.count + 1)

    def _hide(self, below: str, rule: str, *, is_link: bool) -> None:
        self.hidden[below] = rule
        if not is_link:
            return
        target = os.path.realpath(self._inside + below)
        if target.startswith(self._inside) and os.path.lexists(target):
            inside = target.removeprefix(self._inside)
            if not is_in_tree(below, inside):  # a link to a directory above itself would hide everything
                self.hidden.setdefault(inside, _TARGET)

    def other_names(self) -> None:
        """Hide what is the same file as something hidden."""
        inodes = {found for path in list(self.hidden) for found in self._several_names(path)}
        if not inodes:
            return
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            for entry in self._entries(directory):
                below = f"{directory}/{entry.name}" if directory else entry.name
                if below in self.hidden:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(below)
                elif entry.is_file(follow_symlinks=False):
                    status = os.lstat(self._inside + below)
                    if (status.st_dev, status.st_ino) in inodes:
                        self.hidden[below] = _SECOND_NAME

    def _several_names(self, path: str) -> Iterator[tuple[int, int]]:
        """The files at or below a hidden path that have other names."""
        waiting = [path]
        while waiting:
            below = waiting.pop()
            try:
                status = os.lstat(self._inside + below)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                if self.hidden.get(below) != _UNLISTED:
                    waiting += [f"{below}/{entry.name}" for entry in self._entries(below)]
            elif stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield status.st_dev, status.st_ino


def _is_socket(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return False
