"""Find what an agent left that another program would run: among paths that changed, or in a workspace as it is.

Everything looked at is the agent's: nothing is followed, settings are read up to a size, and the scan ends at a budget
of entries and of time, and says so. Names decide first (`rows`), then what git would make of a file (`gitfiles`), then
permission bits and capabilities.

In a live workspace something is new if it was not there before: exactly, where a scan from before the run is at hand;
else if its ctime, which the agent cannot set back, is not older than the run, or if a directory above it was renamed
during the run, which shows as a ctime that is newer than the mtime.

What this does not protect against: programs that are run because a person or a build names them; an agent that, without
a scan from before, renames a directory that was there and then makes something in it; and what is still running and
makes files after the scan.
"""

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from ringfence.errors import InvalidConfig
from ringfence.values.violation import LEFTOVER_RULE, Severity, Violation, ViolationType
from ringfence.workspace.beneath import Resolver, choose_resolver
from ringfence.workspace.leftovers.base import Leftover, LeftoverKind
from ringfence.workspace.leftovers.gitfiles import CONFIG_LIMIT_BYTES, CONFIGS, HOOKS, setting_that_runs
from ringfence.workspace.leftovers.rows import rows_for
from ringfence.workspace.names import climb
from ringfence.workspace.walking import Level, Walk

LIMIT_ENTRIES = 500_000
LIMIT_SECONDS = 5.0

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GIT_DIRECTORY = ("HEAD", "objects", "refs")
_SETTINGS_OF_GIT = "git, by any command in the repository"

Identity = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found."""

    leftovers: tuple[Leftover, ...]
    looked_at: int
    """Entries."""
    cut_short: str = ""
    """Why not everything was looked at; empty if it was."""
    identities: dict[tuple[str, LeftoverKind], Identity] = field(default_factory=dict, repr=False)
    """Which file each one was, for a scan that comes later."""

    def violations(self, at: float = 0.0) -> tuple[Violation, ...]:
        """Each leftover as a violation, and one more if not everything was looked at."""
        found = tuple(leftover.violation(at) for leftover in self.leftovers)
        if not self.cut_short:
            return found
        unsure = Violation(
            ViolationType.DANGEROUS_PATTERN,
            Severity.MEDIUM,
            f"the search for what was left behind is not complete: {self.cut_short}",
            f"{LEFTOVER_RULE}scan",
            "raise its limits, or look through the rest by hand",
            at=at,
        )
        return (*found, unsure)


def leftovers_among(root: str | os.PathLike[str], changed: Iterable[str]) -> tuple[Leftover, ...]:
    """Those among paths, relative to `root`, that are known to have changed; what is not there any more is passed over.

    Raises:
        InvalidConfig: `root` is no directory.
    """
    found: dict[tuple[str, LeftoverKind], Leftover] = {}
    top = _open_top(root)
    try:
        resolver = choose_resolver(top)
        for path in changed:
            for leftover in _judge_path(top, resolver, path):
                found.setdefault((leftover.path, leftover.kind), leftover)
    finally:
        os.close(top)
    return tuple(found.values())


def find_leftovers(
    root: str | os.PathLike[str],
    *,
    since_ns: int = 0,
    before: Scan | None = None,
    limit_entries: int = LIMIT_ENTRIES,
    limit_seconds: float = LIMIT_SECONDS,
) -> Scan:
    """Look through a workspace.

    Args:
        since_ns: when the run began, by the clock that file times are taken from (CLOCK_REALTIME_COARSE); 0 finds all.
        before: a scan from before the run; then only what is new or other than there, whatever its times.

    Raises:
        InvalidConfig: `root` is no directory.
    """
    top = _open_top(root)
    try:
        return _scan(top, since_ns, before, limit_entries, time.monotonic() + limit_seconds)
    finally:
        os.close(top)


# --- a live workspace -------------------------------------------------------------------------------------------------


def _scan(top: int, since_ns: int, before: Scan | None, limit_entries: int, deadline: float) -> Scan:
    found: dict[tuple[str, LeftoverKind], Leftover] = {}
    identities: dict[tuple[str, LeftoverKind], Identity] = {}
    walk = Walk(top, limit_entries)
    moved: set[bytes] = set()
    cut_short = ""
    ns = 0 if before is not None else since_ns
    try:
        for level in walk:
            if _was_moved(level, moved, ns):
                moved.add(level.path)
            for leftover, status in _in_level(level, ns, everything=level.path in moved):
                key = (leftover.path, leftover.kind)
                identities[key] = _identity(status)
                if before is None or before.identities.get(key) != identities[key]:
                    found.setdefault(key, leftover)
            if time.monotonic() > deadline:
                cut_short = f"time was up after {walk.looked_at} entries"
                break
    except OSError as error:
        if error.errno != errno.EAGAIN:
            raise
        cut_short = "a directory was moved while it was looked at"
    if walk.is_cut:
        cut_short = f"only {limit_entries} entries were looked at"
    if walk.unread and not cut_short:
        cut_short = f"{len(walk.unread)} directories could not be read, the first is {walk.unread[0].path!r}"
    return Scan(tuple(found.values()), walk.looked_at, cut_short, identities)


def _was_moved(level: Level, moved: set[bytes], since_ns: int) -> bool:
    """Whether a directory, or one above it, got its name during the run, so that all in it is new at its place."""
    if not level.path:
        return False
    if level.path.rpartition(b"/")[0] in moved:
        return True
    status = os.fstat(level.descriptor)
    return status.st_ctime_ns >= since_ns > status.st_mtime_ns


def _in_level(level: Level, since_ns: int, *, everything: bool) -> Iterator[tuple[Leftover, os.stat_result]]:
    new = list(_new_in(level, 0 if everything else since_ns))
    if not new:
        return
    above = tuple(os.fsdecode(level.path).split("/")) if level.path else ()
    is_git = {*_GIT_DIRECTORY} <= {entry.name for entry in level.entries}
    above_is_git = above[-1:] == ("hooks",) and _is_git_directory(level.descriptor, "..")
    for name, status in new:
        place = _Place(level.descriptor, name, (*above, name), is_git, above_is_git)
        for leftover in _judge(place, status):
            yield leftover, status


def _new_in(level: Level, since_ns: int) -> Iterator[tuple[str, os.stat_result]]:
    """What is new in a directory, but for directories. Most of a scan's time is spent here."""
    for entry in level.entries:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if status.st_ctime_ns >= since_ns and not stat.S_ISDIR(status.st_mode):
            yield entry.name, status


