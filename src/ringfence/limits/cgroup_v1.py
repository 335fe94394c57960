"""Holder by control groups of version 1: one group for each controller, made below our own.

The first process of a box joins by writing to `tasks`, not `cgroup.procs`: moving just the calling thread spares the
kernel a global lock that costs milliseconds, and that process has one thread only.
"""

import os
from pathlib import Path

from ringfence.limits.base import UsageReading
from ringfence.limits.cgroups import CgroupMount, new_name, read_counter, read_number, remove, write_control
from ringfence.values.limits import Limit, Limits

NEEDED = ("memory", "pids")
USEFUL = ("cpuacct",)
_NO_SWAP = "memory.memsw.limit_in_bytes"


def usable(mounted: tuple[CgroupMount, ...]) -> dict[str, Path] | None:
    """The group of each controller to make children in, or None if one that we need is missing or not ours to write."""
    found: dict[str, Path] = {}
    for hierarchy in mounted:
        for controller in hierarchy.controllers.intersection((*NEEDED, *USEFUL)):
            if os.access(hierarchy.directory, os.W_OK):
                found[controller] = hierarchy.directory
    return found if all(controller in found for controller in NEEDED) else None


class FoundV1:
    """Groups that somebody else has made and set, by controller: they are read, and left to their maker."""

    name = "cgroup v1"
    enforces = frozenset({Limit.MEMORY, Limit.PROCESSES})
    joins: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    def __init__(self, groups: dict[str, Path]) -> None:
        self._groups = groups
        self._peak = groups["memory"] / "memory.max_usage_in_bytes"
        self._kills = groups["memory"] / "memory.oom_control"

    def read(self, first_pid: int) -> UsageReading:
        accounting = self._groups.get("cpuacct")
        return UsageReading(
            cpu_seconds=read_number(accounting / "cpuacct.usage") / 1e9 if accounting else 0.0,
            memory_bytes=read_number(self._groups["memory"] / "memory.usage_in_bytes"),
        )

    def memory_kills(self) -> int:
        return read_counter(self._kills, b"oom_kill")

    def peak_memory_bytes(self) -> int:
        return read_number(self._peak)

    def start_command(self) -> None:
        write_control(self._peak, b"0")

    def close(self) -> None:
        """Nothing was made."""


class CgroupV1(FoundV1):
    """Memory, swap and processes are held by the kernel; CPU time is read and watched."""

    def __init__(self, parents: dict[str, Path], limits: Limits) -> None:
        child = new_name()
        super().__init__({controller: parent / child for controller, parent in parents.items()})
        self.joins = tuple(str(group / "tasks") for group in dict.fromkeys(self._groups.values()))
        self.leftovers = tuple(str(group) for group in dict.fromkeys(self._groups.values()))
        try:
            for group in dict.fromkeys(self._groups.values()):
                group.mkdir()
            memory, pids = self._groups["memory"], self._groups["pids"]
            (memory / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
            if (memory / _NO_SWAP).exists():
                (memory / _NO_SWAP).write_text(str(limits.memory_bytes))
            # The launcher's own process stands in the group too, until it has become PID 1.
            (pids / "pids.max").write_text(str(limits.processes + 1))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        remove(tuple(self._groups.values()))
