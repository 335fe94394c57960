"""Watches how much the writable directories grow.

A bind of the host's directory has no quota. Asking the file system for its free space is cheap but sees everybody; so
it is only the trip wire, and the directories are walked when as much has gone as the box may use. What others free in
between does not count, or it would hide what the box takes.
"""

import os
from dataclasses import dataclass

from ringfence.values.limits import Limit

_SLACK_SECONDS = 1.0  # file times come from the kernel's tick, and clocks step


@dataclass(slots=True)
class _Root:
    path: str
    space: int
    inodes: int
    taken_bytes: int = 0
    taken_files: int = 0


class DiskWatch:
    def __init__(self, roots: tuple[str, ...], *, disk_bytes: int, files: int, started: float) -> None:
        self._bytes = disk_bytes
        self._files = files
        self._since = started - _SLACK_SECONDS
        self._roots = [_Root(path, *_free(path)) for path in roots]

    @property
    def room_bytes(self) -> int:
        """How much may still go before a directory is walked."""
        return min((self._bytes - root.taken_bytes for root in self._roots), default=self._bytes)

    def exceeded(self) -> Limit | None:
        """Which limit the growth since the start passes, if one."""
        for root in self._roots:
            space, inodes = _free(root.path)
            root.taken_bytes += max(0, root.space - space)
            root.taken_files += max(0, root.inodes - inodes)
            root.space, root.inodes = space, inodes
            if root.taken_bytes <= self._bytes and root.taken_files <= self._files:
                continue
            root.taken_bytes, root.taken_files = _grown(root.path, self._since)
            if root.taken_bytes > self._bytes:
                return Limit.DISK
            if root.taken_files > self._files:
                return Limit.FILES
        return None


def _free(path: str) -> tuple[int, int]:
    """Free bytes and inodes of the file system."""
    try:
        info = os.statvfs(path)
    except OSError:
        return 0, 0
    return info.f_bfree * info.f_frsize, info.f_ffree


def _grown(root: str, since: float) -> tuple[int, int]:
    """Bytes and number of the files below `root` that changed since then."""
    size = count = 0
    waiting = [root]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                info = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
            except OSError:
                continue
            if info.st_ctime >= since:
                size += info.st_blocks * 512
                count += 1
    return size, count
