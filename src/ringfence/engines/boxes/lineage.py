"""Which processes stand between us and PID 1 of a box that waits, if none of them was stopped or killed.

Whoever kills one of them ends the box a moment later. Until then PID 1 may still answer, below another parent: so a box
is well only if those above it are the ones that were there when it was made.
"""

from __future__ import annotations

import os

_NOT_WELL = b"TtZX"
_MOST = 8
"""Processes between us and PID 1; there are three at the most."""


def lineage(first_pid: int) -> tuple[int, ...]:
    """From PID 1 up to whoever is our own child; empty if one is stopped or dead, or it is not below us."""
    found: list[int] = []
    pid = first_pid
    try:
        while len(found) < _MOST:
            state, parent = _state(pid)
            if state in _NOT_WELL:
                return ()
            found.append(pid)
            if parent == os.getpid():
                return tuple(found)
            pid = parent
    except OSError:
        pass
    return ()


def _state(pid: int) -> tuple[bytes, int]:
    """Its state and its parent."""
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
    finally:
        os.close(descriptor)
    return fields[0], int(fields[1])
