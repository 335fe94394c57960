"""Prepares the files of a commit beside the project, so that only renames are left to do."""

import os
import stat

from ringfence.dataclass import dataclass, field
from ringfence.errors import PermissionDenied
from ringfence.values.change import Change, ChangeKind, NodeKind
from ringfence.workspace.copying import copy_content
from ringfence.workspace.journal import CommitStep, Do, HostWasFaster
from ringfence.workspace.layers import Layers
from ringfence.workspace.plan import Wanted
from ringfence.workspace.tree import split

_PERMISSION_BITS = 0o777
_OPEN_MODE = stat.S_IRWXU


@dataclass(slots=True)
class CommitStage:
    """Fills the staging directory, and makes the steps that will empty it."""

    layers: Layers
    directory: int
    _opened: dict[str, int] = field(default_factory=dict)
    """Directories of the host that have to be opened up first, and the mode that they get back."""
    _takes: list[CommitStep] = field(default_factory=list)
    _puts: list[CommitStep] = field(default_factory=list)
    _modes: list[CommitStep] = field(default_factory=list)

    def fill(self, wanted: tuple[Wanted, ...]) -> tuple[CommitStep, ...]:
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

    def _opening(self, path: str) -> CommitStep:
        status = self._host(path)
        mode = self._opened[path]
        return self._seen(CommitStep(Do.MODE, path, inode=status.st_ino, before=mode, after=mode | _OPEN_MODE), status)

    def _take(self, path: str) -> None:
        status = self._host(path)
        if stat.S_ISDIR(status.st_mode):
            self._open_up(path)  # to be moved, it must be writable itself
        self._open_up(split(path)[0])
        self._takes.append(self._seen(CommitStep(Do.TAKE, path, slot=f"take-{len(self._takes)}"), status))

    def _mode(self, path: str, mode: int) -> None:
        status = self._host(path)
        before = stat.S_IMODE(status.st_mode)
        self._modes.append(
            self._seen(CommitStep(Do.MODE, path, inode=status.st_ino, before=before, after=mode), status)
        )

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
        step = CommitStep(Do.PUT, path, slot=slot, inode=staged.st_ino)
        self._puts.append(step if status is None else self._seen(step, status))
        if new.is_directory:
            after = new.mode & _PERMISSION_BITS
            self._modes.append(CommitStep(Do.MODE, path, inode=staged.st_ino, before=_OPEN_MODE, after=after))
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

    def _seen(self, step: CommitStep, status: os.stat_result) -> CommitStep:
        return step._replace(was_inode=status.st_ino, was_mtime_ns=status.st_mtime_ns, was_size=status.st_size)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
