"""Checks the whole chain, and names the first record that is not as it was written.

Reads the log alone, never the index. Each line is compared with what the line before it demands; only where that fails
is it taken apart, to say what happened.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringfence.audit.chain import BEGUN, CHECKPOINT, DAMAGED, GENESIS, HASH_TAIL, REPAIRED, read_link
from ringfence.audit.files import LogSnapshot, Part, lines, take_snapshot
from ringfence.dataclass import dataclass, field

if TYPE_CHECKING:
    from ringfence.audit.signing import Verifier

_EXECUTION: Final = b'"event_type":"sandbox_execution"'
"""Most records are executions, and are not taken apart."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A number and a hash that somebody has kept elsewhere."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Fault:
    """The first thing that is wrong."""

    what: str
    file: str = ""
    line: int | None = None
    seq: int | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.line is not None else f"{self.file}: " if self.file else ""
        record = f"record {self.seq}: " if self.seq is not None else ""
        return f"{where}{record}{self.what}"


@dataclass(slots=True)
class Report:
    """What verifying found."""

    fault: Fault | None = None
    files: int = 0
    records: int = 0
    unchained: int = 0
    """Lines from before the chain; nothing can be said about them."""
    first_seq: int = 0
    last_seq: int = 0
    last_hash: str = GENESIS
    checkpoints: int = 0
    signed_seq: int = 0
    """Everything up to here is signed, by a key that was given."""
    repairs: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.fault is None

    def __str__(self) -> str:
        if self.fault is not None:
            return f"not whole: {self.fault}; {_counted(self.records, 'record')} before that are as they were written"
        signed = f", signed up to record {self.signed_seq}" if self.signed_seq else ""
        return f"intact: {_counted(self.records, 'record')} in {_counted(self.files, 'file')}{signed}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Broken(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault


def verify(
    directory: Path,
    *,
    keys: Verifier | None = None,
    anchors: tuple[Anchor, ...] = (),
    from_oldest: bool = False,
) -> Report:
    """Check the log in a directory.

    Args:
        keys: check the signatures of checkpoints too; there has to be one.
        anchors: records that have to be there with these hashes.
        from_oldest: older files have been removed on purpose: begin with the oldest that is there.

    Raises:
        OSError: the log cannot be read; FileNotFoundError if there is none.
    """
    with take_snapshot(directory) as snapshot:
        walk = _Walk(snapshot, keys, {anchor.seq: anchor.hash for anchor in anchors}, from_oldest=from_oldest)
        try:
            walk.through()
        except _Broken as broken:
            walk.report.fault = broken.fault
        return walk.report


