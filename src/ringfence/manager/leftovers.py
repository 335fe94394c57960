"""After a command: looks for what it left that another program would run later, takes the edge off it, and says so.

Where the supervisor looked, only what was touched is looked at, and a command that touched nothing costs nothing. Where
nobody did, or its record is not complete, the writable directories are searched for what is newer than the command's
begin, within limits.

Whose doing something is:

- What the wall froze or hid when the box was made (`Box.held`) cannot have been changed from inside. It is never looked
  at, and so never renamed, whatever its times are.
- The record has each name with what it was before: what is the same file with the same times was only tried.
- Without a record, times tell: the ctime, that something was changed; the birth time, that it was made. What was only
  changed, or only may have been, is reported and keeps its name.

What goes on after a call (an interpreter that keeps its state, a process that was started) writes between the calls and
after the last one: then the next look, and one more when the box is gone, reach back to the last.

A record names paths, and there are ways to a file that have none (another link, an open descriptor), and threads that
change a path while it is looked at. So git directories that were made in the box, and files whose content decides, are
compared with what they were after every later call, whatever its record says (`leftovers.watch`).

Shadows are not looked at here: what is in them reaches nobody before a commit, and the commit looks
(`leftovers.holding`).

What this does not protect against: `leftovers.scan` says it.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass, replace
from ringfence.deferred import deferred, deferred_module
from ringfence.errors import RingfenceError
from ringfence.values.outcome import Observed

if TYPE_CHECKING:
    from ringfence.engines.base import Box
    from ringfence.values.grant import Grant
    from ringfence.values.request import Request
    from ringfence.values.violation import Violation
    from ringfence.workspace.leftovers import disarm as disarming
    from ringfence.workspace.leftovers import watch as watching
    from ringfence.workspace.leftovers.base import Leftover, unsure
    from ringfence.workspace.leftovers.disarm import disarm
    from ringfence.workspace.leftovers.scan import Scan, ScanLimits, Since, find_leftovers, leftovers_among
    from ringfence.workspace.leftovers.watch import Identity, WatchedNames, changed, find_again, identity, state_of
else:
    unsure = deferred("ringfence.workspace.leftovers.base", "unsure")
    disarm = deferred("ringfence.workspace.leftovers.disarm", "disarm")
    ScanLimits = deferred("ringfence.workspace.leftovers.scan", "ScanLimits")
    Since = deferred("ringfence.workspace.leftovers.scan", "Since")
    find_leftovers = deferred("ringfence.workspace.leftovers.scan", "find_leftovers")
    leftovers_among = deferred("ringfence.workspace.leftovers.scan", "leftovers_among")
    WatchedNames = deferred("ringfence.workspace.leftovers.watch", "WatchedNames")
    changed = deferred("ringfence.workspace.leftovers.watch", "changed")
    find_again = deferred("ringfence.workspace.leftovers.watch", "find_again")
    identity = deferred("ringfence.workspace.leftovers.watch", "identity")
    state_of = deferred("ringfence.workspace.leftovers.watch", "state_of")
    disarming = deferred_module("ringfence.workspace.leftovers.disarm")
    watching = deferred_module("ringfence.workspace.leftovers.watch")

_REALTIME_COARSE: Final = 5  # CLOCK_REALTIME_COARSE, for which Python has no name
_FEW: Final = 20
"""Names that are looked at in less time than it takes to ask a thread."""
_FEW_ENTRIES: Final = 60
"""The same for entries of which only the time is looked at."""
_EACH_WATCHED: Final = 5
"""Looking at a git directory once more takes as long as looking at so many names."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One call in a box; no two are the same."""

    record_ns: int
    """From when on a record of what was seen tells."""
    unseen_ns: int
    """From when on something may have happened that no record tells and no search has found."""


