"""The journal of one commit: what it is going to do to the project, step by step, so that a killed one can be settled.

A commit goes through phases, and the journal (`commit.json` in the shadow) names the one it is in:

    STAGING   new contents are copied into a directory of ours at the top of the project. The project itself is as it
              was. Interrupted here: the directory is removed, nothing has happened.
    APPLYING  everything is staged and on the disk. The steps are carried out. Interrupted here: they are carried out
              again from the first; if that is not possible any more they are undone.
    UNDOING   a step failed. Interrupted here: undoing goes on.
    APPLIED   all steps are done. What remains is tidying.

A step is one rename or one chmod, so each happens or does not. Whether it has happened is seen from the inode numbers:
those of the staged entries are in the journal, and nothing else has them. So steps can be repeated and undone from any
point, in any order of what reached the disk first, and no step needs to be recorded when it is done.

    take   moves the host's entry into the staging directory
    put    moves a staged entry to its place; what the host has there is swapped into the staging directory by the same
           rename, and compared with what the plan was made for: if the host was faster, this is undone
    mode   sets permission bits

What this does not protect against: a program of the host that holds a replaced file open and writes to it afterwards;
it writes to the old file, which is gone when the commit is.
"""

import errno
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Self

from ringfence.dataclass import dataclass, field
from ringfence.errors import Damaged
from ringfence.workspace.calls import exchange, rename_to_new
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.shadow_lock import JOURNAL_FILE
from ringfence.workspace.statefile import read_json, sync_directory, write_json
from ringfence.workspace.tree import Tree, split

_VERSION = 1
_SLOT = re.compile(r"|(take|put)-[0-9]+")
_KEPT = "old-"
"""In front of a slot: the host's entry, on file systems that cannot swap."""


class CommitPhase(StrEnum):
    STAGING = "staging"
    APPLYING = "applying"
    UNDOING = "undoing"
    APPLIED = "applied"


class Do(StrEnum):
    TAKE = "take"
    PUT = "put"
    MODE = "mode"


class CommitStep(NamedTuple):
    do: str
    path: str
    slot: str = ""
    """The name in the staging directory."""
    inode: int = 0
    """Of the staged entry; of the host's, for `mode`."""
    was_inode: int = 0
    """Of the host's entry that the plan was made for; 0 if there was none."""
    was_mtime_ns: int = 0
    was_size: int = 0
    before: int = 0
    after: int = 0


