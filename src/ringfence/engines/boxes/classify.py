"""Whose fault was it? Decides how a command ended, from evidence that the command cannot write.

The evidence is our own decision to kill, the kernel's count of memory kills, and the wait status that PID 1 reports.
Output, exit messages and what the command says about itself are no evidence.
"""

import os
import signal

from ringfence.dataclass import dataclass
from ringfence.values.limits import Limit, Limits, show_limit
from ringfence.values.outcome import Ending, Exited, LimitHit, Signalled, TimedOut
from ringfence.values.remedy import Door, raising
from ringfence.values.violation import Severity, Violation, ViolationKind

_NEARLY = 0.9
"""Share of the CPU limit from which on a SIGXCPU is believed to be the kernel's and not the command's own."""
_LARGE = 0.25
"""Share of the memory limit from which on a process is one that the kernel would choose."""


@dataclass(frozen=True, slots=True)
class Evidence:
    status: int
    """As wait(2) gives it."""
    killed_for: Limit | None = None
    """Why we killed it, if we did."""
    memory_kills: int = 0
    """How often the kernel killed for memory during this command."""
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    """Of the largest of its processes."""
    overlapped: int = 0
    """How many others ran beside it: what is counted for the whole box may be theirs."""
    is_shared: bool = False
    """Whether we stopped it for what it and others had used together."""


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
    if number == signal.SIGKILL and _was_killed_for_memory(evidence, limits):
        return LimitHit(Limit.MEMORY, limits.memory_bytes)
    if number in (signal.SIGXCPU, signal.SIGKILL) and evidence.cpu_seconds >= limits.cpu_seconds * _NEARLY:
        return LimitHit(Limit.CPU, limits.cpu_seconds)
    return Signalled(number)


def _was_killed_for_memory(evidence: Evidence, limits: Limits) -> bool:
    """The kernel says that it has killed for memory, and not whom. Of several that ran side by side it kills the
    largest; one that was small was killed by somebody else, who may have wanted it to look like this."""
    if not evidence.memory_kills:
        return False
    return not evidence.overlapped or evidence.peak_memory_bytes >= limits.memory_bytes * _LARGE


def violations(evidence: Evidence, ending: Ending, limits: Limits) -> tuple[Violation, ...]:
    """Limits that were hit: as the ending, or by a part of the tree while the command itself went on."""
    if isinstance(ending, LimitHit):
        hit: Limit | None = ending.limit
    else:
        hit = Limit.MEMORY if evidence.memory_kills else None
    if hit is None:
        return ()
    what = f"the {hit} limit of {show_limit(hit, allowed(hit, limits))} was hit"
    if evidence.is_shared or (evidence.overlapped and hit is Limit.MEMORY):
        what += f" by what ran side by side, this call and {evidence.overlapped} more; which of them is not known"
    return (Violation(ViolationKind.LIMIT, Severity.MEDIUM, what, f"limits.{hit}", raising(hit, Door.LIBRARY)),)


def before(limit: Limit | None, limits: Limits) -> tuple[Violation, ...]:
    """A limit that what an earlier call had left running passed before this one began; None if that was not so."""
    if limit is None:
        return ()
    what = (
        f"between two calls, what an earlier one had left running passed the {limit} limit of "
        f"{show_limit(limit, allowed(limit, limits))}; the interpreter was ended with it, and its state is lost"
    )
    allow_by = f"end threads and children before a call ends, or raise the {limit} limit"
    return (Violation(ViolationKind.LIMIT, Severity.MEDIUM, what, f"limits.{limit}", allow_by),)


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
