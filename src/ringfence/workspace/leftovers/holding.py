"""What of a shadow should not be committed unseen: what another program would run once it lies in the project.

A file is judged as it would lie there: beside what the project has and what the shadow has. A directory may be one of
git's only by both together, or only after a second commit; so what either has counts. And a name that makes a directory
of the project one of git's is held back if there is anything in it, however old, that git would then run.
"""

import os
import stat
from collections.abc import Callable, Iterator
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.values.change import Change, NodeKind
from ringfence.workspace.layers import Layers
from ringfence.workspace.leftovers.base import Leftover
from ringfence.workspace.leftovers.gitconfig import LIMIT_BYTES
from ringfence.workspace.leftovers.gitfiles import completes, is_complete
from ringfence.workspace.leftovers.gitkeys import Setting
from ringfence.workspace.leftovers.gitreader import read_by_git
from ringfence.workspace.leftovers.judge import judge
from ringfence.workspace.tree import Tree, join, split

_READINGS: Final = 200
"""How often git's own reader is asked for one commit; what is left cannot be told, and is held back."""
_MODES: Final = {NodeKind.FILE: stat.S_IFREG, NodeKind.LINK: stat.S_IFLNK, NodeKind.DIRECTORY: stat.S_IFDIR}
_OLD_PLACES: Final = ("", "hooks", "objects/info", "remotes", "branches", "rebase-merge")
"""Where in a git directory lies what git runs or follows."""

Hold = Callable[[Layers, Change], str | None]


def holding_back() -> Hold:
    """For one commit: says why a change should not go through unseen, or None."""
    left = _READINGS

    def by_git(data: bytes) -> tuple[Setting, ...] | None:
        nonlocal left
        left -= 1
        return read_by_git(data) if left >= 0 else None

    def why(layers: Layers, change: Change) -> str | None:
        if change.new is None:
            return None
        found: Leftover | None = None
        if not change.new.is_directory:
            mode = _MODES.get(change.new.kind, 0) | change.new.mode
            found = next(judge(_Entry(layers, layers.upper, change.path, mode, by_git)), None)
        found = found or next(_in_what_becomes_git_s(layers, change, by_git), None)
        return f"{found.why}; run by {found.run_by}" if found is not None else None

    return why


def _in_what_becomes_git_s(
    layers: Layers, change: Change, by_git: Callable[[bytes], tuple[Setting, ...] | None]
) -> Iterator[Leftover]:
    """What lies in a directory of the project already, and would be run once this change makes it one of git's."""
    directory, name = split(change.path)
    if not completes(name) or not is_complete(_Names(layers, directory)):
        return
    for place in _OLD_PLACES:
        for path, mode in _entries(layers.lower, join(directory, place) if place else directory):
            yield from judge(_Entry(layers, layers.lower, path, mode, by_git))


def _entries(tree: Tree, directory: str) -> Iterator[tuple[str, int]]:
    status = tree.status(directory)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return
    for name in tree.names(directory):
        path = join(directory, name)
        status = tree.status(path)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            yield path, status.st_mode


@dataclass(frozen=True, slots=True)
class _Names:
    """What a directory has in the project or in the shadow."""

    layers: Layers
    directory: str

    def __contains__(self, name: object) -> bool:
        path = join(self.directory, str(name))
        for tree in (self.layers.upper, self.layers.lower):
            status = tree.status(path)
            if status is not None and not stat.S_ISCHR(status.st_mode):  # overlayfs keeps what is gone as a device
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Entry:
    """See `base.Found`."""

    layers: Layers
    tree: Tree
    path: str
    mode: int
    by_git: Callable[[bytes], tuple[Setting, ...] | None]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.path.split("/"))

    def is_git_directory(self, up: int) -> bool:
        names = self.names[:-1]
        return up <= len(names) and is_complete(_Names(self.layers, "/".join(names[: len(names) - up])))

    def read(self) -> bytes | None:
        try:
            with self.tree.opened(self.path) as descriptor:
                data = os.read(descriptor, LIMIT_BYTES + 1)
        except OSError:
            return None
        return data if len(data) <= LIMIT_BYTES else None

    def has_capabilities(self) -> bool:
        """A commit writes files anew, and takes no attributes along."""
        return False
