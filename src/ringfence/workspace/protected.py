"""Names that may be read but not changed, wherever they lie in the tree: one compiled pattern for all of them.

An entry such as `.git/hooks` holds everywhere, `/.profile` at the top only; `*` stands for any part of one name. Letter
case is folded: on the file systems that ignore it, and on those that a tree is copied to, `.GIT` is `.git`.
"""

import os
import re
from functools import lru_cache

from ringfence.errors import InvalidArgument


class ProtectedNames:
    """The entries, to be asked about many paths.

    Raises:
        InvalidArgument: an entry names nothing that could be protected.
    """

    __slots__ = ("_above", "_above_rules", "_at_or_below", "entries", "literals")

    entries: tuple[str, ...]
    literals: tuple[tuple[bytes, str], ...]
    """Each entry as a path from the root, and as it was given."""

    def __init__(self, entries: tuple[str, ...]) -> None:
        self.entries = entries
        parsed = [(entry, _names(entry)) for entry in entries]
        self.literals = tuple((os.fsencode("/".join(names)), entry) for entry, names in parsed)
        above = [(entry, names[:count]) for entry, names in parsed for count in range(1, len(names))]
        self._at_or_below = _alternatives(parsed, r"(?=/|\Z)")
        self._above = _alternatives(above, r"\Z")
        self._above_rules = tuple(entry for entry, _ in above)

    def rule_on(self, names: tuple[bytes, ...]) -> str | None:
        """The entry that the path is, or lies below."""
        found = self._at_or_below.search(_folded(names))
        return self.entries[found.lastindex - 1] if found and found.lastindex else None

    def covering(self, path: str) -> str | None:
        """The same for a path as text, relative to the top."""
        return self.rule_on(tuple(os.fsencode(path).split(b"/")))

    def led_elsewhere_by(self, path: str) -> str | None:
        """The entry that lies below the path: a file or link there would put something else in its place."""
        return self.rule_below(tuple(os.fsencode(path).split(b"/")))

    def rule_below(self, names: tuple[bytes, ...]) -> str | None:
        """The entry that would lie below the path, if it is a directory."""
        found = self._above.search(_folded(names))
        return self._above_rules[found.lastindex - 1] if found and found.lastindex else None


@lru_cache(maxsize=32)
def compiled(entries: tuple[str, ...]) -> ProtectedNames:
    """The pattern for these entries; compiling takes longer than a call of the file API, and most calls share them."""
    return ProtectedNames(entries)


def _names(entry: str) -> list[str]:
    names = [name for name in entry.removeprefix("**/").split("/") if name not in ("", ".")]
    if not names or ".." in names or "**" in names or "\0" in entry:
        raise InvalidArgument("is not a name that can be protected", source=repr(entry), hint="write e.g. .git/hooks")
    return names


def _alternatives(rows: list[tuple[str, list[str]]], end: str) -> re.Pattern[str]:
    """One group for each row, so that a match tells which."""
    return re.compile("|".join(f"({_pattern(entry, names)}){end}" for entry, names in rows) or "(?!)")


def _pattern(entry: str, names: list[str]) -> str:
    segments = ("[^/]*".join(map(re.escape, name.casefold().split("*"))) for name in names)
    return (r"\A/" if entry.startswith("/") else "/") + "/".join(segments)


def _folded(names: tuple[bytes, ...]) -> str:
    return "/" + os.fsdecode(b"/".join(names)).casefold()
