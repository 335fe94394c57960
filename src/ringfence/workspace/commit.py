"""Carries chosen changes of a shadow over to the project: all of them or none, whatever happens meanwhile.

    compare   what is different now (`diff`)
    plan      what of it is meant, allowed, and still true of the host (`plan`)
    stage     every new content, whole, in a directory of ours at the top of the project; then it is on the disk
    apply     renames alone, each written down beforehand (`journal`); a reader of a file sees the old or the new one
    tidy      the host's entries are noted as known, and what both sides have now is dropped from the shadow

A commit that fails on the way is undone before the error is raised. One that is killed is finished or undone by
`recover`, which says which.

No link is followed, in the project or in the shadow. New files belong to whoever has the directory, replaced ones to
whoever had them before; set-uid, set-gid and sticky bits are dropped. The time of a file becomes that of the commit, so
that build tools of the host notice it.

What this does not protect against: loss of extended attributes and access lists of replaced files; two names of one
file become two files; between the first and the last rename, some milliseconds for a thousand files, another program of
the host sees some new files and some old ones.
"""

import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from ringfence.errors import PermissionDenied
from ringfence.values.change import Change, ChangeKind, Committed, NodeKind, Refusal, Selection
from ringfence.workspace.bases import forget_base
from ringfence.workspace.calls import sync_file_system
from ringfence.workspace.copying import copy_content
from ringfence.workspace.diff import compare
from ringfence.workspace.journal import Do, HostWasFaster, Journal, Phase, Step, Steps
from ringfence.workspace.layers import Layers, open_layers
from ringfence.workspace.plan import Held, Terms, Wanted, nothing_held, plan
from ringfence.workspace.shadow import Shadow, ShadowLock, lock_shadow
from ringfence.workspace.tree import split

_PERMISSION_BITS = 0o777
_OPEN_MODE = stat.S_IRWXU
_FEW = 16
"""Up to so many files are synced one by one; beyond, one wait for the whole file system is shorter."""


def commit(
    shadow: Shadow,
    *,
    select: Selection | None = None,
    seen: tuple[Change, ...] | None = None,
    allow_protected: bool = False,
    merge: bool = False,
    held: Held = nothing_held,
    lock: ShadowLock | None = None,
) -> Committed:
    """Carry changes over to the project.

    Args:
        select: which; all by default.
        seen: the changes as somebody looked at them; what has become different since is a conflict.
        allow_protected: also protected names, but never what the blacklist hides.
        merge: what the host has changed, too, is merged where both are texts and the old one was kept.
        held: says why a change should not go through unseen, or None.
        lock: the shadow's lock, if the caller has it; nobody may have the shadow mounted.

    Raises:
        InvalidConfig: the selection makes no sense.
        PermissionDenied: the shadow is in use, or the system refused something; the project is as it was.
    """
    terms = Terms(selection=select or Selection(), seen=seen, allow_protected=allow_protected, merge=merge, held=held)
    with ExitStack() as stack:
        if lock is None:
            stack.enter_context(lock_shadow(shadow))
        layers = stack.enter_context(open_layers(shadow))
        try:
            decided = plan(layers, compare(layers), terms)
            if decided.conflicts or not decided.wanted:
                return Committed(refused=decided.refused, conflicts=decided.conflicts)
            _carry_out(layers, decided.wanted)
        except HostWasFaster as fault:
            conflict = Refusal(fault.path, "the host has changed it meanwhile", "conflict", "try again")
            return Committed(refused=decided.refused, conflicts=(conflict,))
        except OSError as fault:
            raise PermissionDenied(
                f"the commit of shadow {shadow.id} was not possible, the project is as it was: {fault}"
            ) from fault
    applied = tuple(one.change for one in decided.wanted)
    merged = tuple(one.change.path for one in decided.wanted if one.is_merged)
    return Committed(applied=applied, merged=merged, refused=decided.refused)


