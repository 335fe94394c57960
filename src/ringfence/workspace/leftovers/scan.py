"""Find what an agent left that another program would run: among paths that changed, or in a workspace as it is.

Everything looked at is the agent's: nothing is followed, settings are read up to a size, and the scan ends at a budget
of names and of time, and says so. Names that others obey, and what lies below them, are looked at first and to the end
of the budget; the modes of all other files only up to a smaller one, so that a flood of files hides little.

Something is new if its ctime, which the agent cannot set back, is not older than the run. What is older counts, too,
where it got its place during the run: below a directory that was moved there; or in a directory that has become one of
git's, or that others obey and whose own ctime is new (`_may_be_moved`). Whether a file was *made* during the run is
told by its birth time: a `Leftover` that is older says so.

What the wall held (`held`) was not changed by the run, whatever its times say: a person's hooks stay a person's. And
the directories on the way to it cannot have been moved.

What this does not protect against: programs that are run because a person or a build names them; and what is still
running and makes files after the scan.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum, auto
from typing import Final

from ringfence.dataclass import dataclass, field, replace
from ringfence.errors import FileError
from ringfence.values.outcome import FileState, Touched
from ringfence.values.violation import Violation
from ringfence.workspace.beneath import open_directory
from ringfence.workspace.calls import birth_ns
from ringfence.workspace.leftovers.base import Leftover, LeftoverKind, unsure
from ringfence.workspace.leftovers.gitconfig import LIMIT_BYTES
from ringfence.workspace.leftovers.gitfiles import DIRECTORIES, NAMES, completes, is_complete
from ringfence.workspace.leftovers.gitkeys import Setting
from ringfence.workspace.leftovers.gitreader import read_by_git
from ringfence.workspace.leftovers.judge import is_by_content, judge
from ringfence.workspace.leftovers.rows import is_named
from ringfence.workspace.walking import Level, Walk

LIMIT_ENTRIES: Final = 500_000
LIMIT_MODES: Final = 200_000
LIMIT_SECONDS: Final = 5.0
_READINGS: Final = 50
"""How often git's own reader is asked in one scan: each time takes a new process. What is left cannot be told."""

_TICK_NS: Final = 20_000_000
"""Two changes within a tick of the kernel's clock (10 ms at most) may have the same time."""

_PLACE: Final = frozenset({"rename", "link"})
"""Operations that put an old file at another place; not on every file system its ctime tells."""
_METADATA: Final = frozenset({"chmod", "chown"})

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SPECIAL = stat.S_ISUID | stat.S_ISGID


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found."""

    leftovers: tuple[Leftover, ...]
    looked_at: int
    """Names."""
    cut_short: str = ""
    """Why not everything was looked at; empty if it was."""
    met: tuple[str, ...] = ()
    """Git directories that are new or were changed, and files whose content decides: to be looked at again (`watch`),
    since whoever has one open, or another link to it, can change it without a name being seen."""

    def violations(self, at: float = 0.0) -> tuple[Violation, ...]:
        """Each leftover as a violation, and one more if not everything was looked at."""
        found = tuple(leftover.violation(at) for leftover in self.leftovers)
        return (*found, unsure(self.cut_short, at)) if self.cut_short else found


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """Where a scan ends."""

    entries: int = LIMIT_ENTRIES
    modes: int = LIMIT_MODES
    """Files that are looked at although nothing in their path says anything."""
    seconds: float = LIMIT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """What counts as the run's doing."""

    ns: int = 0
    """When it began, by the clock that file times are taken from (CLOCK_REALTIME_COARSE); 0 finds all."""
    held: frozenset[str] = frozenset()
    """Relative paths that the wall kept from being changed, with all below them."""
    touched: Mapping[str, Touched] = field(default_factory=dict)
    """What is known of relative paths that the run was about: what they were before, and what was done."""

    def happened(self, path: str, status: os.stat_result) -> "Happened":
        """What became of a path, as it is now."""
        is_new = status.st_ctime_ns >= self.ns
        known = self.touched.get(path)
        if known is None:
            return Happened.CHANGED if is_new else Happened.NOTHING
        before = known.before
        if before is None or before.inode != status.st_ino:
            return Happened.PLACED if is_new or known.operations & _PLACE else Happened.NOTHING
        if known.operations and known.operations <= _METADATA and _look_same(before, status):
            return Happened.NOTHING  # a mode that was set to what it was
        is_same = before.ctime_ns == status.st_ctime_ns and before.ctime_ns < self.ns - _TICK_NS
        return Happened.NOTHING if is_same else Happened.CHANGED

    def is_held(self, path: str) -> bool:
        return bool(self.held) and any(each in self.held for each in _upwards(path))

    def pinned(self) -> frozenset[str]:
        """The directories on the way to what was held."""
        return frozenset(above for path in self.held for above in _upwards(path) if above != path)


