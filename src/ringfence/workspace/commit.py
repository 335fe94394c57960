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

from ringfence.dataclass import dataclass, replace
from ringfence.errors import PermissionDenied, RingfenceError
from ringfence.values.change import Change, CommitRefusal, Committed, Selection
from ringfence.workspace.bases import forget_base
from ringfence.workspace.calls import sync_file_system
from ringfence.workspace.diff import compare
from ringfence.workspace.journal import CommitJournal, CommitPhase, CommitStep, Do, HostWasFaster, Steps
from ringfence.workspace.layers import Layers, open_layers
from ringfence.workspace.plan import CommitTerms, Held, Wanted, nothing_held, plan
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.shadow_lock import ShadowLock, lock_shadow
from ringfence.workspace.staging import CommitStage
from ringfence.workspace.tree import split

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
        InvalidArgument, NotFound: the selection makes no sense.
        PermissionDenied: the shadow is in use, or the system refused something; the project is as it was.
    """
    terms = CommitTerms(
        selection=select or Selection(), seen=seen, allow_protected=allow_protected, merge=merge, held=held
    )
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
            conflict = CommitRefusal(fault.path, "the host has changed it meanwhile", "conflict", "try again")
            return Committed(refused=decided.refused, conflicts=(conflict,))
        except RingfenceError:
            raise
        except OSError as fault:
            raise PermissionDenied(
                f"the commit of shadow {shadow.id} was not possible, the project is as it was: {fault}"
            ) from fault
    applied = tuple(one.change for one in decided.wanted)
    merged = tuple(one.change.path for one in decided.wanted if one.is_merged)
    return Committed(applied=applied, merged=merged, refused=decided.refused)


def _carry_out(layers: Layers, wanted: tuple[Wanted, ...]) -> None:
    shadow = layers.shadow
    journal = CommitJournal(
        phase=CommitPhase.STAGING,
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
            steps = CommitStage(layers, staging).fill(wanted)
            _sync_staged(staging, steps)
        journal = replace(journal, phase=CommitPhase.APPLYING, steps=steps)
        journal.write(shadow)
    except BaseException:
        drop_staging(layers, journal)
        journal.remove(shadow)
        raise
    try:
        apply(layers, journal)
    except BaseException:
        if (interrupted := CommitJournal.read(shadow)) is not None and interrupted.phase is CommitPhase.APPLYING:
            undo(layers, interrupted)
        raise


def apply(layers: Layers, journal: CommitJournal) -> None:
    """Carry out what is staged, for the first time or once more, and tidy up. After an error, `undo` is needed.

    Raises:
        HostWasFaster: the host has changed a path.
        OSError: the system refused a step.
    """
    with staging_directory(layers, journal) as staging:
        Steps(layers.lower, staging).apply(journal.steps)
        _sync_places(layers, staging, journal)
    done = replace(journal, phase=CommitPhase.APPLIED, steps=())
    done.write(layers.shadow)
    tidy(layers, done)


def undo(layers: Layers, journal: CommitJournal) -> tuple[str, ...]:
    """Bring back what the project was; returns what the host has changed meanwhile, which stays."""
    replace(journal, phase=CommitPhase.UNDOING).write(layers.shadow)
    with staging_directory(layers, journal) as staging:
        steps = Steps(layers.lower, staging)
        steps.undo(journal.steps)
        _sync_places(layers, staging, journal)
    # From here on there is nothing but the staging directory to remove.
    replace(journal, phase=CommitPhase.STAGING).write(layers.shadow)
    left = drop_staging(layers, journal).left
    # The renames have moved the kernel's times: what is as it was planned for is still known.
    restored = (step.path for step in journal.steps if _is_restored(layers, step))
    layers.learn((*restored, *journal.quiet))
    journal.remove(layers.shadow)
    return (*steps.left, *left)


def tidy(layers: Layers, journal: CommitJournal) -> tuple[str, ...]:
    """After all steps are done; returns what could not be removed from the staging directory."""
    dropped = drop_staging(layers, journal)
    layers.learn((*journal.paths, *journal.quiet), dropped.others)
    for path in journal.paths:
        forget_base(layers, path)
    layers.settle(journal.whole, journal.merged)
    journal.remove(layers.shadow)
    return dropped.left


@contextmanager
def staging_directory(layers: Layers, journal: CommitJournal) -> Iterator[int]:
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


def drop_staging(layers: Layers, journal: CommitJournal) -> Dropped:
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


def _is_restored(layers: Layers, step: CommitStep) -> bool:
    status = layers.lower.status(step.path)
    return status is not None and (status.st_ino, status.st_mtime_ns, status.st_size) == (
        step.was_inode,
        step.was_mtime_ns,
        step.was_size,
    )


def _sync_staged(staging: int, steps: tuple[CommitStep, ...]) -> None:
    """Have every staged content on the disk before the journal says so."""
    if len(steps) > _FEW:
        sync_file_system(staging)
        return
    for step in steps:
        if step.do == Do.PUT and stat.S_ISREG(os.stat(step.slot, dir_fd=staging, follow_symlinks=False).st_mode):
            _sync(os.open(step.slot, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=staging))
    os.fsync(staging)


def _sync_places(layers: Layers, staging: int, journal: CommitJournal) -> None:
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
