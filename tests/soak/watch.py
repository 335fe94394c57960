"""What a process has at one moment: descendants, descriptors, threads, mounts, control groups, files, memory."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from dataclasses import dataclass, fields
from pathlib import Path

_FREE = {
    # asyncio's own and the watch's two, which come and stay, and one that may just be waiting for a child
    "threads": 4 + min(32, (os.cpu_count() or 1) + 4),
    "mounts": 1 << 30,  # those of the machine: others mount too
    "resident_bytes": 1 << 60,  # judged over a longer time
}
"""How much of something there may be without being a leak."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Taken when nothing runs, so that two of them differ only by what was left behind."""

    processes: int
    descriptors: int
    threads: int
    tasks: int
    mounts: int
    cgroups: int
    workspaces: int
    pending: int
    resident_bytes: int

    @classmethod
    def take(cls, workspaces: Path, pending: Path) -> Footprint:
        gc.collect()
        return cls(
            processes=len(descendants(os.getpid())),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            tasks=len(asyncio.all_tasks()),
            mounts=Path("/proc/self/mountinfo").read_text().count("\n"),
            cgroups=len(cgroups(os.getpid())),
            workspaces=sum(1 for _ in workspaces.glob("*/*")),
            pending=sum(1 for _ in pending.glob("*")),
            resident_bytes=resident_bytes(),
        )

    def grown_since(self, before: Footprint) -> list[str]:
        """What there is more of."""
        return [
            f"{field.name}: {getattr(before, field.name)} -> {getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) > max(getattr(before, field.name), _FREE.get(field.name, 0))
        ]


def cgroups(maker: int) -> list[str]:
    """Those that a process made; their names hold its pid."""
    return [directory for directory, _, _ in os.walk("/sys/fs/cgroup") if f"/ringfence-{maker}-" in directory]


def _is_dead(pid: str) -> bool:
    """Nobody has waited for it: when a launcher is killed, whoever adopts its orphans does so in its own time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return True


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    waiting = [pid]
    while waiting:
        try:
            tasks = os.listdir(f"/proc/{(parent := waiting.pop())}/task")
        except (FileNotFoundError, ProcessLookupError):
            continue
        for task in tasks:
            try:
                text = Path(f"/proc/{parent}/task/{task}/children").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            children = [int(child) for child in text.split() if not _is_dead(child)]
            found += children
            waiting += children
    return found


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
