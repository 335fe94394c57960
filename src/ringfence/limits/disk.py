"""Watches how much the writable directories grow.

A bind of the host's directory has no quota. Asking the file system for its free space is cheap but sees everybody; so
it is only the trip wire, and the directories are walked when it says that as much has gone as the box may use.
"""

import os
from dataclasses import dataclass

from ringfence.values.limits import Limit

_SLACK_SECONDS = 1.0  # file times come from the kernel's tick, and clocks step


@dataclass(slots=True)
class _Free:
    space: int
    inodes: int


class DiskWatch:
    def __init__(self, roots: tuple[str, ...], *, disk_bytes: int, files: int, started: float) -> None:
        self._roots = roots
        self._bytes = disk_bytes
        self._files = files
        self._since = started - _SLACK_SECONDS
        self._free = [_free(root) for root in roots]

    def exceeded(self) -> Limit | None:
        """Which limit the growth since the start passes, if one."""
        for index, root in enumerate(self._roots):
            then, now = self._free[index], _free(root)
            if then.space - now.space <= self._bytes and then.inodes - now.inodes <= self._files:
                continue
            size, count = _grown(root, self._since)
            if size > self._bytes:
                return Limit.DISK
            if count > self._files:
                return Limit.FILES
            # Somebody else's doing: the wire is set anew, so that it takes as much again to walk again.
            self._free[index] = now
        return None


def _free(root: str) -> _Free:
    try:
        info = os.statvfs(root)
    except OSError:
        return _Free(0, 0)
    return _Free(info.f_bfree * info.f_frsize, info.f_ffree)


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
