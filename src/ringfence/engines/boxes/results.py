"""Makes the results of a box: evidence to ending, with what was used, seen and refused on the way."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, TypeAlias

from ringfence.dataclass import replace
from ringfence.engines.boxes.classify import Evidence, before, classify, violations
from ringfence.engines.boxes.waiting import wait_through_cancel
from ringfence.values.outcome import Observed, Result, SandboxAudit, Usage
from ringfence.values.sandbox_type import SandboxType

if TYPE_CHECKING:
    from ringfence.engines.boxes.base import Supervision
    from ringfence.engines.boxes.control import Job
    from ringfence.engines.boxes.process import BoxProcess
    from ringfence.engines.boxes.protocol import Reply
    from ringfence.engines.boxes.work import Work
    from ringfence.engines.networking.attaching import BoxNetwork
    from ringfence.limits.base import ResourceController
    from ringfence.values.guarantee import Wall
    from ringfence.values.request import Request
    from ringfence.values.violation import Violation

_KIB_MOST = 1 << 40
"""What PID 1 reports is hostile, if PID 1 is."""
_LOST_KEPT = 64
"""Requests without a result of which it is kept what was seen; nobody may ask."""
_NOT_TOLD = (
    "the proxy was too busy to tell in time what it had refused when a call ended; it is in the journal, and in the "
    "result of the next call"
)

Seen: TypeAlias = "tuple[tuple[Violation, ...], Observed | None]"
"""What was refused, and what else was seen."""


class Results:
    def __init__(self, holder: ResourceController, wall: Wall, audit: SandboxAudit) -> None:
        self._holder = holder
        self.wall = wall
        self._type = SandboxType.of(wall.name)
        self._audit = audit
        self._kills = 0
        self._lost: dict[int, tuple[Request, Seen]] = {}
        """With the request itself, so that no later one has its place in memory."""
        self.supervision: Supervision | None = None
        self.network: BoxNetwork | None = None

    def call_wall(self, wall: Wall) -> None:
        self.wall = wall
        self._type = SandboxType.of(wall.name)

    def note(self, text: str) -> None:
        """Add to the wall's notes, once."""
        if text not in self.wall.notes:
            self.wall = replace(self.wall, notes=(*self.wall.notes, text))

    def begin(self, work: Work) -> None:
        """From now on, what is used and seen counts for this piece of work. The peak is the box's: it is counted anew
        only where nothing else runs."""
        if not work.met:
            self._holder.start_command()
        work.kills = self._kills
        if self.supervision is not None:
            self.supervision.begin(work.job.id)

    def watch_over(self, job: Job) -> None:
        """From now on, what is seen of this job, which goes on in the background, is kept."""
        if self.supervision is not None:
            self.supervision.begin(job.id, in_background=True)

    def set_apart(self, job: Job) -> None:
        """What this job does is the caller's own doing: it is in no record of a call."""
        if self.supervision is not None:
            self.supervision.begin(job.id)

    def forget(self, work: Work) -> None:
        """It did not run: what was seen of it does not count."""
        if self.supervision is not None:
            self.supervision.end(work.job.id)

    def lost(self, work: Work) -> None:
        """It came to no result; what was seen of it is kept for whoever asks, by its request."""
        if self.supervision is not None:
            self._keep(work.request, self._seen(work.job))

    def _keep(self, request: Request, seen: Seen) -> None:
        while len(self._lost) >= _LOST_KEPT:
            del self._lost[next(iter(self._lost))]
        self._lost[id(request)] = request, seen

    async def with_network(self, request: Request, result: Result, *, is_alone: bool) -> Result:
        """The result of what is over, with what the network refused until now. Which call a connection is of nobody
        outside knows: it counts for the first that ends after it was refused.

        Args:
            is_alone: whether nothing else runs in the box, so that also what is decided only now is of this call.
        """
        if self.network is None:
            return result
        refused, was_cancelled = await self._refused_by(self.network, None if is_alone else time.time())
        if refused:
            result = replace(result, violations=(*refused, *result.violations))
        if was_cancelled:
            self._keep(request, (result.violations, result.observed))
            raise asyncio.CancelledError
        return result

    async def network_of_lost(self, request: Request, *, is_alone: bool) -> None:
        """Keep what the network refused until now for whoever asks about a request that came to no result."""
        if self.network is None:
            return
        refused, was_cancelled = await self._refused_by(self.network, None if is_alone else time.time())
        before, observed = self.last_seen(request)
        if refused or before or observed is not None:
            self._keep(request, ((*refused, *before), observed))
        if was_cancelled:
            raise asyncio.CancelledError

    async def _refused_by(self, network: BoxNetwork, until: float | None) -> tuple[tuple[Violation, ...], bool]:
        """What was refused until now, and whether somebody wanted us to stop waiting for it."""
        settling = asyncio.ensure_future(network.settle())
        was_cancelled = await wait_through_cancel(settling)
        if not settling.result():
            self.note(_NOT_TOLD)
        return network.taken(until), was_cancelled

    def last_seen(self, request: Request) -> Seen:
        """Of a request that came to no result."""
        _, seen = self._lost.pop(id(request), (None, ((), None)))
        return seen

    def of_reply(self, work: Work, reply: Reply, wall_seconds: float) -> Result:
        """Of a piece of work whose end PID 1 has told."""
        status, user, system, peak_kib = reply.numbers
        evidence = Evidence(
            status=status & 0xFFFF,
            killed_for=work.killed_for,
            memory_kills=self._memory_kills_since(work.kills),
            cpu_seconds=(user + system) / 1e6,
            peak_memory_bytes=min(peak_kib, _KIB_MOST) * 1024,
            overlapped=work.met,
            is_shared=work.is_shared,
        )
        return self._outcome(work, evidence, wall_seconds)

    def of_call(self, work: Work, code: int, cpu_seconds: float, peak: int, wall_seconds: float) -> Result:
        """Of a call of an interpreter that lives on."""
        evidence = Evidence(
            status=code << 8,
            killed_for=work.killed_for,
            memory_kills=self._memory_kills_since(work.kills),
            cpu_seconds=cpu_seconds,
            peak_memory_bytes=peak,
            overlapped=work.met,
            is_shared=work.is_shared,
        )
        return self._outcome(work, evidence, wall_seconds)

    def of_process(self, process: BoxProcess, reply: Reply) -> Result:
        """Of a command that went on by itself."""
        status, user, system, peak_kib = reply.numbers
        was_killed = status & 0x7F == signal.SIGKILL
        evidence = Evidence(
            status=status & 0xFFFF,
            killed_for=process.killed_for,
            memory_kills=self._memory_kills_since(process.kills) if was_killed else 0,
            cpu_seconds=(user + system) / 1e6,
            peak_memory_bytes=min(peak_kib, _KIB_MOST) * 1024,
            overlapped=process.met,
            is_shared=process.is_shared,
        )
        ending = classify(evidence, process.limits, process.timeout or process.limits.wall_seconds)
        refused, observed = self._seen(process)
        out, err = process.captures
        return Result(
            ending=ending,
            stdout_bytes=out.kept(),
            stderr_bytes=err.kept(),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            usage=Usage(process.seconds, evidence.cpu_seconds, evidence.peak_memory_bytes, "wait4"),
            violations=(*refused, *violations(evidence, ending, process.limits)),
            observed=observed,
            wall=self.wall,
            sandbox_type=self._type,
            audit=self._audit,
            overlapped=process.met,
        )

    def _seen(self, job: Job | BoxProcess) -> Seen:
        """What was refused to it by those who look at its calls, and what else was seen of it."""
        return self.supervision.end(job.id) if self.supervision is not None else ((), None)

    def memory_kills(self) -> int:
        """How often the kernel had killed for memory when somebody last asked."""
        return self._kills

    def was_killed_for_memory(self) -> bool:
        """Whether the kernel has killed for memory since the last time that somebody asked."""
        return self._holder.memory_kills() > self._kills

    def _memory_kills_since(self, before: int) -> int:
        self._kills = self._holder.memory_kills()
        return self._kills - before

    def _outcome(self, work: Work, evidence: Evidence, wall_seconds: float) -> Result:
        limits = work.limits
        ending = classify(evidence, limits, work.timeout)
        out, err = work.captures
        cell = work.cell
        refused, observed = self._seen(work.job)
        peak, measured_by = evidence.peak_memory_bytes, "wait4" if cell is None else "CPU clock"
        if not work.met:  # else the group's peak is several calls' together
            peak, measured_by = max(self._holder.peak_memory_bytes(), peak), f"{self._holder.name}, {measured_by}"
        return Result(
            ending=ending,
            stdout_bytes=out.kept(),
            stderr_bytes=err.kept(),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            usage=Usage(
                wall_seconds=wall_seconds,
                cpu_seconds=evidence.cpu_seconds,
                peak_memory_bytes=peak,
                measured_by=measured_by,
            ),
            violations=(*refused, *before(work.lost_for, limits), *violations(evidence, ending, limits)),
            observed=observed,
            wall=self.wall,
            sandbox_type=self._type,
            audit=self._audit,
            results=() if cell is None else tuple(cell.shown),
            exception=None if cell is None else cell.error,
            overlapped=work.met,
            state_kept=work.context is None or (work.context.alive and not work.state_was_lost),
        )
