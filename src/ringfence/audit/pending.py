"""One writer's open entries, on disk while they run.

The file has one line for each: a checksum, a blank, the encoded fields. Closing an entry overwrites the first byte of
its line, and its room is used again: two small writes in place, no growing and no truncating, which would cost ten
times as much. What is left of older lines has no valid checksum, or was closed.

The writer holds its file locked. A file that is not locked was left by a dead writer, and whoever finds it may close
what is open in it.
"""

import fcntl
import json
import os
import zlib
from contextlib import suppress
from pathlib import Path

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CLOSED = b"#"
_SIZE_MAX = 64 * 1024 * 1024
"""Of a file that is taken over; ours have some kilobytes."""


class Pending:
    """The file of this writer; made by the first entry."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._descriptor = -1
        self._slots: dict[str, tuple[int, int]] = {}
        """Begin and end of each open entry."""

    def __len__(self) -> int:
        return len(self._slots)

    def put(self, run: str, text: str, *, durable: bool = False) -> None:
        """Write an entry; on return it is in the file.

        Raises:
            OSError: it is not.
        """
        if self._descriptor < 0:
            self._descriptor = self._make()
        data = text.encode("ascii")
        line = b"%08x %b\n" % (zlib.crc32(data), data)
        begin = self._room(len(line))
        if os.pwrite(self._descriptor, line, begin) != len(line):
            raise OSError(28, "No space left on device")
        self._slots[run] = (begin, begin + len(line))
        if durable:
            os.fdatasync(self._descriptor)

    def strike(self, run: str) -> None:
        """Close an entry."""
        slot = self._slots.pop(run, None)
        if slot is not None:
            try:  # noqa: SIM105  this is run for every record, and `suppress` takes as long as the write
                os.pwrite(self._descriptor, _CLOSED, slot[0])
            except OSError:
                pass  # it is found again by its id if we die

    def close(self) -> None:
        """Let the file go; with nothing open in it, it is removed, else it is left to be found."""
        if self._descriptor < 0:
            return
        if not self._slots:
            with suppress(OSError):
                os.unlink(self.path)
        os.close(self._descriptor)
        self._descriptor = -1
        self._slots.clear()

    def _room(self, length: int) -> int:
        """Where the first gap between open entries is that holds so many bytes."""
        begin = 0
        for taken, end in sorted(self._slots.values()):
            if taken - begin >= length:
                break
            begin = end
        return begin

    def _make(self) -> int:
        while True:
            try:
                descriptor = os.open(self.path, _NEW, 0o600)
            except FileNotFoundError:
                self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                continue
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)  # somebody took it for a dead writer's before we had it locked


def take_over(path: Path) -> int | None:
    """A descriptor of a dead writer's file, locked by us; None if its writer lives, or somebody was faster."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink and os.fstat(descriptor).st_size <= _SIZE_MAX:
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def still_open(data: bytes) -> list[tuple[int, str]]:
    """Where each open entry of a pending file begins, and its text. A torn line was never acted upon."""
    found: list[tuple[int, str]] = []
    begin = 0
    for line in data.split(b"\n"):
        check, _, text = line.partition(b" ")
        if text[:1] == b"{" and text.isascii() and check == b"%08x" % zlib.crc32(text):
            with suppress(ValueError):
                json.loads(text)
                found.append((begin, text.decode("ascii")))
        begin += len(line) + 1
    return found
