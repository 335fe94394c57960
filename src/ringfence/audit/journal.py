"""The journal: one record for each execution, opened before the run and closed after it.

Opening an entry puts the decision on disk, into a pending file that the writer holds locked; if that cannot be written,
nothing runs. Closing it appends one complete record to the chained log. A writer that died (or whose machine did)
leaves its pending file unlocked; whoever looks next appends what was open in it as `interrupted`.

A record that cannot be appended, on a full disk say, stays pending. It is tried again before anything else is opened,
and at the end; until then nothing runs.
"""

import json
import mmap
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.audit.chain import EXECUTION, encode, join
from ringfence.audit.clock import rfc3339
from ringfence.audit.files import rotated
from ringfence.audit.log import Log
from ringfence.audit.pending import Pending, still_open, take_over
from ringfence.audit.record import interrupted
from ringfence.dataclass import dataclass
from ringfence.deferred import deferred
from ringfence.errors import PermissionDenied
from ringfence.policy.audit_settings import AuditSettings, Fsync

if TYPE_CHECKING:
    from ringfence.audit.signing import Signer
else:
    Signer = deferred("ringfence.audit.signing", "Signer")


_PENDING = "pending"
_CLOCK_SECONDS = 2.0
"""By how much the time of a file may be behind that of a record."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One execution's record while it runs."""

    journal: "Journal"
    run: str
    opened: str
    """Its fields so far, encoded."""

    def close(self, ended: dict[str, Any]) -> None:
        """Append the record. `ended` names no field that exists already.

        Raises:
            PermissionDenied: it cannot be written.
        """
        self.journal.close_entry(self, ended)


class Journal:
    """One writer's hold on the journal in a directory; close it.

    Raises:
        InvalidConfig: the key that is to sign it cannot be used.
    """

    def __init__(self, directory: Path, settings: AuditSettings | None = None) -> None:
        self.settings = settings or AuditSettings()
        signer = Signer(self.settings.key) if self.settings.key is not None else None
        self._log = Log(directory, self.settings, signer)
        self._pending = Pending(directory / _PENDING)
        self._unwritten: dict[str, str] = {}
        """Whole records that could not be appended yet, by run."""
        self._closing = False
        self._owner = os.getpid()

    @property
    def path(self) -> Path:
        """The file that is written."""
        return self._log.path

    def open(self, run_id: str, what: dict[str, Any]) -> Entry:
        """Put the decision on disk.

        Raises:
            PermissionDenied: it cannot be written, so nothing may run.
        """
        if self._owner != os.getpid():  # what is pending belongs to the process that we were forked from
            self._owner = os.getpid()
            self._pending, self._unwritten = Pending(self._pending.directory), {}
        opened = {"event_type": EXECUTION, "timestamp": rfc3339(), "run": run_id} | what
        text = encode(opened)
        try:
            if self._unwritten:
                self._catch_up()
            self._log.check_writable()
            self._pending.put(run_id, text, durable=self.settings.fsync is Fsync.EACH)
        except OSError as fault:
            raise _unwritable(self.path, fault) from fault
        return Entry(self, run_id, text)

    def close_entry(self, entry: Entry, ended: dict[str, Any]) -> None:
        """See `Entry.close`."""
        record = join(entry.opened, encode(ended | {"ended_at": rfc3339()}))
        try:
            self._log.append((record,))
        except OSError as fault:
            self._unwritten[entry.run] = record
            raise _unwritable(self.path, fault) from fault
        finally:
            if entry.run not in self._unwritten:
                self._pending.strike(entry.run)
            if self._closing:
                self.close()

    def prepare(self) -> None:
        """Make the directory, so that a box whose workspace it lies in can hide it; `open` complains if it is not."""
        with suppress(OSError):
            self._pending.directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def recover(self) -> int:
        """Mend what a crash left in the log, and close what dead writers left open; returns how many entries."""
        count = 0
        with suppress(OSError):
            if self.path.exists():
                self._log.append(())
            for path in list(self._pending.directory.iterdir()):
                if path != self._pending.path:
                    count += self._recover(path)
        return count

    def take_notes(self) -> tuple[str, ...]:
        """What had to be mended since the last time, for whoever wants to say it."""
        notes = tuple(self._log.notes)
        self._log.notes.clear()
        return notes

    def close(self) -> None:
        """Let the files go; waits for the last open entry, which its run closes a moment later."""
        self._closing = True
        if self._unwritten:
            with suppress(OSError):
                self._catch_up()
        if len(self._pending) > len(self._unwritten):
            return
        self._pending.close()
        self._log.close()

    def _catch_up(self) -> None:
        for run, record in tuple(self._unwritten.items()):
            self._log.append((record,))
            del self._unwritten[run]
            self._pending.strike(run)

    def _recover(self, path: Path) -> int:
        descriptor = take_over(path)
        if descriptor is None:
            return 0
        count = 0
        try:
            self._log.append(())  # half a record, which its writer may have left just now, must not count as one
            for begin, opened in still_open(os.pread(descriptor, os.fstat(descriptor).st_size, 0)):
                if not self._is_recorded(opened):
                    self._log.append((join(opened, encode(interrupted() | {"ended_at": None})),))
                    count += 1
                os.pwrite(descriptor, b"#", begin)
            os.unlink(path)
        except OSError:
            return count  # the next one goes on with it
        finally:
            os.close(descriptor)
        return count

    def _is_recorded(self, opened: str) -> bool:
        """Whether its writer died after it had appended the record: looks through all that was written since then."""
        fields = json.loads(opened)
        mark = f',"run":{encode(fields.get("run"))},'.encode("ascii")
        since = str(fields.get("timestamp"))
        for path in (self.path, *rotated(self.path.parent).values()):
            with suppress(OSError):
                if rfc3339(path.stat().st_mtime + _CLOCK_SECONDS) >= since and _holds(path, mark):
                    return True
        return False


def _holds(path: Path, mark: bytes) -> bool:
    """Whether a file holds a text. Quotes within a record's own texts are escaped, so that none can pretend to."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.find(mark) >= 0
    except (OSError, ValueError):
        return False  # not there, or empty


def _unwritable(path: Path, fault: OSError) -> PermissionDenied:
    return PermissionDenied(
        f"the journal {path} cannot be written ({fault.strerror}), so nothing is run",
        hint="make it writable, or set RINGFENCE_STATE_DIR to a directory that is",
    )
