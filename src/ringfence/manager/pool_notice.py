"""Lets other processes see a pool: a small file in the state directory, renewed while the pool lives.

Advice for people (`ringfence pool`), not a register: the file is locked by its writer, so that one whose writer has
died is known by that, and removed by whoever looks.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.pool.state import PoolState

_DIRECTORY = "pools"
_RENEW_SECONDS = 1.0
_SIZE_MAX = 65536
_YOUNG_SECONDS = 10.0
"""An empty file younger than this is one whose writer has not locked it yet."""


class PoolNotice:
    def __init__(self, state_directory: Path, state: Callable[[], Mapping[str, PoolState]]) -> None:
        self._state = state
        self._path = state_directory / _DIRECTORY / f"{os.getpid()}-{os.urandom(4).hex()}.json"
        self._descriptor = -1
        self._last = b""
        self._timer: asyncio.TimerHandle | None = None
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self._write()

    def _write(self) -> None:
        text = json.dumps({tools: asdict(state) for tools, state in self._state().items()}).encode()
        if text != self._last:
            # In one piece, and blanks over what was there: whoever reads meanwhile finds a whole text.
            whole, self._last = text.ljust(len(self._last)), text
            with suppress(OSError):
                os.pwrite(self._descriptor, whole, 0)
        self._timer = asyncio.get_running_loop().call_later(_RENEW_SECONDS, self._write)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._descriptor >= 0:
            with suppress(OSError):
                os.unlink(self._path)
            os.close(self._descriptor)
            self._descriptor = -1


def read_notices(state_directory: Path) -> list[dict[str, Any]]:
    """What the pools of this user's processes say of themselves: pid, seconds since the last change, and pools."""
    found: list[dict[str, Any]] = []
    with suppress(OSError):
        for path in sorted((state_directory / _DIRECTORY).iterdir()):
            with suppress(OSError, ValueError, RecursionError):
                notice = _read(path)
                if notice is not None:
                    found.append({"pid": int(path.name.partition("-")[0])} | notice)
    return found


def _read(path: Path) -> dict[str, Any] | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            info = os.fstat(descriptor)
            if info.st_size or time.time() - info.st_mtime > _YOUNG_SECONDS:
                path.unlink()  # nobody holds it: its writer has died
            return None
        age = time.time() - os.fstat(descriptor).st_mtime
        pools = json.loads(os.read(descriptor, _SIZE_MAX))
        return {"age_seconds": round(age, 1), "pools": pools} if isinstance(pools, dict) else None
    finally:
        os.close(descriptor)
