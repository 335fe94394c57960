"""Read and write files beneath one directory, with paths that nobody on our side vouches for.

Theory of operation. The paths come from an agent, the tree beneath the root too, and the agent may change the tree
while a call is under way. So each call goes through the same steps, and text decides only the first:

1. The path is parsed: no NUL, not empty, not too long. An absolute path must start with the root's own path (as given,
   or real) or with `/workspace`, compared by whole names; what remains is relative.
2. The rest is resolved by descriptor (`beneath`), to an O_PATH descriptor: nothing is opened yet, and what the
   descriptor stands for cannot be swapped any more.
3. The kernel is asked where this descriptor lies (/proc/self/fd), and the answer is compared with the root once more
   and given to the rules: `denied` (no access at all) and `protected` (no change). A rule therefore sees the real
   place, by whatever link or spelling it was reached.
4. The kind is looked at. Only then is a file opened for reading, through the descriptor, with O_NONBLOCK.

Nothing is ever written in place but by `append`: `write` fills a new file beside the old one and renames it over the
name, both within the descriptor of the parent directory. A rename replaces a link or a hard link and does not follow
it, and a reader sees the old content or the new. A link at the end of the path that stays inside is followed by hand,
so that writing to it changes its target, as an editor would; one that leads out is refused.

Files with several names (hard links) are refused for reading unless allowed, because the other name may be outside.

Raises, from every method: PathTraversalError (leads out), PathAccessDenied (a rule, the wrong kind, too large),
InvalidConfig (a path that makes no sense or that is not there), PermissionDenied (the system said no). The system's own
error, where there was one, is the `__cause__`.

What this does not protect against:

- a file system that is mounted beneath the root: it counts as inside;
- the other names of a file, when hard links are allowed;
- someone who may rename beyond the root and moves a directory out of it while a call holds it;
- someone who moves a directory to a protected place between our check and our change, and so could have done it alone;
- loss of extended attributes and access lists, which `write` does not carry over to the new file;
- a temporary file (`.ringfence-*.tmp`) that stays when this process is killed within `write`.
"""

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from ringfence.errors import (
    InitializationFailed,
    InvalidConfig,
    PathAccessDenied,
    PathTraversalError,
    PermissionDenied,
    RingfenceError,
)
from ringfence.workspace.beneath import O_PATH, Resolver, choose_resolver

PathText: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]

ALIAS = "/workspace"
"""What the root is called inside every box, so that a path seen there works here."""
READ_LIMIT_BYTES = 64 * 1024 * 1024
"""A file is read into memory whole; more than this is seldom meant for an agent."""
LIST_LIMIT_ENTRIES = 100_000
"""A directory is listed into memory whole, and the agent decides how much is in it."""

_LONGEST_PATH = 4095
"""PATH_MAX without the closing NUL."""
_LONGEST_SHOWN = 200
_PERMISSION_BITS = 0o777
"""Neither set-uid, set-gid nor sticky."""
_MAX_LINKS = 40
_MAX_DEPTH = 200
"""Of a directory that is removed whole: each level holds a descriptor, and 1024 is a usual limit of them."""
_TRIES = 16
_DELETED = b" (deleted)"


