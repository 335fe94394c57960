"""Resource limits that PID 1 sets on itself, inside its user namespace, so that everything in the box inherits them.

Set inside, the number of processes counts this box only, not everything else of the same uid. These limits hold per
process (but for that one), so they are the floor; control groups or polling bound the tree.
"""

import math
import resource

from ringfence.values.limits import FollowsWall, Limits

_LOCKED_BYTES = 8 * 1024 * 1024  # what the kernel gives by default; more could pin the host's memory
_CPU_SLACK = 1.5  # the watch measures and comes first; the kernel counts this one by ticks, on a busy machine too many
_CPU_UNSAID = (
    24 * 3600
)  # where timeouts may be raised, and the CPU time with them: the watch holds each call to its own
_MESSAGE_BYTES = 819_200  # POSIX message queues, the kernel's default


def words(limits: Limits, *, counts_processes: bool = True) -> tuple[str, ...]:
    """Words for PID 1: docs/box-protocol.md.

    Args:
        counts_processes: whether the box has a user namespace of its own. Without one, the kernel would count all
            processes of the same uid on the machine.
    """
    table = {
        resource.RLIMIT_CORE: 0,  # a core dump would run the host's crash handler
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_MEMLOCK: _LOCKED_BYTES,
        resource.RLIMIT_MSGQUEUE: _MESSAGE_BYTES,
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_NICE: 0,
    }
    if not counts_processes:
        del table[resource.RLIMIT_NPROC]
    cpu = limits.cpu_seconds * _CPU_SLACK
    if limits.may_rise and isinstance(limits.cpu_seconds, FollowsWall):
        cpu = max(cpu, _CPU_UNSAID)
    # Not on PID 1 itself: an interpreter that serves many calls must not inherit it.
    out = ["cpu", str(math.ceil(cpu) + 1)]
    for which, value in table.items():
        out += ["rlimit", str(which), str(int(value))]
    return tuple(out)
