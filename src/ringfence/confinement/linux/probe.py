"""Asks the kernel what it lets us do, by doing it in a child."""

import ctypes
import errno
import os
import time
from functools import cache

_NEW_USER = 0x1000_0000
_ALL = _NEW_USER | 0x0002_0000 | 0x2000_0000 | 0x4000_0000 | 0x0800_0000 | 0x0400_0000
"""User, mount, pid, net, ipc and uts namespaces."""
_TRIES = 40
_PAUSE_SECONDS = 0.05


@cache
def can_unshare() -> str:
    """Why namespaces cannot be made by an unprivileged process here; an empty string if they can."""
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        os._exit(_unshare(libc))
    _, status = os.waitpid(child, 0)
    number = os.waitstatus_to_exitcode(status)
    return "" if number == 0 else os.strerror(number) if 0 < number < 255 else "refused"


def _unshare(libc: ctypes.CDLL) -> int:
    """0, or the error number. A process with a second thread is refused with EINVAL, and libraries of the caller may
    start one in every child for a moment: then again."""
    for _ in range(_TRIES):
        if libc.unshare(_ALL) == 0:
            return 0
        number = ctypes.get_errno()
        if number != errno.EINVAL:
            break
        time.sleep(_PAUSE_SECONDS)
    return min(number, 255) or 255
