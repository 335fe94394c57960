"""Small files of our own, written so that a crash leaves the old one or the new one."""

import json
import os
import stat
from pathlib import Path
from typing import Any

_LARGEST_BYTES = 1024 * 1024 * 1024
"""A manifest of some million files; more is no state of ours."""


def write_json(path: Path, fields: Any) -> None:
    """Replace a small file of ours at once; after a crash it is the old one or the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    with open(temporary, "w", encoding="ascii") as file:
        file.write(json.dumps(fields, separators=(",", ":")))  # at once: `dump` takes five times as long
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """What `write_json` wrote.

    Raises:
        OSError: it is not there, or is no regular file of ours.
        ValueError: it is no JSON, or far too large.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, encoding="ascii") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError("not a file of ours")
        if status.st_size > _LARGEST_BYTES:
            raise ValueError("far too large")
        return json.load(file)