class _Walk:
    def __init__(
        self, snapshot: LogSnapshot, keys: Verifier | None, anchors: dict[int, str], *, from_oldest: bool
    ) -> None:
        self.report = Report(files=len(snapshot.parts))
        self._snapshot = snapshot
        self._keys = keys
        self._anchors = dict(anchors)
        self._head = snapshot.head
        if self._head is not None and self._head.seq:
            self._anchors.setdefault(self._head.seq, self._head.hash)
        self._from_oldest = from_oldest
        self._seq, self._prev = 0, GENESIS
        self._begun = False

    def through(self) -> None:
        """Raises _Broken at the first fault."""
        for part in self._snapshot.parts:
            self._part(part)
        self._end()
        self._say()

    def _part(self, part: Part) -> None:
        report, anchors = self.report, self._anchors
        sha256, seq, prev, begun = hashlib.sha256, self._seq, self._prev, self._begun
        number = 0
        for number, (_, line) in enumerate(lines(part), 1):
            start = b'{"seq":%d,"prev":"%b",' % (seq + 1, prev.encode("ascii"))
            digest = sha256(line[:-HASH_TAIL]).hexdigest()
            if not (line.startswith(start) and line.endswith(b',"hash":"%b"}\n' % digest.encode("ascii"))):
                if not begun and read_link(line) is None and line.endswith(b"\n"):
                    report.unchained += 1  # written before there was a chain
                    continue
                if begun or not self._may_begin(line, digest):
                    raise _Broken(self._explain(part, number, line, digest, seq, prev))
                link = read_link(line)
                assert link is not None  # or it could not begin
                seq = link.seq - 1
                start = b'{"seq":%d,"prev":"%b",' % (link.seq, link.prev.encode("ascii"))
            if not begun:
                begun, report.first_seq = True, seq + 1
            seq, prev = seq + 1, digest
            report.records += 1
            expected = anchors.get(seq)
            if expected is not None and expected != digest:
                what = "is not the one that was anchored: the chain was made again"
                raise _Broken(Fault(what, part.path.name, number, seq))
            if not line.startswith(_EXECUTION, len(start)):
                self._special(part, number, line, seq)
        self._seq, self._prev, self._begun = seq, prev, begun

    def _may_begin(self, line: bytes, digest: str) -> bool:
        """Whether the chain may begin with a record that is not the first, as older files were removed."""
        link = read_link(line)
        return self._from_oldest and link is not None and link.hash == digest

    def _special(self, part: Part, number: int, line: bytes, seq: int) -> None:
        record = json.loads(line)
        match record.get("event_type"):
            case str(kind) if kind == CHECKPOINT:
                self._checkpoint(part, number, record, seq)
            case str(kind) if kind == REPAIRED:
                self.report.repairs += 1
            case str(kind) if kind == DAMAGED:
                raise _Broken(Fault(f"says that {record.get('error')}", part.path.name, number, seq))
            case str(kind) if kind == BEGUN:
                self._check_before(part, number, record, seq)

    def _checkpoint(self, part: Part, number: int, record: dict[str, Any], seq: int) -> None:
        self.report.checkpoints += 1
        if self._keys is None:
            return
        fault = self._keys.fault(record)
        if fault is not None:
            raise _Broken(Fault(f"a checkpoint that {fault}", part.path.name, number, seq))
        self.report.signed_seq = seq

    def _check_before(self, part: Part, number: int, record: dict[str, Any], seq: int) -> None:
        """The lines from before the chain are as they were when it began."""
        position = part.file.tell()
        part.file.seek(0)
        before = part.file.read(int(record.get("bytes_before", 0)))
        part.file.seek(position)
        if hashlib.sha256(before).hexdigest() != record.get("sha256_before"):
            what = "the lines from before the chain are not what they were when it began"
            raise _Broken(Fault(what, part.path.name, number, seq))

    def _explain(self, part: Part, number: int, line: bytes, digest: str, seq: int, prev: str) -> Fault:
        name = part.path.name
        link = read_link(line)
        if not line.endswith(b"\n"):
            return Fault(
                "an incomplete line: a writer died, or the file was cut; the next writer repairs it", name, number
            )
        if link is None:
            return Fault("no record of the chain: a line was inserted, or its beginning or end edited", name, number)
        if link.hash != digest:
            return Fault("was edited: its hash is not that of its content", name, number, link.seq)
        if link.seq == seq + 1:
            return Fault("does not follow the record before it: one of them was replaced", name, number, link.seq)
        if link.seq <= seq:
            return Fault(f"is out of order after record {seq}: moved, or inserted again", name, number, link.seq)
        if not self._begun and part is self._snapshot.parts[0] and not self.report.records:
            what = f"records 1 to {link.seq - 1} are missing; if older files were removed on purpose, say so"
            return Fault(what, name, number, link.seq)
        if any(found == seq + 1 for found in self._seqs(part, number)):
            return Fault(f"is out of order: record {seq + 1} comes later", name, number, link.seq)
        missing = f"record {seq + 1} is" if link.seq == seq + 2 else f"records {seq + 1} to {link.seq - 1} are"
        return Fault(f"{missing} missing before it", name, number, link.seq)

    def _seqs(self, part: Part, after: int) -> Iterator[int]:
        for number, (_, line) in enumerate(lines(part), 1):
            link = read_link(line) if number > after else None
            if link is not None:
                yield link.seq

    def _end(self) -> None:
        """The log ends where the head, and whoever kept an anchor, says."""
        report = self.report
        report.last_seq, report.last_hash = self._seq, self._prev
        head = self._head
        if head is None and self._begun:
            state = "not whole" if self._snapshot.head_is_there else "gone"
            raise _Broken(Fault(f"the head is {state}: whether records after {self._seq} were cut cannot be told"))
        last = max(self._anchors, default=0)
        if last > self._seq:
            by = "head" if head is not None and last == head.seq else "anchor"
            what = f"the tail was cut: the last record is {self._seq}, but the {by} knows of record {last}"
            name = self._snapshot.parts[-1].path.name if self._snapshot.parts else ""
            raise _Broken(Fault(what, name))
        if self._keys is not None and not report.signed_seq:
            raise _Broken(Fault("there is no signed checkpoint"))

    def _say(self) -> None:
        report = self.report
        if report.unchained:
            report.notes.append(f"{report.unchained} lines from before the chain: nothing proves what they say")
        if report.repairs:
            report.notes.append(f"{report.repairs} times an incomplete line was moved aside after a crash")
        if report.first_seq > 1:
            report.notes.append(f"begins with record {report.first_seq}; older files are not there")
        if self._head is not None and self._seq > self._head.seq:
            report.notes.append("the last writer died before it wrote the head; the next one repairs that")
        if self._keys is not None and report.signed_seq < report.last_seq:
            report.notes.append(f"{report.last_seq - report.signed_seq} records after the last signed checkpoint")
        elif self._keys is None and report.checkpoints:
            report.notes.append(f"{report.checkpoints} checkpoints were not checked: no public key was given")
