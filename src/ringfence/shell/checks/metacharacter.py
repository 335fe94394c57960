"""Operators that STRICT forbids, constructs that hide code, and characters that look like something else."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from ringfence.shell.context import Context, say
from ringfence.values.facts import Answer, Facts, Finding, Shape, Span, Strictness

FORBIDDEN_WHEN_STRICT: Final[dict[Shape, str]] = {
    Shape.SEQUENCE: "a second command",
    Shape.AND: "a second command, if the first succeeds",
    Shape.OR: "a second command, if the first fails",
    Shape.PIPE: "one command's output is another's input",
    Shape.BACKGROUND: "a command that goes on by itself",
    Shape.BACKTICK: "the output of a command becomes text",
    Shape.SUBSTITUTION: "the output of a command becomes text",
    Shape.EXPANSION: "the text depends on a variable",
    Shape.PROCESS_INPUT: "a command in place of a file",
    Shape.PROCESS_OUTPUT: "a command in place of a file",
}
ALWAYS: Final[dict[Shape, tuple[Answer, str]]] = {
    Shape.FORK_BOMB: (Answer.BLOCK, "a function that starts itself beside itself fills the machine with processes"),
    Shape.SUBSCRIPT: (Answer.WARN, "text that is evaluated as a subscript or number can run commands"),
}
HIDING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters and those that turn the direction of writing, wherever they stand."""
_LOOKALIKE: Final = frozenset(("Cf", "Zs", "Zl", "Zp", "Cc", "Co", "Cn"))


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    strict = context.strictness is Strictness.STRICT
    for construct in facts.constructs:
        shape = construct.shape
        row = ALWAYS.get(shape)
        if row is not None:
            yield from say("metacharacter", row[0], shape.value, row[1], construct.span, context, firm=True)
        elif strict and shape in FORBIDDEN_WHEN_STRICT:
            why = FORBIDDEN_WHEN_STRICT[shape]
            yield from say("metacharacter", Answer.BLOCK, shape.value, why, construct.span, context)
        elif shape is Shape.ODD_CHARACTER and any(map(_looks_like_another, construct.detail)):
            why = "an unquoted character that looks like a blank, an operator or nothing at all"
            yield from say("metacharacter", Answer.WARN, "lookalike", why, construct.span, context, firm=True)
    for program in facts.programs if not facts.text.isascii() else ():
        name = program.argv[0].text
        if name is not None and not name.isascii():
            why = "a program's name with letters outside of ASCII may be made to look like another"
            yield from say("metacharacter", Answer.WARN, "odd-name", why, program.argv[0].span, context, firm=True)
    match = HIDING.search(facts.text)
    if match:
        why = "a control character can hide what is shown, or act as a separator for other parsers"
        span = Span(match.start(), match.end())
        yield from say("metacharacter", Answer.WARN, "control-character", why, span, context, firm=True)


def _looks_like_another(char: str) -> bool:
    return not char.isascii() and (unicodedata.category(char) in _LOOKALIKE or "\uff01" <= char <= "\uff5e")