class HostWasFaster(Exception):
    """The host changed a path between the plan and the step."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the host has changed {path!r} meanwhile")
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitJournal:
    phase: CommitPhase
    staging: str
    """The name of the staging directory at the top of the project."""
    steps: tuple[CommitStep, ...] = ()
    whole: tuple[str, ...] = ()
    """Paths that are the same on both sides afterwards."""
    merged: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Paths of which some hunks were taken."""
    quiet: tuple[str, ...] = ()
    """Directories that only we have changed since the shadow was made."""

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted({*self.whole, *self.partial}))

    def write(self, shadow: Shadow) -> None:
        fields = {
            "version": _VERSION,
            "phase": self.phase.value,
            "staging": self.staging,
            "steps": self.steps,
            "whole": self.whole,
            "merged": self.merged,
            "partial": self.partial,
            "quiet": self.quiet,
        }
        write_json(shadow.directory / JOURNAL_FILE, fields)

    @classmethod
    def read(cls, shadow: Shadow) -> Self | None:
        """The journal of a commit that was interrupted; None if none was.

        Raises:
            Damaged: there is one that makes no sense.
        """
        path = shadow.directory / JOURNAL_FILE
        try:
            return cls._decoded(read_json(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as fault:
            raise Damaged(f"is not a journal: {fault}", source=str(path), hint="look at it by hand") from fault

    @classmethod
    def _decoded(cls, fields: Any) -> Self:
        if fields["version"] != _VERSION:
            raise ValueError("another version")
        return cls(
            phase=CommitPhase(fields["phase"]),
            staging=_name(fields["staging"]),
            steps=tuple(_step(step) for step in fields["steps"]),
            whole=tuple(map(_path, fields["whole"])),
            merged=tuple(map(_path, fields["merged"])),
            partial=tuple(map(_path, fields["partial"])),
            quiet=tuple(map(_path, fields["quiet"])),
        )

    def remove(self, shadow: Shadow) -> None:
        with suppress(FileNotFoundError):
            (shadow.directory / JOURNAL_FILE).unlink()
        sync_directory(Path(shadow.directory))


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(".ringfence-commit-") or "/" in value:
        raise ValueError(f"{value!r} is not a staging directory")
    return value


def _path(value: Any) -> str:
    if not isinstance(value, str) or value.startswith("/") or {"..", "."} & set(value.split("/")):
        raise ValueError(f"{value!r} is not a path of a project")
    return value


def _step(fields: Any) -> CommitStep:
    step = CommitStep(*fields)
    if any(type(number) is not int for number in step[3:]) or not _SLOT.fullmatch(step.slot):
        raise ValueError(f"{fields!r} is not a step")
    Do(step.do)
    if not _path(step.path):
        raise ValueError("a step without a path")
    return step


@dataclass(slots=True)
class Steps:
    """Carries the steps out, or undoes them, in a project whose staging directory is there."""

    tree: Tree
    staging: int
    """The descriptor of the staging directory."""
    left: list[str] = field(default_factory=list)
    """Paths that could not be undone, since the host has changed them meanwhile."""

    def apply(self, steps: tuple[CommitStep, ...], tick: Callable[[], None] = lambda: None) -> None:
        """
        Raises:
            HostWasFaster: a path is not as the plan was made for.
            OSError: the system refused a step.
        """
        for step in steps:
            match Do(step.do):
                case Do.TAKE:
                    self._take(step)
                case Do.PUT:
                    self._put(step)
                case Do.MODE:
                    self._mode(step, step.after)
            tick()

    def undo(self, steps: tuple[CommitStep, ...], tick: Callable[[], None] = lambda: None) -> None:
        """Bring back what the host had, from the last step to the first; those not done yet need nothing."""
        for step in reversed(steps):
            match Do(step.do):
                case Do.TAKE:
                    self._give_back(step)
                case Do.PUT:
                    self._take_out(step)
                case Do.MODE:
                    self._mode(step, step.before)
            tick()

    # --- take ---------------------------------------------------------------------------------------------------------

    def _take(self, step: CommitStep) -> None:
        if self._staged(step.slot) is not None:
            return
        parent, name = self._place(step.path)
        status = _status(parent, name)
        if status is None:
            return  # gone is as good
        if status.st_ino != step.was_inode:
            raise HostWasFaster(step.path)
        rename_to_new(parent, name, self.staging, step.slot)
        if stat.S_ISDIR(status.st_mode):
            self.tree.forget()
        if not self._is_as_planned(step, step.slot):
            raise HostWasFaster(step.path)

    def _give_back(self, step: CommitStep) -> None:
        status = self._staged(step.slot)
        if status is None:
            return
        parent, name = self._place(step.path)
        try:
            rename_to_new(self.staging, step.slot, parent, name)
        except FileExistsError:
            self.left.append(step.path)
        if stat.S_ISDIR(status.st_mode):
            self.tree.forget()

    # --- put ----------------------------------------------------------------------------------------------------------

    def _put(self, step: CommitStep) -> None:
        parent, name = self._place(step.path)
        status = _status(parent, name)
        if status is not None and status.st_ino == step.inode:
            self._check_kept(step)
            return
        if status is None:
            if step.was_inode:
                raise HostWasFaster(step.path)
            try:
                rename_to_new(self.staging, step.slot, parent, name)
            except FileExistsError:
                raise HostWasFaster(step.path) from None
            return
        if status.st_ino != step.was_inode:
            raise HostWasFaster(step.path)
        if not exchange(self.staging, step.slot, parent, name):
            self._replace(step, parent, name, _KEPT + step.slot)
        if stat.S_ISDIR(status.st_mode):
            self.tree.forget()
        self._check_kept(step)

    def _check_kept(self, step: CommitStep) -> None:
        """See that what was replaced is what the plan was made for."""
        slot = next((slot for slot in (_KEPT + step.slot, step.slot) if self._holds_old(step, slot)), None)
        if slot is not None and not self._is_as_planned(step, slot):
            raise HostWasFaster(step.path)

    def _replace(self, step: CommitStep, parent: int, name: str, kept: str) -> None:
        """For file systems that cannot swap: keep a second name of the old entry, then rename over the first."""
        status = _status(parent, name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            rename_to_new(parent, name, self.staging, kept)
            rename_to_new(self.staging, step.slot, parent, name)
            return
        if self._staged(kept) is None:
            os.link(name, kept, src_dir_fd=parent, dst_dir_fd=self.staging, follow_symlinks=False)
        staged = self._staged(step.slot)
        if staged is not None and stat.S_ISDIR(staged.st_mode):
            os.unlink(name, dir_fd=parent)
        os.rename(step.slot, name, src_dir_fd=self.staging, dst_dir_fd=parent)

    def _take_out(self, step: CommitStep) -> None:
        try:
            parent, name = self._place(step.path)
        except OSError as fault:
            if fault.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return  # its directory was never put there
            raise
        status = _status(parent, name)
        is_ours = status is not None and status.st_ino == step.inode
        old = next((slot for slot in (_KEPT + step.slot, step.slot) if self._holds_old(step, slot)), None)
        if not is_ours:
            if status is None and old is not None:
                rename_to_new(self.staging, old, parent, name)
            elif old is not None and status is not None and status.st_ino != step.was_inode:
                self.left.append(step.path)
        elif old is None:
            rename_to_new(parent, name, self.staging, step.slot)
        elif old == step.slot:
            exchange(self.staging, step.slot, parent, name)
        else:
            rename_to_new(parent, name, self.staging, step.slot)
            rename_to_new(self.staging, old, parent, name)
        self.tree.forget()

    # --- mode ---------------------------------------------------------------------------------------------------------

    def _mode(self, step: CommitStep, mode: int) -> None:
        try:
            parent, name = self._place(step.path)
            descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        except OSError as fault:
            if fault.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return
            raise
        try:
            status = os.fstat(descriptor)
            if status.st_ino == step.inode and not stat.S_ISLNK(status.st_mode):
                os.chmod(f"/proc/self/fd/{descriptor}", mode)
        finally:
            os.close(descriptor)

    # --- looking ------------------------------------------------------------------------------------------------------

    def _place(self, path: str) -> tuple[int, str]:
        above, name = split(path)
        return self.tree.directory(above), name

    def _staged(self, slot: str) -> os.stat_result | None:
        return _status(self.staging, slot)

    def _holds_old(self, step: CommitStep, slot: str) -> bool:
        status = self._staged(slot)
        return status is not None and status.st_ino != step.inode

    def _is_as_planned(self, step: CommitStep, slot: str) -> bool:
        """Whether what we have got hold of is what the plan was made for; a directory must be empty."""
        status = self._staged(slot)
        if status is None:
            return False
        if stat.S_ISDIR(status.st_mode):
            return status.st_ino == step.was_inode and self._is_empty(slot)
        return (status.st_ino, status.st_mtime_ns, status.st_size) == (
            step.was_inode,
            step.was_mtime_ns,
            step.was_size,
        )

    def _is_empty(self, slot: str) -> bool:
        descriptor = os.open(slot, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.staging)
        try:
            return not os.listdir(descriptor)
        finally:
            os.close(descriptor)


def _status(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
