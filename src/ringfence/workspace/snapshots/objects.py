"""Keep pieces of bytes by the SHA-256 of what they hold, each once.

An object is written under a temporary name and renamed, so that what has its name is whole: a process that is killed
leaves at most a temporary file, which the next collection of garbage removes. A machine that loses power may also leave
objects without their content; hence `sync` before anything refers to new ones, and hence an object counts as there only
if it has the right size. Objects are as they were read, neither packed nor encrypted: `sha256sum` can check them.
"""

import ctypes
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ringfence.workspace.snapshots.tree import damaged

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Objects:
    """The objects below a directory, which its owner alone can enter."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._objects = directory / "objects"
        self._temporary = directory / "tmp"
        self.new_bytes = 0
        """Written since this was made."""
        for place in (directory, self._objects, self._temporary):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)

    def put(self, data: bytes) -> str:
        """Keep these bytes; their name."""
        digest = hashlib.sha256(data).hexdigest()
        if not self.has(digest, len(data)):
            self._write(self._path(digest), data)
            self.new_bytes += len(data)
        return digest

    def has(self, digest: str, size: int) -> bool:
        try:
            return os.stat(self._path(digest)).st_size == size
        except FileNotFoundError:
            return False

    def get(self, digest: str) -> bytes:
        """
        Raises:
            Damaged: it is not there, or not what it was.
        """
        if not _DIGEST.fullmatch(digest):
            raise damaged(f"{digest[:80]!r} is not a name of an object")
        try:
            with open(self._path(digest), "rb") as file:
                data = file.read()
        except FileNotFoundError as fault:
            raise damaged(f"the object {digest} is missing") from fault
        if hashlib.sha256(data).hexdigest() != digest:
            raise damaged(f"the object {digest} is not what it was")
        return data

    def sync(self) -> None:
        """Have all that was put on the disk: one call for the file system, as one for each object takes far longer.

        Also what others put: an object that we found may not be on the disk yet.
        """
        descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        finally:
            os.close(descriptor)

    def publish(self, path: Path, data: bytes) -> bool:
        """Give a file that is not an object its name, on the disk; False if the name is taken."""
        temporary = self._new_name()
        self._fill(temporary, data, on_disk=True)
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)
        sync_directory(path.parent)
        return True

    def replace(self, path: Path, data: bytes, *, on_disk: bool) -> None:
        """Put a file that is not an object in the place of an older one."""
        temporary = self._new_name()
        self._fill(temporary, data, on_disk=on_disk)
        os.rename(temporary, path)

    def sweep(self, kept: set[str]) -> tuple[int, int]:
        """Remove all objects but these, and what killed processes left; how many, and their bytes.

        Only while nobody else writes: an object that was just put is not referred to yet.
        """
        count = total = 0
        for entry in list(_files(self._objects)):
            if os.path.basename(os.path.dirname(entry.path)) + entry.name not in kept:
                total += entry.stat(follow_symlinks=False).st_size
                count += 1
                os.unlink(entry.path)
        for name in os.listdir(self._temporary):
            os.unlink(self._temporary / name)
        return count, total

    def _path(self, digest: str) -> str:
        return f"{self._objects}/{digest[:2]}/{digest[2:]}"

    def _new_name(self) -> str:
        return f"{self._temporary}/{os.getpid()}-{secrets.token_hex(8)}"

    def _write(self, path: str, data: bytes) -> None:
        temporary = self._new_name()
        self._fill(temporary, data, on_disk=False)
        try:
            try:
                os.rename(temporary, path)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(os.path.dirname(path), 0o700)
                os.rename(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise

    def _fill(self, path: str, data: bytes, *, on_disk: bool) -> None:
        descriptor = os.open(path, _NEW_FILE, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if on_disk:
                os.fsync(descriptor)
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Have the names in a directory on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(directory: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as groups:
        for group in groups:
            with os.scandir(group.path) as entries:
                yield from entries
