"""The journal: one JSON line for each execution, opened before the run and closed after it.

Opening an entry puts the decision on disk, into a pending file that the writer holds locked; if that cannot be written,
nothing runs. Closing it appends one complete line to the journal. A writer that died (or whose machine did) leaves its
pending file unlocked; whoever looks next appends what was open in it as `interrupted`.
"""

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringfence.errors import PermissionDenied

_LINES = "journal.jsonl"
_PENDING = "pending"
_NEW = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Entry:
    """One execution's record while it runs."""

    journal: "Journal"
    opened: dict[str, Any]

    def close(self, ended: dict[str, Any]) -> None:
        """Append the line.

        Raises:
            PermissionDenied: it cannot be written.
        """
        self.journal.close_entry(self.opened, ended)


class Journal:
    """One writer's hold on the journal in a directory; close it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / _LINES
        self.pending = directory / _PENDING
        self._lines = -1
        self._own = -1
        self._own_path = self.pending / f"{os.getpid()}-{os.urandom(4).hex()}"
        self._open: set[str] = set()
        self._closing = False

    def open(self, run_id: str, what: dict[str, Any]) -> Entry:
        """Put the decision on disk.

        Raises:
            PermissionDenied: it cannot be written, so nothing may run.
        """
        opened = {"run": run_id, "at": time.time(), "pid": os.getpid()} | what
        try:
            if self._own < 0:
                self._own = self._make_own()
            os.write(self._own, _encode(opened))
        except OSError as fault:
            raise _unwritable(self.pending, fault) from fault
        self._lines_file()  # the line itself must be writable too, and it is better to know before the run
        self._open.add(run_id)
        return Entry(self, opened)

    def close_entry(self, opened: dict[str, Any], ended: dict[str, Any]) -> None:
        """See `Entry.close`."""
        self._append(opened | ended)
        self._open.discard(opened["run"])
        with suppress(OSError):
            if self._open:
                os.write(self._own, _encode({"run": opened["run"], "closed": True}))
            else:
                os.ftruncate(self._own, 0)
        if self._closing:
            self.close()

    def prepare(self) -> None:
        """Make the directory, so that a box whose workspace it lies in can hide it; `open` complains if it is not."""
        with suppress(OSError):
            self.pending.mkdir(parents=True, exist_ok=True, mode=0o700)

    def recover(self) -> int:
        """Close what dead writers left open; returns how many entries."""
        count = 0
        with suppress(OSError):
            for path in list(self.pending.iterdir()):
                if path != self._own_path:
                    count += self._recover(path)
        return count

    def close(self) -> None:
        """Let the files go; waits for the last open entry, which its run closes a moment later."""
        self._closing = True
        if self._open:
            return
        if self._own >= 0:
            with suppress(OSError):
                os.unlink(self._own_path)
            os.close(self._own)
            self._own = -1
        if self._lines >= 0:
            os.close(self._lines)
            self._lines = -1

    def _recover(self, path: Path) -> int:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left = _still_open(os.read(descriptor, os.fstat(descriptor).st_size))
            for record in left:
                self._append(record | {"ending": "interrupted"})
            os.unlink(path)
        except OSError:
            return 0  # its writer lives, or another process was faster
        finally:
            os.close(descriptor)
        return len(left)

    def _make_own(self) -> int:
        try:
            descriptor = os.open(self._own_path, _NEW | os.O_EXCL, 0o600)
        except FileNotFoundError:
            self.pending.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._own_path, _NEW | os.O_EXCL, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return descriptor

    def _append(self, record: dict[str, Any]) -> None:
        try:
            # One write to a file opened for appending: lines of several processes do not mix.
            os.write(self._lines_file(), _encode(record))
        except OSError as fault:
            raise _unwritable(self.path, fault) from fault

    def _lines_file(self) -> int:
        """The journal's descriptor; opened anew if somebody has removed or rotated the file."""
        if self._lines >= 0 and not self._is_ours():
            os.close(self._lines)
            self._lines = -1
        if self._lines < 0:
            try:
                self._lines = os.open(self.path, _NEW, 0o600)
            except OSError as fault:
                raise _unwritable(self.path, fault) from fault
        return self._lines

    def _is_ours(self) -> bool:
        """Whether the file that we have open still is the one of that name."""
        try:
            return os.path.samestat(os.fstat(self._lines), os.lstat(self.path))
        except OSError:
            return False


def _still_open(data: bytes) -> list[dict[str, Any]]:
    """The records of a pending file that were opened and not closed; a torn last line was never acted upon."""
    found: dict[str, dict[str, Any]] = {}
    for line in data.splitlines():
        with suppress(ValueError, KeyError, TypeError):
            record = dict(json.loads(line))
            if record.get("closed"):
                found.pop(record["run"], None)
            else:
                found[record["run"]] = record
    return list(found.values())


def _encode(record: dict[str, Any]) -> bytes:
    # ASCII keeps control characters and half characters of file names escaped: one record is one line, whatever it
    # holds.
    return json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _unwritable(path: Path, fault: OSError) -> PermissionDenied:
    return PermissionDenied(
        f"the journal {path} cannot be written ({fault.strerror}), so nothing is run",
        hint="make it writable, or set RINGFENCE_STATE_DIR to a directory that is",
    )
