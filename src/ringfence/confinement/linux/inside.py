"""How PID 1 confines itself inside a view that is built from nothing: the same for every wall that builds one."""

from ringfence.confinement.base import View
from ringfence.confinement.linux import landlock
from ringfence.confinement.linux.landlock import DEVICES, READ, WRITE


def landlock_words(view: View, private: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Read everywhere in the view, write where the grant says and in what the box has for itself, devices in /dev."""
    rules = [("/", READ), ("/dev", DEVICES), ("/dev/shm", WRITE), ("/tmp", WRITE)]
    rules += [(path, WRITE) for path in (view.home, *private, *view.writable)]
    return landlock.words(rules, version=landlock.abi(), tcp=False, scoped=False)


def kernel_notes() -> tuple[str, ...]:
    return () if landlock.abi() else ("this kernel has no Landlock: the mounts stand alone",)
