"""What was touched in an overlay, read from what overlayfs left in its upper directory.

How overlayfs keeps changes, as far as it matters here (it is always mounted with `userxattr`):

- A file or link that was made or changed lies in `upper` as a whole. One that began as the host's carries the attribute
  `user.overlay.origin`, mostly empty.
- A character device 0:0 (a whiteout) says that the name is gone.
- A directory in `upper` is merged with the host's, unless it carries `user.overlay.opaque`: then what the host has in
  it, at any depth, is gone.
- A renamed directory is copied and removed: attributes that redirect one are off, as are files of which `upper` holds
  no content (metacopy). Should one turn up all the same it is refused, since reading it plainly would misread it.

Could the box write these marks itself? Not through the mount: overlayfs stores an attribute `user.overlay.x` that is
set inside as `user.overlay.overlay.x`, older kernels refuse it, and a whiteout cannot be made inside at all. A test
tries. Marks of the kind `trusted.overlay` mean that somebody mounted the shadow otherwise; then everything is refused,
because `user.overlay.opaque` would then be the agent's own.

What the blacklist hides is never touched, whatever upper says, and a directory that holds such a thing is not gone.

What this does not protect against: changes that the box makes while it is read. Whoever needs one moment locks the
shadow first.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from ringfence.errors import Damaged
from ringfence.values.change import NodeKind
from ringfence.workspace.both_trees import MOST_TOUCHED, BothTrees, TouchedPath, too_many
from ringfence.workspace.tree import Tree, ancestors, join, kind_of, split

_SECOND_NS = 1_000_000_000

_OVERLAY: Final = "user.overlay."
_OPAQUE: Final = "user.overlay.opaque"
_OPAQUE_VALUE: Final = b"y"
_TRUSTED: Final = "trusted.overlay."
_HARMLESS: Final = frozenset({"opaque", "origin", "impure", "nlink", "uuid", "protattr", "upper"})
"""Marks that say nothing beyond what is read here; `overlay.` in front is what the agent itself has set."""


class OverlayReading:
    """See `layers.Reading`."""

    def __init__(self, trees: BothTrees) -> None:
        self._trees = trees
        self._lower, self._upper = trees.lower, trees.upper

    def touched(self) -> Iterator[TouchedPath]:
        waiting: list[tuple[str, bool]] = [("", False)]
        count = 0
        while waiting:
            directory, is_alone = waiting.pop()
            is_alone = self._is_opaque(directory) or is_alone
            names = self._upper.names(directory)
            deeper: list[tuple[str, bool]] = []
            for name in names:
                path = join(directory, name)
                for one in self._entry(path):
                    count += 1
                    if count > MOST_TOUCHED:
                        raise too_many(self._trees.shadow)
                    yield one
                    if one.status is not None and not one.refused and stat.S_ISDIR(one.status.st_mode):
                        deeper.append((one.path, is_alone))
            waiting += reversed(deeper)
            if is_alone:
                yield from self._only_below(directory, frozenset(names))

    def _entry(self, path: str) -> Iterator[TouchedPath]:
        status = self._upper.status(path)
        if status is None:
            return
        if is_whiteout(status):
            yield from self._trees.gone(path)
        elif refused := self._trees.why_refused(path, status):
            yield TouchedPath(path, status, refused=refused)
        else:
            marks = self._marks(path, kind_of(status.st_mode))
            odd = sorted(mark for mark in marks if mark not in _HARMLESS and not mark.startswith("overlay."))
            refused = f"overlayfs keeps it in a way that is not read here ({', '.join(odd)})" if odd else ""
            yield TouchedPath(path, status, "origin" in marks, refused)

    def _only_below(self, directory: str, kept: frozenset[str]) -> Iterator[TouchedPath]:
        """What the host has in a directory whose old content is gone."""
        status = self._lower.status(directory)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        for name in self._lower.names(directory):
            if name not in kept:
                yield from self._trees.gone(join(directory, name))

    def _is_opaque(self, directory: str) -> bool:
        try:
            return os.getxattr(self._upper.directory(directory), _OPAQUE) == _OPAQUE_VALUE
        except OSError as fault:
            if fault.errno in (errno.ENODATA, errno.ENOTSUP):
                return False
            raise

    def _marks(self, path: str, kind: NodeKind) -> frozenset[str]:
        """What overlayfs has noted about an entry; links cannot carry attributes of users."""
        if kind not in (NodeKind.FILE, NodeKind.DIRECTORY):
            return frozenset()
        above, name = split(path)
        if kind is NodeKind.DIRECTORY:
            names = os.listxattr(self._upper.directory(path))
        else:
            # By descriptor of the parent: the file itself may not be readable, and must not be followed if swapped.
            place = f"/proc/self/fd/{self._upper.directory(above)}/{name}"
            names = os.listxattr(place, follow_symlinks=False)
        if any(mark.startswith(_TRUSTED) for mark in names):
            raise Damaged(
                f"shadow {self._trees.shadow.id} was mounted without `userxattr`, so its marks cannot be believed",
                hint="discard it; mount shadows with userxattr",
            )
        marks = {mark.removeprefix(_OVERLAY) for mark in names if mark.startswith(_OVERLAY)}
        if "opaque" in marks and not self._is_opaque(path):
            marks.add("opaque in another form")
        return frozenset(marks)

    def knows(self, path: str, status: os.stat_result) -> bool:
        if self._trees.is_known(status):
            return True
        born, changed = self._trees.shadow.born_ns, status.st_ctime_ns
        if changed % _SECOND_NS == 0:  # a file system that counts seconds: in doubt it was changed
            born -= born % _SECOND_NS
            return changed < born
        return changed <= born

    def has_vanished(self, path: str) -> bool:
        # A file that was renamed in the shadow also has no counterpart: only a parent that has moved on tells.
        above = self._lower.status(split(path)[0])
        return above is None or not self._is_unmoved(above)

    def is_quiet(self, directory: str) -> bool:
        status = self._lower.status(directory)
        return status is not None and self._is_unmoved(status)

    def _is_unmoved(self, status: os.stat_result) -> bool:
        return status.st_mtime_ns <= self._trees.shadow.born_ns or self._trees.is_known(status)

    def settle(self, applied: Iterable[str], merged: Iterable[str] = ()) -> None:
        ours = frozenset(applied)
        closed = self._make_transparent(ours)
        for path in sorted(ours, reverse=True):  # what is in a directory before the directory
            if not any(above in closed for above in ancestors(path)):
                self._drop(path)
        for directory in sorted(_all_above(ours), key=len, reverse=True):
            self._drop_directory(directory)
        self._upper.forget()

    def _make_transparent(self, ours: frozenset[str]) -> frozenset[str]:
        """Let directories whose old content the host has lost, too, be merged again; those that stay are returned."""
        closed: set[str] = set()
        for path in sorted(ours | _all_above(ours), key=len, reverse=True):
            if not self._is_real_directory(self._upper, path) or not self._is_opaque(path):
                continue
            if self._hides_nothing(path):
                with _opened_up(self._upper.directory(path)):
                    os.removexattr(self._upper.directory(path), _OPAQUE)
            else:
                closed.add(path)
        return frozenset(closed)

    def _hides_nothing(self, directory: str) -> bool:
        """Whether the host has nothing below a directory that the shadow has not."""
        waiting = [directory]
        while waiting:
            place = waiting.pop()
            if not self._is_real_directory(self._lower, place):
                continue
            if not self._is_real_directory(self._upper, place):
                return False
            here = frozenset(self._upper.names(place))
            for name in self._lower.names(place):
                if name not in here:
                    return False
                waiting.append(join(place, name))
        return True

    def _is_real_directory(self, tree: Tree, path: str) -> bool:
        status = tree.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _drop(self, path: str) -> None:
        """Remove what says the same as the host."""
        above, name = split(path)
        status, host = self._upper.status(path), self._lower.status(path)
        if status is None:
            return
        if stat.S_ISDIR(status.st_mode):
            self._drop_directory(path)
        elif (host is None) == is_whiteout(status):
            with _opened_up(self._upper.directory(above)):
                os.unlink(name, dir_fd=self._upper.directory(above))

    def _drop_directory(self, path: str) -> None:
        """Remove a directory that only says what the host says."""
        status, host = self._upper.status(path), self._lower.status(path)
        if status is None or host is None or not stat.S_ISDIR(status.st_mode) or not stat.S_ISDIR(host.st_mode):
            return
        if stat.S_IMODE(status.st_mode) != stat.S_IMODE(host.st_mode) or self._upper.names(path):
            return
        if "opaque" in self._marks(path, NodeKind.DIRECTORY):
            return
        above, name = split(path)
        self._upper.forget_one(path)
        with _opened_up(self._upper.directory(above)):
            os.rmdir(name, dir_fd=self._upper.directory(above))


def is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


class _opened_up:
    """A directory of the shadow that its mode may close to us."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._mode = stat.S_IMODE(os.fstat(descriptor).st_mode)

    def __enter__(self) -> None:
        os.fchmod(self._descriptor, self._mode | stat.S_IRWXU)

    def __exit__(self, *_: object) -> None:
        os.fchmod(self._descriptor, self._mode)


def _all_above(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(above for path in paths for above in ancestors(path))
