"""Arguments that read like a command or name a secret in the middle of a text: what a program may well run or open.

Nothing is known of the place that they are given to, so that they are worth a question and never a refusal.
"""

import re
from collections.abc import Iterator
from typing import Final

from ringfence.shell.checks.sensitive_path import is_secret
from ringfence.values.facts import Word

HARM: Final = "an argument reads like a command that does harm"
_COMMAND: Final = re.compile(
    r"(?:\A|[=:;|&({!]|\b(?:exec|system|shell|run|sh -c)\b)[\s\"'({!]{0,9}(?:\S{0,80}/)?"
    r"(?:rm\s{1,9}-[^\n]{0,80}\s[\"']?(?:[/~*$]|\.\.)|sudo\s|doas\s|dd\s{1,9}(?:if|of)=|mkfs|(?:ba|da|z)?sh\s{1,9}-[ic]|reboot\b|shutdown\s|poweroff\b"
    r"|chmod\s{1,9}(?:-R\s{1,9})?[ug0-7+]{0,3}[s47]|(?:curl|wget)\s[^|]{1,200}\|\s{0,9}\S{0,80}sh\b|nc\s{1,9}-\w{0,5}e|:\(\)\s{0,9}\{)"
)
_PATHS: Final = re.compile(r"(?:(?<=\s)|(?<=[\"'(=]))~?/[^\s\"'(),;|&<>]{2,200}")


def reads_like_harm(text: str) -> bool:
    """Whether a text of several words reads like a command that does harm."""
    return " " in text.strip() and len(text) < 4000 and _COMMAND.search(text) is not None


def secrets_within(word: Word) -> Iterator[Word]:
    """Secrets that a text of several words names; whether anything opens them is not known."""
    text = word.text or ""
    if "/" not in text or len(text) > 4000 or not any(char.isspace() for char in text):
        return
    for path in _PATHS.findall(text)[:16]:
        if is_secret(path):
            yield Word(None, word.span, if_unset=path)