def _carry_out(layers: Layers, wanted: tuple[Wanted, ...]) -> None:
    shadow = layers.shadow
    journal = Journal(
        phase=Phase.STAGING,
        staging=f".ringfence-commit-{shadow.id}-{secrets.token_hex(4)}",
        whole=_paths(one for one in wanted if not one.is_partial),
        merged=_paths(one for one in wanted if one.is_merged),
        partial=_paths(one for one in wanted if one.is_partial),
        quiet=tuple(path for path in _directories(wanted) if layers.is_quiet(path)),
    )
    journal.write(shadow)
    try:
        os.mkdir(journal.staging, 0o700, dir_fd=layers.lower.top)
        with staging_directory(layers, journal) as staging:
            steps = _Stage(layers, staging).fill(wanted)
            _sync_staged(staging, steps)
        journal = replace(journal, phase=Phase.APPLYING, steps=steps)
        journal.write(shadow)
    except BaseException:
        drop_staging(layers, journal)
        journal.remove(shadow)
        raise
    try:
        apply(layers, journal)
    except BaseException:
        if (interrupted := Journal.read(shadow)) is not None and interrupted.phase is Phase.APPLYING:
            undo(layers, interrupted)
        raise


def apply(layers: Layers, journal: Journal) -> None:
    """Carry out what is staged, for the first time or once more, and tidy up. After an error, `undo` is needed.

    Raises:
        HostWasFaster: the host has changed a path.
        OSError: the system refused a step.
    """
    with staging_directory(layers, journal) as staging:
        Steps(layers.lower, staging).apply(journal.steps)
        _sync_places(layers, staging, journal)
    done = replace(journal, phase=Phase.APPLIED, steps=())
    done.write(layers.shadow)
    tidy(layers, done)


def undo(layers: Layers, journal: Journal) -> tuple[str, ...]:
    """Bring back what the project was; returns what the host has changed meanwhile, which stays."""
    replace(journal, phase=Phase.UNDOING).write(layers.shadow)
    with staging_directory(layers, journal) as staging:
        steps = Steps(layers.lower, staging)
        steps.undo(journal.steps)
        _sync_places(layers, staging, journal)
    # From here on there is nothing but the staging directory to remove.
    replace(journal, phase=Phase.STAGING).write(layers.shadow)
    left = drop_staging(layers, journal).left
    # The renames have moved the kernel's times: what is as it was planned for is still known.
    restored = (step.path for step in journal.steps if _is_restored(layers, step))
    layers.learn((*restored, *journal.quiet))
    journal.remove(layers.shadow)
    return (*steps.left, *left)


def tidy(layers: Layers, journal: Journal) -> tuple[str, ...]:
    """After all steps are done; returns what could not be removed from the staging directory."""
    dropped = drop_staging(layers, journal)
    layers.learn((*journal.paths, *journal.quiet), dropped.others)
    for path in journal.paths:
        forget_base(layers, path)
    layers.settle(journal.whole, journal.merged)
    journal.remove(layers.shadow)
    return dropped.left


@contextmanager
def staging_directory(layers: Layers, journal: Journal) -> Iterator[int]:
    """Its descriptor."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(journal.staging, flags, dir_fd=layers.lower.top)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Dropped:
    left: tuple[str, ...] = ()
    """What could not be removed."""
    others: tuple[os.stat_result, ...] = ()
    """Removed files that have other names: their time has moved with the removal."""


def drop_staging(layers: Layers, journal: Journal) -> Dropped:
    """Remove the staging directory. A directory of the host's in it that is no longer empty is kept, and named."""
    left: list[str] = []
    others: list[os.stat_result] = []
    try:
        with staging_directory(layers, journal) as staging:
            for name in os.listdir(staging):
                try:
                    others += _removed(staging, name)
                except OSError:
                    left.append(f"{journal.staging}/{name}")
        if not left:
            os.rmdir(journal.staging, dir_fd=layers.lower.top)
    except FileNotFoundError:
        pass
    return Dropped(tuple(left), tuple(others))


