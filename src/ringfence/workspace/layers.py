"""What was touched in a shadow, read from what overlayfs left in its upper directory, or from a copy and its manifest.

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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from ringfence.errors import InvalidConfig, PathAccessDenied, PermissionDenied
from ringfence.values.change import NodeKind
from ringfence.workspace.copying import Copied, copy_content, digest_of, read_manifest, write_manifest
from ringfence.workspace.shadow import Shadow, ShadowKind
from ringfence.workspace.statefile import read_json, write_json
from ringfence.workspace.tree import LONGEST_PATH, Tree, ancestors, join, kind_of, split

MOST_TOUCHED: Final = 1_000_000
"""Names; the agent decides how many it makes, and each is kept in memory."""
KNOWN_FILE: Final = "known.json"
SPECIAL: Final = "it is a fifo, a socket or a device"
_SECOND_NS = 1_000_000_000

_OVERLAY: Final = "user.overlay."
_OPAQUE: Final = "user.overlay.opaque"
_OPAQUE_VALUE: Final = b"y"
_TRUSTED: Final = "trusted.overlay."
_HARMLESS: Final = frozenset({"opaque", "origin", "impure", "nlink", "uuid", "protattr", "upper"})
"""Marks that say nothing beyond what is read here; `overlay.` in front is what the agent itself has set."""


@dataclass(frozen=True, slots=True)
class Touched:
    """A name that may differ from the host's."""

    path: str
    status: os.stat_result | None
    """In the shadow; None if it is gone."""
    from_host: bool = False
    """Whether it began as the host's."""
    refused: str = ""

    @property
    def stamp(self) -> int:
        return 0 if self.status is None else self.status.st_ctime_ns


class Layers:
    """The project and its shadow, both open; one subclass for each kind of shadow. Use it in a `with`."""

    def __init__(self, shadow: Shadow) -> None:
        """
        Raises:
            PermissionDenied: the project or the shadow cannot be opened.
        """
        self.shadow = shadow
        self.denying: Callable[[str], str | None] = shadow.denials()
        try:
            self.lower = Tree(shadow.lower)
            try:
                self.upper = Tree(shadow.upper)
            except BaseException:
                self.lower.close()
                raise
        except OSError as fault:
            raise PermissionDenied(f"cannot look into shadow {shadow.id}: {fault}") from fault
        if os.fstat(self.lower.top).st_ino != shadow.lower_inode:
            self.__exit__(None, None, None)
            raise PermissionDenied(
                f"{shadow.lower} is another directory than the one that shadow {shadow.id} was made of",
                hint="put the project back in its place, or discard the shadow",
            )
        self.known = _read_known(shadow)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lower.close()
        self.upper.close()

    def touched(self) -> Iterator[Touched]:
        """Every name that may differ, directories before what is in them, nothing twice."""
        raise NotImplementedError

    def knows(self, path: str, status: os.stat_result) -> bool:
        """Whether the host's entry is as it was when the shadow began, or as a commit of this shadow left it."""
        raise NotImplementedError

    def has_vanished(self, path: str) -> bool:
        """Whether the host removed this; asked where the shadow has what began as the host's, and the host nothing."""
        raise NotImplementedError

    def is_quiet(self, directory: str) -> bool:
        """Whether nobody but us has made or removed names in a directory of the host."""
        raise NotImplementedError

    def settle(self, applied: Iterable[str], merged: Iterable[str] = ()) -> None:
        """Drop from the shadow what the host now has; only while nobody has it mounted.

        Args:
            merged: those of `applied` of which the host has more than the shadow.
        """
        raise NotImplementedError

    def learn(self, paths: Iterable[str], others: Iterable[os.stat_result] = ()) -> None:
        """Remember that the host's entries at these paths, and these others, are as we left them."""
        for status in (*map(self.lower.status, paths), *others):
            if status is not None:
                self.known[status.st_ino] = status.st_ctime_ns
        write_json(self.shadow.directory / KNOWN_FILE, self.known)

    def _is_known(self, status: os.stat_result) -> bool:
        return self.known.get(status.st_ino) == status.st_ctime_ns

    def _why_refused(self, path: str, status: os.stat_result) -> str:
        """What speaks against an entry of the shadow before its content is looked at."""
        if len(os.fsencode(path)) > LONGEST_PATH:
            return "its path is longer than programs of the host can use"
        if (rule := self.denying(path)) is not None:
            return f"the blacklist hides this name ({rule})"
        kind = kind_of(status.st_mode)
        if kind is NodeKind.SPECIAL:
            return SPECIAL
        needed = stat.S_IRUSR | (stat.S_IXUSR if kind is NodeKind.DIRECTORY else 0)
        if kind is not NodeKind.LINK and os.geteuid() != 0 and status.st_mode & needed != needed:
            return "its mode closes it to its owner"
        return ""

    def gone(self, path: str) -> Iterator[Touched]:
        """Everything that the host has at or below a path, but what is hidden and the directories that hold it."""
        found: list[tuple[str, os.stat_result]] = []
        kept: dict[str, str] = {}
        waiting = [path]
        while waiting:
            place = waiting.pop()
            status = self.lower.status(place)
            if status is None:
                continue
            if (rule := self.denying(place)) is not None:
                kept.update(dict.fromkeys(ancestors(place), rule))
                continue
            found.append((place, status))
            if stat.S_ISDIR(status.st_mode):
                waiting += [join(place, name) for name in reversed(self.lower.names(place))]
        for place, _ in found:
            held = kept.get(place)
            yield Touched(place, None, True, f"holds what is hidden ({held}), so it stays" if held else "")


