"""Holder by a control group of version 2, where memory and processes are delegated to us.

The machine that this was written on has no version 2 controllers: the reading and writing of files is tested against a
directory that looks like one, the kernel's side is not.
"""

import os
from contextlib import suppress
from pathlib import Path

from ringfence.limits.base import UsageReading
from ringfence.limits.cgroups import CgroupMount, new_name, read_counter, read_number, remove
from ringfence.values.limits import Limit, Limits

NEEDED = frozenset({"memory", "pids"})


def usable(mounted: CgroupMount | None) -> Path | None:
    """The nearest group above us that hands memory and pids down and that we may write to.

    Not our own group: it holds processes, and version 2 lets only groups without processes hand controllers down.
    Moving a process needs write access to the common ancestor's `cgroup.procs`, so that is asked for too.
    """
    if mounted is None:
        return None
    directory = mounted.directory
    while True:
        with suppress(OSError):
            given = set((directory / "cgroup.subtree_control").read_text().split())
            if given >= NEEDED and os.access(directory, os.W_OK) and os.access(directory / "cgroup.procs", os.W_OK):
                return directory
        if directory == mounted.top or mounted.top not in directory.parents:
            return None
        directory = directory.parent


class FoundV2:
    """A group that somebody else has made and set: it is read, and left to its maker."""

    name = "cgroup v2"
    enforces = frozenset({Limit.MEMORY, Limit.PROCESSES})
    joins: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()

    def __init__(self, group: Path) -> None:
        self._group = group

    def read(self, first_pid: int) -> UsageReading:
        return UsageReading(
            cpu_seconds=read_counter(self._group / "cpu.stat", b"usage_usec") / 1e6,
            memory_bytes=read_number(self._group / "memory.current"),
        )

    def memory_kills(self) -> int:
        return read_counter(self._group / "memory.events", b"oom_kill")

    def peak_memory_bytes(self) -> int:
        return read_number(self._group / "memory.peak")

    def start_command(self) -> None:
        """The peak of version 2 can be reset per open file only, from kernel 6.12 on; it stays the box's."""

    def close(self) -> None:
        """Nothing was made."""


class CgroupV2(FoundV2):
    """Memory, swap and processes are held by the kernel; CPU time is read and watched."""

    def __init__(self, parent: Path, limits: Limits) -> None:
        super().__init__(parent / new_name())
        self._group.mkdir()
        self.joins = (str(self._group / "cgroup.procs"),)
        self.leftovers = (str(self._group),)
        try:
            (self._group / "memory.max").write_text(str(limits.memory_bytes))
            with suppress(FileNotFoundError):  # a kernel without swap accounting
                (self._group / "memory.swap.max").write_text("0")
            # The launcher's own process stands in the group too, until it has become PID 1.
            (self._group / "pids.max").write_text(str(limits.processes + 1))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        remove((self._group,))
