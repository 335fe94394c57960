"""What of the system a wrapped command sees, read-only: programs, libraries, and what of /etc these need."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

ENVIRONMENT: Final = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
"""All that a wrapped command has: nothing of the host's variables."""
_DIRECTORIES: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_FILES: Final = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")

KERNEL: Final = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""Settings of the kernel, shown read-only: to root of the host they are open by user id alone, without a capability."""


@cache
def links() -> tuple[tuple[str, str], ...]:
    """(where, target) of the directories that are links, as on a system with merged /usr."""
    return tuple((path, os.readlink(path)) for path in _DIRECTORIES if os.path.islink(path))


@cache
def places() -> tuple[str, ...]:
    """Directories and files that are there and are no links."""
    return tuple(path for path in (*_DIRECTORIES, *_FILES) if os.path.exists(path) and not os.path.islink(path))
