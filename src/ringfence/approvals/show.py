"""Turns a question into rows that a terminal can show without being misled by them, and without a part left out.

The text comes from whoever wants the command run. Every row of it stands behind a margin that it cannot write into: the
number of its line and a bar, or a colon where a long line goes on. What a terminal would not show as it is is written
out, and marked below with `~`, so that text that only looks written out can be told from it; what the reasons are about
is marked with `^`. Long stretches of blanks, empty lines and lines that say the same again are folded into a row that
says how many there were. From the rows the text can be put together again, character by character.

A question that is too long to be read is refused, and never shown in part.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Final

from ringfence.values.visible import shown, visible

if TYPE_CHECKING:
    from ringfence.approvals.base import Question
    from ringfence.values.facts import Span

LONGEST: Final = 20_000
"""Characters of command, input and variables that a person can be asked to read: some 250 full rows."""
MOST_ROWS: Final = 300
"""Rows of the whole question on a terminal of 80 columns."""
_REASONS_SHOWN: Final = 20
_NARROWEST: Final = 40
_USUAL: Final = 80
_BLANKS_SHOWN: Final = 16
"""Blanks in a row that are shown as they are, within a line: an indent. None at the end of one, where nobody sees
them."""
_BLANKS: Final = re.compile(rf" +\Z| {{{_BLANKS_SHOWN + 1},}}")
_INDENT: Final = "  "


def lines_of(question: Question, width: int = _USUAL) -> Iterator[str]:
    """The whole question: what would run, why somebody has to say yes, and what else it would be given."""
    yield f"May this run?  [risk: {question.risk.name.lower()}]"
    yield ""
    yield from underlined(question.command, question.spans, width)
    yield ""
    for reason in question.reasons[:_REASONS_SHOWN]:
        yield from _wrapped(f"{_INDENT}- ", f"{reason.why} [rule: {reason.rule}]", width)
    if len(question.reasons) > _REASONS_SHOWN:
        yield f"{_INDENT}- and {len(question.reasons) - _REASONS_SHOWN} more reasons"
    for name, value in question.details:
        yield from _detail(name, value, width)
    if question.session:
        yield from _wrapped(_INDENT, f"session: {question.session}", width)
    for note in _notes(question):
        yield from _wrapped(f"{_INDENT}note: ", note, width)


def why_too_long(question: Question) -> str:
    """Why nobody can be asked to read it; empty if they can."""
    length = len(question.command) + sum(len(name) + len(value) for name, value in question.details)
    if length > LONGEST:
        return f"it is {length:,} characters long, and {LONGEST:,} are what a person can be asked to read"
    rows = sum(1 for _ in lines_of(question))
    if rows > MOST_ROWS:
        return f"it takes {rows:,} rows, and {MOST_ROWS} are what a person can be asked to read"
    return ""


def underlined(text: str, spans: tuple[Span, ...] = (), width: int = _USUAL) -> Iterator[str]:
    """A text behind a margin, in rows of at most `width` cells, with a mark below every character of a span."""
    lines = text.split("\n")
    digits = len(str(len(lines)))
    start = number = 0
    for line, group in groupby(lines):
        count = sum(1 for _ in group)
        if line:
            yield from _line(line, number + 1, _marks(line, start, spans), digits, width)
            number, start, count = number + 1, start + len(line) + 1, count - 1
        if count:  # empty ones, or the same once more
            what = "the same again" if line else "empty"
            which = f"lines {number + 1} to {number + count} are" if count > 1 else f"line {number + 1} is"
            repeated = any(span.start < start + count * (len(line) + 1) and span.end > start for span in spans)
            yield _margin("", "=", digits) + f"{which} {what}" + (" (^)" if repeated and line else "")
        number, start = number + count, start + count * (len(line) + 1)


def _marks(line: str, start: int, spans: tuple[Span, ...]) -> bytearray:
    """Which characters of a line, that begins at `start` of the text, a span is about."""
    marked, end = bytearray(len(line)), start + len(line)
    for span in spans:
        first, last = max(span.start, start), min(max(span.end, span.start + 1), end)
        if first < last:
            marked[first - start : last - start] = b"\1" * (last - first)
    return marked


def _line(line: str, number: int, marked: bytearray, digits: int, width: int) -> Iterator[str]:
    room = max(width, _NARROWEST) - len(_margin("", " ", digits))
    head = _margin(str(number), "|", digits)
    row, marks, used = "", "", 0
    for piece, mark in _pieces(line, marked):
        cells = _cells(piece)
        if used + cells > room and used:
            yield from _row(head, row, marks, digits)
            head, row, marks, used = _margin("", ":", digits), "", "", 0
        row += piece
        marks += mark * cells
        used += cells
    yield from _row(head, row, marks, digits)


def _pieces(line: str, marked: bytearray) -> Iterator[tuple[str, str]]:
    """What is shown of a line, piece by piece, each with its mark."""
    position = 0
    for blanks in _BLANKS.finditer(line):
        yield from _characters(line, marked, position, blanks.start())
        yield f"[{len(blanks[0])} blanks]", "~"
        position = blanks.end()
    yield from _characters(line, marked, position, len(line))


def _characters(line: str, marked: bytearray, start: int, end: int) -> Iterator[tuple[str, str]]:
    for index in range(start, end):
        piece = shown(line[index])
        yield piece, "~" if piece != line[index] else "^" if marked[index] else " "


def _row(head: str, row: str, marks: str, digits: int) -> Iterator[str]:
    yield head + row
    if marks.strip():
        yield _margin("", " ", digits) + marks.rstrip()


def _margin(number: str, sign: str, digits: int) -> str:
    return f"{_INDENT}{number:>{digits}} {sign} "


def _detail(name: str, value: str, width: int) -> Iterator[str]:
    """On one row, if it fits and is plain; else as a text of its own."""
    head = f"{_INDENT}{visible(name)}:"
    plain = value.isascii() and value.isprintable() and _BLANKS.search(value) is None
    if plain and len(head) + 1 + len(value) <= max(width, _NARROWEST):
        yield f"{head} {value}"
        return
    yield from _wrapped(_INDENT, f"{name}:", width)
    yield from underlined(value, (), width)


def _wrapped(head: str, text: str, width: int) -> Iterator[str]:
    """A sentence in rows, the first behind `head`."""
    room = max(width, _NARROWEST) - len(head)
    row, used = "", 0
    for piece, _ in _pieces(text, bytearray(len(text))):
        cells = _cells(piece)
        if used + cells > room and used:
            yield head + row
            head, row, used = " " * len(head), "", 0
        row += piece
        used += cells
    yield head + row


def _notes(question: Question) -> Iterator[str]:
    texts = (question.command, *(value for _, value in question.details))
    if odd := sum(shown(char) != char for text in texts for char in text if char != "\n"):
        yield f"{odd} control or invisible character(s), written out and marked with ~"
    if foreign := sum(shown(char) == char and not char.isascii() for text in texts for char in text):
        yield f"{foreign} character(s) outside ASCII; some look like others"


def _cells(piece: str) -> int:
    return len(piece) if piece.isascii() else sum(2 if _is_wide(char) else 1 for char in piece)


_WIDE_TOO: Final = ((0x3248, 0x324F), (0x4DC0, 0x4DFF))
"""Numbers in circles and hexagrams: wide for terminals and since Unicode 16, narrow for the Unicode of older Pythons. A
row that is counted too short goes on in the terminal's next one, where no margin is."""


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in "WF" or any(first <= ord(char) <= last for first, last in _WIDE_TOO)