class LeftoverSearch:
    """What was left by the calls of one sandbox. Shared by calls that run side by side."""

    def __init__(self, grant: Grant) -> None:
        shadowed = grant.workspace if grant.shadow is not None else None
        self._roots = tuple(root for root in grant.writable_roots if root != shadowed)
        self._box: Box | None = None
        self._goes_on = False
        self._looked_ns = 0
        self._unseen_ns = 0
        self._owed: set[Call] = set()
        """Calls after which nobody has looked yet."""
        self._entered_ns = 0
        self._watched: dict[Identity, WatchedNames] = {}
        self._is_blind = False
        """Whether something could not be remembered, or not be found again: then everything is searched."""

    def begin(self, box: Box, request: Request) -> Call:
        """A call begins; ask before it does."""
        now = self._enter(box)
        call = Call(self._looked_ns, self._unseen_ns) if self._goes_on else Call(now, now)
        if not self._goes_on:
            self._unseen_ns = now
        is_interpreted = request.code is not None and request.language in (None, *box.interprets)
        if request.context is not None or is_interpreted or request.keep_background:
            self._goes_on = True  # threads of an interpreter, children of a shell that keeps its state, daemons
        self._owed.add(call)
        return call

    def started(self, box: Box) -> None:
        """Something was started that goes on beside the calls."""
        now = self._enter(box)
        if not self._goes_on:
            self._goes_on, self._looked_ns, self._unseen_ns = True, now, now

    async def look(self, box: Box, call: Call, seen: Observed | None) -> tuple[Violation, ...]:
        """What was left since nobody has looked; disarmed where that is possible and where it is the box's own.

        In a thread, unless there is little to look at.
        """
        now = begin_ns()
        found, was_searched = await self._look(box, call, seen)
        self._owed.discard(call)
        if box is self._box:
            self._looked_ns = now
            if was_searched:
                self._unseen_ns = now
        return found

    async def look_last(self, box: Box) -> tuple[Violation, ...]:
        """The same when a box is gone: for what went on in it, and for calls after which nobody could look."""
        if box is not self._box:
            return ()
        owed = [*self._owed, *([Call(self._looked_ns, self._unseen_ns)] if self._goes_on else [])]
        self._box = None
        if owed:  # nobody saw what was done between calls, and while it ended
            call = Call(min(each.record_ns for each in owed), min(each.unseen_ns for each in owed))
            return (await self._look(box, call, None))[0]
        if self._watched:
            return (await self._look(box, Call(self._looked_ns, self._unseen_ns), Observed()))[0]
        return ()

    def _enter(self, box: Box) -> int:
        now = begin_ns()
        if box is not self._box:
            self._box, self._goes_on, self._looked_ns, self._unseen_ns = box, False, now, now
            self._entered_ns, self._is_blind = now, False
            self._owed.clear()
            self._watched.clear()
        return now

    async def _look(self, box: Box, call: Call, seen: Observed | None) -> tuple[tuple[Violation, ...], bool]:
        """What is found, and whether that was by a search."""
        if not self._roots:
            return (), True
        if seen is not None and seen.is_complete and not self._is_blind:
            names = _names(seen)
            if not names and not self._watched:
                return (), False
            look = _Look(self._roots, box.held, call.record_ns, seen, self._entered_ns, dict(self._watched))
            is_little = len(names) + _EACH_WATCHED * len(self._watched) <= _FEW
            if is_little and all(identity(each.path) == key for key, each in self._watched.items()):
                done = look()
            else:
                done = await asyncio.to_thread(look)
            return self._remembered(box, look, done), False
        if all(_is_untouched(root, call.unseen_ns) for root in self._roots):
            return (), True
        look = _Look(self._roots, box.held, call.unseen_ns, None, self._entered_ns, dict(self._watched))
        return self._remembered(box, look, await asyncio.to_thread(look)), True

    def _remembered(self, box: Box, look: _Look, done: _Done) -> tuple[Violation, ...]:
        """Looks side by side may each bring a state of the same directory: either was judged after it was taken."""
        if self._box is box:
            for key in look.watched.keys() - done.watched.keys():
                self._watched.pop(key, None)
            self._watched |= done.watched
            if done.is_blind or len(self._watched) > watching.WATCHED_MAX:
                self._is_blind = True
                self._watched.clear()
        return done.found


def begin_ns() -> int:
    """Now, by the clock that file times are taken from."""
    return time.clock_gettime_ns(_REALTIME_COARSE)


