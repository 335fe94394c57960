"""Operators, constructs that hide code, and characters that look like something else.

STRICT forbids the operators; NORMAL warns of them where it is asked to.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from ringfence.shell.context import CheckContext, say
from ringfence.values.facts import CheckAnswer, CommandShape, Facts, Finding, Span, Strictness

FORBIDDEN_WHEN_STRICT: Final[dict[CommandShape, str]] = {
    CommandShape.SEQUENCE: "a second command",
    CommandShape.AND: "a second command, if the first succeeds",
    CommandShape.OR: "a second command, if the first fails",
    CommandShape.PIPE: "one command's output is another's input",
    CommandShape.BACKGROUND: "a command that goes on by itself",
    CommandShape.BACKTICK: "the output of a command becomes text",
    CommandShape.SUBSTITUTION: "the output of a command becomes text",
    CommandShape.EXPANSION: "the text depends on a variable",
    CommandShape.PROCESS_INPUT: "a command in place of a file",
    CommandShape.PROCESS_OUTPUT: "a command in place of a file",
}
ALWAYS: Final[dict[CommandShape, tuple[CheckAnswer, str]]] = {
    CommandShape.FORK_BOMB: (
        CheckAnswer.BLOCK,
        "a function that starts itself beside itself fills the machine with processes",
    ),
    CommandShape.SUBSCRIPT: (CheckAnswer.WARN, "text that is evaluated as a subscript or number can run commands"),
}
HIDING: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters and those that turn the direction of writing, wherever they stand."""
_LOOKALIKE: Final = frozenset(("Cf", "Zs", "Zl", "Zp", "Cc", "Co", "Cn"))


def check(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    strict = context.strictness is Strictness.STRICT
    warned = context.warn_operators and context.strictness is Strictness.NORMAL
    for construct in facts.constructs:
        shape = construct.shape
        row = ALWAYS.get(shape)
        if row is not None:
            yield from say("metacharacter", row[0], shape.value, row[1], construct.span, context, firm=True)
        elif (strict or warned) and shape in FORBIDDEN_WHEN_STRICT:
            why = FORBIDDEN_WHEN_STRICT[shape]
            answer = CheckAnswer.BLOCK if strict else CheckAnswer.WARN
            yield from say("metacharacter", answer, shape.value, why, construct.span, context)
        elif shape is CommandShape.ODD_CHARACTER and any(map(_looks_like_another, construct.detail)):
            why = "an unquoted character that looks like a blank, an operator or nothing at all"
            yield from say("metacharacter", CheckAnswer.WARN, "lookalike", why, construct.span, context, firm=True)
    for program in facts.programs if not facts.text.isascii() else ():
        name = program.argv[0].text
        if name is not None and not name.isascii():
            why = "a program's name with letters outside of ASCII may be made to look like another"
            yield from say("metacharacter", CheckAnswer.WARN, "odd-name", why, program.argv[0].span, context, firm=True)
    match = HIDING.search(facts.text)
    if match:
        why = "a control character can hide what is shown, or act as a separator for other parsers"
        span = Span(match.start(), match.end())
        yield from say("metacharacter", CheckAnswer.WARN, "control-character", why, span, context, firm=True)


def _looks_like_another(char: str) -> bool:
    return not char.isascii() and (unicodedata.category(char) in _LOOKALIKE or "\uff01" <= char <= "\uff5e")
