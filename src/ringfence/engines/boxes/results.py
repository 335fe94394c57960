"""Makes the results of a box: evidence to ending, with what was used, seen and refused on the way."""

import signal

from ringfence.engines.boxes.base import Supervision
from ringfence.engines.boxes.classify import Evidence, classify, violations
from ringfence.engines.boxes.process import BoxProcess
from ringfence.engines.boxes.protocol import Reply
from ringfence.engines.boxes.work import Work
from ringfence.limits.base import Holder
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limits
from ringfence.values.outcome import Result, SandboxAudit, Usage

_KIB_MOST = 1 << 40
"""What PID 1 reports is hostile, if PID 1 is."""


class Results:
    def __init__(self, limits: Limits, holder: Holder, wall: Wall, audit: SandboxAudit) -> None:
        self._limits = limits
        self._holder = holder
        self.wall = wall
        self._audit = audit
        self._kills = 0
        self.supervision: Supervision | None = None

    def begin(self) -> None:
        """From now on, what is used and seen counts for the piece of work that comes."""
        self._holder.start_command()
        if self.supervision is not None:
            self.supervision.begin()

    def of_reply(self, work: Work, reply: Reply, wall_seconds: float, timeout: float) -> Result:
        """Of a piece of work whose end PID 1 has told."""
        status, user, system, peak_kib = reply.numbers
        evidence = Evidence(
            status=status & 0xFFFF,
            killed_for=work.killed_for,
            memory_kills=self._new_memory_kills(),
            cpu_seconds=(user + system) / 1e6,
        )
        return self._outcome(work, evidence, wall_seconds, timeout, min(peak_kib, _KIB_MOST) * 1024)

    def of_call(
        self, work: Work, code: int, cpu_seconds: float, peak: int, wall_seconds: float, timeout: float
    ) -> Result:
        """Of a call of an interpreter that lives on."""
        evidence = Evidence(
            status=code << 8,
            killed_for=work.killed_for,
            memory_kills=self._new_memory_kills(),
            cpu_seconds=cpu_seconds,
        )
        return self._outcome(work, evidence, wall_seconds, timeout, peak)

    def of_process(self, process: BoxProcess, reply: Reply) -> Result:
        """Of a command that ran beside others."""
        status, user, system, peak_kib = reply.numbers
        was_killed = status & 0x7F == signal.SIGKILL
        evidence = Evidence(
            status=status & 0xFFFF,
            killed_for=process.killed_for,
            memory_kills=self._new_memory_kills() if was_killed else 0,
            cpu_seconds=(user + system) / 1e6,
        )
        ending = classify(evidence, self._limits, self._limits.wall_seconds)
        return Result(
            ending=ending,
            usage=Usage(process.seconds, evidence.cpu_seconds, min(peak_kib, _KIB_MOST) * 1024, "wait4"),
            violations=violations(evidence, ending, self._limits),
            wall=self.wall,
            audit=self._audit,
        )

    def was_killed_for_memory(self) -> bool:
        """Whether the kernel has killed for memory since the last time that somebody asked."""
        return self._holder.memory_kills() > self._kills

    def _new_memory_kills(self) -> int:
        before, self._kills = self._kills, self._holder.memory_kills()
        return self._kills - before

    def _outcome(self, work: Work, evidence: Evidence, wall_seconds: float, timeout: float, peak: int) -> Result:
        ending = classify(evidence, self._limits, timeout)
        out, err = work.captures
        cell = work.cell
        refused, observed = self.supervision.end() if self.supervision is not None else ((), None)
        return Result(
            ending=ending,
            stdout_bytes=out.kept(),
            stderr_bytes=err.kept(),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            usage=Usage(
                wall_seconds=wall_seconds,
                cpu_seconds=evidence.cpu_seconds,
                peak_memory_bytes=max(self._holder.peak_memory_bytes(), peak),
                measured_by=f"{self._holder.name}, wait4" if cell is None else f"{self._holder.name}, CPU clock",
            ),
            violations=(*refused, *violations(evidence, ending, self._limits)),
            observed=observed,
            wall=self.wall,
            audit=self._audit,
            results=() if cell is None else tuple(cell.shown),
            error=None if cell is None else cell.error,
            state_kept=work.context is None or (work.context.alive and not work.state_was_lost),
        )
