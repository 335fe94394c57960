"""Answers what the guardian asks about calls that are not plainly fine, and keeps what it saw.

The guardian (native/supervise.c) stands outside the box, so what it says of a call is evidence that no command can
write; the strings in it are the command's own. Its packets are bounded and checked all the same.
"""

import asyncio
import errno
import mmap
import os
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from ringfence.engines.boxes.protocol import VERSION, Kind
from ringfence.engines.native.starting import memory_file
from ringfence.values.outcome import Observed
from ringfence.values.violation import Severity, Violation, ViolationType

_HEAD = struct.Struct("=IIII")
_PACKET_MAX = 16 * 1024
_RING = struct.Struct("=QQQQ")
_RING_BYTES = 256 * 1024
_KEPT_MAX = 1000
"""Names of each kind, and violations, that are kept for one command."""

Judge = Callable[[str, str, str], tuple[int, Violation | None]]
"""(operation, target, second target) to (errno, what to record); errno 0 lets the wall decide."""


@dataclass(slots=True)
class Seen:
    """What one command did, as far as it was looked at."""

    names: dict[str, dict[str, None]] = field(default_factory=dict)
    violations: dict[Violation, None] = field(default_factory=dict)
    is_complete: bool = True

    def note(self, operation: str, *targets: str) -> None:
        found = self.names.setdefault(operation, {})
        for target in filter(None, targets):
            if len(found) < _KEPT_MAX:
                found[target] = None
            else:
                self.is_complete = False

    def refuse(self, violation: Violation) -> None:
        if len(self.violations) < _KEPT_MAX:
            self.violations[violation] = None
        else:
            self.is_complete = False

    def observed(self, *, reads: bool) -> Observed:
        changed = (names for operation, names in self.names.items() if operation not in ("read", "exec", "connect"))
        return Observed(
            written=tuple(dict.fromkeys(name for names in changed for name in names)),
            read=tuple(self.names.get("read", ())) if reads else None,
            executed=tuple(self.names.get("exec", ())),
            is_complete=self.is_complete,
        )


class Supervisor:
    """Our end of the lifeline."""

    def __init__(self, lifeline: socket.socket, judge: Judge, *, reads: bool) -> None:
        self._lifeline = lifeline
        self._judge = judge
        self._reads = reads
        self._seen = Seen()
        self._ring: mmap.mmap | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(lifeline.fileno(), self._on_readable)

    def attach(self, listener: int, rules: Iterable[str]) -> None:
        """Have the guardian look; it takes the listener over."""
        with ExitStack() as undo:
            descriptor, ring = (memory_file(undo, name) for name in ("rules", "ring"))
            with open(descriptor, "wb", closefd=False) as file:
                file.write(os.fsencode("\0".join((*rules, ""))))
            os.truncate(ring, _RING.size + _RING_BYTES)
            self._ring = mmap.mmap(ring, _RING.size + _RING_BYTES)
            head = _HEAD.pack(VERSION, Kind.ATTACH, 0, 0)
            socket.send_fds(self._lifeline, [head], [listener, descriptor, ring])

    def begin(self) -> None:
        """A command begins: what comes from now on is its own."""
        self.drain()
        self._read_ring()
        self._seen = Seen()
        with suppress(OSError):
            self._lifeline.send(_HEAD.pack(VERSION, Kind.FORGET, 0, 0))

    def end(self) -> tuple[tuple[Violation, ...], Observed]:
        """What was seen of it. Whatever the guardian saw before the command's end has been said by then."""
        self.drain()
        self._read_ring()
        seen, self._seen = self._seen, Seen()
        return tuple(seen.violations), seen.observed(reads=self._reads)

    def close(self) -> None:
        if self._lifeline.fileno() >= 0:
            self._loop.remove_reader(self._lifeline.fileno())
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def drain(self) -> None:
        while self._hear():
            pass

    def _read_ring(self) -> None:
        """Note what the guardian has seen since the last time; its side is in native/supervise.c."""
        if self._ring is None:
            return
        written, consumed, dropped, _ = _RING.unpack_from(self._ring)
        if written != consumed and written - consumed <= _RING_BYTES:
            at, size = consumed % _RING_BYTES, written - consumed
            first = self._ring[_RING.size + at : _RING.size + min(at + size, _RING_BYTES)]
            words = (first + self._ring[_RING.size : _RING.size + size - len(first)]).split(b"\0")
            for operation, one, two in zip(*(map(os.fsdecode, words[part::3]) for part in range(3)), strict=False):
                self._seen.note(operation, one, two)
        if dropped:
            self._seen.is_complete = False
        struct.pack_into("=Q", self._ring, 8, written)
        struct.pack_into("=Q", self._ring, 16, 0)

    def _on_readable(self) -> None:
        self._hear()

    def _hear(self) -> bool:
        try:
            packet = self._lifeline.recv(_PACKET_MAX)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            packet = b""
        if not packet:
            self.close()
            return False
        if len(packet) < _HEAD.size:
            return True
        version, kind, question, _ = _HEAD.unpack_from(packet)
        words = [os.fsdecode(word) for word in packet[_HEAD.size :].split(b"\0")]
        if version != VERSION or len(words) != 4:
            return True
        operation, one, two, _ = words
        if kind == Kind.ASKED:
            self._answer(question, operation, one, two)
        return True

    def _answer(self, question: int, operation: str, one: str, two: str) -> None:
        try:
            error, violation = self._judge(operation, one, two)
        except Exception as fault:  # whatever it is: what could not be judged is refused, and nobody waits for ever
            what = f"{operation} of {one}: it could not be judged ({type(fault).__name__})"
            violation = Violation(
                ViolationType.PATH_ACCESS_DENIED, Severity.HIGH, what, "fault in judging", "", None, one
            )
            error = errno.EACCES
        if violation is not None:
            self._seen.refuse(violation)
        elif operation != "connect":
            self._seen.note(operation, one, two)
        with suppress(OSError):
            self._lifeline.send(_HEAD.pack(VERSION, Kind.ANSWER, question, error))
