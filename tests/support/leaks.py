"""What a test may leave behind: nothing. Two snapshots of this process and its machine, and the difference in words.

Theory of operation: `adopt_orphans` makes this process the reaper of its descendants, so that a process whose parent is
gone turns up among our children instead of vanishing to init. Children that have died are reaped and are no leak. What
other processes of the machine do meanwhile (other test workers, container engines) must not count: descriptors and
children are our own by nature, the conftest makes the directory for temporary files private to this process, a cgroup
carries the pid of its maker in its name, and mounts are left out that container engines and init make, or that lie
where everybody has temporary files but not in a place that was said to be ours (`work_in`).

What this does not notice: a file that is not named ringfence*, a thread, and a process that left our tree by being
adopted by a nearer reaper.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

GRACE_SECONDS = 6.0  # a guardian whose manager was killed has five for its groups
POLL_SECONDS = 0.02

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PROC = Path("/proc/self")
_CGROUPS = Path("/sys/fs/cgroup")
_CGROUP_NAME = re.compile(r"ringfence-(\d+)-")  # the pid of its maker
SHARED = ("/tmp/", "/var/tmp/", "/dev/shm/")
"""Where everybody has temporary files."""
_FOREIGN_MOUNTS = ("/run/", "/var/lib/docker/", "/var/lib/containerd/", "/var/lib/containers/")
OF_A_CONTAINER = re.compile(r"/(overlay2/[0-9a-f]{32,}/merged|containers/[0-9a-f]{32,}/.*|netns/[0-9a-z]+)$")
"""Where any container engine, wherever it keeps its data, mounts what belongs to its containers."""
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")

_our_places: set[str] = set()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a test could leave behind: what identifies it, and how a person would call it."""

    things: dict[str, str]

    @classmethod
    def take(cls) -> Snapshot:
        return cls(dict(_children()) | {thing: thing for thing in _lasting_things()})

    def since(self, before: Snapshot) -> list[str]:
        return sorted(words for identity, words in self.things.items() if identity not in before.things)


def adopt_orphans() -> None:
    """From now on, descendants whose parent dies become children of this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def work_in(directory: str | Path) -> None:
    """From now on, a mount below this directory is ours, also where others have temporary files."""
    _our_places.add(f"{directory}/")


def wait_for_leaks(before: Snapshot, grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """What is here now and was not `before`, once it has had `grace_seconds` to go away by itself."""
    deadline = time.monotonic() + grace_seconds
    while left := Snapshot.take().since(before):
        if time.monotonic() > deadline:
            break
        gc.collect()  # an object in a reference cycle is closed late, which is no leak
        time.sleep(POLL_SECONDS)
    return left


def _lasting_things() -> Iterator[str]:
    yield from _descriptors()
    yield from _mounts()
    yield from _cgroups()
    yield from _temporary_files()


def _children() -> Iterator[tuple[str, str]]:
    for pid in _child_pids():
        status = _status(pid)
        if status is None:
            continue
        if status.state == "Z":
            _reap(pid)
        else:  # by pid and start time; the name may change by exec
            yield f"process {pid} {status.started}", f"process {pid} ({status.name}): {_command_line(pid)}"


def _child_pids() -> Iterator[int]:
    for task in (_PROC / "task").iterdir():
        try:
            yield from map(int, (task / "children").read_text().split())
        except FileNotFoundError:  # the thread has ended
            continue


class _Status(NamedTuple):
    name: str
    state: str
    parent: int
    started: str


def _status(pid: int) -> _Status | None:
    """The fields of proc(5) stat that matter here; None if the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")  # a name may hold parentheses and blanks
    fields = rest.split()
    return _Status(name, state=fields[0], parent=int(fields[1]), started=fields[19])


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _reap(pid: int) -> None:
    """Collect a dead child. A Popen that was never waited for is reported by its own ResourceWarning."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _descriptors() -> Iterator[str]:
    for number in os.listdir(_PROC / "fd"):
        try:
            target = os.readlink(_PROC / "fd" / number)
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        yield f"descriptor {number} -> {target}"


def _mounts() -> Iterator[str]:
    shared = (*SHARED, f"{os.environ.get('PYTEST_DEBUG_TEMPROOT', '/tmp').rstrip('/')}/")
    yield from _our_mounts((_PROC / "mountinfo").read_text(errors="replace"), shared, tuple(_our_places))


@lru_cache(maxsize=2)  # most tests mount nothing, and a machine may have hundreds of mounts
def _our_mounts(mountinfo: str, shared: tuple[str, ...], ours: tuple[str, ...]) -> tuple[str, ...]:
    found = []
    for line in mountinfo.splitlines():
        number, _, _, _, point = line.split()[:5]
        if OF_A_CONTAINER.search(point) or (point.startswith(shared) and not point.startswith(ours)):
            continue  # an engine's, or somebody else's temporary file
        if "ringfence" in point or not point.startswith(_FOREIGN_MOUNTS):
            found.append(f"mount {number} on {point}")
    return tuple(found)


def _cgroups() -> Iterator[str]:
    for directory in _directories_below(_CGROUPS):
        maker = _CGROUP_NAME.match(os.path.basename(directory))
        if maker is not None and not _is_someone_elses(int(maker[1])):
            yield f"cgroup {directory}"


def _directories_below(root: Path) -> Iterator[str]:
    """What os.walk would find, without listing the dozens of files in each cgroup that has no other below it."""
    waiting = [str(root)]
    while waiting:
        with suppress(OSError):  # gone meanwhile, or closed to us
            directory = waiting.pop()
            if os.stat(directory).st_nlink == 2:  # the link from its parent, and its own "."
                continue
            with os.scandir(directory) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            yield from below
            waiting += (path for path in below if not _CONTAINER_ID.fullmatch(os.path.basename(path)))  # the engine's


def _is_someone_elses(pid: int) -> bool:
    """A living process outside our tree answers for its own; what a dead one left is reported to whoever looks."""
    return _status(pid) is not None and not _descends_from_us(pid)


def _descends_from_us(pid: int) -> bool:
    while pid not in (0, os.getpid()):
        status = _status(pid)
        if status is None:
            return False
        pid = status.parent
    return pid != 0


def _temporary_files() -> Iterator[str]:
    for directory in {tempfile.gettempdir(), "/dev/shm"}:
        if os.path.isdir(directory):
            yield from (f"file {directory}/{name}" for name in os.listdir(directory) if name.startswith("ringfence"))