def _look_same(before: FileState, status: os.stat_result) -> bool:
    now = (status.st_mode, status.st_size, status.st_mtime_ns)
    return (before.mode, before.size, before.mtime_ns) == now


class Happened(Enum):
    NOTHING = auto()
    CHANGED = auto()
    PLACED = auto()
    """It was made, or moved there: whatever lies in it is new at its place."""


ALL: Final = Since()


def leftovers_among(root: str | os.PathLike[str], changed: Iterable[str], since: Since = ALL) -> Scan:
    """Those among paths, relative to `root`, that are known to have changed; what is not there any more is passed over.

    Raises:
        NotFound, NotADirectory: `root` is not a directory.
    """
    top = _open_top(root)
    try:
        return _Among(top, since).look(changed)
    finally:
        os.close(top)


def find_leftovers(root: str | os.PathLike[str], since: Since = ALL, limits: ScanLimits | None = None) -> Scan:
    """Look through a workspace.

    Raises:
        NotFound, NotADirectory: `root` is not a directory.
    """
    top = _open_top(root)
    try:
        return _Search(since, limits or ScanLimits()).look(top, (), everything=False)
    finally:
        os.close(top)


class _Collected:
    """What was found so far, each thing once; and the one budget for git's own reader."""

    def __init__(self, since: Since) -> None:
        self._since = since
        self.placed: set[str] = set()
        """Paths that were made or moved there: so were those below."""
        self._found: dict[tuple[str, LeftoverKind], Leftover] = {}
        self._readings = _READINGS
        self.met: dict[str, None] = {}

    @property
    def leftovers(self) -> tuple[Leftover, ...]:
        return tuple(self._found.values())

    def judge(self, parent: int, names: tuple[str, ...], mode: int) -> None:
        if is_by_content(names):
            self.met["/".join(names)] = None
        for leftover in judge(_File(parent, names, mode, self._by_git)):
            key = (leftover.path, leftover.kind)
            if key not in self._found:
                self._found[key] = self._dated(leftover, parent, names)

    def _dated(self, leftover: Leftover, parent: int, names: tuple[str, ...]) -> Leftover:
        """Whether it was made by the run, or put there by it: else it may have been there before."""
        if any(path in self.placed for path in _upwards("/".join(names))):
            return leftover
        born = None
        with suppress(OSError):
            born = birth_ns(parent, names[-1])
        is_made = not self._since.ns or (born is not None and born >= self._since.ns)
        return leftover if is_made else replace(leftover, is_old=True)

    def _by_git(self, data: bytes) -> tuple[Setting, ...] | None:
        self._readings -= 1
        return read_by_git(data) if self._readings >= 0 else None


# --- a live workspace -------------------------------------------------------------------------------------------------