def _names(seen: Observed) -> tuple[str, ...]:
    return tuple(each.path for each in seen.touched) if seen.touched else seen.written


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


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of a look."""

    found: tuple[Violation, ...]
    watched: Mapping[Identity, WatchedNames]
    is_blind: bool


@dataclass(frozen=True, slots=True)
class _Look:
    """One look, to be called here or in a thread."""

    roots: tuple[Path, ...]
    held: frozenset[str]
    since_ns: int
    seen: Observed | None
    """The whole record; None: search."""
    entered_ns: int
    """When the box began: what is older is not its doing."""
    watched: Mapping[Identity, WatchedNames]
    """What is compared with what it was, whatever the record says."""

    def __call__(self) -> _Done:
        found: list[Violation] = []
        scans: dict[str, Scan] = {}
        for root in map(os.fspath, filter(os.path.isdir, self.roots)):
            try:
                scans[root] = self._scan(root)
            except (OSError, RingfenceError) as fault:  # an agent may have closed it to us; must not fail the call
                if os.path.isdir(root):  # else it was removed meanwhile, with all that was left in it
                    found.append(unsure(str(fault)))
        places, is_blind = self._places(scans)
        states = {key: state_of(each.path) for key, each in places.items()}
        again = [path for key, each in places.items() for path in changed(each, states[key])]
        for root, scan in scans.items():
            try:
                found += self._judged(root, scan, again)
            except (OSError, RingfenceError) as fault:
                if os.path.isdir(root):
                    found.append(unsure(str(fault)))
        watched = {key: WatchedNames(each.path, states[key]) for key, each in places.items()}
        return _Done(tuple(found), watched, is_blind)

    def _scan(self, root: str) -> Scan:
        held = frozenset(_below(root, self.held))
        if self.seen is None:
            return find_leftovers(root, Since(ns=self.since_ns, held=held), _search_limits())
        inside = root.rstrip("/") + "/"
        names = dict.fromkeys(_below(root, _names(self.seen)))
        touched = {each.path[len(inside) :]: each for each in self.seen.touched if each.path.startswith(inside)}
        return leftovers_among(root, names, Since(ns=self.since_ns, held=held, touched=touched))

    def _places(self, scans: Mapping[str, Scan]) -> tuple[dict[Identity, WatchedNames], bool]:
        """Where everything is now that is remembered, with what was met; and whether that could not be found out."""
        places = dict(self.watched)
        for root, scan in scans.items():
            for path in scan.met:
                full = os.path.join(root, path) if path else root
                if (key := identity(full)) is not None:
                    places[key] = WatchedNames(full, places[key].state if key in places else {})
        lost = {key: each for key, each in places.items() if identity(each.path) != key}
        again = find_again(map(os.fspath, self.roots), {key: each.path for key, each in lost.items()}) if lost else {}
        for key, each in lost.items():
            del places[key]
            if again and key in again:
                places[key] = WatchedNames(again[key], each.state)
            if (other := identity(each.path)) is not None and other not in places:
                places[other] = each  # something else has its place
        return places, again is None

    def _judged(self, root: str, scan: Scan, again: Iterable[str]) -> Iterator[Violation]:
        leftovers = {(each.path, each.kind): each for each in scan.leftovers}
        if names := tuple(_below(root, again)):
            since = Since(ns=self.entered_ns, held=frozenset(_below(root, self.held)))
            for each in leftovers_among(root, names, since).leftovers:
                leftovers.setdefault((each.path, each.kind), each)
        disarmed = set(disarm(root, leftovers.values())) if leftovers else set()
        yield from (_said(each, is_disarmed=each in disarmed) for each in leftovers.values())
        if scan.cut_short:
            yield unsure(scan.cut_short)


def _below(root: str, names: Iterable[str]) -> Iterator[str]:
    inside = root.rstrip("/") + "/"
    return (name[len(inside) :] for name in names if name.startswith(inside))


def _said(leftover: Leftover, *, is_disarmed: bool) -> Violation:
    violation = leftover.violation()
    if not is_disarmed:
        return violation
    how = (
        f"renamed to {os.path.basename(leftover.path)}{disarming.SUFFIX}"
        if leftover.kind.startswith("git")
        else "taken away"
    )
    return replace(violation, what=f"{violation.what}; it was disarmed: {how}")


@cache
def _search_limits() -> ScanLimits:
    return ScanLimits(entries=1_000_000, modes=100_000, seconds=3.0)
