"""Tests of several workers run side by side, except one that has to be alone: it waits until the others' are over.

Two locks that all workers share. Whoever wants to begin passes the gate, one at a time, takes the floor (with others,
or all of it) and lets the next one through the gate. So who waits for all of the floor keeps the gate shut, and those
who come later cannot keep it waiting. The kernel gives a lock back when its holder dies.

What this does not do: keep away what is no test of the same session.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    def __init__(self, directory: str | Path) -> None:
        """
        Args:
            directory: the same for all that take turns with each other.
        """
        self._gate, self._floor = (_open(Path(directory, name)) for name in ("gate", "floor"))

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._floor)

    @contextmanager
    def taken(self, *, alone: bool) -> Iterator[None]:
        """Wait for a turn, and have it."""
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._floor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Said, not left to close: a child of a test may still have the descriptor, and the lock with it.
            fcntl.flock(self._floor, fcntl.LOCK_UN)


def _open(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
