"""What to say when the operating system gives us no more of something; above all, when no descriptor is left.

Every box takes some of them, and every command that runs in one, so that a pool with an ordinary login's limit ends at
some sixty boxes. The limit belongs to the program that we are a part of, and is never raised behind its back: some
programs wait by select(2), which takes no number above 1,023.
"""

import errno
import resource

from ringfence.errors import InitializationFailed

_OF_A_BOX = 15
"""What one takes, with a shell and an interpreter that wait in it."""

_HINTS = {
    errno.EFBIG: "this process may write only small files, also in memory; raise `ulimit -f`",
    errno.ENOMEM: "the machine, or the control group that we are in, has no memory left",
    errno.EAGAIN: "this user may have no more processes; raise `ulimit -u`",
    errno.ENOSPC: "a disk is full, or a limit of the kernel on namespaces, watches or groups is reached",
}


def out_of_descriptors(fault: OSError) -> bool:
    """Whether that is what it says."""
    return fault.errno in (errno.EMFILE, errno.ENFILE)


def hint() -> str:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        most = "" if hard == resource.RLIM_INFINITY else f" (at most {hard})"
        return f"this process may have {soft} open files: raise that by `ulimit -n`{most}, or do less at once"
    return f"this process may have {soft} open files: have its hard limit raised (`ulimit -Hn`), or do less at once"


def no_box(fault: OSError) -> InitializationFailed:
    """The operating system refused us something that a box needs."""
    if out_of_descriptors(fault):
        return InitializationFailed(f"no descriptors are left for a box, which takes about {_OF_A_BOX}", hint=hint())
    about = f" ({fault.filename})" if fault.filename else ""
    return InitializationFailed(
        f"the wall could not be built: {fault.strerror or fault}{about}",
        hint=_HINTS.get(fault.errno or 0, "run `ringfence doctor`"),
    )
