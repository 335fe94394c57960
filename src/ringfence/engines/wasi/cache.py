"""The private directory with compiled code, and the proof that nobody has changed what lies in it.

    CACHE/seal.key                  a secret of this directory
    CACHE/seals/NAME                hash, size, inode and change time of a file, under that secret
    CACHE/runner-VERSION/           what boxes see as /__runner__: the runner, wasmtime's library, code/, bundles/
    CACHE/guests/                   what was built here, before it is compiled

Compiled code is machine code, and wasmtime takes it as it is. So none ever comes from a bundle, and what lies here is
compared with its seal before a box sees it: by its change time, which nobody can set back, or else by its hash.

What this does not protect against: whoever acts as the same user and reads the secret, too.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ringfence.bundles.private import make_private, replace_file
from ringfence.errors import Damaged, FileError

_AGAIN: Final = "remove the file, or the whole cache directory: it is made again"
_PIECE: Final = 1 << 20


class Cache:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seals = directory / "seals"

    def make(self) -> None:
        """Make the directory, if it is not there.

        Raises:
            PermissionDenied, FileError: it cannot be made, or others could write it.
        """
        for each in (self.directory, self._seals, self.directory / "guests"):
            make_private(each)

    @contextmanager
    def alone(self, name: str) -> Iterator[None]:
        """One process at a time makes a thing; the next finds it made."""
        descriptor = os.open(self.directory / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def has(self, path: Path) -> bool:
        """Whether a file is there and as it was put there.

        Raises:
            Damaged: it is there, and somebody has changed it or its seal.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError as fault:
            raise FileError.of(fault.errno or 0, os.fspath(path)) from None
        try:
            seal = self._read(path)
            status = os.fstat(descriptor)
            if seal is None:
                raise Damaged("has no seal: it was not put there by Ringfence", source=os.fspath(path), hint=_AGAIN)
            if [status.st_size, status.st_ino, status.st_ctime_ns] == seal["state"]:
                return True
            if status.st_uid != os.geteuid() or _hash(descriptor) != seal["sha256"]:
                raise Damaged("was changed since it was put there", source=os.fspath(path), hint=_AGAIN)
            self._seal(path, descriptor)  # moved, or restored from a backup
            return True
        finally:
            os.close(descriptor)

    def put(self, path: Path, data: bytes) -> None:
        """Put a file there that everybody may read and nobody may write, with its seal."""
        replace_file(path, data, 0o444)
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            self._seal(path, descriptor)
        finally:
            os.close(descriptor)

    def _seal(self, path: Path, descriptor: int) -> None:
        status = os.fstat(descriptor)
        state = [status.st_size, status.st_ino, status.st_ctime_ns]
        body = json.dumps({"path": self._name(path), "sha256": _hash(descriptor), "state": state})
        replace_file(self._seal_of(path), json.dumps({"seal": body, "mac": self._mac(body)}).encode(), 0o600)

    def _read(self, path: Path) -> dict[str, object] | None:
        try:
            given = json.loads(self._seal_of(path).read_bytes())
            body, mac = given["seal"], given["mac"]
            if not hmac.compare_digest(mac, self._mac(body)):
                return None
            seal: dict[str, object] = json.loads(body)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return seal if seal["path"] == self._name(path) else None

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self.directory)

    def _seal_of(self, path: Path) -> Path:
        return self._seals / hashlib.sha256(self._name(path).encode()).hexdigest()[:32]

    def _mac(self, body: str) -> str:
        return hmac.new(self._secret(), body.encode(), hashlib.sha256).hexdigest()

    def _secret(self) -> bytes:
        path = self.directory / "seal.key"
        with suppress(FileExistsError):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
        return path.read_bytes()


def _hash(descriptor: int) -> str:
    total = hashlib.sha256()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while piece := os.read(descriptor, _PIECE):
        total.update(piece)
    return total.hexdigest()
