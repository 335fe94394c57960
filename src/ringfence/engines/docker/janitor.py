"""Removes containers whose manager is dead. Each carries the name of its manager as a label.

A container goes by itself when its manager does, because its first process sees the control socket close. What is left
is one that was made and never started. A manager is named so that it can be told from another of the same number: by
the machine's boot, its pid namespace, its pid and when it started. Those of another machine, or of another pid
namespace, are not ours to judge.
"""

import os
from functools import cache
from pathlib import Path

MANAGER_LABEL = "ringfence.manager"
BOX_LABEL = "ringfence.box"


def own_name() -> str:
    """The name of this manager."""
    return f"{_world()} {os.getpid()} {_started(os.getpid())}"


def is_orphan(manager: str) -> bool:
    """Whether the manager of that name is known to be dead."""
    world, _, started = manager.rpartition(" ")
    world, _, pid = world.rpartition(" ")
    return world == _world() and pid.isdigit() and _started(int(pid)) != started


@cache
def _world() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink('/proc/self/ns/pid')}"


def _started(pid: int) -> str:
    """When a process started, in ticks since the boot; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]