def _removed(staging: int, name: str) -> Iterator[os.stat_result]:
    """Remove one entry; its new state, if it lives on under another name."""
    status = os.stat(name, dir_fd=staging, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        os.rmdir(name, dir_fd=staging)
    elif status.st_nlink == 1:
        os.unlink(name, dir_fd=staging)
    else:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=staging)
        try:
            os.unlink(name, dir_fd=staging)
            yield os.fstat(descriptor)
        finally:
            os.close(descriptor)


def _paths(wanted: Iterable[Wanted]) -> tuple[str, ...]:
    return tuple(path for one in wanted for path in (one.change.path, one.change.source) if path)


def _directories(wanted: Iterable[Wanted]) -> tuple[str, ...]:
    """Those that a commit changes; the top holds the staging directory."""
    return tuple(sorted({"", *(split(path)[0] for path in _paths(wanted))}))


def _is_restored(layers: Layers, step: Step) -> bool:
    status = layers.lower.status(step.path)
    return status is not None and (status.st_ino, status.st_mtime_ns, status.st_size) == (
        step.was_inode,
        step.was_mtime_ns,
        step.was_size,
    )


def _sync_staged(staging: int, steps: tuple[Step, ...]) -> None:
    """Have every staged content on the disk before the journal says so."""
    if len(steps) > _FEW:
        sync_file_system(staging)
        return
    for step in steps:
        if step.do == Do.PUT and stat.S_ISREG(os.stat(step.slot, dir_fd=staging, follow_symlinks=False).st_mode):
            _sync(os.open(step.slot, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=staging))
    os.fsync(staging)


