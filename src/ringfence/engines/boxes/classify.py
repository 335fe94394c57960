"""Whose fault was it? Decides how a command ended, from evidence that the command cannot write.

The evidence is our own decision to kill, the kernel's count of memory kills, and the wait status that PID 1 reports.
Output, exit messages and what the command says about itself are no evidence.
"""

import os
import signal
from dataclasses import dataclass

from ringfence.values.limits import Limit, Limits, show_limit
from ringfence.values.outcome import Ending, Exited, LimitHit, Signalled, TimedOut
from ringfence.values.violation import Severity, Violation, ViolationKind

_NEARLY = 0.9
"""Share of the CPU limit from which on a SIGXCPU is believed to be the kernel's and not the command's own."""


@dataclass(frozen=True, slots=True)
class Evidence:
    status: int
    """As wait(2) gives it."""
    killed_for: Limit | None = None
    """Why we killed it, if we did."""
    memory_kills: int = 0
    """How often the kernel killed for memory during this command."""
    cpu_seconds: float = 0.0


def classify(evidence: Evidence, limits: Limits, timeout: float) -> Ending:
    match evidence.killed_for:
        case Limit.WALL:
            return TimedOut(timeout)
        case Limit() as limit:
            return LimitHit(limit, allowed(limit, limits))
        case None:
            pass
    if not os.WIFSIGNALED(evidence.status):
        return Exited(os.WEXITSTATUS(evidence.status))
    number = os.WTERMSIG(evidence.status)
    if number == signal.SIGKILL and evidence.memory_kills:
        return LimitHit(Limit.MEMORY, limits.memory_bytes)
    if number in (signal.SIGXCPU, signal.SIGKILL) and evidence.cpu_seconds >= limits.cpu_seconds * _NEARLY:
        return LimitHit(Limit.CPU, limits.cpu_seconds)
    return Signalled(number)


def violations(evidence: Evidence, ending: Ending, limits: Limits) -> tuple[Violation, ...]:
    """Limits that were hit: as the ending, or by a part of the tree while the command itself went on."""
    if isinstance(ending, LimitHit):
        hit: Limit | None = ending.limit
    else:
        hit = Limit.MEMORY if evidence.memory_kills else None
    if hit is None:
        return ()
    what = f"the {hit} limit of {show_limit(hit, allowed(hit, limits))} was hit"
    return (Violation(ViolationKind.LIMIT, Severity.MEDIUM, what, f"limits.{hit}", f"raise the {hit} limit"),)


def allowed(limit: Limit, limits: Limits) -> float:
    """The value of a limit by its name."""
    return {
        Limit.WALL: limits.wall_seconds,
        Limit.CPU: limits.cpu_seconds,
        Limit.MEMORY: limits.memory_bytes,
        Limit.PROCESSES: limits.processes,
        Limit.OPEN_FILES: limits.open_files,
        Limit.FILE_SIZE: limits.file_bytes,
        Limit.OUTPUT: limits.output_bytes,
        Limit.DISK: limits.disk_bytes,
        Limit.FILES: limits.files,
    }[limit]
