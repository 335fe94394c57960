"""How PID 1 confines itself inside a view that is built from nothing: the same for every wall that builds one."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ringfence.confinement.linux import landlock, mediation, notify
from ringfence.confinement.linux.building import QUEUES
from ringfence.confinement.linux.landlock import DEVICES, MAKE, PROCESS, READ, WRITE
from ringfence.values.guarantee import Guarantee

if TYPE_CHECKING:
    from ringfence.confinement.base import Layered, View

_CHANGE = WRITE & ~MAKE


def landlock_words(view: View, private: tuple[str, ...] = (QUEUES,)) -> tuple[str, ...]:
    """Read everywhere in the view, write where the grant says and in what the box has for itself, devices in /dev.

    A process may write its own files in /proc (its name, how soon the kernel gives it up for memory): which are its own
    is the kernel's to say, by owner and by Landlock's own domains; what is the machine's there is mounted read-only.

    Where the guardian makes names, the box makes none (native/make.c). A rule holds for all that lies below its
    directory, other mounts included, hence neither in what of its own such a directory lies below.

    A shadow is handed out before.
    """
    kept = frozenset(view.made_outside)
    rules = [("/", READ), ("/dev", DEVICES), ("/proc", PROCESS)]
    for path in ("/dev/shm", "/tmp", view.home, *private, *view.writable):
        rules.append((path, _CHANGE if path in kept else WRITE))
    window = [word for layered in view.layered for word in _handed_out(layered)]
    return (*window, *landlock.words(rules, version=landlock.abi(), tcp=False, scoped=False))


def _handed_out(layered: Layered) -> tuple[str, ...]:
    in_memory = ("hand",) if layered.memory_bytes else ()
    return ("window", layered.root, *in_memory)


def can_make_names() -> bool:
    """Whether the guardian can make names for a box: Landlock has to refuse the box to make them itself, and a call
    that is made for somebody must not be made twice because of a signal."""
    return landlock.abi() > 0 and mediation.is_kernel((5, 19)) and notify.is_known_machine()


def keeps_apart() -> bool:
    """Whether each command is in a Landlock domain of its own: then it can trace its own processes, and no others."""
    return landlock.abi() >= landlock.APART


@cache
def has_queues() -> bool:
    """Whether the kernel has POSIX message queues."""
    try:
        with open("/proc/filesystems", encoding="ascii") as file:
            return any(line.split()[-1] == "mqueue" for line in file)
    except OSError:
        return False


def offered() -> frozenset[Guarantee]:
    """What such a wall guarantees on this kernel; limits are held by others."""
    lacking = {
        Guarantee.OWN_KERNEL,
        Guarantee.NO_NATIVE_CODE,
        Guarantee.MEMORY_BOUNDED,
        Guarantee.PROCESSES_BOUNDED,
    }
    if mediation.why_not():
        lacking.add(Guarantee.DENIED_AT_OPEN)
    return frozenset(Guarantee) - lacking


def kernel_notes() -> tuple[str, ...]:
    return () if landlock.abi() else ("this kernel has no Landlock: the mounts stand alone",)