def _sync_places(layers: Layers, staging: int, journal: Journal) -> None:
    """Have every rename on the disk before what was replaced is removed."""
    if len(journal.steps) > _FEW:
        sync_file_system(staging)
        return
    os.fsync(staging)
    for path in {split(step.path)[0] for step in journal.steps}:
        status = layers.lower.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            os.fsync(layers.lower.directory(path))


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- staging ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Stage:
    """Fills the staging directory, and makes the steps that will empty it."""

    layers: Layers
    directory: int
    _opened: dict[str, int] = field(default_factory=dict)
    """Directories of the host that have to be opened up first, and the mode that they get back."""
    _takes: list[Step] = field(default_factory=list)
    _puts: list[Step] = field(default_factory=list)
    _modes: list[Step] = field(default_factory=list)

    def fill(self, wanted: tuple[Wanted, ...]) -> tuple[Step, ...]:
        for one in sorted(wanted, key=lambda item: item.change.path):
            change = one.change
            if change.new is None:
                self._take(change.path)
            elif self._is_chmod(change):
                self._mode(change.path, change.new.mode & _PERMISSION_BITS)
            else:
                self._put(one)
            if change.source:
                self._take(change.source)
        closed = {step.path for step in self._modes}
        openings = [self._opening(path) for path in sorted(self._opened)]
        closings = [
            self._opening(path)._replace(before=mode | _OPEN_MODE, after=mode)
            for path, mode in self._opened.items()
            if path not in closed and path not in {step.path for step in self._takes}
        ]
        # What is in a directory goes before it, and comes after it; a directory is closed after what is in it.
        takes = sorted(self._takes, key=lambda step: step.path, reverse=True)
        modes = sorted([*self._modes, *closings], key=lambda step: step.path, reverse=True)
        return (*openings, *takes, *self._puts, *modes)

    def _is_chmod(self, change: Change) -> bool:
        """Whether the mode can be set in place: not if that would set it for other names of the file as well."""
        if change.kind is not ChangeKind.CHANGED or not change.is_mode_change or change.is_content:
            return False
        status = self._host(change.path)
        return stat.S_ISDIR(status.st_mode) or status.st_nlink == 1

    def _opening(self, path: str) -> Step:
        status = self._host(path)
        mode = self._opened[path]
        return self._seen(Step(Do.MODE, path, inode=status.st_ino, before=mode, after=mode | _OPEN_MODE), status)

    def _take(self, path: str) -> None:
        status = self._host(path)
        if stat.S_ISDIR(status.st_mode):
            self._open_up(path)  # to be moved, it must be writable itself
        self._open_up(split(path)[0])
        self._takes.append(self._seen(Step(Do.TAKE, path, slot=f"take-{len(self._takes)}"), status))

    def _mode(self, path: str, mode: int) -> None:
        status = self._host(path)
        before = stat.S_IMODE(status.st_mode)
        self._modes.append(self._seen(Step(Do.MODE, path, inode=status.st_ino, before=before, after=mode), status))

    def _put(self, one: Wanted) -> None:
        path, new = one.change.path, one.change.new
        assert new is not None
        status = self.layers.lower.status(path)
        owner = status or self._nearest(path)
        slot = f"put-{len(self._puts)}"
        match new.kind:
            case NodeKind.FILE:
                self._stage_file(one, slot, new.mode & _PERMISSION_BITS, owner)
            case NodeKind.LINK:
                os.symlink(new.target, slot, dir_fd=self.directory)
                self._give(slot, owner)
            case NodeKind.DIRECTORY:
                os.mkdir(slot, _OPEN_MODE, dir_fd=self.directory)
                self._give(slot, owner)
            case NodeKind.SPECIAL:
                raise PermissionDenied(f"{path!r} is a special file")  # refused by the plan
        staged = os.stat(slot, dir_fd=self.directory, follow_symlinks=False)
        step = Step(Do.PUT, path, slot=slot, inode=staged.st_ino)
        self._puts.append(step if status is None else self._seen(step, status))
        if new.is_directory:
            after = new.mode & _PERMISSION_BITS
            self._modes.append(Step(Do.MODE, path, inode=staged.st_ino, before=_OPEN_MODE, after=after))
        if status is not None and stat.S_ISDIR(status.st_mode):
            self._open_up(path)
        self._open_up(split(path)[0])

    def _stage_file(self, one: Wanted, slot: str, mode: int, owner: os.stat_result) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        target = os.open(slot, flags, 0o600, dir_fd=self.directory)
        try:
            if one.content is not None:
                _write_all(target, one.content)
            else:
                with self.layers.upper.opened(one.change.path) as source:
                    copy_content(source, target)
                    if os.fstat(source).st_ctime_ns != one.change.stamp:
                        raise PermissionDenied(
                            f"{one.change.path!r} was changed in the shadow while it was committed",
                            hint="end what works on the shadow first",
                        )
            self._give(slot, owner)
            os.fchmod(target, mode)
        finally:
            os.close(target)

    def _give(self, slot: str, owner: os.stat_result) -> None:
        """To whoever had it, or has the directory.

        Raises:
            PermissionDenied: only root can.
        """
        status = os.stat(slot, dir_fd=self.directory, follow_symlinks=False)
        if (status.st_uid, status.st_gid) == (owner.st_uid, owner.st_gid):
            return
        try:
            os.chown(slot, owner.st_uid, owner.st_gid, dir_fd=self.directory, follow_symlinks=False)
        except PermissionError as fault:
            raise PermissionDenied(
                f"a file of {owner.st_uid}:{owner.st_gid} cannot be replaced and stay theirs",
                hint="have them commit it, or root; or leave it out",
            ) from fault

    def _nearest(self, path: str) -> os.stat_result:
        """The closest directory above that the host has."""
        status = None
        while status is None:
            path = split(path)[0]
            status = self.layers.lower.status(path)
        return status

    def _host(self, path: str) -> os.stat_result:
        status = self.layers.lower.status(path)
        if status is None:
            raise HostWasFaster(path)
        return status

    def _open_up(self, path: str) -> None:
        """Note that a directory of the host is closed to us who have it."""
        status = self.layers.lower.status(path)
        if not path or status is None or os.geteuid() == 0 or not stat.S_ISDIR(status.st_mode):
            return
        if status.st_mode & _OPEN_MODE != _OPEN_MODE and status.st_uid == os.geteuid():
            self._opened.setdefault(path, stat.S_IMODE(status.st_mode))

    def _seen(self, step: Step, status: os.stat_result) -> Step:
        return step._replace(was_inode=status.st_ino, was_mtime_ns=status.st_mtime_ns, was_size=status.st_size)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
