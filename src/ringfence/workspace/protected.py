"""Which row of the protected names, if any, covers a path of a project."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from ringfence.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class ProtectedNames:
    """Rows such as `.git/hooks`, at any depth; `/.profile` at the top only; `*` is any part of one name.

    Case is folded: on file systems that ignore it, and on those that a project is copied to, `.GIT` is `.git`.
    """

    rows: tuple[str, ...]
    _patterns: tuple[re.Pattern[str], ...]
    _above: tuple[re.Pattern[str], ...]

    @classmethod
    def parse(cls, rows: Iterable[str]) -> Self:
        """
        Raises:
            InvalidConfig: a row names nothing that can be protected.
        """
        kept = tuple(rows)
        above = tuple(_compiled(row, is_above=True) for row in kept)
        return cls(kept, tuple(map(_compiled, kept)), above)

    def covering(self, path: str) -> str | None:
        """The first row that names the path or a directory above it."""
        return self._first(self._patterns, path)

    def led_elsewhere_by(self, path: str) -> str | None:
        """The first row that lies below the path: a file or link there would put something else in its place."""
        return self._first(self._above, path)

    def _first(self, patterns: tuple[re.Pattern[str], ...], path: str) -> str | None:
        folded = path.casefold()
        return next((row for row, pattern in zip(self.rows, patterns, strict=True) if pattern.match(folded)), None)


def _compiled(row: str, *, is_above: bool = False) -> re.Pattern[str]:
    names = [name for name in row.removeprefix("**/").split("/") if name not in ("", ".")]
    if not names or ".." in names or "**" in names or "\0" in row:
        raise InvalidConfig("is no name that can be protected", source=repr(row), hint="write e.g. .git/hooks")
    parts = ["[^/]*".join(map(re.escape, name.casefold().split("*"))) for name in names]
    start = "" if row.startswith("/") else "(?:[^/]+/)*?"
    if is_above:
        shorter = "|".join("/".join(parts[:count]) for count in range(1, len(parts))) or "(?!)"
        return re.compile(rf"{start}(?:{shorter})\Z", re.DOTALL)
    return re.compile(rf"{start}{'/'.join(parts)}(?=/|\Z)", re.DOTALL)
