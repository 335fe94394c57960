"""Names that may be read but not changed, wherever they lie in the tree.

An entry such as `.git/hooks` holds everywhere, `/.profile` at the top only; `*` stands for any part of one name. Letter
case is folded: on the file systems that ignore it, and on those that a tree is copied to, `.GIT` is `.git`.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from ringfence.errors import InvalidConfig


@dataclass(frozen=True, slots=True)
class Protected:
    """One entry; `covers` and `lies_below` never both hold for one path and place of the match."""

    text: str
    literal: str
    """The entry as a path from the root."""
    patterns: tuple[re.Pattern[str], ...]
    at_top_only: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Raises:
            InvalidConfig: it names nothing that could be protected.
        """
        at_top_only = text.startswith("/")
        names = [name for name in text.removeprefix("**/").split("/") if name not in ("", ".")]
        if not names or ".." in names or "**" in names or "\0" in text:
            raise InvalidConfig("is no name that can be protected", source=repr(text), hint="write e.g. .git/hooks")
        patterns = (".*".join(map(re.escape, name.casefold().split("*"))) for name in names)
        return cls(text, "/".join(names), tuple(re.compile(pattern, re.DOTALL) for pattern in patterns), at_top_only)

    def covers(self, names: tuple[bytes, ...]) -> bool:
        """Whether the path is the entry or lies below it."""
        return any(len(names) - start >= len(self.patterns) for start in self._starts(names))

    def lies_below(self, names: tuple[bytes, ...]) -> bool:
        """Whether the path is a directory above the entry."""
        return any(len(names) - start < len(self.patterns) for start in self._starts(names))

    def _starts(self, names: tuple[bytes, ...]) -> Iterator[int]:
        """Where the entry begins in the path, as far as the shorter of both goes."""
        for start in range(min(1, len(names)) if self.at_top_only else len(names)):
            pairs = zip(self.patterns, names[start:], strict=False)
            if all(pattern.fullmatch(os.fsdecode(name).casefold()) for pattern, name in pairs):
                yield start
