"""What a wall promises, one claim each, so that a policy can require it and `choose` can compare."""

from enum import StrEnum

from ringfence.dataclass import dataclass


class Guarantee(StrEnum):
    """One claim that a wall makes."""

    HOST_FILES_HIDDEN = "host files hidden"
    """Contents of files outside the grant cannot be read."""
    HOST_NAMES_HIDDEN = "host names hidden"
    """Not even names, sizes or modes of files outside the grant can be seen."""
    WRITES_CONFINED = "writes confined"
    """Nothing outside the grant's writable directories can be created or changed, metadata included."""
    PROTECTED_PATHS = "protected paths"
    """Git hooks, editor and agent settings and the blacklist hold inside a writable workspace."""
    DENIED_AT_OPEN = "denied at open"
    """The blacklist also holds against hard links, renames, and files that the host makes or saves anew meanwhile."""
    NETWORK_OFF = "network off"
    """No packet leaves, no socket of the host is reachable."""
    OWN_LOOPBACK = "own loopback"
    """Programs inside can talk to each other over 127.0.0.1."""
    HOST_PROCESSES_HIDDEN = "host processes hidden"
    KERNEL_SURFACE_REDUCED = "kernel surface reduced"
    OWN_KERNEL = "own kernel"
    NO_NATIVE_CODE = "no native code"
    """What runs is code of a machine of its own (WebAssembly): it makes no system calls and runs no program of the
    host."""
    NEVER_ROOT = "never root"
    """The kernel never sees uid 0, whoever started us."""
    TREE_DIES = "process tree dies"
    """Whatever the command started is gone when it ends, is ended, or we die."""
    MEMORY_BOUNDED = "memory bounded"
    PROCESSES_BOUNDED = "processes bounded"


@dataclass(frozen=True, slots=True)
class Wall:
    """Which wall a command ran behind: what it promised, and by what its limits were held."""

    name: str
    guarantees: frozenset[Guarantee]
    limits_by: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
