"""Answers what the guardian asks about calls that are not plainly fine, and keeps what it saw.

The guardian (native/supervise.c) stands outside the box, so what it says of a call is evidence that no command can
write; the strings in it are the command's own. Its packets are bounded and checked all the same.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from ringfence.engines.boxes.protocol import VERSION, MessageKind
from ringfence.engines.loops import forget_reader
from ringfence.engines.native.seen import Seen
from ringfence.engines.native.starting import memory_file
from ringfence.values.violation import Severity, Violation, ViolationType

if TYPE_CHECKING:
    from ringfence.values.outcome import Observed

_HEAD = struct.Struct("=IIII")
_PACKET_MAX = 16 * 1024
_RING = struct.Struct("=QQQQ")
_RING_BYTES = 256 * 1024
_RING_WORDS = 6
_PENDING_MAX = 256
"""Questions that the guardian has open at once; native/supervise.c has the same number."""
_QUESTION_WORDS = 7  # with the empty one behind the last NUL

Judge = Callable[[str, str, str], tuple[int, Violation | None]]
"""(operation, target, second target) to (errno, what to record); errno 0 lets the wall decide."""


class Supervisor:
    """Our end of the lifeline.

    Args:
        reads: whether reads are looked at.
        quiet: whether nothing is recorded but what is refused.
        roots: directories in which we can see ourselves what came of a call: the box has them from the host.
    """

    def __init__(
        self, lifeline: socket.socket, judge: Judge, *, reads: bool, roots: tuple[str, ...] = (), quiet: bool = False
    ) -> None:
        self._lifeline = lifeline
        self._judge = judge
        self._reads = reads
        self._quiet = quiet
        self._roots = tuple(root.rstrip("/") + "/" for root in roots)
        self._seen: dict[int, Seen] = {}
        """By the number of the command: what each that runs does."""
        self._background: set[int] = set()
        """Those of them that no call waits for: what they touch is looked at after the calls of others."""
        self._beside = Seen()
        """What is done by others: those whose call is over, and whoever has spoilt the number that it carries."""
        self._ring: mmap.mmap | None = None
        self._written = 0
        """Up to where the guardian's words have been read."""
        self._asked = 0
        """How often it has asked."""
        self._forgotten = (0, 0, 0)
        """What it had told, asked and dropped when it was last made to forget."""
        self._dropped = 0
        """What the guardian has said so far that it could not tell; it only counts on, so that nothing said meanwhile
        is lost."""
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
            head = _HEAD.pack(VERSION, MessageKind.ATTACH, 0, 0)
            socket.send_fds(self._lifeline, [head], [listener, descriptor, ring])

    def begin(self, job: int, *, in_background: bool = False) -> None:
        """A command, or a call of an interpreter, begins: what comes from this job from now on is its own."""
        self._seen[job] = Seen()
        if in_background:
            self._background.add(job)
        else:
            self._background.discard(job)
        self.forget()

    def forget(self) -> None:
        """Have the guardian tell again what it has told once; where it has told nothing since the last time there is
        nothing to forget, and nobody is woken."""
        self.drain()
        self._read_ring()
        known = (self._written, self._asked, self._dropped)
        if known != self._forgotten:
            self._forgotten = known
            with suppress(OSError):
                self._lifeline.send(_HEAD.pack(VERSION, MessageKind.FORGET, 0, 0))

    def end(self, job: int) -> tuple[tuple[Violation, ...], Observed | None]:
        """What was seen of it. Whatever the guardian saw before the command's end has been said by then.

        What is touched in the background, or by what an earlier call has left, is among what a call may have changed,
        so that somebody looks at it; what was refused there is said to be theirs.
        """
        self.drain()
        self._read_ring()
        seen = self._seen.pop(job, None) or Seen()
        if job in self._background:
            self._background.discard(job)
            self._beside.look_at(seen)
            observed = None if self._quiet else seen.observed(reads=self._reads, roots=self._roots)
            return tuple(seen.violations), observed
        for other in self._background:
            seen.look_at(self._seen[other])
        beside = self._beside
        if beside.before or beside.violations or not beside.is_complete:
            self._beside = Seen()
            seen.join(beside)
        observed = None if self._quiet else seen.observed(reads=self._reads, roots=self._roots)
        return tuple(seen.violations), observed

    def close(self) -> None:
        if self._lifeline.fileno() >= 0:
            forget_reader(self._loop, self._lifeline.fileno())
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def drain(self) -> None:
        """Hear what has been asked so far, and no more: who asks again for each answer would hold up everybody."""
        for _ in range(_PENDING_MAX):
            if not self._hear():
                return

    def _read_ring(self) -> None:
        """Note what the guardian has seen since the last time; its side is in native/supervise.c."""
        if self._ring is None:
            return
        written, consumed, dropped, _ = _RING.unpack_from(self._ring)
        if written != consumed and written - consumed <= _RING_BYTES:
            at, size = consumed % _RING_BYTES, written - consumed
            first = self._ring[_RING.size + at : _RING.size + min(at + size, _RING_BYTES)]
            words = (first + self._ring[_RING.size : _RING.size + size - len(first)]).split(b"\0")
            columns = (map(os.fsdecode, words[part::_RING_WORDS]) for part in range(_RING_WORDS))
            for job, operation, one, two, before, second_before in zip(*columns, strict=False):
                self._of(int(job) if job.isdigit() else 0).note(operation, (one, before), (two, second_before))
        if dropped != self._dropped:
            self._dropped = dropped
            for seen in (self._beside, *self._seen.values()):
                seen.is_complete = False
        self._written = written
        struct.pack_into("=Q", self._ring, 8, written)

    def _of(self, job: int) -> Seen:
        return self._seen.get(job, self._beside)

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
        version, kind, question, job = _HEAD.unpack_from(packet)
        words = [os.fsdecode(word) for word in packet[_HEAD.size :].split(b"\0")]
        if version != VERSION or kind != MessageKind.ASKED or len(words) != _QUESTION_WORDS:
            return True
        self._asked += 1
        operation, one, two, is_vain, *states, _ = words
        error, is_fine = self._judged(job, operation, one, two)
        if is_fine and operation != "connect" and not is_vain:
            self._of(job).note(operation, *zip((one, two), states, strict=True))
        with suppress(OSError):
            self._lifeline.send(_HEAD.pack(VERSION, MessageKind.ANSWER, question, error))
        return True

    def _judged(self, job: int, operation: str, one: str, two: str) -> tuple[int, bool]:
        """The answer, and whether the call goes on."""
        try:
            error, violation = self._judge(operation, one, two)
        except Exception as fault:  # whatever it is: what could not be judged is refused, and nobody waits for ever
            what = f"{operation} of {one}: it could not be judged ({type(fault).__name__})"
            violation = Violation(
                ViolationType.PATH_ACCESS_DENIED, Severity.HIGH, what, "fault in judging", "", None, one
            )
            error = errno.EACCES
        if violation is not None:
            self._of(job).refuse(violation)
        return error, violation is None and not error