class _Search:
    def __init__(self, since: Since, limits: ScanLimits, into: _Collected | None = None) -> None:
        self._since = since
        self._pinned = since.pinned()
        self._limits = limits
        self._modes_left = limits.modes
        self._unlooked = 0
        self._into = into or _Collected(since)

    def look(self, top: int, prefix: tuple[str, ...], *, everything: bool) -> Scan:
        """Look through the directory `top`, whose own path is `prefix`; at all of it, however old, if `everything`."""
        deadline = time.monotonic() + self._limits.seconds
        walk = Walk(top, self._limits.entries)
        new: set[bytes] = set()
        cut_short = ""
        try:
            for level in walk:
                names = (*prefix, *(os.fsdecode(level.path).split("/") if level.path else ()))
                self._enter_first_what_is_named(level, "/".join(names))
                above = level.path.rpartition(b"/")[0]
                if everything or (level.path and above in new) or self._may_be_moved(level, names):
                    new.add(level.path)
                self._meet(level, names, is_new=level.path in new)
                self._look_at(level, names, everything=everything or level.path in new)
                if time.monotonic() > deadline:
                    cut_short = f"time was up after {walk.looked_at} names"
                    break
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            cut_short = "a directory was moved while it was looked at"
        if walk.is_cut:
            cut_short = f"there are more than {self._limits.entries} names"
        if walk.unread and not cut_short:
            cut_short = f"{len(walk.unread)} directories could not be read, the first is {walk.unread[0].path!r}"
        if self._unlooked and not cut_short:
            cut_short = f"the modes of {self._unlooked} files, of too many, were not looked at"
        return Scan(self._into.leftovers, walk.looked_at, cut_short, tuple(self._into.met))

    def _enter_first_what_is_named(self, level: Level, path: str) -> None:
        """The last of `below` is entered first. What was held is not entered at all."""
        if self._since.held:
            level.below = [name for name in level.below if _joined(path, os.fsdecode(name)) not in self._since.held]
        level.below.sort(key=lambda name: _is_hot(os.fsdecode(name).casefold()))

    def _meet(self, level: Level, names: tuple[str, ...], *, is_new: bool) -> None:
        """A directory on the way to what was held is the person's, and the wall keeps what matters in it."""
        path = "/".join(names)
        if path in self._pinned or (not path and self._since.held):
            return
        if not is_new and os.fstat(level.descriptor).st_ctime_ns < self._since.ns:
            return
        if (path and names[-1].casefold() == ".git") or is_complete({entry.name for entry in level.entries}):
            self._into.met[path] = None

    def _may_be_moved(self, level: Level, names: tuple[str, ...]) -> bool:
        """Whether old files of a directory may have got their place during the run.

        A rename changes the ctime of a directory, and nothing else; making something in it changes its mtime, too. So
        a new ctime alone says that it was moved (or its mode changed). With a new mtime it may have been moved and then
        written to; that is only asked about directories that mean something by their name or as a whole.
        """
        if not names or "/".join(names) in self._pinned:
            return False
        status = os.fstat(level.descriptor)
        if status.st_ctime_ns < self._since.ns or not self._since.ns:
            return False
        if status.st_mtime_ns < self._since.ns or names[-1].casefold() == ".git" or is_named(names[-1].casefold()):
            return True
        is_hooks = names[-1].casefold() == "hooks" and _is_git_directory(level.descriptor, "..")
        return is_hooks or is_complete({entry.name for entry in level.entries})

    def _look_at(self, level: Level, names: tuple[str, ...], *, everything: bool) -> None:
        """Most of a scan's time is spent here, on files that are older."""
        since_ns = 0 if everything else self._since.ns
        is_hot = any(_is_hot(name.casefold()) for name in names)
        path = "/".join(names)
        for entry in level.entries:
            if self._modes_left <= 0 and not (is_hot or entry.is_symlink() or _is_hot(entry.name.casefold())):
                self._unlooked += not entry.is_dir(follow_symlinks=False)
                continue
            self._modes_left -= 1
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            mode = status.st_mode
            if status.st_ctime_ns < since_ns or stat.S_ISDIR(mode):
                continue
            is_plain = stat.S_ISREG(mode) and not mode & (_SPECIAL | 0o111)
            if is_plain and not is_hot and not _is_hot(entry.name.casefold()):
                continue
            if _joined(path, entry.name) not in self._since.held:
                self._into.judge(level.descriptor, (*names, entry.name), mode)


def _is_hot(name: str) -> bool:
    """Whether a name, its letter case folded, says that others may obey what has it or lies below it."""
    return name in NAMES or name in DIRECTORIES or is_named(name)


