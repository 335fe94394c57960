"""Chooses what holds a box: control groups where we may make them, else resource limits and polling."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.deferred import deferred_module
from ringfence.limits import cgroup_v1, cgroup_v2
from ringfence.limits.cgroups import hierarchies, hierarchies_of, sweep

if TYPE_CHECKING:
    from ringfence.limits import polling
    from ringfence.limits.base import ResourceController
    from ringfence.values.limits import Limits
else:
    polling = deferred_module("ringfence.limits.polling")


@cache
def _parents() -> tuple[dict[str, Path] | None, Path | None]:
    first, second = hierarchies()
    found = cgroup_v1.usable(first), cgroup_v2.usable(second)
    sweep((*(found[0] or {}).values(), *([found[1]] if found[1] else [])))
    return found


def describe() -> str:
    """What `choose` will take here, for `doctor`."""
    first, second = _parents()
    return "cgroup v1" if first else "cgroup v2" if second else polling.Polling.name


def choose(limits: Limits) -> ResourceController:
    """A holder for one box.

    The kernel may refuse a group that looked writable (a cgroup namespace, a read-only mount that was remounted):
    then polling holds the box, and the result says so.
    """
    first, second = _parents()
    try:
        if first:
            return cgroup_v1.CgroupV1(first, limits)
        if second:
            return cgroup_v2.CgroupV2(second, limits)
    except OSError:
        pass
    return polling.Polling(limits.memory_bytes)


def watch(limits: Limits) -> ResourceController:
    """A holder for a box that is in no groups of its own."""
    return polling.Polling(limits.memory_bytes)


def find(pid: int, limits: Limits) -> ResourceController:
    """The holder of a process that somebody else has put into groups, such as a container engine: reads them, and makes
    nothing.

    Where the groups cannot be seen from here, the tree is looked at instead; whoever made them holds the limits all the
    same.
    """
    first, second = hierarchies_of(pid)
    groups = {name: mounted.directory for mounted in first for name in mounted.controllers}
    if "memory" in groups and (groups["memory"] / "memory.usage_in_bytes").exists():
        return cgroup_v1.FoundV1(groups)
    if second is not None and (second.directory / "memory.current").exists():
        return cgroup_v2.FoundV2(second.directory)
    return polling.Polling(limits.memory_bytes)
