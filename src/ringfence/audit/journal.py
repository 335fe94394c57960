"""The journal: one JSON line for each execution, opened before the run and closed after it.

Opening an entry puts the decision on disk, as a pending file of its own; if that cannot be written, nothing runs.
Closing it appends one complete line to the journal and removes the pending file. An execution that never came to its
end (the machine or we died) leaves its pending file; whoever opens the journal next appends it as `interrupted`.
"""

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


@dataclass(slots=True)
class Entry:
    """One execution's record while it runs."""

    journal: "Journal"
    run_id: str
    opened: dict[str, Any]

    def close(self, ended: dict[str, Any]) -> None:
        """Append the line.

        Raises:
            PermissionDenied: it cannot be written.
        """
        self.journal.append(self.opened | ended)
        with suppress(OSError):
            os.unlink(self.journal.pending / self.run_id)


class Journal:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lines = directory / _LINES
        self.pending = directory / _PENDING
        self._descriptor = -1

    @property
    def path(self) -> Path:
        return self._lines

    def open(self, run_id: str, what: dict[str, Any]) -> Entry:
        """Put the decision on disk.

        Raises:
            PermissionDenied: it cannot be written, so nothing may run.
        """
        opened = {"run": run_id, "at": time.time(), "pid": os.getpid()} | what
        try:
            self._write_pending(run_id, opened)
        except FileNotFoundError:
            try:
                self.pending.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._write_pending(run_id, opened)
            except OSError as fault:
                raise _unwritable(self.pending, fault) from fault
        except OSError as fault:
            raise _unwritable(self.pending, fault) from fault
        self._lines_file()  # the line itself must be writable too, and it is better to know before the run
        return Entry(self, run_id, opened)

    def append(self, record: dict[str, Any]) -> None:
        data = _encode(record)
        try:
            # One write to a file opened for appending: lines of several processes do not mix.
            os.write(self._lines_file(), data)
        except OSError as fault:
            raise _unwritable(self._lines, fault) from fault

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def recover(self) -> int:
        """Close what a dead process left open; returns how many."""
        count = 0
        with suppress(OSError):
            for path in list(self.pending.iterdir()):
                count += self._recover(path)
        return count

    def _recover(self, path: Path) -> bool:
        try:
            record = json.loads(path.read_bytes())
            if _is_alive(record["pid"], record["at"]):
                return False
            self.append(record | {"ending": "interrupted"})
            path.unlink()
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return True

    def _write_pending(self, run_id: str, opened: dict[str, Any]) -> None:
        descriptor = os.open(self.pending / run_id, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, _encode(opened))
        finally:
            os.close(descriptor)

    def _lines_file(self) -> int:
        """The journal's descriptor; opened anew if somebody has removed or rotated the file."""
        if self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink == 0:
            self.close()
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                self._descriptor = os.open(self._lines, flags, 0o600)
            except OSError as fault:
                raise _unwritable(self._lines, fault) from fault
        return self._descriptor


def _encode(record: dict[str, Any]) -> bytes:
    # ASCII keeps control characters and half characters of file names escaped: one record is one line, whatever it
    # holds.
    return json.dumps(record, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _is_alive(pid: int, since: float) -> bool:
    """Whether the process that opened an entry still runs; a pid that was given out again started later."""
    try:
        started = os.stat(f"/proc/{pid}").st_ctime
    except OSError:
        return False
    return started <= since + 1


def _unwritable(path: Path, fault: OSError) -> PermissionDenied:
    return PermissionDenied(
        f"the journal {path} cannot be written ({fault.strerror}), so nothing is run",
        hint="make it writable, or set RINGFENCE_STATE_DIR to a directory that is",
    )
