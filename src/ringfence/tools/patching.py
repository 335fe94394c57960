"""Applies a unified diff to the text of one file: exactly, or not at all.

Line numbers of hunks are a hint only, since models count badly: a hunk goes where its old lines stand, nearest to the
line that it names, and only if there is no second place equally near. Nothing else is guessed: blanks count.
"""

from __future__ import annotations

import re
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument

_HEAD: Final = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*")
_NO_NEWLINE: Final = "\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class _Hunk:
    line: int
    """Where its old lines begin, counted from 0, as it says."""
    old: tuple[str, ...]
    new: tuple[str, ...]


def apply_patch(text: str, patch: str) -> tuple[str, int]:
    """The text with all hunks applied, and how many these are.

    Raises:
        InvalidArgument: it is no unified diff of one file, or does not fit.
    """
    hunks = _hunks(patch)
    lines = text.splitlines(keepends=True)
    shift = 0
    floor = 0
    for number, hunk in enumerate(hunks, 1):
        at = _place(lines, hunk, hunk.line + shift, floor, number)
        lines[at : at + len(hunk.old)] = hunk.new
        shift = at - hunk.line + len(hunk.new) - len(hunk.old)
        floor = at + len(hunk.new)
    return "".join(lines), len(hunks)


def _place(lines: list[str], hunk: _Hunk, wanted: int, floor: int, number: int) -> int:
    if not hunk.old:
        if floor <= wanted <= len(lines):
            return wanted
        raise InvalidArgument(f"hunk {number} adds lines after line {hunk.line}, which the file does not have")
    places = [at for at in range(floor, len(lines) - len(hunk.old) + 1) if _fits(lines, hunk, at)]
    if not places:
        raise InvalidArgument(
            f"hunk {number} does not fit: its old lines are not in the file as it is",
            hint="read the file again, and write context and removed lines exactly as they stand there",
        )
    places.sort(key=lambda at: abs(at - wanted))
    if len(places) > 1 and abs(places[0] - wanted) == abs(places[1] - wanted):
        raise InvalidArgument(f"hunk {number} fits at lines {places[0] + 1} and {places[1] + 1}", hint="more context")
    return places[0]


def _fits(lines: list[str], hunk: _Hunk, at: int) -> bool:
    return all(lines[at + i] == line for i, line in enumerate(hunk.old))


def _hunks(patch: str) -> list[_Hunk]:
    found: list[_Hunk] = []
    begun: tuple[int, list[str], list[str]] | None = None
    files = 0
    for line in patch.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        head = _HEAD.fullmatch(bare)
        if head is not None:
            if begun is not None:
                found.append(_made(begun))
            begun = (max(int(head[1]) - 1, 0), [], [])
        elif begun is None:
            files += bare.startswith("--- ")
        elif bare == _NO_NEWLINE:
            _strip_last(patch, begun)
        elif bare.startswith(("--- ", "diff --git ")) and begun[1:] != ([], []) and _begins_file(bare, patch):
            raise InvalidArgument("the patch changes more than one file", hint="give one patch for each file")
        else:
            _add(begun, line, bare)
    if begun is not None:
        found.append(_made(begun))
    if not found or files > 1:
        raise InvalidArgument("this is no unified diff of one file", hint="lines `@@ -1,3 +1,4 @@` begin its hunks")
    return found


def _begins_file(bare: str, patch: str) -> bool:
    """`--- x` may also be a removed line `-- x`; a new file is named by the two lines together."""
    return bare.startswith("diff --git ") or re.search(re.escape(bare) + r"\r?\n\+\+\+ ", patch) is not None


def _add(begun: tuple[int, list[str], list[str]], line: str, bare: str) -> None:
    _, old, new = begun
    mark, rest = (line[:1], line[1:]) if bare else (" ", line)
    if mark not in " +-":
        raise InvalidArgument(f"no line of a diff: {bare[:60]!r}", hint="lines begin with a blank, + or -")
    if mark != "+":
        old.append(rest)
    if mark != "-":
        new.append(rest)


def _strip_last(patch: str, begun: tuple[int, list[str], list[str]]) -> None:
    """The line before it has no end: of the old file, the new one, or of both."""
    for side in begun[1:]:
        if side and side[-1].endswith("\n"):
            side[-1] = side[-1].rstrip("\r\n")


def _made(begun: tuple[int, list[str], list[str]]) -> _Hunk:
    line, old, new = begun
    return _Hunk(line if old else line + 1, tuple(old), tuple(new))
