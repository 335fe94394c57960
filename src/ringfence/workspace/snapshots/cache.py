"""Remember which file held what, so that a file is read again only if it changed.

A file is the same if its path, device, inode, size and both times are. The time of the last change of status (ctime)
cannot be set back by the agent. It has a grain, though: a file that changed again within the grain after we read it
would look the same. So a file is remembered only if it had been left alone for a moment when it was looked at.

What this does not protect against: writes through a memory map that the kernel has not noticed yet, and whoever can set
the machine's clock.
"""

import json
import os
from pathlib import Path
from typing import Any, TypeAlias

from ringfence.dataclass import dataclass, field
from ringfence.workspace.snapshots.tree import Piece

Key: TypeAlias = tuple[int, int, int, int, int]

_GRAIN_NS = 100_000_000
"""Ten times the coarsest tick that kernels are built with."""


def key_of(status: os.stat_result) -> Key:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@dataclass(slots=True)
class Cache:
    """What was seen in one tree."""

    generation: int
    """Of the store: how often it has removed objects. What was remembered in another one may be gone."""
    files: dict[str, tuple[Key, tuple[Piece, ...]]] = field(default_factory=dict)

    def get(self, path: str, status: os.stat_result) -> tuple[Piece, ...] | None:
        known = self.files.get(path)
        return known[1] if known is not None and known[0] == key_of(status) else None

    def remember(self, path: str, status: os.stat_result, pieces: tuple[Piece, ...], begin_ns: int) -> None:
        if status.st_ctime_ns < begin_ns - _GRAIN_NS:
            self.files[path] = (key_of(status), pieces)

    def encode(self) -> bytes:
        rows = {
            path: [*key, [[piece.offset, piece.length, piece.digest] for piece in pieces]]
            for path, (key, pieces) in self.files.items()
        }
        return json.dumps({"generation": self.generation, "files": rows}, separators=(",", ":")).encode()


def read_cache(path: Path) -> Cache | None:
    """None if there is none, or none that makes sense: then everything is read again."""
    try:
        with open(path, "rb") as file:
            stored: dict[str, Any] = json.load(file)
        files = {
            name: ((dev, ino, size, mtime, ctime), tuple(Piece(*piece) for piece in pieces))
            for name, (dev, ino, size, mtime, ctime, pieces) in stored["files"].items()
        }
        return Cache(int(stored["generation"]), files)
    except (OSError, ValueError, KeyError, TypeError):
        return None
