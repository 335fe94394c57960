"""Tells an agent what was refused: a short block at the end of a command's stderr (requirement C7).

    <ringfence-violations count="2">
    - [medium] /data/x may not be written: it is not in what may be written; rule: filesystem.whitelist; instead: write
      below the workspace, in $HOME or in /tmp; only the operator can grant /data
    - [medium] `dig x` is denied; rule: denied_commands dig at policy.yaml:4; instead: find another way; only the
      operator can change this rule
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

from ringfence.dataclass import replace
from ringfence.values.remedy import Door
from ringfence.values.violation import Violation
from ringfence.values.visible import shown, written_out

MOST_LINES = 10
"""An agent corrects one thing at a time; ten are enough to see a pattern."""
_LONGEST = 200
"""Characters of one text: a long path and its rule fit on a few lines of a terminal."""
_TAG = "ringfence-violations"
_FORGED = re.compile(rf"<(?=\s*/?\s*{_TAG})", re.IGNORECASE)


def annotate(stderr: str, violations: Sequence[Violation]) -> str:
    """The command's stderr with the block after it; as it was if nothing was refused."""
    own = _FORGED.sub(r"\\x3c", stderr)
    lines = violation_lines(violations, Door.AGENT)
    if not lines:
        return own
    count = sum(violation.count for violation in violations)
    block = "\n".join((f'<{_TAG} count="{count}">', *(f"- {line}" for line in lines), f"</{_TAG}>"))
    return f"{own}{'' if not own or own.endswith(chr(10)) else chr(10)}{block}\n"


def violation_lines(violations: Iterable[Violation], door: Door, most: int = MOST_LINES) -> tuple[str, ...]:
    """One safe line each, the gravest first; equal ones are one; a last line says how many more there were.

    Args:
        door: for whom: what they could do about it is said in their words.
    """
    merged = sorted(_merged(violations), key=lambda violation: -violation.severity.rank)
    lines = [_line(violation, door) for violation in merged[:most]]
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


def _line(violation: Violation, door: Door) -> str:
    what = plain(violation.what or f"{violation.operation or 'use'} {violation.target}")
    times = f" ({violation.count} times)" if violation.count > 1 else ""
    remedy, head = violation.remedy(door), "instead" if door is Door.AGENT else "to allow it"
    tail = f"; {head}: {plain(remedy)}" if remedy else ""
    return f"[{violation.severity}] {what}{times}; rule: {plain(violation.rule_and_place)}{tail}"


def _shown(char: str) -> str:
    if char.isascii():
        return char if char.isprintable() and char not in "<>" else f"\\x{ord(char):02x}"
    looks_like = unicodedata.normalize("NFKC", char)
    return written_out(char) if "<" in looks_like or ">" in looks_like else shown(char)
