"""Where an integration test stands: a caller of its own, the same commands with and without a wall, and watchers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import ringfence
from ringfence import Result, Sandbox

T = TypeVar("T")

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SECRET = "hunter2-of-the-host"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test stands: all of it below one directory, which pytest removes."""

    top: Path
    home: Path
    workspace: Path
    state: Path

    def run(self, command: str | list[str], **options: object) -> Result:
        return ringfence.run(command, **{"workspace": self.workspace, "timeout": 30.0} | options)  # type: ignore[arg-type]

    def box(self, **options: object) -> Sandbox:
        return Sandbox(**{"workspace": self.workspace} | options)  # type: ignore[arg-type]

    @contextmanager
    def box_closed(self, **options: object) -> Iterator[Sandbox]:
        """A sandbox that was never opened, for its checks."""
        box = self.box(**options)
        yield box
        asyncio.run(box.close())

    def in_box(self, work: Callable[[Sandbox], Awaitable[T]], **options: object) -> T:
        """Open a box, hand it to `work`, close it."""

        async def whole() -> T:
            async with self.box(**options) as box:
                return await work(box)

        return asyncio.run(whole())

    def host(self, command: str, *, cwd: Path | None = None, seconds: float = 30) -> subprocess.CompletedProcess[str]:
        """The same command without a wall, bounded in time: the twin that shows that the attempt itself works."""
        return subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=cwd or self.workspace,
            capture_output=True,
            text=True,
            timeout=seconds,
            env={"PATH": SYSTEM_PATH, "HOME": str(self.home), "LANG": "C.UTF-8", "GIT_CONFIG_NOSYSTEM": "1"},
            check=False,
        )

    def names(self, directory: Path | None = None) -> set[str]:
        """Everything below a directory, placeholders included."""
        root = directory or self.workspace
        return {
            os.path.relpath(os.path.join(at, name), root) for at, dirs, files in os.walk(root) for name in dirs + files
        }


def eventually(claim: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Whether a claim comes true in time; the bound is for what hangs, not a measurement."""
    deadline = time.monotonic() + seconds
    while not claim():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def processes_with(mark: str) -> list[int]:
    """Processes of the machine, in whatever namespace, whose arguments hold a mark that only one test uses."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                line = Path(f"/proc/{entry}/cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line:
                found.append(int(entry))
    return found


def descriptors() -> int:
    """How many descriptors this process has open for good: the fewest of several looks, since threads that look at the
    machine have one more open now and then, and on a crowded machine for some time."""
    counts = []
    for _ in range(5):
        counts.append(len(os.listdir("/proc/self/fd")))
        time.sleep(0.004)
    return min(counts)