class OverlayLayers(Layers):
    def touched(self) -> Iterator[Touched]:
        waiting: list[tuple[str, bool]] = [("", False)]
        count = 0
        while waiting:
            directory, is_alone = waiting.pop()
            is_alone = self._is_opaque(directory) or is_alone
            names = self.upper.names(directory)
            deeper: list[tuple[str, bool]] = []
            for name in names:
                path = join(directory, name)
                for one in self._entry(path):
                    count += 1
                    if count > MOST_TOUCHED:
                        raise _too_many(self.shadow)
                    yield one
                    if one.status is not None and not one.refused and stat.S_ISDIR(one.status.st_mode):
                        deeper.append((one.path, is_alone))
            waiting += reversed(deeper)
            if is_alone:
                yield from self._only_below(directory, frozenset(names))

    def _entry(self, path: str) -> Iterator[Touched]:
        status = self.upper.status(path)
        if status is None:
            return
        if is_whiteout(status):
            yield from self.gone(path)
        elif refused := self._why_refused(path, status):
            yield Touched(path, status, refused=refused)
        else:
            marks = self._marks(path, kind_of(status.st_mode))
            odd = sorted(mark for mark in marks if mark not in _HARMLESS and not mark.startswith("overlay."))
            refused = f"overlayfs keeps it in a way that is not read here ({', '.join(odd)})" if odd else ""
            yield Touched(path, status, "origin" in marks, refused)

    def _only_below(self, directory: str, kept: frozenset[str]) -> Iterator[Touched]:
        """What the host has in a directory whose old content is gone."""
        status = self.lower.status(directory)
        if status is None or not stat.S_ISDIR(status.st_mode):
            return
        for name in self.lower.names(directory):
            if name not in kept:
                yield from self.gone(join(directory, name))

    def _is_opaque(self, directory: str) -> bool:
        try:
            return os.getxattr(self.upper.directory(directory), _OPAQUE) == _OPAQUE_VALUE
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
            names = os.listxattr(self.upper.directory(path))
        else:
            # By descriptor of the parent: the file itself may not be readable, and must not be followed if swapped.
            place = f"/proc/self/fd/{self.upper.directory(above)}/{name}"
            names = os.listxattr(place, follow_symlinks=False)
        if any(mark.startswith(_TRUSTED) for mark in names):
            raise InvalidConfig(
                f"shadow {self.shadow.id} was mounted without `userxattr`, so its marks cannot be believed",
                hint="discard it; mount shadows with userxattr",
            )
        marks = {mark.removeprefix(_OVERLAY) for mark in names if mark.startswith(_OVERLAY)}
        if "opaque" in marks and not self._is_opaque(path):
            marks.add("opaque in another form")
        return frozenset(marks)

    def knows(self, path: str, status: os.stat_result) -> bool:
        if self._is_known(status):
            return True
        born, changed = self.shadow.born_ns, status.st_ctime_ns
        if changed % _SECOND_NS == 0:  # a file system that counts seconds: in doubt it was changed
            born -= born % _SECOND_NS
            return changed < born
        return changed <= born

    def has_vanished(self, path: str) -> bool:
        # A file that was renamed in the shadow also has no counterpart: only a parent that has moved on tells.
        above = self.lower.status(split(path)[0])
        return above is None or not self._is_unmoved(above)

    def is_quiet(self, directory: str) -> bool:
        status = self.lower.status(directory)
        return status is not None and self._is_unmoved(status)

    def _is_unmoved(self, status: os.stat_result) -> bool:
        return status.st_mtime_ns <= self.shadow.born_ns or self._is_known(status)

    def settle(self, applied: Iterable[str], merged: Iterable[str] = ()) -> None:
        ours = frozenset(applied)
        closed = self._make_transparent(ours)
        for path in sorted(ours, reverse=True):  # what is in a directory before the directory
            if not any(above in closed for above in ancestors(path)):
                self._drop(path)
        for directory in sorted(_all_above(ours), key=len, reverse=True):
            self._drop_directory(directory)
        self.upper.forget()

    def _make_transparent(self, ours: frozenset[str]) -> frozenset[str]:
        """Let directories whose old content the host has lost, too, be merged again; those that stay are returned."""
        closed: set[str] = set()
        for path in sorted(ours | _all_above(ours), key=len, reverse=True):
            if not self._is_real_directory(self.upper, path) or not self._is_opaque(path):
                continue
            if self._hides_nothing(path):
                os.removexattr(self.upper.directory(path), _OPAQUE)
            else:
                closed.add(path)
        return frozenset(closed)

    def _hides_nothing(self, directory: str) -> bool:
        """Whether the host has nothing below a directory that the shadow has not."""
        waiting = [directory]
        while waiting:
            place = waiting.pop()
            if not self._is_real_directory(self.lower, place):
                continue
            if not self._is_real_directory(self.upper, place):
                return False
            here = frozenset(self.upper.names(place))
            for name in self.lower.names(place):
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
        status, host = self.upper.status(path), self.lower.status(path)
        if status is None:
            return
        if stat.S_ISDIR(status.st_mode):
            self._drop_directory(path)
        elif (host is None) == is_whiteout(status):
            with _opened_up(self.upper.directory(above)):
                os.unlink(name, dir_fd=self.upper.directory(above))

    def _drop_directory(self, path: str) -> None:
        """Remove a directory that only says what the host says."""
        status, host = self.upper.status(path), self.lower.status(path)
        if status is None or host is None or not stat.S_ISDIR(status.st_mode) or not stat.S_ISDIR(host.st_mode):
            return
        if stat.S_IMODE(status.st_mode) != stat.S_IMODE(host.st_mode) or self.upper.names(path):
            return
        if "opaque" in self._marks(path, NodeKind.DIRECTORY):
            return
        above, name = split(path)
        self.upper.forget_one(path)
        with _opened_up(self.upper.directory(above)):
            os.rmdir(name, dir_fd=self.upper.directory(above))


