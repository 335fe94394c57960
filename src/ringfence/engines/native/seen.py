"""What one command did, as the guardian saw it: every name that it touched, and which of them are different now.

The guardian looks at a call before it is made, so what it tells are attempts, each with how its file was at that
moment. Whether something came of it is found out at the end: in a directory of the host's, by comparing the file with
what it was. In the box's own directories (`/tmp`, a shadow) nobody outside can look; there counts what could succeed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass, field, replace
from ringfence.values.outcome import FileState, Observed, Touched

if TYPE_CHECKING:
    from ringfence.values.violation import Severity, Violation

KEPT_MAX: Final = 1000
"""Names of each kind, and violations, that are kept for one command."""
_REALTIME_COARSE: Final = 5  # CLOCK_REALTIME_COARSE, for which Python has no name
_TICK_NS: Final = 12_000_000
"""File times move in steps of up to 10 ms: what was changed so shortly before may be changed again without a trace."""
_NOTHING: Final = "-"
_OTHERS: Final = "(not by this call: by what an earlier one has left running)"
_METADATA: Final = frozenset({"chmod", "chown", "utime"})


@dataclass(slots=True)
class Seen:
    """What one command did, as far as it was looked at."""

    names: dict[str, dict[str, None]] = field(default_factory=dict)
    before: dict[str, FileState | None] = field(default_factory=dict)
    """Of names that a call was about which changes something: how they were at the first one."""
    operations: dict[str, set[str]] = field(default_factory=dict)
    likely: dict[str, None] = field(default_factory=dict)
    """Those of them that a call was about which could succeed."""
    fresh: dict[str, None] = field(default_factory=dict)
    """Names that were touched since somebody last looked at what goes on in the background."""
    violations: dict[Violation, None] = field(default_factory=dict)
    _kept: dict[Severity, int] = field(default_factory=dict)
    """How many of the violations are how grave."""
    is_complete: bool = True
    begin_ns: int = field(default_factory=lambda: time.clock_gettime_ns(_REALTIME_COARSE))

    def note(self, operation: str, *targets: tuple[str, str]) -> None:
        """Targets with their states, as native/resolve.c writes them."""
        if operation in ("read", "exec"):
            found = self.names.setdefault(operation, {})
            for name, _ in targets:
                self._keep(found, name)
            return
        for place, (name, state) in enumerate(targets):
            if not name:
                continue
            before = parse_state(state)
            if name not in self.before:
                if len(self.before) >= KEPT_MAX:
                    self.is_complete = False
                    continue
                self.before[name] = before
            self.operations.setdefault(name, set()).add(operation)
            self.fresh[name] = None
            is_source = operation == "link" and place == 0
            if not is_source and not (operation == "create" and before is not None):
                self.likely[name] = None

    def _keep(self, found: dict[str, None], name: str) -> None:
        if name and len(found) < KEPT_MAX:
            found[name] = None
        elif name and name not in found:
            self.is_complete = False

    def refuse(self, violation: Violation) -> None:
        """Keep it. Where there are too many, the mildest go first, the last of them before the others: a flood of what
        hardly matters must not hide what does."""
        if len(self.violations) >= KEPT_MAX and violation not in self.violations:
            self.is_complete = False
            mildest = min(self._kept, key=lambda severity: severity.rank)
            if mildest >= violation.severity:
                return
            self._forget(next(each for each in reversed(self.violations) if each.severity is mildest))
        if violation not in self.violations:
            self.violations[violation] = None
            self._kept[violation.severity] = self._kept.get(violation.severity, 0) + 1

    def _forget(self, violation: Violation) -> None:
        del self.violations[violation]
        self._kept[violation.severity] -= 1
        if not self._kept[violation.severity]:
            del self._kept[violation.severity]

    def join(self, beside: Seen) -> None:
        """Add what others did whose call is over: names to look at, and refusals that are said to be theirs."""
        self.look_at(beside)
        for violation in beside.violations:
            self.refuse(replace(violation, what=f"{violation.what} {_OTHERS}"))

    def look_at(self, other: Seen) -> None:
        """Add the names that another has touched since the last time, so that somebody looks at them; what came of it
        is not this one's."""
        for name in other.fresh:
            if len(self.before) < KEPT_MAX:
                self.before.setdefault(name, other.before[name])
                self.operations.setdefault(name, set()).update(other.operations[name])
            else:
                self.is_complete = False
        other.fresh.clear()
        self.is_complete &= other.is_complete

    def observed(self, *, reads: bool, roots: tuple[str, ...]) -> Observed:
        """Args:
        roots: directories that the box and we see alike.
        """
        return Observed(
            written=tuple(self._written(roots)),
            touched=tuple(
                Touched(name, before, frozenset(self.operations[name])) for name, before in self.before.items()
            ),
            read=tuple(self.names.get("read", ())) if reads else None,
            executed=tuple(self.names.get("exec", ())),
            is_complete=self.is_complete,
        )

    def _written(self, roots: tuple[str, ...]) -> Iterator[str]:
        for name in self.likely:
            if not name.startswith(roots) or is_changed(
                self.before[name], state_now(name), self.begin_ns, self.operations[name]
            ):
                yield name


def parse_state(words: str) -> FileState | None:
    numbers = words.split()
    if words == _NOTHING or len(numbers) != 6 or not all(number.lstrip("-").isdigit() for number in numbers):
        return None
    return FileState(*map(int, numbers))


def state_now(path: str) -> FileState | None:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return FileState(found.st_dev, found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def is_changed(
    before: FileState | None, now: FileState | None, begin_ns: int, operations: Set[str] = frozenset()
) -> bool:
    """Whether a file is not what it was. Of a directory counts itself, not what is in it; and a mode that was set to
    what it was before is no change, if nothing else was done."""
    if before is None or now is None:
        return before is not now
    if (before.device, before.inode, before.mode) != (now.device, now.inode, now.mode):
        return True
    if stat.S_ISDIR(now.mode):
        return False
    if operations and operations <= _METADATA and (before.size, before.mtime_ns) == (now.size, now.mtime_ns):
        return False
    return before.ctime_ns != now.ctime_ns or before.ctime_ns > begin_ns - _TICK_NS
