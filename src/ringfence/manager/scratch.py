"""Workspaces of our own making: one directory for each session, gone with it.

They lie in one directory for each process that makes them, which it holds locked. Whoever comes next removes those
whose process has died. Directories of other names are not theirs: the workspaces of named sessions lie beside them.
"""

import fcntl
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ringfence.errors import PermissionDenied
from ringfence.manager.session_places import settle_abandoned
from ringfence.workspace.places import workspaces_directory
from ringfence.workspace.removing import remove_tree

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWN_NAME = re.compile(r"\d+-[0-9a-f]{8}")


def scratch_directory(environ: Mapping[str, str], home: str) -> Path:
    return workspaces_directory(environ, home)


class Scratch:
    """Makes and removes workspaces; close it."""

    def __init__(self, directory: Path, contents: tuple[str, ...] = ()) -> None:
        """
        Args:
            contents: directories that are in each new workspace.

        Raises:
            PermissionDenied: the directory cannot be made or written.
        """
        self._contents = contents
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _remove_abandoned(directory)
            self._own, self._lock = _claim(directory)
        except OSError as fault:
            raise PermissionDenied(
                f"no workspaces can be made in {directory} ({fault.strerror})",
                hint="make it writable, or set RINGFENCE_WORKSPACES_DIR to a directory that is",
            ) from fault

    def make(self) -> Path:
        """A new workspace, with nothing in it but `contents`."""
        path = self._own / os.urandom(8).hex()
        path.mkdir(mode=0o700)
        for name in self._contents:
            (path / name).mkdir(mode=0o700)
        return path

    def remove_empty(self, workspace: Path) -> bool:
        """Remove one if nothing is in it, as in most, or it is gone already; does not take long."""
        for name in self._contents:
            with suppress(OSError):
                os.rmdir(workspace / name)
        try:
            os.rmdir(workspace)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def remove(self, workspace: Path) -> None:
        """Remove one with all that is in it, which may take long; what resists is left to whoever comes next."""
        with suppress(OSError):
            remove_tree(workspace)

    def close(self) -> None:
        if self._lock >= 0:
            self.remove(self._own)
            os.close(self._lock)
            self._lock = -1


def _claim(directory: Path) -> tuple[Path, int]:
    """A new directory that we hold locked. If somebody takes it for abandoned before we do, another one."""
    while True:
        own = directory / f"{os.getpid()}-{os.urandom(4).hex()}"
        own.mkdir(mode=0o700)
        with suppress(FileNotFoundError):
            lock = os.open(own, _DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return own, lock
            os.close(lock)


def _remove_abandoned(directory: Path) -> None:
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if _OWN_NAME.fullmatch(entry.name)]
    for name in names:
        with suppress(OSError):
            lock = os.open(directory / name, _DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                settle_abandoned(directory, directory / name)
                remove_tree(directory / name)
            finally:
                os.close(lock)
