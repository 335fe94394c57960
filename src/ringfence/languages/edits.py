"""Edits of a text by byte position: blanks, replacements and insertions that leave every other character in its place.

A blank keeps line breaks, and is as wide as what it covers in UTF-16 units, because these are what JavaScript engines
count columns in.
"""

import re

from ringfence.dataclass import dataclass, field

_VISIBLE = re.compile("[^\n\r\u2028\u2029]")
_BREAKS = re.compile("[^\n\r\u2028\u2029]+")


def _spaces(match: re.Match[str]) -> str:
    return "  " if match[0] > "\uffff" else " "


@dataclass(slots=True)
class Edits:
    """Edits that do not overlap, in any order."""

    source: bytes
    _made: list[tuple[int, int, int, str]] = field(default_factory=list)

    def blank(self, start: int, end: int, *, first: str = "", last: str = "") -> None:
        """Cover a range with blanks; `first` and `last` stand on its first and last character that is no line break."""
        text = _VISIBLE.sub(_spaces, self.text(start, end))
        if first:
            text = text.replace(" ", first, 1)
        if last:
            at = text.rindex(" ")
            text = text[:at] + last + text[at + 1 :]
        self._add(start, end, text)

    def replace(self, start: int, end: int, text: str) -> None:
        """Put `text` in place of a range; the line breaks of the range follow it."""
        self._add(start, end, text + _BREAKS.sub("", self.text(start, end)))

    def open(self, at: int, text: str) -> None:
        """Insert what opens something. At one place the first asked for comes first: the outer before the inner."""
        self._add(at, at, text)

    def close(self, at: int, text: str) -> None:
        """Insert what closes something. At one place the last asked for comes first: the inner before the outer."""
        self._made.append((at, at, -1 - len(self._made), text))

    def text(self, start: int, end: int) -> str:
        return self.source[start:end].decode("utf-8")

    def result(self) -> str:
        pieces: list[str] = []
        done = 0
        for start, end, _, text in sorted(self._made):
            pieces += (self.text(done, start), text)
            done = end
        pieces.append(self.text(done, len(self.source)))
        return "".join(pieces)

    def _add(self, start: int, end: int, text: str) -> None:
        self._made.append((start, end, len(self._made), text))