# --- paths that changed -----------------------------------------------------------------------------------------------


def _judge_path(top: int, resolver: Resolver, path: str) -> Iterator[Leftover]:
    head, name = os.path.split(path.rstrip("/"))
    try:
        parent = resolver(top, os.fsencode(head or "."), os.O_DIRECTORY)
    except (OSError, ValueError):  # not there any more, or not below: nothing was left
        return
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return
        names = tuple(part for part in path.split("/") if part not in ("", "."))
        above_is_git = names[-2:-1] == ("hooks",) and _is_git_directory(parent, "..")
        yield from _judge(_Place(parent, name, names, _is_git_directory(parent, "."), above_is_git), status)
    except (FileNotFoundError, ValueError):  # gone, or a name with a NUL in it, which nothing can have
        return
    finally:
        os.close(parent)


# --- one file ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """A file by the descriptor of its directory, and what is known about where it lies."""

    parent: int
    name: str
    names: tuple[str, ...]
    is_in_git_directory: bool
    is_in_hooks_of_git: bool

    @property
    def path(self) -> str:
        return "/".join(self.names)

    @property
    def is_below_dot_git(self) -> bool:
        return any(name.casefold() == ".git" for name in self.names[:-1])


def _judge(place: _Place, status: os.stat_result) -> Iterator[Leftover]:
    for row, count in rows_for(place.names):
        yield Leftover("/".join(place.names[:count]), row.kind, row.why, row.run_by)
    for judge in (_hook, _config, _redirect):
        leftover = judge(place)
        if leftover is not None:
            yield leftover
    if stat.S_ISREG(status.st_mode):
        if status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            why = f"its mode is {stat.S_IMODE(status.st_mode):04o}"
            yield Leftover(place.path, LeftoverKind.SET_UID, why, "anybody, with its owner's rights")
        if status.st_mode & 0o111 and _has_capabilities(place):
            yield Leftover(
                place.path, LeftoverKind.FILE_CAPABILITY, "it carries capabilities", "anybody, with more rights"
            )


def _hook(place: _Place) -> Leftover | None:
    is_hook = place.name.casefold() in HOOKS and place.names[-2:-1] == ("hooks",)
    if is_hook and (place.is_in_hooks_of_git or place.is_below_dot_git):
        return Leftover(place.path, LeftoverKind.GIT_HOOK, "a hook of a repository", f"git, at {place.name}")
    return None


def _config(place: _Place) -> Leftover | None:
    is_of_git = place.is_in_git_directory or place.names[-2:-1] == (".git",)
    if place.name.casefold() not in CONFIGS or not (is_of_git or place.is_below_dot_git):
        return None
    text = _read(place)
    why = "its settings cannot be read" if text is None else setting_that_runs(text)
    if why is None:
        return None
    return Leftover(place.path, LeftoverKind.GIT_CONFIG, f"it sets {why}", _SETTINGS_OF_GIT)


def _redirect(place: _Place) -> Leftover | None:
    """A `.git` that is a file or a link, or a `commondir`, that sends git to a directory out of sight."""
    is_pointer = place.name.casefold() == ".git" or (place.name == "commondir" and place.is_below_dot_git)
    if not is_pointer:
        return None
    target = (_read(place) or "").removeprefix("gitdir:").strip()
    above = tuple(map(os.fsencode, place.names[:-1]))
    if target and not target.startswith("/") and climb(above, os.fsencode(target)) is not None:
        return None  # inside, where what it points to is looked at as well
    return Leftover(place.path, LeftoverKind.GIT_REDIRECT, f"it points to {target[:200]!r}", _SETTINGS_OF_GIT)


def _read(place: _Place) -> str | None:
    """A small file, or where a link leads; None if that cannot be said."""
    with suppress(OSError):
        return os.readlink(place.name, dir_fd=place.parent)
    try:
        descriptor = os.open(place.name, _OPEN_FILE, dir_fd=place.parent)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = os.read(descriptor, CONFIG_LIMIT_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return data.decode("utf-8", "surrogateescape") if len(data) <= CONFIG_LIMIT_BYTES else None


def _has_capabilities(place: _Place) -> bool:
    with suppress(OSError):
        path = f"/proc/self/fd/{place.parent}/{place.name}"
        return bool(os.getxattr(path, "security.capability", follow_symlinks=False))
    return False


def _is_git_directory(directory: int, relative: str) -> bool:
    return all(_exists(directory, f"{relative}/{name}") for name in _GIT_DIRECTORY)


def _exists(directory: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _identity(status: os.stat_result) -> Identity:
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)


def _open_top(root: str | os.PathLike[str]) -> int:
    try:
        return os.open(root, _OPEN_DIRECTORY)
    except OSError as error:
        raise InvalidConfig(f"is no directory to read: {error.strerror}", source=repr(os.fspath(root))) from error
