"""Workspaces of our own making: one directory for each session, gone with it.

They lie in one directory for each process that makes them, which it holds locked. Whoever comes next removes those
whose process has died.
"""

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ringfence.errors import PermissionDenied

_LOCK = ".lock"


def scratch_directory(environ: Mapping[str, str], home: str) -> Path:
    return Path(environ.get("RINGFENCE_WORKSPACES_DIR") or os.path.join(home, ".ringfence", "workspaces"))


class Scratch:
    """Makes and removes workspaces; close it."""

    def __init__(self, directory: Path) -> None:
        """
        Raises:
            PermissionDenied: the directory cannot be made or written.
        """
        self._own = directory / f"{os.getpid()}-{os.urandom(4).hex()}"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _remove_abandoned(directory)
            self._own.mkdir(mode=0o700)
            self._lock = os.open(self._own / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise PermissionDenied(
                f"no workspaces can be made in {directory} ({fault.strerror})",
                hint="make it writable, or set RINGFENCE_WORKSPACES_DIR to a directory that is",
            ) from fault
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def make(self) -> Path:
        """A new, empty workspace."""
        path = self._own / os.urandom(8).hex()
        path.mkdir(mode=0o700)
        return path

    def remove(self, workspace: Path) -> None:
        """Remove one with all that is in it; follows no link."""
        with suppress(OSError):
            os.rmdir(workspace)  # most are empty, and then this is all
            return
        shutil.rmtree(workspace, ignore_errors=True)

    def close(self) -> None:
        if self._lock >= 0:
            shutil.rmtree(self._own, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_abandoned(directory: Path) -> None:
    for entry in os.scandir(directory):
        if not entry.is_dir(follow_symlinks=False):
            continue
        with suppress(OSError):
            lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(entry.path, ignore_errors=True)
            finally:
                os.close(lock)
