"""Who runs in a box at the moment, who has run beside whom, and what each of them uses by itself.

Calls of one box run side by side. What the kernel counts for the box (memory, CPU time, what is free on a disk) is then
several calls' together. What is one call's own is asked of PID 1, which knows the processes of each by a number that
they cannot change (native/job.c).

What this does not protect against: CPU time of children that a command has the kernel reap unseen, and room on a disk
that is taken without writing, are in nobody's own count. They are in the sum, which is held to as many limits as there
were calls (`watch.py`).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from ringfence.dataclass import dataclass
from ringfence.engines.boxes.standing import Standing, could_use
from ringfence.errors import Internal

if TYPE_CHECKING:
    from ringfence.engines.boxes.control import Control, Job
    from ringfence.values.limits import Limit

_ANSWER_SECONDS = 1.0
"""How long PID 1 may take to count what a command uses; a tree of thousands takes some ten milliseconds."""


class Member(Protocol):
    """A call, or a process in the background."""

    job: Job
    met: int
    """How many others have run beside it so far."""
    killed_for: Limit | None
    """Why it was stopped; None if it was not."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one command, and all that it started, uses at the moment, and has used so far."""

    cpu_seconds: float
    memory_bytes: int
    written_bytes: int


class Running:
    def __init__(self, control: Control) -> None:
        self._control = control
        self._members: set[Member] = set()
        self._began = 0.0
        self._used = 0.0
        self.calls = 0
        """Calls that are not over; processes in the background are not among them."""

    # --- calls, as whoever watches between them sees it ---------------------------------------------------------------

    def call_begins(self) -> None:
        if not self.calls:
            self._began, self._used = time.monotonic(), 0.0
        self.calls += 1

    def call_used(self, cpu_seconds: float) -> None:
        """A call has used at most so much."""
        self._used += cpu_seconds

    def call_ends(self, standing: Standing) -> None:
        """When the last of those that ran side by side is over, all that they used is accounted for at once."""
        self.calls -= 1
        if not self.calls:
            standing.call_ended(min(self._used, could_use(time.monotonic() - self._began)))

    # --- who runs beside whom -----------------------------------------------------------------------------------------

    def enter(self, member: Member) -> None:
        for other in self._members:
            other.met += 1
        member.met += len(self._members)
        self._members.add(member)

    def leave(self, member: Member) -> None:
        self._members.discard(member)

    async def measure(self, member: Member) -> Measured | None:
        """What it uses by itself; None if that is not known, because it or the box has just ended."""
        try:
            reply = await asyncio.wait_for(self._control.measure(member.job), _ANSWER_SECONDS)
        except Internal:
            return None  # whoever waits for the command is told
        except (asyncio.CancelledError, TimeoutError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        cpu_micros, resident_kib, written_kib = reply.numbers
        return Measured(cpu_micros / 1e6, resident_kib * 1024, written_kib * 1024)

    async def is_largest(self, member: Member) -> bool | None:
        """Whether none of the others uses more memory than it does; None if one of them is about to end, and may have
        been the largest."""
        others = [other for other in self._members if other is not member]
        if any(other.killed_for is not None for other in others):
            return None
        own, *found = await asyncio.gather(*(self.measure(each) for each in (member, *others)))
        known = [each.memory_bytes for each in found if each is not None]
        if own is None or len(known) < len(found):
            return None
        return all(memory_bytes <= own.memory_bytes for memory_bytes in known)
