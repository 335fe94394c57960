"""The log: files of chained records that several processes append to.

`journal.jsonl` is written; when it is full it becomes `journal-000001.jsonl`, and so on, and the chain goes on in a new
one. To append, a writer locks the head, sees that the log ends as the head says, writes the line, then the head. So the
log is never behind the head, unless somebody, or a power cut, took records away:

    log longer than the head   a writer died between the two: whole lines that continue the chain are taken in, half a
                               line is moved aside (`torn-...`) and a `repaired` record says so
    log shorter, gone, other   a `damaged` record says so. It continues from the head, so that what is lost stays
                               missing in the chain for ever
    head gone                  it is made from the last record, and a `damaged` record says so

What this does not protect against: somebody who may write in the directory can make a new log with a new chain and a
new head. Signed checkpoints (`signing`) show that, if that somebody cannot read the key; not that the log was set back
to an earlier checkpoint. For that, the last hash has to be kept where they cannot write (`ringfence audit verify
--anchor`). Nothing shows that a record was never written by a process that they control.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import math
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.audit import chain
from ringfence.audit.chain import encode, read_link, seal, true_hash
from ringfence.audit.clock import rfc3339
from ringfence.audit.files import CURRENT, numbered, read_last_line, rotated
from ringfence.audit.head import HEAD_BYTES, HEAD_FILE, Head
from ringfence.policy.audit_settings import AuditSettings, Fsync

if TYPE_CHECKING:
    from ringfence.audit.signing import Signer

_LOCK_SECONDS: Final = 10.0
"""A writer holds the lock for microseconds; one that was stopped in between must not stop all others for ever."""
_TORN_MAX: Final = 16 * 1024 * 1024
"""How much behind the head is looked at."""
_FREE_MIN: Final = 64 * 1024
"""Bytes free on the disk below which nothing is begun: what is begun has to be closed."""
_LOOK_SECONDS: Final = 0.05
"""How old what we know of the disk, and of the names of our files, may be."""
_OPEN_HEAD = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = _OPEN_HEAD | os.O_APPEND


class Log:
    """One writer's hold on the log in a directory; close it."""

    def __init__(self, directory: Path, settings: AuditSettings, signer: Signer | None = None) -> None:
        self.directory = directory
        self.path = directory / CURRENT
        self.notes: list[str] = []
        """What was repaired, or found damaged, for whoever wants to say it."""
        self._path = os.fspath(self.path)
        self._settings = settings
        self._signer = signer
        self._lines = -1
        self._lines_inode = 0
        self._head_file = -1
        self._owner = os.getpid()
        self._raw = b""
        self._head = Head()
        self._synced = time.monotonic()
        self._looked = self._named = -math.inf

    def check_writable(self) -> None:
        """Open the files, and see that there is room; it is better to know before something runs.

        Raises:
            OSError: they cannot be written.
        """
        if self._head_file < 0 or self._lines < 0:
            self.append(())
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        space = os.fstatvfs(self._head_file)
        self._looked = now
        if space.f_bavail * space.f_frsize < _FREE_MIN:
            self._looked = -math.inf
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def append(self, records: Iterable[str]) -> Head:
        """Append encoded records, one line each; with none, the log is only looked after.

        Raises:
            OSError: they are not in the log.
        """
        self._lock()
        try:
            head = self._caught_up()
            for fields in records:
                head = self._append(fields, head)
            if self._signer is not None and self._is_due(head):
                head = self._append(self._signer.checkpoint(head.seq + 1, head.hash), head)
                head = self._keep(head._replace(signed_seq=head.seq, signed_at=int(time.time())))
            return head
        finally:
            fcntl.flock(self._head_file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let the files go."""
        if self._lines >= 0:
            if self._settings.fsync is Fsync.INTERVAL:
                with suppress(OSError):
                    os.fdatasync(self._lines)
            os.close(self._lines)
            self._lines = -1
        if self._head_file >= 0:
            os.close(self._head_file)
            self._head_file = -1

    # --- one record ---------------------------------------------------------------------------------------------------

    def _append(self, fields: str, head: Head) -> Head:
        line, digest = seal(fields, head.seq + 1, head.hash)
        if head.size and head.size + len(line) > self._settings.max_bytes:
            head = self._rotate(head)
        try:
            written = os.write(self._lines, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._sync()
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._lines, head.size)
            raise
        seq, _, file, size, *rest = head
        return self._keep(Head(seq + 1, digest, file, size + len(line), *rest))

    def _sync(self) -> None:
        match self._settings.fsync:
            case Fsync.NEVER:
                return
            case Fsync.INTERVAL if time.monotonic() - self._synced < self._settings.fsync_seconds:
                return
        # Before the head: after a power cut the head may be behind the log, which is mended, never ahead of it.
        os.fdatasync(self._lines)
        self._synced = time.monotonic()

    def _keep(self, head: Head) -> Head:
        raw = head.encode()
        if os.pwrite(self._head_file, raw, 0) != len(raw):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._raw, self._head = raw, head
        return head

    def _is_due(self, head: Head) -> bool:
        since = head.seq - head.signed_seq
        late = time.time() - head.signed_at >= self._settings.checkpoint_seconds
        return since >= self._settings.checkpoint_records or (since > 0 and late)

    # --- files --------------------------------------------------------------------------------------------------------

    def _lock(self) -> None:
        """Lock the head.

        Raises:
            OSError: it cannot be opened, or another process holds it for long.
        """
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._named = -math.inf
            self.close()  # a lock is shared with the process that we were forked from, and would keep nobody out
        if self._head_file < 0:
            self._head_file = _open(self.directory / HEAD_FILE, _OPEN_HEAD)
        deadline, pause = 0.0, 50e-6
        while True:
            try:
                fcntl.flock(self._head_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                now = time.monotonic()
                deadline = deadline or now + _LOCK_SECONDS
                if now > deadline:
                    raise OSError(errno.ETIMEDOUT, "another process holds it locked") from None
                time.sleep(pause)
                pause = min(pause * 1.5, 0.005)
                continue
            if self._names_are_known() or os.fstat(self._head_file).st_nlink:
                return
            os.close(self._head_file)  # somebody has removed it: the others lock another one
            self._head_file = _open(self.directory / HEAD_FILE, _OPEN_HEAD)

    def _names_are_known(self) -> bool:
        """Whether we saw a moment ago that our files still have their names: only somebody else takes them away."""
        return time.monotonic() - self._named < _LOOK_SECONDS

    def _caught_up(self) -> Head:
        """The head, when the log is as it says; otherwise what comes of mending it."""
        raw = os.pread(self._head_file, HEAD_BYTES, 0)
        is_ours = raw == self._raw and self._lines >= 0 and self._names_are_known()
        if is_ours and os.lseek(self._lines, 0, os.SEEK_END) == self._head.size:
            return self._head
        if raw != self._raw or not raw:
            head = Head.decode(raw)
            if head is None:
                return self._without_head(is_new=not raw)
            self._raw, self._head = raw, head
        head = self._head
        try:
            info = os.stat(self._path, follow_symlinks=False)
        except FileNotFoundError:
            return self._without_log(head)
        if info.st_ino != head.inode:
            return self._other_log(head, info.st_size)
        if self._lines < 0 or self._lines_inode != info.st_ino:
            self._open_lines()
        self._named = time.monotonic()
        if info.st_size > head.size:
            return self._longer(head, info.st_size)
        if info.st_size < head.size:
            return self._damaged(head._replace(size=info.st_size), f"the log was cut: {head.size} bytes were written")
        return head

    def _open_lines(self) -> int:
        """Open the current file; returns its size."""
        if self._lines >= 0:
            os.close(self._lines)
            self._lines = -1
        self._lines = _open(self.path, _OPEN)
        info = os.fstat(self._lines)
        self._lines_inode = info.st_ino
        return info.st_size

    def _begin_file(self, head: Head, number: int) -> Head:
        size = self._open_lines()
        if self._settings.fsync is not Fsync.NEVER:
            _sync_directory(self.directory)
        return self._keep(head._replace(file=number, size=size, inode=self._lines_inode))

    def _rotate(self, head: Head) -> Head:
        if self._settings.fsync is not Fsync.NEVER:
            os.fdatasync(self._lines)
        target = self.directory / numbered(head.file)
        if os.path.lexists(target):  # somebody put it there; the head first, since mending looks where it points
            head = self._keep(head._replace(file=max(rotated(self.directory), default=head.file) + 1))
            target = self.directory / numbered(head.file)
        os.rename(self.path, target)
        return self._begin_file(head, head.file + 1)

    # --- mending ------------------------------------------------------------------------------------------------------

    def _without_head(self, *, is_new: bool) -> Head:
        """Make the head from what there is; a log that has one does not lose it by a crash."""
        size = self._open_lines()
        older = rotated(self.directory)
        number = max(older, default=0) + 1
        if not size and not older:
            return self._begin_file(Head(), 1)
        last = read_last_line(self._lines) or next(
            (line for path in sorted(older.items(), reverse=True) if (line := _last_of(path[1]))), None
        )
        link = read_link(last) if last is not None else None
        torn = self._move_torn(0, size)
        size -= len(torn)
        if link is None:
            head = self._keep(Head(file=number, size=size, inode=self._lines_inode))
            digest = _sha256_of(self.path)
            fields = {"event_type": chain.BEGUN, "timestamp": rfc3339(), "bytes_before": size, "sha256_before": digest}
            head = self._append(encode(fields), head)
            return self._repaired(head, torn) if torn else head
        head = Head(seq=link.seq, hash=link.hash, file=number, size=size, inode=self._lines_inode)
        self._keep(head)
        what = "the head was gone" if is_new else "the head was not whole"
        return self._damaged(head, f"{what}; records after {link.seq} may have been cut")

    def _without_log(self, head: Head) -> Head:
        rotated_file = self.directory / numbered(head.file)
        with suppress(OSError):
            if os.stat(rotated_file, follow_symlinks=False).st_ino == head.inode:
                return self._begin_file(head, head.file + 1)  # a rotation that a crash cut short
        head = self._begin_file(head, head.file + 1)
        return head if not head.seq else self._damaged(head, "the log was gone")

    def _other_log(self, head: Head, size: int) -> Head:
        rotated_file = self.directory / numbered(head.file)
        with suppress(OSError):
            if not size and os.stat(rotated_file, follow_symlinks=False).st_ino == head.inode:
                return self._begin_file(head, head.file + 1)  # as above, after the new file was made
        self._open_lines()
        last = read_last_line(self._lines) if size == head.size else None
        link = read_link(last) if last is not None else None
        is_copy = size == head.size and (not head.seq or (link is not None and link.hash == head.hash))
        head = self._keep(head._replace(size=size, inode=self._lines_inode))
        return head if is_copy else self._damaged(head, "the log was another file")

    def _longer(self, head: Head, size: int) -> Head:
        """Take in what a writer wrote that died before it could write the head."""
        tail = os.pread(self._lines, min(size - head.size, _TORN_MAX), head.size)
        whole, _, rest = tail.rpartition(b"\n")
        for line in whole.split(b"\n") if whole else ():
            link = read_link(line)
            is_next = link is not None and (link.seq, link.prev) == (head.seq + 1, head.hash)
            if link is None or not is_next or true_hash(line + b"\n") != link.hash:
                head = head._replace(size=size)
                return self._damaged(head, "somebody else wrote to the log")
            head = head._replace(seq=link.seq, hash=link.hash, size=head.size + len(line) + 1)
        head = self._keep(head)
        if not rest:
            return head
        return self._repaired(head, self._move_torn(head.size, size))

    def _move_torn(self, begin: int, size: int) -> bytes:
        """Move half a line at the end to a file of its own; returns it."""
        begin = max(begin, size - _TORN_MAX)
        torn = os.pread(self._lines, size - begin, begin).rpartition(b"\n")[2]
        if torn:
            name = f"torn-{time.time_ns()}"
            descriptor = os.open(
                self.directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            try:
                os.write(descriptor, torn)
            finally:
                os.close(descriptor)
            os.ftruncate(self._lines, size - len(torn))
        return torn

    def _repaired(self, head: Head, torn: bytes) -> Head:
        what = f"a writer died while it wrote: an incomplete line of {len(torn)} bytes was moved aside"
        self.notes.append(f"the journal {self.path} was repaired: {what}")
        fields = {"event_type": chain.REPAIRED, "timestamp": rfc3339(), "error": what, "torn_bytes": len(torn)}
        return self._append(encode(fields), head)

    def _damaged(self, head: Head, what: str) -> Head:
        self.notes.append(f"the journal {self.path} is damaged: {what}; see `ringfence audit verify`")
        if head.size and os.pread(self._lines, 1, head.size - 1) != b"\n":
            os.write(self._lines, b"\n")
            head = head._replace(size=head.size + 1)
        return self._append(encode({"event_type": chain.DAMAGED, "timestamp": rfc3339(), "error": what}), head)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, flags, 0o600)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_of(path: Path) -> bytes | None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return read_last_line(descriptor)
        finally:
            os.close(descriptor)
    return None


def _sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
