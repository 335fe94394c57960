"""Here-documents whose end is not where a reader expects it."""

from collections.abc import Iterator
from typing import Final

from ringfence.shell.context import CheckContext, say
from ringfence.values.facts import NEVER_ENDED, CheckAnswer, CommandShape, Facts, Finding

_EXPANDING: Final = (
    "a delimiter with an expansion: the shell takes it as it is written, readers and other parsers do not"
)
_ENDLESS: Final = "its delimiter never comes, so where the body ends depends on who reads it"


def check(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    for construct in facts.constructs:
        if construct.shape is not CommandShape.HERE_DOCUMENT:
            continue
        if construct.detail == NEVER_ENDED:
            yield from say("here_document", CheckAnswer.WARN, "endless", _ENDLESS, construct.span, context)
        elif "$" in construct.detail or "`" in construct.detail:
            yield from say(
                "here_document", CheckAnswer.BLOCK, "expanding-delimiter", _EXPANDING, construct.span, context
            )
