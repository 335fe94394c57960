"""Turns a question into lines that a terminal can show without being misled by them.

The text comes from whoever wants the command run. Control characters, and characters that change direction or have no
width, are written out; long lines are broken here and not by the terminal, so that what is underlined stays above its
mark; a command that is too long to be read is not shown in part.
"""

import unicodedata
from collections.abc import Iterator

from ringfence.approvals.base import Question
from ringfence.values.facts import Span

LONGEST_COMMAND = 20_000
"""Characters that a person can be asked to read: some 250 full lines."""
_NARROWEST = 20
_INDENT = "  "


def visible(text: str) -> str:
    """A text on one line, with everything written out that a terminal would not show as it is."""
    return "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char == " " or (char.isprintable() and not unicodedata.combining(char)):
        return char
    return f"\\x{ord(char):02x}" if ord(char) <= 0xFF else f"\\u{ord(char):04x}"


def _cells(shown: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in shown)


def lines_of(question: Question, width: int = 80) -> Iterator[str]:
    """The whole question: what would run, why somebody has to say yes, and what else it would be given."""
    yield f"May this run?  [risk: {question.risk.name.lower()}]"
    yield ""
    yield from underlined(question.command, question.spans, width)
    yield ""
    for reason in question.reasons:
        yield f"{_INDENT}- {visible(reason.why)} [rule: {visible(reason.rule)}]"
    for name, value in question.details:
        yield f"{_INDENT}{visible(name)}: {visible(value)}"
    if question.session:
        yield f"{_INDENT}session: {visible(question.session)}"
    if odd := sum(not char.isprintable() and char != "\n" for char in question.command):
        yield f"{_INDENT}note: {odd} control or invisible character(s), written out as \\x.. or \\u...."
    if foreign := sum(char.isprintable() and not char.isascii() for char in question.command):
        yield f"{_INDENT}note: {foreign} character(s) outside ASCII; some look like others"


def underlined(text: str, spans: tuple[Span, ...], width: int = 80) -> Iterator[str]:
    """A text in lines of at most `width` cells, with a mark below every character of a span."""
    room = max(width, _NARROWEST) - len(_INDENT)
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        marked = bytearray(len(line))
        for span in spans:
            first, last = max(span.start, start), min(max(span.end, span.start + 1), end)
            if first < last:
                marked[first - start : last - start] = b"\1" * (last - first)
        yield from _rows(line, marked, room)
        start = end + 1


def _rows(line: str, marked: bytearray, room: int) -> Iterator[str]:
    shown, marks, used = "", "", 0
    for char, mark in zip(line, marked, strict=True):
        piece = _shown(char)
        cells = _cells(piece)
        if used + cells > room:
            yield from _row(shown, marks)
            shown, marks, used = "", "", 0
        shown += piece
        marks += ("^" if mark else " ") * cells
        used += cells
    yield from _row(shown, marks)


def _row(shown: str, marks: str) -> Iterator[str]:
    yield _INDENT + shown
    if "^" in marks:
        yield _INDENT + marks.rstrip()
