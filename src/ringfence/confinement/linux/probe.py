"""Asks the kernel what it lets us do, by doing it in a child."""

import ctypes
import os
from functools import cache

_NEW_USER = 0x1000_0000
_ALL = _NEW_USER | 0x0002_0000 | 0x2000_0000 | 0x4000_0000 | 0x0800_0000 | 0x0400_0000
"""User, mount, pid, net, ipc and uts namespaces."""


@cache
def can_unshare() -> str:
    """Why namespaces cannot be made by an unprivileged process here; an empty string if they can."""
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.unshare(_ALL) == 0 else min(ctypes.get_errno(), 255) or 255)
    _, status = os.waitpid(child, 0)
    number = os.waitstatus_to_exitcode(status)
    return "" if number == 0 else os.strerror(number) if 0 < number < 255 else "refused"
