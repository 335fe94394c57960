"""Holder for machines without control groups: looks at the process tree, often, and leaves the killing to the watch.

Counted are resident pages of every process and memory files that some process holds open, which no process's pages
show. Shared pages count once per process, which is cheap to know and rather too much than too little; only when that
sum passes the limit are they divided among their sharers, which is what decides.

What this does not protect against: memory that is neither mapped nor behind an open descriptor (System V segments
that are detached), and a burst that is over between two looks.
"""

import os
import re
from contextlib import suppress

from ringfence.limits.base import UsageReading
from ringfence.values.limits import Limit

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_SHMEM = re.compile(rb"^Shmem:\s+(\d+) kB", re.MULTILINE)
_PSS = re.compile(rb"^Pss:\s+(\d+) kB", re.MULTILINE)
_SUSPICIOUS_BYTES = 64 * 1024 * 1024
"""Growth of all shared memory on the machine from which on the box's descriptors are looked at, which costs more."""


class Polling:
    """Processes are held by a resource limit inside the user namespace; memory and CPU time are looked at."""

    name = "rlimits and polling"
    enforces = frozenset({Limit.PROCESSES})
    joins: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    def __init__(self, memory_bytes: int) -> None:
        self._limit = memory_bytes
        self._peak = 0
        self._shmem_at_start = _machine_shmem()

    def read(self, first_pid: int) -> UsageReading:
        memory, cpu = 0, 0.0
        tree = processes(first_pid)
        for pid in tree:
            with suppress(OSError, ValueError, IndexError):
                memory += int(_slurp(f"/proc/{pid}/statm").split()[1]) * _PAGE
                # Fields after the name, which may hold blanks and brackets; of PID 1 the reaped children count too.
                fields = _slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                cpu += sum(map(int, fields[11:15])) / _TICK
        if memory > self._limit:
            memory = sum(map(_proportional, tree))
        if _machine_shmem() - self._shmem_at_start > _SUSPICIOUS_BYTES:
            memory += _memory_files(tree)
        self._peak = max(self._peak, memory)
        return UsageReading(cpu_seconds=cpu, memory_bytes=memory)

    def memory_kills(self) -> int:
        """Without a group the kernel kills for the whole machine's sake, not for the box's limit."""
        return 0

    def peak_memory_bytes(self) -> int:
        return self._peak

    def start_command(self) -> None:
        self._peak = 0

    def close(self) -> None:
        """Nothing was made."""


def processes(first_pid: int) -> list[int]:
    """A process and its descendants; whoever outlives its parent is a child of the first, PID 1 in there."""
    found = [first_pid]
    for pid in found:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                found += map(int, _slurp(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _proportional(pid: int) -> int:
    """Resident bytes of a process, shared pages divided by the number of their sharers."""
    try:
        match = _PSS.search(_slurp(f"/proc/{pid}/smaps_rollup"))
    except OSError:  # it has just ended; or it is PID 1, which nobody may look into and which is small
        return 0
    return int(match[1]) * 1024 if match else 0


def _slurp(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def _machine_shmem() -> int:
    with suppress(OSError):
        match = _SHMEM.search(_slurp("/proc/meminfo"))
        if match:
            return int(match[1]) * 1024
    return 0


def _memory_files(tree: list[int]) -> int:
    """Bytes in memory files that the tree holds open, each counted once."""
    seen: dict[tuple[int, int], int] = {}
    for pid in tree:
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{name}"
                with suppress(OSError):
                    if os.readlink(path).startswith("/memfd:"):
                        info = os.stat(path)
                        seen[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(seen.values())
