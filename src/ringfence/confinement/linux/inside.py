"""How PID 1 confines itself inside a view that is built from nothing: the same for every wall that builds one."""

from ringfence.confinement.base import Layered, View
from ringfence.confinement.linux import landlock, strict
from ringfence.confinement.linux.landlock import DEVICES, READ, WRITE
from ringfence.values.guarantee import Guarantee


def landlock_words(view: View, private: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Read everywhere in the view, write where the grant says and in what the box has for itself, devices in /dev.

    A shadow is handed out before.
    """
    rules = [("/", READ), ("/dev", DEVICES), ("/dev/shm", WRITE), ("/tmp", WRITE)]
    rules += [(path, WRITE) for path in (view.home, *private, *view.writable)]
    window = [word for layered in view.layered for word in _handed_out(layered)]
    return (*window, *landlock.words(rules, version=landlock.abi(), tcp=False, scoped=False))


def _handed_out(layered: Layered) -> tuple[str, ...]:
    in_memory = ("hand",) if layered.memory_bytes else ()
    return ("window", layered.root, *in_memory)


def offered() -> frozenset[Guarantee]:
    """What such a wall guarantees on this kernel; limits are held by others."""
    lacking = {Guarantee.OWN_KERNEL, Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED}
    if strict.why_not():
        lacking.add(Guarantee.DENIED_AT_OPEN)
    return frozenset(Guarantee) - lacking


def kernel_notes() -> tuple[str, ...]:
    return () if landlock.abi() else ("this kernel has no Landlock: the mounts stand alone",)