# --- paths that changed -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Among:
    top: int
    since: Since
    into: _Collected = field(init=False)
    cut_short: str = ""
    looked_at: int = 0
    seen: set[tuple[str, bool]] = field(default_factory=set)
    """Directories that were looked at as a whole, and whether at everything in them."""
    pinned: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.into = _Collected(self.since)
        self.pinned = self.since.pinned()

    def look(self, changed: Iterable[str]) -> Scan:
        for path in changed:
            names = tuple(part for part in path.split("/") if part not in ("", "."))
            if names and not self.since.is_held("/".join(names)):
                self.looked_at += 1
                self._look_at(names)
        return Scan(self.into.leftovers, self.looked_at, self.cut_short, tuple(self.into.met))

    def _look_at(self, names: tuple[str, ...]) -> None:
        # A directory on the way may have become a link since, say to a person's own hooks: what lies behind it has
        # another path, and is not what the run made under this one. The link itself is among what was changed.
        try:
            parent = open_directory(self.top, os.fsencode("/".join(names[:-1])))
        except (OSError, ValueError):  # not there any more, or not below: nothing was left
            return
        try:
            status = os.stat(names[-1], dir_fd=parent, follow_symlinks=False)
            path = "/".join(names)
            happened = self.since.happened(path, status)
            if happened is Happened.PLACED:
                self.into.placed.add(path)
            if stat.S_ISDIR(status.st_mode):
                if happened is Happened.PLACED or path not in self.since.touched:
                    self._all_in(parent, names[-1], names, everything=happened is Happened.PLACED)
            elif happened is not Happened.NOTHING:
                self.into.judge(parent, names, status.st_mode)
            if completes(names[-1]) and _is_git_directory(parent, "."):
                self._all_in(parent, ".", names[:-1], everything=True)
        except (OSError, ValueError):  # gone meanwhile, or a name that nothing can have
            return
        finally:
            os.close(parent)

    def _all_in(self, parent: int, name: str, names: tuple[str, ...], *, everything: bool) -> None:
        """A directory that was moved there, or that is one of git's now: all in it is new at its place. One of which
        nobody knows what it was before is searched as the whole workspace would be."""
        path = "/".join(names)
        if (path, everything) in self.seen or (everything and path in self.pinned):
            return
        self.seen.add((path, everything))
        directory = os.open(name, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
        try:
            scan = _Search(self.since, ScanLimits(), self.into).look(directory, names, everything=everything)
        finally:
            os.close(directory)
        self.cut_short = self.cut_short or scan.cut_short
        self.looked_at += scan.looked_at


# --- one file ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """See `base.Found`: a file by the descriptor of its directory."""

    parent: int
    names: tuple[str, ...]
    mode: int
    by_git: Callable[[bytes], tuple[Setting, ...] | None]

    @property
    def path(self) -> str:
        return "/".join(self.names)

    def is_git_directory(self, up: int) -> bool:
        return up < len(self.names) and _is_git_directory(self.parent, "/".join([".."] * up) or ".")

    def read(self) -> bytes | None:
        try:
            descriptor = os.open(self.names[-1], _OPEN_FILE, dir_fd=self.parent)
        except OSError:
            return None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            data = os.read(descriptor, LIMIT_BYTES + 1)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        return data if len(data) <= LIMIT_BYTES else None

    def has_capabilities(self) -> bool:
        with suppress(OSError):
            path = f"/proc/self/fd/{self.parent}/{self.names[-1]}"
            return bool(os.getxattr(path, "security.capability", follow_symlinks=False))
        return False


def _is_git_directory(directory: int, relative: str) -> bool:
    return is_complete(_Names(directory, relative))


@dataclass(frozen=True, slots=True)
class _Names:
    """What is in a directory, asked one by one."""

    directory: int
    relative: str

    def __contains__(self, name: object) -> bool:
        try:
            os.stat(f"{self.relative}/{name}", dir_fd=self.directory, follow_symlinks=False)
        except OSError:
            return False
        return True


def _joined(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name


def _upwards(path: str) -> Iterator[str]:
    """A path, and the directories on the way to it, from the nearest up; the top is not among them."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _open_top(root: str | os.PathLike[str]) -> int:
    try:
        return os.open(root, _OPEN_DIRECTORY)
    except OSError as error:
        raise FileError.of(
            error.errno or 0, os.fspath(root), f"is not a directory to read: {error.strerror}"
        ) from error
