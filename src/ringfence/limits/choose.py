"""Chooses what holds a box: control groups where we may make them, else resource limits and polling."""

from functools import cache
from pathlib import Path

from ringfence.limits import cgroup_v1, cgroup_v2
from ringfence.limits.base import Holder
from ringfence.limits.cgroups import hierarchies, sweep
from ringfence.limits.polling import Polling
from ringfence.values.limits import Limits


@cache
def _parents() -> tuple[dict[str, Path] | None, Path | None]:
    first, second = hierarchies()
    found = cgroup_v1.usable(first), cgroup_v2.usable(second)
    sweep((*(found[0] or {}).values(), *([found[1]] if found[1] else [])))
    return found


def describe() -> str:
    """What `choose` will take here, for `doctor`."""
    first, second = _parents()
    return "cgroup v1" if first else "cgroup v2" if second else Polling.name


def choose(limits: Limits) -> Holder:
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
    return Polling(limits.memory_bytes)
