"""After a command: looks for what it left that another program would run later, takes the edge off it, and says so.

Where the supervisor looked, only what was written is looked at, and a command that wrote nothing costs nothing. Where
nobody did, the writable directories are searched for what is newer than the command's begin, within limits.

Shadows are not looked at here: what is in them reaches nobody before a commit, and the commit looks (`held_back`).

What this does not protect against: what processes in the background write after the command that was looked at;
`leftovers.scan` says what else.
"""

import asyncio
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from ringfence.errors import RingfenceError
from ringfence.values.change import Change
from ringfence.values.grant import Grant
from ringfence.values.outcome import Observed, Result
from ringfence.values.violation import LEFTOVER_RULE, Severity, Violation, ViolationType
from ringfence.workspace.leftovers.base import Leftover
from ringfence.workspace.leftovers.disarm import SUFFIX, disarm
from ringfence.workspace.leftovers.scan import find_leftovers, leftovers_among

_REALTIME_COARSE: Final = 5  # CLOCK_REALTIME_COARSE, for which Python has no name
_BELOW_MAX: Final = 20_000
"""Names below directories that were made or moved; beyond, the whole workspace is searched instead."""
_FEW: Final = 20
"""Names that are looked at in less time than it takes to ask a thread."""
_FEW_ENTRIES: Final = 60
"""The same for entries of which only the time is looked at."""
_SEARCH_ENTRIES: Final = 100_000
_SEARCH_SECONDS: Final = 2.0


def begin_ns() -> int:
    """Now, by the clock that file times are taken from."""
    return time.clock_gettime_ns(_REALTIME_COARSE)


def may_have_left(grant: Grant, result: Result) -> bool:
    """Whether there is anything to look at."""
    return grant.shadow is None and (result.observed is None or _wrote(result.observed))


async def find_leavings(grant: Grant, result: Result, since_ns: int) -> tuple[Violation, ...]:
    """What a command left behind, disarmed where that is possible; in a thread, unless there is little to look at."""
    seen = result.observed
    if seen is not None and seen.is_complete:
        if len(seen.written) <= _FEW:
            return _look(grant, result, since_ns)
    elif all(_is_untouched(root, since_ns) for root in grant.writable_roots):
        return ()
    return await asyncio.to_thread(_look, grant, result, since_ns)


def _is_untouched(root: Path, since_ns: int) -> bool:
    """Whether a tree is small, and all in it is older than that: by its ctime, which nobody can set back. Then there is
    nothing to find, and no thread has to be asked."""
    waiting: list[str] = [os.fspath(root)]
    count = 0
    try:
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    status = entry.stat(follow_symlinks=False)
                    if status.st_ctime_ns >= since_ns or count > _FEW_ENTRIES:
                        return False
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
    except OSError:  # it may be closed to us: that is said by whoever looks thoroughly
        return False
    return True


def _look(grant: Grant, result: Result, since_ns: int) -> tuple[Violation, ...]:
    found: list[Violation] = []
    for root in grant.writable_roots:
        if not os.path.isdir(root):
            continue
        try:
            left, unsure = _left_in(os.fspath(root), result.observed, since_ns)
            disarmed = set(disarm(root, left)) if left else set()
        except (OSError, RingfenceError) as fault:  # an agent may have closed it to us; that must not fail the call
            found.append(_unsure(fault))
            continue
        found += (_said(leftover, is_disarmed=leftover in disarmed) for leftover in left)
        found += unsure
    return tuple(found)


def held_back(root: str | os.PathLike[str]) -> Callable[[Change], str | None]:
    """For a commit: why a change of a shadow, whose files lie at `root`, should not go through unseen."""

    def why(change: Change) -> str | None:
        left = leftovers_among(root, (change.path,)) if change.new is not None else ()
        return f"{left[0].why}; run by {left[0].run_by}" if left else None

    return why


def _wrote(observed: Observed) -> bool:
    return bool(observed.written) or not observed.is_complete


def _left_in(root: str, observed: Observed | None, since_ns: int) -> tuple[tuple[Leftover, ...], tuple[Violation, ...]]:
    written = None
    if observed is not None and observed.is_complete:
        inside = root.rstrip("/") + "/"
        written = _with_all_below(root, [name[len(inside) :] for name in observed.written if name.startswith(inside)])
    if written is not None:
        return leftovers_among(root, written), ()
    scan = find_leftovers(root, since_ns=since_ns, limit_entries=_SEARCH_ENTRIES, limit_seconds=_SEARCH_SECONDS)
    return scan.leftovers, scan.violations()[len(scan.leftovers) :]


def _with_all_below(root: str, names: list[str]) -> list[str] | None:
    """The names, and what lies below those that are directories now: one may have been filled and then moved there."""
    found = dict.fromkeys(names)
    for name in names:
        for below in _below(root, name):
            found[below] = None
            if len(found) > _BELOW_MAX + len(names):
                return None
    return list(found)


def _below(root: str, name: str) -> Iterator[str]:
    top = os.path.join(root, name)
    try:
        if not stat.S_ISDIR(os.lstat(top).st_mode):
            return
    except OSError:
        return
    for directory, _, files in os.walk(top):
        for file in files:
            yield os.path.relpath(os.path.join(directory, file), root)


def _unsure(fault: Exception) -> Violation:
    return Violation(
        ViolationType.DANGEROUS_PATTERN,
        Severity.MEDIUM,
        f"what was left behind could not be looked at: {fault}",
        f"{LEFTOVER_RULE}scan",
        "open the directory again, and look through it by hand",
    )


def _said(leftover: Leftover, *, is_disarmed: bool) -> Violation:
    violation = leftover.violation()
    if not is_disarmed:
        return violation
    how = f"renamed to {os.path.basename(leftover.path)}{SUFFIX}" if leftover.kind.startswith("git") else "taken away"
    return replace(violation, what=f"{violation.what}; it was disarmed: {how}")
