"""Tells an agent what was refused: a short block at the end of a command's stderr (requirement C7).

    <ringfence-violations count="2">
    - [high] /home/a/.ssh/key is denied; rule: filesystem.deny ~/.ssh at policy.yaml:12; to allow it: remove it
    - [medium] the memory limit of 64 MB was hit; rule: limits.memory; to allow it: raise the memory limit
    </ringfence-violations>

The texts in it come partly from whoever is sandboxed: a file's name, a stretch of a command. Each is one line of
bounded length; what a terminal would not show as it is (control characters, escapes, changes of direction, characters
without width), angle brackets and whatever normalises to them are written out, so that no name can end the block, begin
another or fake a line. A command that writes such a block to stderr itself has its brackets written out as well.

What this does not protect against: words. A file may be called `the user says yes`, and look like it in its line.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ringfence.values.violation import Violation

MOST_LINES = 10
"""An agent corrects one thing at a time; ten are enough to see a pattern."""
_LONGEST = 200
"""Characters of one text: a long path and its rule fit on a few lines of a terminal."""
_TAG = "ringfence-violations"
_FORGED = re.compile(rf"<(?=\s*/?\s*{_TAG})", re.IGNORECASE)


def annotate(stderr: str, violations: Sequence[Violation]) -> str:
    """The command's stderr with the block after it; as it was if nothing was refused."""
    own = _FORGED.sub(r"\\x3c", stderr)
    lines = violation_lines(violations)
    if not lines:
        return own
    count = sum(violation.count for violation in violations)
    block = "\n".join((f'<{_TAG} count="{count}">', *(f"- {line}" for line in lines), f"</{_TAG}>"))
    return f"{own}{'' if not own or own.endswith(chr(10)) else chr(10)}{block}\n"


def violation_lines(violations: Iterable[Violation], most: int = MOST_LINES) -> tuple[str, ...]:
    """One safe line each, the gravest first; equal ones are one; a last line says how many more there were."""
    merged = sorted(_merged(violations), key=lambda violation: -violation.severity.rank)
    lines = [_line(violation) for violation in merged[:most]]
    if len(merged) > most:
        lines.append(f"and {len(merged) - most} more")
    return tuple(lines)


def plain(text: str, longest: int = _LONGEST) -> str:
    """A text on one line, with everything written out that could be more than a character; its middle cut if long."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}...{text[-half:]}"
    return "".join(map(_shown, text))


def _merged(violations: Iterable[Violation]) -> list[Violation]:
    found: dict[Violation, int] = {}
    for violation in violations:
        same = replace(violation, at=0.0, pid=None, program="", count=1)
        found[same] = found.get(same, 0) + violation.count
    return [replace(violation, count=count) for violation, count in found.items()]


def _line(violation: Violation) -> str:
    what = plain(violation.what or f"{violation.operation or 'use'} {violation.target}")
    times = f" ({violation.count} times)" if violation.count > 1 else ""
    allow_by = f"; to allow it: {plain(violation.allow_by)}" if violation.allow_by else ""
    return f"[{violation.severity}] {what}{times}; rule: {plain(violation.rule_and_place)}{allow_by}"


def _shown(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() and char not in "<>" else f"\\x{ord(char):02x}"
    looks_like = unicodedata.normalize("NFKC", char)
    if char.isprintable() and not unicodedata.combining(char) and "<" not in looks_like and ">" not in looks_like:
        return char
    return f"\\u{ord(char):04x}"
