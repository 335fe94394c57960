"""Watches how much the writable directories grow.

A bind of the host's directory has no quota. Asking the file system for its free space is cheap but sees everybody; so
it is only the trip wire, and the directories are walked when as much has gone as the box may use. What others free in
between does not count, or it would hide what the box takes.
"""

import errno
import os
import stat
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass
from ringfence.deferred import deferred
from ringfence.values.limits import Limit

if TYPE_CHECKING:
    from ringfence.limits.polling import processes
else:
    processes = deferred("ringfence.limits.polling", "processes")


_SLACK_SECONDS = 1.0  # file times come from the kernel's tick, and clocks step


@dataclass(slots=True)
class _Root:
    path: str
    space: int
    inodes: int
    taken_bytes: int = 0
    taken_files: int = 0


class DiskWatch:
    def __init__(
        self,
        roots: tuple[tuple[str, int, int], ...],
        *,
        disk_bytes: int,
        files: int,
        started: float,
        first_pid: int = 0,
    ) -> None:
        """
        Args:
            roots: each directory with what was free in bytes and inodes when it started.
        """
        self._pid = first_pid
        self._bytes = disk_bytes
        self._files = files
        self._since = started - _SLACK_SECONDS
        self._roots = [_Root(*root) for root in roots]
        self._is_over = False
        self.shares = 1
        """How many commands it is for: together they may take so many times as much."""

    @property
    def room_bytes(self) -> int:
        """How much may still go before a directory is walked."""
        most = self._bytes * self.shares
        return min((most - root.taken_bytes for root in self._roots), default=most)

    def exceeded(self) -> Limit | None:
        """Which limit the growth since the start passes, if one. Walks large directories if it has to."""
        return self.walk() if self.trips() else None

    def trips(self) -> bool:
        """Ask the file systems, which is quick: whether so much has gone that the directories have to be walked."""
        for root in self._roots:
            space, inodes = free_space(root.path)
            root.taken_bytes += max(0, root.space - space)
            root.taken_files += max(0, root.inodes - inodes)
            root.space, root.inodes = space, inodes
        return any(self._is_suspect(root) for root in self._roots)

    def walk(self) -> Limit | None:
        """Look at what has really grown, where too much has gone. May take long."""
        for root in filter(self._is_suspect, self._roots):
            root.taken_bytes, root.taken_files = self._grown(root.path)
            root.taken_bytes += _unlinked(root.path, self._pid)
            if root.taken_bytes > self._bytes * self.shares:
                return Limit.DISK
            if root.taken_files > self._files * self.shares:
                return Limit.FILES
        return None

    def forgive(self) -> None:
        """What has gone since the last look was somebody else's: a call, which has a watch of its own."""
        for root in self._roots:
            root.space, root.inodes = free_space(root.path)

    def end(self) -> None:
        """Nobody wants to know any more: a walk that is under way, in a thread, ends."""
        self._is_over = True

    def _is_suspect(self, root: _Root) -> bool:
        return root.taken_bytes > self._bytes * self.shares or root.taken_files > self._files * self.shares

    def _grown(self, root: str) -> tuple[int, int]:
        """Bytes and number of the files below `root` that changed since then, counted until that is too much; endless,
        if a part was closed to us."""
        size = count = 0
        waiting = [root]
        most_bytes, most_files = self._bytes * self.shares, self._files * self.shares
        while waiting and size <= most_bytes and count <= most_files and not self._is_over:
            directory = waiting.pop()
            try:
                entries = list(os.scandir(directory))
            except OSError as fault:
                if _was_closed(directory, self._since, fault):
                    return sys.maxsize, count
                continue
            for entry in entries:
                try:
                    info = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                except OSError:
                    continue
                if info.st_ctime >= self._since:
                    size += info.st_blocks * 512
                    count += 1
        return size, count


def free_space(path: str) -> tuple[int, int]:
    """Free bytes and inodes of the file system."""
    try:
        info = os.statvfs(path)
    except OSError:
        return 0, 0
    return info.f_bfree * info.f_frsize, info.f_ffree


def _was_closed(directory: str, since: float, fault: OSError) -> bool:
    """Whether the command keeps us from looking: by a mode that it has set, or a path longer than the kernel takes."""
    if fault.errno == errno.ENAMETOOLONG:
        return True
    try:
        info = os.stat(directory, follow_symlinks=False)
    except OSError:
        return False
    return fault.errno == errno.EACCES and info.st_uid == os.geteuid() and info.st_ctime >= since


def _unlinked(root: str, first_pid: int) -> int:
    """Bytes in files of the same file system that have no name any more, but that a process of the box holds open."""
    try:
        device = os.stat(root).st_dev
    except OSError:
        return 0
    found: dict[int, int] = {}
    for pid in processes(first_pid) if first_pid else ():
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    info = os.stat(f"/proc/{pid}/fd/{name}")
                    if info.st_nlink == 0 and info.st_dev == device and stat.S_ISREG(info.st_mode):
                        found[info.st_ino] = info.st_blocks * 512
    return sum(found.values())
