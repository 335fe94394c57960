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

    @classmethod
    def parse(cls, rows: Iterable[str]) -> Self:
        """
        Raises:
            InvalidConfig: a row names nothing that can be protected.
        """
        kept = tuple(rows)
        return cls(kept, tuple(map(_compiled, kept)))

    def covering(self, path: str) -> str | None:
        """The first row that names the path or a directory above it."""
        folded = path.casefold()
        for row, pattern in zip(self.rows, self._patterns, strict=True):
            if pattern.match(folded):
                return row
        return None


def _compiled(row: str) -> re.Pattern[str]:
    names = [name for name in row.removeprefix("**/").split("/") if name not in ("", ".")]
    if not names or ".." in names or "**" in names or "\0" in row:
        raise InvalidConfig("is no name that can be protected", source=repr(row), hint="write e.g. .git/hooks")
    body = "/".join("[^/]*".join(map(re.escape, name.casefold().split("*"))) for name in names)
    start = "" if row.startswith("/") else "(?:[^/]+/)*?"
    return re.compile(rf"{start}{body}(?=/|\Z)", re.DOTALL)