class Kind(Enum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory. Links are shown as links; their targets are not looked at."""

    name: str
    kind: Kind
    size_bytes: int
    mode: int
    modified_seconds: float


def nothing_denied(_path: str) -> None:
    """The empty rule."""
    return None


class WorkspaceRoot:
    """Owns the descriptor of the root; close it, or use it in a `with`, and not while another thread is in a call.

    Args:
        path: The directory; may itself be reached by links, since the caller chose it.
        denied: Called with absolute real paths, and with each directory above them up to the root; returns the rule
            that forbids the path, or None.
        protected: Names that may be read but not written, made, moved or removed, with all below them, in any letter
            case. `.git/hooks` means everywhere in the tree, `/.profile` at the top only; `*` stands for any part of
            one name.
        allow_hard_links: Whether files with several names may be read.
        resolver: For tests; by default the best that the machine has.

    Raises:
        InvalidConfig: the path is no directory, or `/`.
        InitializationFailed: the machine lacks what this needs.
    """

    def __init__(
        self,
        path: PathText,
        *,
        denied: Callable[[str], str | None] = nothing_denied,
        protected: Iterable[str] = (),
        allow_hard_links: bool = False,
        resolver: Resolver | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise InitializationFailed("the file API needs Linux", hint="run Ringfence on Linux or in a container")
        asked, given = _parse(path)
        self._descriptor = -1
        self._given = _names(given if given.startswith(b"/") else os.path.join(os.getcwdb(), given))
        self._denied = denied
        self._protected = tuple(_Protected.parse(entry) for entry in protected)
        self._allow_hard_links = allow_hard_links
        try:
            descriptor = os.open(given, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            why = f"cannot be the workspace: {error.strerror}"
            raise InvalidConfig(why, source=repr(asked), hint="name a directory") from error
        try:
            if _path_of(descriptor) == b"/":
                raise InvalidConfig("the whole machine is no workspace", source=repr(asked), hint="name a directory")
            self._resolver = choose_resolver(descriptor) if resolver is None else resolver
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._descriptor < 0 else os.fsdecode(_path_of(self._descriptor))
        return f"<{type(self).__name__} {state!r}>"

    def close(self) -> None:
        """Give the descriptor back; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def read(self, path: PathText, *, limit_bytes: int = READ_LIMIT_BYTES) -> bytes:
        """Return the content of a regular file of at most `limit_bytes`."""
        asked = self._ask(path)
        with _translating(asked), self._opened(asked) as found:
            _require_file(asked, found.status)
            if found.status.st_nlink > 1 and not self._allow_hard_links:
                raise PathAccessDenied(
                    asked.text,
                    "has a second name (hard link), which may lie outside",
                    rule="hard links",
                    hint="copy the file, or allow hard links",
                )
            if found.status.st_size > limit_bytes:
                raise _too_large(asked, limit_bytes)
            with _reopened(found.descriptor, os.O_RDONLY) as opened:
                content = _read_up_to(opened, limit_bytes + 1)
        if len(content) > limit_bytes:
            raise _too_large(asked, limit_bytes)
        return content

    def write(self, path: PathText, data: bytes, *, make_parents: bool = True, mode: int | None = None) -> None:
        """Replace or make a file, at once for every reader.

        Args:
            mode: Permission bits (others are dropped); by default those of the replaced file, else the usual ones.
        """
        asked = self._ask(path)
        with _translating(asked), self._slot(asked, make_parents=make_parents, follow=True) as slot:
            self._forbid_change(asked, slot.place)
            self._forbid_change_behind_links(asked, slot.place)
            if slot.status is not None:
                _require_file(asked, slot.status)
            self._replace(slot, data, mode)

    def append(self, path: PathText, data: bytes, *, make_parents: bool = True) -> None:
        """Add to the end of a regular file, which is made if it is not there."""
        asked = self._ask(path)
        with _translating(asked), self._slot(asked, make_parents=make_parents, follow=True) as slot:
            self._forbid_change(asked, slot.place)
            self._forbid_change_behind_links(asked, slot.place)
            if slot.status is None:
                self._replace(slot, data, None)
                return
            descriptor = os.open(slot.name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=slot.parent)
            try:
                status = os.fstat(descriptor)
                _require_file(asked, status)
                if status.st_nlink > 1:
                    raise PathAccessDenied(
                        asked.text,
                        "has a second name (hard link), which would change too",
                        rule="hard links",
                        hint="write the whole file: it then becomes a file of its own",
                    )
                with _reopened(descriptor, os.O_WRONLY | os.O_APPEND) as opened:
                    if status.st_mode & ~_PERMISSION_BITS & 0o7777:
                        os.fchmod(opened, status.st_mode & _PERMISSION_BITS)  # root's writes do not clear set-uid
                    _write_all(opened, data)
            finally:
                os.close(descriptor)

    def list(self, path: PathText = ".", *, limit_entries: int = LIST_LIMIT_ENTRIES) -> tuple[Entry, ...]:
        """Return what is in a directory, by name; what a rule denies is left out."""
        asked = self._ask(path)
        entries: list[Entry] = []
        with _translating(asked), self._opened(asked) as found:
            _require_directory(asked, found.status)
            above = _path_of(self._descriptor)
            with _reopened(found.descriptor, os.O_RDONLY | os.O_DIRECTORY) as opened, os.scandir(opened) as scan:
                for item in scan:
                    if len(entries) >= limit_entries:
                        raise PathAccessDenied(
                            asked.text, f"holds more than {limit_entries} entries", rule="limit_entries"
                        )
                    if self._denied(os.fsdecode(_join(above, found.place, os.fsencode(item.name)))) is not None:
                        continue
                    with suppress(FileNotFoundError):
                        entries.append(_entry(item.name, item.stat(follow_symlinks=False)))
        return tuple(sorted(entries, key=lambda entry: entry.name))

    def stat(self, path: PathText) -> Entry:
        """Say what a path is; a link at its end is not followed."""
        asked = self._ask(path)
        with _translating(asked), self._opened(asked, os.O_NOFOLLOW) as found:
            return _entry(os.fsdecode(os.path.basename(found.place) or b"."), found.status)

    def delete(self, path: PathText, *, recursive: bool = False) -> None:
        """Remove a file, a link (never its target) or a directory: an empty one, or with `recursive` all of it."""
        asked = self._ask(path)
        with _translating(asked), self._slot(asked, make_parents=False, follow=False) as slot:
            self._forbid_change(asked, slot.place)
            self._forbid_change_behind_links(asked, slot.place)
            if slot.status is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if not stat.S_ISDIR(slot.status.st_mode):
                os.unlink(slot.name, dir_fd=slot.parent)
                return
            if recursive:
                # All of it is judged before any of it goes, so that a refusal leaves the directory whole.
                self._each_below(asked, slot, lambda parent, name, place, is_directory: None)
                self._each_below(asked, slot, _remove)
            os.rmdir(slot.name, dir_fd=slot.parent)

    def move(self, source: PathText, target: PathText) -> None:
        """Rename a file, link or directory to a name that is not taken."""
        asked, wanted = self._ask(source), self._ask(target)
        with _translating(asked), self._slot(asked, make_parents=False, follow=False) as old:
            self._forbid_change(asked, old.place)
            self._forbid_change_behind_links(asked, old.place)
            if old.status is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            with _translating(wanted), self._slot(wanted, make_parents=True, follow=False) as new:
                self._forbid_change(wanted, new.place)
                self._forbid_change_behind_links(wanted, new.place)
                if new.status is not None:
                    raise PathAccessDenied(wanted.text, "is there already", hint="delete it first")
                if stat.S_ISDIR(old.status.st_mode):

                    def judge_at_target(parent: int, name: bytes, place: bytes, is_directory: bool) -> None:
                        self._forbid_change(wanted, _join(new.place, place.removeprefix(old.place + b"/")))

                    self._each_below(asked, old, judge_at_target)
                try:
                    os.rename(old.name, new.name, src_dir_fd=old.parent, dst_dir_fd=new.parent)
                except OSError as error:
                    if error.errno == errno.EXDEV:  # here, and only here, it does not mean "leads out"
                        raise PathAccessDenied(wanted.text, "lies on another file system") from error
                    raise

    def make_dir(self, path: PathText) -> None:
        """Make a directory and those above it; one that is there already is fine."""
        asked = self._ask(path)
        with _translating(asked):
            descriptor = self._directory(asked, asked.relative, make=True)
            try:
                self._forbid_denied(asked, self._place(asked, descriptor) or b"")
            finally:
                os.close(descriptor)

    def resolve_dir(self, path: PathText) -> Path:
        """Return the real path of a directory inside, for use as a working directory within a box."""
        asked = self._ask(path)
        with _translating(asked), self._opened(asked) as found:
            _require_directory(asked, found.status)
            return Path(os.fsdecode(_join(_path_of(self._descriptor), found.place)))

    def _ask(self, path: PathText) -> "_Asked":
        """Step 1: parse, and strip what names the root itself."""
        if self._descriptor < 0:
            raise InvalidConfig("the workspace is closed", hint="open it again")
        text, data = _parse(path)
        if not data.startswith(b"/"):
            return _Asked(text, data)
        for prefix in (self._given, _names(_path_of(self._descriptor)), _names(os.fsencode(ALIAS))):
            rest = _strip(prefix, data)
            if rest is not None:
                return _Asked(text, rest)
        raise PathTraversalError(text, "lies outside the workspace", hint="give a path relative to the workspace")

    @contextmanager
    def _opened(self, asked: "_Asked", flags: int = 0) -> Iterator["_Found"]:
        """Steps 2 and 3 for something that has to be there."""
        for _ in range(_TRIES):
            descriptor = self._resolver(self._descriptor, asked.relative, flags)
            try:
                place = self._place(asked, descriptor)
                if place is None:
                    continue
                self._forbid_denied(asked, place)
                yield _Found(descriptor, place, os.fstat(descriptor))
                return
            finally:
                os.close(descriptor)
        raise _keeps_changing(asked)

    @contextmanager
    def _slot(self, asked: "_Asked", *, make_parents: bool, follow: bool) -> Iterator["_Slot"]:
        """Steps 2 and 3 for a name that is to be made, replaced or removed: its parent, and what is there now."""
        relative = asked.relative
        for _ in range(_MAX_LINKS + 1):
            head, name = os.path.split(relative.rstrip(b"/") if not follow else relative)
            if name in (b"", b".", b".."):
                if asked.names is None:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                raise PathAccessDenied(
                    asked.text, "is a directory without a name of its own", hint="name what is meant"
                )
            parent = self._directory(asked, head or b".", make=make_parents)
            try:
                above = self._place(asked, parent)
                if above is None:
                    continue
                status = _status(parent, name)
                if follow and status is not None and stat.S_ISLNK(status.st_mode):
                    target = _link_target(parent, name)
                    if target is None:
                        continue
                    if target.startswith(b"/"):
                        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
                    relative = _join(above, target)
                    continue
                place = _join(above, name)
                self._forbid_denied(asked, place)
                yield _Slot(parent, name, place, status)
                return
            finally:
                os.close(parent)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _directory(self, asked: "_Asked", relative: bytes, *, make: bool) -> int:
        """Open a directory beneath the root; with `make`, make what is missing of it."""
        try:
            return self._resolver(self._descriptor, relative, os.O_DIRECTORY)
        except FileNotFoundError:
            if not make or asked.names is None:
                raise
        names = _names(relative)
        here, count = self._deepest(names)
        try:
            missing = names[count:]
            if b".." in missing:  # as the kernel has it: nothing is above what is not there
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            above = self._place(asked, here)
            if above is None:
                raise _keeps_changing(asked)
            place = _join(above, *missing)
            self._forbid_denied(asked, place)
            self._forbid_change(asked, place, is_new_directory=True)
            for name in missing:
                is_ours = _make_directory(here, name)
                child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
                os.close(here)
                here = child
                if is_ours:
                    self._give_to_owner(here, None)
        except BaseException:
            os.close(here)
            raise
        return here

    def _deepest(self, names: tuple[bytes, ...]) -> tuple[int, int]:
        """Open the deepest directory of a path that is there, and say how many names lead to it."""
        here, found, missing = self._resolver(self._descriptor, b".", os.O_DIRECTORY), 0, len(names) + 1
        try:
            while missing - found > 1:  # halving, since a path may have two thousand names
                middle = (found + missing) // 2
                try:
                    deeper = self._resolver(self._descriptor, b"/".join(names[:middle]), os.O_DIRECTORY)
                except FileNotFoundError:
                    missing = middle
                else:
                    os.close(here)
                    here, found = deeper, middle
        except BaseException:
            os.close(here)
            raise
        return here, found

    def _replace(self, slot: "_Slot", data: bytes, mode: int | None) -> None:
        """Fill a new file beside the name, then rename it over the name."""
        if mode is None and slot.status is not None:
            mode = slot.status.st_mode
        temporary = f".ringfence-{secrets.token_hex(8)}.tmp".encode()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600, dir_fd=slot.parent)
        try:
            _write_all(descriptor, data)
            self._give_to_owner(descriptor, slot.status)
            if mode is not None:
                os.fchmod(descriptor, mode & _PERMISSION_BITS)
            os.rename(temporary, slot.name, src_dir_fd=slot.parent, dst_dir_fd=slot.parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=slot.parent)
            raise
        finally:
            os.close(descriptor)

    def _give_to_owner(self, descriptor: int, replaced: os.stat_result | None) -> None:
        """Run by root, what we make belongs to the owner of what it replaces, else to the owner of the root."""
        if os.geteuid() != 0:
            return
        owner = replaced or os.fstat(self._descriptor)
        try:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        except OSError as error:
            # Root of a user namespace in which that owner has no number: the file stays ours, as it does for anyone.
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise

    def _each_below(
        self, asked: "_Asked", slot: "_Slot", visit: Callable[[int, bytes, bytes, bool], None], depth: int = 0
    ) -> None:
        """Judge and visit everything below a directory, contents first; a link is visited, never entered."""
        if depth > _MAX_DEPTH:
            raise PathAccessDenied(
                asked.text, f"is nested deeper than {_MAX_DEPTH} directories", hint="remove it in parts"
            )
        here = os.open(slot.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=slot.parent)
        try:
            for text in os.listdir(here):
                name = os.fsencode(text)
                place = _join(slot.place, name)
                self._forbid_denied(asked, place)
                self._forbid_change(asked, place)
                status = _status(here, name)
                if status is None:
                    continue
                is_directory = stat.S_ISDIR(status.st_mode)
                if is_directory:
                    self._each_below(asked, _Slot(here, name, place, status), visit, depth + 1)
                visit(here, name, place, is_directory)
        finally:
            os.close(here)

    def _place(self, asked: "_Asked", descriptor: int) -> bytes | None:
        """Step 3: ask the kernel where a descriptor lies, relative to the root; None when it was removed meanwhile."""
        root, path = _path_of(self._descriptor), _path_of(descriptor)
        if path == root:
            return b""
        if not path.startswith(root + b"/"):
            raise PathTraversalError(asked.text, "was moved out of the workspace")
        place = path[len(root) + 1 :]
        # The kernel marks a name that is gone by this ending, which would hide the name from the rules. A file may
        # also be called so; then it is found by that name.
        if path.endswith(_DELETED) and not self._is_at(descriptor, place):
            return None
        return place

    def _is_at(self, descriptor: int, place: bytes) -> bool:
        try:
            other = self._resolver(self._descriptor, place, os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            return os.path.sameopenfile(descriptor, other)
        finally:
            os.close(other)

    def _forbid_denied(self, asked: "_Asked", place: bytes) -> None:
        """Ask the rules about the real place, and about the place as it was spelled, with all directories above."""
        root = os.fsdecode(_path_of(self._descriptor))
        for names in dict.fromkeys((_names(place), asked.names or ())):
            path = root
            for name in names:
                path += "/" + os.fsdecode(name)
                rule = self._denied(path)
                if rule is not None:
                    raise PathAccessDenied(asked.text, "is denied", rule=rule)

    def _forbid_change(self, asked: "_Asked", place: bytes, *, is_new_directory: bool = False) -> None:
        """Ask what is protected about the real place and about the place as it was spelled."""
        for names in dict.fromkeys((_names(place), asked.names or ())):
            for entry in self._protected:
                if entry.covers(names):
                    raise PathAccessDenied(asked.text, "is protected: it may be read, not changed", rule=entry.text)
                # Whoever replaces or removes `.git` replaces or removes `.git/hooks`; making `.git` harms nothing.
                if not is_new_directory and entry.lies_below(names):
                    raise PathAccessDenied(asked.text, "holds something protected", rule=entry.text)

    def _forbid_change_behind_links(self, asked: "_Asked", place: bytes) -> None:
        """Refuse the real place of a protected name that is reached by a link, such as `.vscode -> tools/vscode`."""
        names = _names(place)
        for entry in self._protected:
            try:
                descriptor = self._resolver(self._descriptor, os.fsencode(entry.literal))
            except OSError:
                continue  # not there, or outside: nothing of ours can change it
            try:
                real = _names(self._place(asked, descriptor) or b"")
            finally:
                os.close(descriptor)
            shared = min(len(real), len(names))
            if shared and real[:shared] == names[:shared]:
                raise PathAccessDenied(asked.text, "is, or holds, the target of a protected link", rule=entry.text)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A path that passed step 1."""

    text: str
    """As the caller gave it."""
    relative: bytes

    @property
    def names(self) -> tuple[bytes, ...] | None:
        """The path as spelled, with `..` taken as text; None when it then climbs above the root. Never used to open."""
        kept: list[bytes] = []
        for name in _names(self.relative):
            if name != b"..":
                kept.append(name)
            elif kept:
                kept.pop()
            else:
                return None
        return tuple(kept)


@dataclass(frozen=True, slots=True)
class _Found:
    descriptor: int
    place: bytes
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class _Slot:
    """A name in a directory that is held open."""

    parent: int
    name: bytes
    place: bytes
    status: os.stat_result | None


@dataclass(frozen=True, slots=True)
class _Protected:
    """One entry of `protected`; `covers` and `lies_below` never both hold for one path and place of the match."""

    text: str
    literal: str
    """The entry as a path from the root."""
    patterns: tuple[re.Pattern[str], ...]
    at_top_only: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        at_top_only = text.startswith("/")
        names = [name for name in text.removeprefix("**/").split("/") if name not in ("", ".")]
        if not names or ".." in names or "**" in names or "\0" in text:
            raise InvalidConfig("is no name that can be protected", source=repr(text), hint="write e.g. .git/hooks")
        # Case is folded: on the file systems that ignore it, and on those that a tree is copied to, `.GIT` is `.git`.
        patterns = (".*".join(map(re.escape, name.casefold().split("*"))) for name in names)
        return cls(text, "/".join(names), tuple(re.compile(pattern, re.DOTALL) for pattern in patterns), at_top_only)

    def covers(self, names: tuple[bytes, ...]) -> bool:
        """Whether the path is the entry or lies below it."""
        return any(len(names) - start >= len(self.patterns) for start in self._starts(names))

    def lies_below(self, names: tuple[bytes, ...]) -> bool:
        """Whether the path is a directory above the entry."""
        return any(len(names) - start < len(self.patterns) for start in self._starts(names))

    def _starts(self, names: tuple[bytes, ...]) -> Iterator[int]:
        """Where the entry begins in the path, as far as the shorter of both goes."""
        for start in range(min(1, len(names)) if self.at_top_only else len(names)):
            pairs = zip(self.patterns, names[start:], strict=False)
            if all(pattern.fullmatch(os.fsdecode(name).casefold()) for pattern, name in pairs):
                yield start


def _parse(path: PathText) -> tuple[str, bytes]:
    """Return the path as text, for messages, and as bytes, for the kernel."""
    raw = os.fspath(path)
    text = os.fsdecode(raw)
    shown = repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")
    try:
        data = os.fsencode(raw)
    except UnicodeEncodeError as error:
        raise InvalidConfig("the path is no text that a file name can hold", source=shown) from error
    if not data:
        raise InvalidConfig("the path is empty", source=shown, hint="use . for the workspace itself")
    if b"\0" in data:
        raise InvalidConfig("the path holds a NUL byte", source=shown)
    if len(data) > _LONGEST_PATH:
        raise InvalidConfig(f"the path is longer than {_LONGEST_PATH} bytes", source=shown)
    return text, data


def _names(path: bytes) -> tuple[bytes, ...]:
    return tuple(name for name in path.split(b"/") if name not in (b"", b"."))


def _strip(prefix: tuple[bytes, ...], path: bytes) -> bytes | None:
    """Return what follows `prefix` in an absolute path, compared by whole names; None if it is not below."""
    rest = path
    for expected in prefix:
        name, _, rest = _without_dots(rest).partition(b"/")
        if name != expected:
            return None
    return rest.lstrip(b"/") or b"."


def _without_dots(path: bytes) -> bytes:
    """Drop leading slashes and `.`, which name nothing."""
    path = path.lstrip(b"/")
    while path.startswith(b"./"):
        path = path[2:].lstrip(b"/")
    return path


def _join(*parts: bytes) -> bytes:
    return b"/".join(part for part in parts if part)


def _path_of(descriptor: int) -> bytes:
    """Ask the kernel where a descriptor lies now."""
    try:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)
    except FileNotFoundError as error:
        raise InitializationFailed("/proc is needed to tell where a file lies", hint="mount /proc") from error


@contextmanager
def _reopened(descriptor: int, flags: int) -> Iterator[int]:
    """Open what an O_PATH descriptor stands for; O_NONBLOCK, because a lease of another process would make us wait."""
    opened = os.open(b"/proc/self/fd/%d" % descriptor, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


def _read_up_to(descriptor: int, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    left = limit_bytes
    while left > 0:
        chunk = os.read(descriptor, min(left, 1024 * 1024))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _status(parent: int, name: bytes) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _make_directory(parent: int, name: bytes) -> bool:
    """Make a directory; False when something of that name came first."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _link_target(parent: int, name: bytes) -> bytes | None:
    """Read a link; None when it has become something else."""
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _remove(parent: int, name: bytes, place: bytes, is_directory: bool) -> None:
    if is_directory:
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    if stat.S_ISDIR(mode):
        return Kind.DIRECTORY
    return Kind.LINK if stat.S_ISLNK(mode) else Kind.OTHER


def _entry(name: str, status: os.stat_result) -> Entry:
    mode = status.st_mode
    return Entry(name, _kind(mode), status.st_size, stat.S_IMODE(mode), status.st_mtime)


def _require_file(asked: _Asked, status: os.stat_result) -> None:
    if _kind(status.st_mode) is not Kind.FILE:
        what = _NAMES.get(stat.S_IFMT(status.st_mode), "something special")
        raise PathAccessDenied(asked.text, f"is {what}, not a file")


def _require_directory(asked: _Asked, status: os.stat_result) -> None:
    if _kind(status.st_mode) is not Kind.DIRECTORY:
        raise PathAccessDenied(asked.text, "is not a directory")


_NAMES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _too_large(asked: _Asked, limit_bytes: int) -> PathAccessDenied:
    return PathAccessDenied(
        asked.text,
        f"is larger than {limit_bytes} bytes",
        rule="limit_bytes",
        hint="raise limit_bytes or read it in the box",
    )


def _keeps_changing(asked: _Asked) -> PathAccessDenied:
    return PathAccessDenied(asked.text, "keeps changing while it is opened", hint="try again when nothing writes to it")


@contextmanager
def _translating(asked: _Asked) -> Iterator[None]:
    """The one place where errors of the system become ours."""
    try:
        yield
    except OSError as error:
        raise _translated(asked, error) from error


def _translated(asked: _Asked, error: OSError) -> RingfenceError:
    number = error.errno
    is_out = number == errno.EXDEV or (number in (errno.ENOENT, errno.ENOTDIR) and asked.names is None)
    if is_out:
        return PathTraversalError(asked.text, "leads out of the workspace", hint="stay below the workspace")
    if number == errno.EAGAIN:
        return PathAccessDenied(asked.text, "is held or changed by another process", hint="try again")
    if number == errno.ENOTEMPTY:
        return PathAccessDenied(asked.text, "is a directory that is not empty", hint="delete it recursively")
    if number == errno.EISDIR:
        return PathAccessDenied(asked.text, "is a directory, not a file")
    if number in (errno.ENXIO, errno.ENODEV):
        return PathAccessDenied(asked.text, "is a special file")
    source = repr(asked.text)
    if number == errno.ENOENT:
        return InvalidConfig("there is no such file or directory", source=source)
    if number == errno.ENOTDIR:
        return InvalidConfig("a file is used as a directory", source=source)
    if number == errno.ELOOP:
        return InvalidConfig("too many links, or links in a circle", source=source)
    if number == errno.ENAMETOOLONG:
        return InvalidConfig("a name in the path is too long", source=source)
    return PermissionDenied(f"{source}: {os.strerror(number) if number else error}")
