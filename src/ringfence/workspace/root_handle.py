"""Find and judge: from a path that was asked for to a descriptor that lies beneath the root and that no rule forbids.

The steps are told in `root`; this is 1 to 3 of them. Reading (`reading`) and changing (`changing`) start from what this
returns, and never from a path. All methods raise OSError as the system does, for `faults.translating` around them.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from ringfence.dataclass import dataclass, replace
from ringfence.errors import FileError, InitializationFailed, InvalidArgument, PathAccessDenied, PathTraversalError
from ringfence.workspace.beneath import O_PATH, OwnNames, Resolver, choose_resolver, following_own_links, from_root
from ringfence.workspace.faults import keeps_changing
from ringfence.workspace.names import ALIAS, Asked, PathText, join, parse, split, strip
from ringfence.workspace.protected import ProtectedNames

Denied = Callable[[str], str | None]
"""Called with an absolute real path, and with each directory above it up to the root; the rule that forbids it."""

_MAX_LINKS = 40
_TRIES = 16
_DELETED = b" (deleted)"
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FoundFile:
    """Something that is there, held by an O_PATH descriptor."""

    descriptor: int
    place: bytes
    """Where it really lies, relative to the root."""
    status: os.stat_result


@dataclass(frozen=True, slots=True)
class Slot:
    """A name in a directory that is held open, and what is there now."""

    parent: int
    name: bytes
    place: bytes
    status: os.stat_result | None


@dataclass(frozen=True, slots=True)
class RootHandle:
    """The root's descriptor, the way paths are resolved beneath it, and the rules; whoever opened it closes it."""

    descriptor: int
    given: tuple[bytes, ...]
    """The root's path as the caller gave it, by names."""
    resolver: Resolver
    denied: Denied
    protected: ProtectedNames
    allow_hard_links: bool

    @classmethod
    def open(
        cls,
        path: PathText,
        denied: Denied,
        protected: ProtectedNames,
        *,
        allow_hard_links: bool,
        resolver: Resolver | None,
    ) -> Self:
        """
        Raises:
            NotFound, NotADirectory, InvalidArgument: the path is not a directory, or `/`.
        """
        asked, raw = parse(path)
        given = split(raw if raw.startswith(b"/") else os.path.join(os.getcwdb(), raw))
        try:
            descriptor = os.open(raw, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            why = f"cannot be the workspace: {error.strerror}"
            raise FileError.of(error.errno or 0, asked, why, hint="name a directory") from error
        try:
            if path_of(descriptor) == b"/":
                raise InvalidArgument(
                    "the root directory cannot be a workspace", source=repr(asked), hint="name a directory"
                )
            chosen = choose_resolver(descriptor) if resolver is None else resolver
        except BaseException:
            os.close(descriptor)
            raise
        handle = cls(descriptor, given, chosen, denied, protected, allow_hard_links)
        return replace(handle, resolver=following_own_links(chosen, handle.own_names))

    def own_names(self) -> OwnNames:
        """What an absolute path to the root begins with: as it was given, as the kernel has it, as boxes have it."""
        return (self.given, split(path_of(self.descriptor)), split(os.fsencode(ALIAS)))

    # --- finding ------------------------------------------------------------------------------------------------------

    def ask(self, path: PathText) -> Asked:
        """Step 1: parse, and strip what names the root itself."""
        text, data = parse(path)
        if not data.startswith(b"/"):
            return Asked(text, data)
        for prefix in self.own_names():
            rest = strip(prefix, data)
            if rest is not None:
                return Asked(text, rest)
        raise PathTraversalError(text, "lies outside the workspace", hint="give a path relative to the workspace")

    @contextmanager
    def opened(self, asked: Asked, flags: int = 0) -> Iterator[FoundFile]:
        """Steps 2 and 3 for something that has to be there."""
        for _ in range(_TRIES):
            descriptor = self.resolver(self.descriptor, asked.relative, flags)
            try:
                place = self.place(asked, descriptor)
                if place is None:
                    continue
                self.forbid_denied(asked, place)
                yield FoundFile(descriptor, place, os.fstat(descriptor))
                return
            finally:
                os.close(descriptor)
        raise keeps_changing(asked)

    @contextmanager
    def slot(self, asked: Asked, *, make_parents: bool, follow: bool) -> Iterator[Slot]:
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
            parent = self.directory(asked, head or b".", make=make_parents)
            try:
                above = self.place(asked, parent)
                if above is None:
                    continue
                status = status_of(parent, name)
                if follow and status is not None and stat.S_ISLNK(status.st_mode):
                    target = _link_target(parent, name)
                    if target is None:
                        continue
                    is_absolute = target.startswith(b"/")
                    relative = from_root(target, self.own_names()) if is_absolute else join(above, target)
                    continue
                place = join(above, name)
                self.forbid_denied(asked, place)
                yield Slot(parent, name, place, status)
                return
            finally:
                os.close(parent)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def directory(self, asked: Asked, relative: bytes, *, make: bool) -> int:
        """Open a directory beneath the root; with `make`, make what is missing of it."""
        try:
            return self.resolver(self.descriptor, relative, os.O_DIRECTORY)
        except FileNotFoundError:
            if not make or asked.names is None:
                raise
        here, missing, place = self._deepest_for(asked, relative)
        try:
            self.forbid_denied(asked, place)
            self.forbid_change(asked, place, is_new_directory=True)
            for name in missing:
                is_ours = _make_directory(here, name)
                child = os.open(name, _OPEN_DIRECTORY, dir_fd=here)
                os.close(here)
                here = child
                if is_ours:
                    self.give_to_owner(here, None)
        except BaseException:
            os.close(here)
            raise
        return here

    def place_to_be(self, asked: Asked) -> bytes:
        """Where a name would lie once the directories above it are made; nothing is made."""
        head, name = os.path.split(asked.relative.rstrip(b"/"))
        here, _, place = self._deepest_for(asked, head or b".")
        os.close(here)
        return join(place, name)

    def _deepest_for(self, asked: Asked, relative: bytes) -> tuple[int, tuple[bytes, ...], bytes]:
        """The deepest directory of a path that is there, what is missing below it, and where the whole would lie."""
        names = split(relative)
        here, count = self._deepest(names)
        try:
            missing = names[count:]
            if b".." in missing:  # as the kernel has it: nothing is above what is not there
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            above = self.place(asked, here)
            if above is None:
                raise keeps_changing(asked)
        except BaseException:
            os.close(here)
            raise
        return here, missing, join(above, *missing)

    def _deepest(self, names: tuple[bytes, ...]) -> tuple[int, int]:
        """Open the deepest directory of a path that is there, and say how many names lead to it."""
        here, found, missing = self.resolver(self.descriptor, b".", os.O_DIRECTORY), 0, len(names) + 1
        try:
            while missing - found > 1:  # halving, since a path may have two thousand names
                middle = (found + missing) // 2
                try:
                    deeper = self.resolver(self.descriptor, b"/".join(names[:middle]), os.O_DIRECTORY)
                except FileNotFoundError:
                    missing = middle
                else:
                    os.close(here)
                    here, found = deeper, middle
        except BaseException:
            os.close(here)
            raise
        return here, found

    def place(self, asked: Asked, descriptor: int) -> bytes | None:
        """Step 3: ask the kernel where a descriptor lies, relative to the root; None when it was removed meanwhile."""
        root, path = path_of(self.descriptor), path_of(descriptor)
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
            other = self.resolver(self.descriptor, place, os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            return os.path.sameopenfile(descriptor, other)
        finally:
            os.close(other)

    # --- judging ------------------------------------------------------------------------------------------------------

    def rule_against(self, place: bytes) -> str | None:
        """The rule that denies a place below a directory that was found not to be denied."""
        return self.denied(os.fsdecode(join(path_of(self.descriptor), place)))

    def forbid_denied(self, asked: Asked, place: bytes) -> None:
        """Ask the rules about the real place, and about the place as it was spelled, with all directories above."""
        root = os.fsdecode(path_of(self.descriptor))
        for names in dict.fromkeys((split(place), asked.names or ())):
            path = root
            for name in names:
                path += "/" + os.fsdecode(name)
                rule = self.denied(path)
                if rule is not None:
                    raise PathAccessDenied(asked.text, "is denied", rule=rule)

    def forbid_change(self, asked: Asked, place: bytes, *, is_new_directory: bool = False) -> None:
        """Ask what is protected about the real place and about the place as it was spelled."""
        for names in dict.fromkeys((split(place), asked.names or ())):
            rule = self.protected.rule_on(names)
            if rule is not None:
                raise PathAccessDenied(asked.text, "is protected: it may be read, not changed", rule=rule)
            # Whoever replaces or removes `.git` replaces or removes `.git/hooks`; making `.git` harms nothing.
            rule = None if is_new_directory else self.protected.rule_below(names)
            if rule is not None:
                raise PathAccessDenied(asked.text, "holds something protected", rule=rule)

    def forbid_change_behind_links(
        self, asked: Asked, place: bytes, real_places: tuple[tuple[tuple[bytes, ...], str], ...] | None = None
    ) -> None:
        """Refuse the real place of a protected name that is reached by a link, such as `.vscode -> tools/vscode`.

        Args:
            real_places: what `protected_places` said, for whoever asks about many places.
        """
        names = split(place)
        for real, rule in self.protected_places(asked) if real_places is None else real_places:
            shared = min(len(real), len(names))
            if shared and real[:shared] == names[:shared]:
                raise PathAccessDenied(asked.text, "is, or holds, the target of a protected link", rule=rule)

    def protected_places(self, asked: Asked) -> tuple[tuple[tuple[bytes, ...], str], ...]:
        """Where the protected names of the top really lie, each with its rule."""
        found: list[tuple[tuple[bytes, ...], str]] = []
        is_there: dict[bytes, bool] = {}
        for literal, rule in self.protected.literals:
            first = literal.partition(b"/")[0]
            if first not in is_there:  # the most are not, and this is the cheapest way to know
                is_there[first] = status_of(self.descriptor, first) is not None
            if not is_there[first]:
                continue
            try:
                descriptor = self.resolver(self.descriptor, literal)
            except OSError:
                continue  # not there, or outside: nothing of ours can change it
            try:
                found.append((split(self.place(asked, descriptor) or b""), rule))
            finally:
                os.close(descriptor)
        return tuple(found)

    # --- owners -------------------------------------------------------------------------------------------------------

    def give_to_owner(self, descriptor: int, replaced: os.stat_result | None) -> None:
        """Run by root, what we make belongs to the owner of what it replaces, else to the owner of the root."""
        if os.geteuid() != 0:
            return
        owner = replaced or os.fstat(self.descriptor)
        try:
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
        except OSError as error:
            # Root of a user namespace in which that owner has no number: the file stays ours, as it does for anyone.
            if error.errno not in (errno.EPERM, errno.EINVAL):
                raise


def path_of(descriptor: int) -> bytes:
    """Ask the kernel where a descriptor lies now."""
    try:
        return os.readlink(b"/proc/self/fd/%d" % descriptor)
    except FileNotFoundError as error:
        raise InitializationFailed("/proc is needed to tell where a file lies", hint="mount /proc") from error


@contextmanager
def reopened(descriptor: int, flags: int) -> Iterator[int]:
    """Open what an O_PATH descriptor stands for; O_NONBLOCK, because a lease of another process would make us wait."""
    opened = os.open(b"/proc/self/fd/%d" % descriptor, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        yield opened
    finally:
        os.close(opened)


def status_of(parent: int, name: bytes) -> os.stat_result | None:
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