class CopyLayers(Layers):
    def __init__(self, shadow: Shadow) -> None:
        super().__init__(shadow)
        try:
            self._manifest = read_manifest(shadow.directory)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def touched(self) -> Iterator[Touched]:
        seen: set[str] = set()
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            deeper: list[str] = []
            for name in self.upper.names(directory):
                path = join(directory, name)
                status = self.upper.status(path)
                if status is None:
                    continue
                seen.add(path)
                if len(seen) > MOST_TOUCHED + len(self._manifest):
                    raise _too_many(self.shadow)
                refused = self._why_refused(path, status)
                entry = self._manifest.get(path)
                if entry is None or not entry.is_copy(status):
                    yield Touched(path, status, entry is not None, refused)
                if stat.S_ISDIR(status.st_mode) and not refused:
                    deeper.append(path)
            waiting += reversed(deeper)
        for path in self._manifest.keys() - seen:
            yield from self._missing(path)

    def _missing(self, path: str) -> Iterator[Touched]:
        """Removed in the shadow; only what it once had, so that a directory may have to stay."""
        held = next((one for one in self.gone(path) if one.path == path), None)
        if held is not None:
            yield held

    def knows(self, path: str, status: os.stat_result) -> bool:
        if self._is_known(status):
            return True
        entry = self._manifest.get(path)
        if entry is None or entry.kind != kind_of(status.st_mode).value:
            return False
        if entry.is_host(status) or entry.kind == NodeKind.DIRECTORY:
            return True
        if entry.mode != stat.S_IMODE(status.st_mode) or entry.size_bytes != status.st_size:
            return False
        if entry.kind == NodeKind.LINK:
            return entry.target == self.lower.target(path)
        with self.lower.opened(path) as descriptor:
            return digest_of(descriptor) == entry.digest

    def has_vanished(self, path: str) -> bool:
        return True  # the manifest tells for certain what began as the host's

    def is_quiet(self, directory: str) -> bool:
        return True

    def settle(self, applied: Iterable[str], merged: Iterable[str] = ()) -> None:
        for path in merged:
            self._take_over(path)
        for path in applied:
            host, status = self.lower.status(path), self.upper.status(path)
            self._manifest.pop(path, None)
            if host is not None and status is not None and kind_of(host.st_mode) is kind_of(status.st_mode):
                self._manifest[path] = self._entry(path, host, status)
        write_manifest(self.shadow.directory, self._manifest)

    def _take_over(self, path: str) -> None:
        """Let the shadow have the host's content."""
        above, name = split(path)
        with self.lower.opened(path) as source:
            flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(name, flags, dir_fd=self.upper.directory(above))
            try:
                copy_content(source, target)
            finally:
                os.close(target)

    def _entry(self, path: str, host: os.stat_result, status: os.stat_result) -> Copied:
        kind, digest = kind_of(host.st_mode), ""
        if kind is NodeKind.FILE:
            with self.lower.opened(path) as descriptor, self.upper.opened(path) as other:
                digest = digest_of(descriptor)
                same = digest == digest_of(other)
        else:
            same = True
        return Copied(
            kind.value,
            stat.S_IMODE(host.st_mode),
            host.st_size,
            host.st_mtime_ns,
            host.st_ctime_ns,
            host.st_ino,
            self.lower.target(path) if kind is NodeKind.LINK else "",
            digest,
            status.st_ino if same else 0,  # some hunks only: the rest is still to be seen
            status.st_ctime_ns if same else 0,
        )


def open_layers(shadow: Shadow) -> Layers:
    return OverlayLayers(shadow) if shadow.kind is ShadowKind.OVERLAY else CopyLayers(shadow)


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


def _read_known(shadow: Shadow) -> dict[int, int]:
    """The time of the last change of each inode that was our own doing: a commit moves it for all names of a file."""
    path = shadow.directory / KNOWN_FILE
    try:
        return {int(inode): int(changed) for inode, changed in read_json(path).items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as fault:
        raise InvalidConfig(f"is not ours: {fault}", source=str(path), hint="discard the shadow") from fault


def _too_many(shadow: Shadow) -> PathAccessDenied:
    return PathAccessDenied(
        str(shadow.upper),
        f"more than {MOST_TOUCHED} names were touched",
        rule="MOST_TOUCHED",
        hint="remove what was made in masses, or discard the shadow",
    )
