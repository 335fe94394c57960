"""Takes secrets out of text before it goes into the journal: the one place where that is done.

A secret is known by how it begins (`tokens.py`), by what stands before it (`shapes.py`), by the option of a program to
which it is given (`options.py`), by the name of the variable through which it was handed to the box, or by a pattern
that somebody configured. What is taken out leaves a mark that says what it was; the hash of the whole text, which the
record keeps, still lets an auditor match a text that they have.

Every pattern is bounded and is tried only where a word that it needs is in the text, so that hostile text costs time in
proportion to its length, and ordinary text next to nothing.

What this does not protect against: a secret without a known shape that nobody named, one that is split or encoded (in
base64, letter by letter), and one so weak that it can be guessed and compared with the hash of the whole command.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from ringfence.audit.options import OPTIONS
from ringfence.audit.shapes import BY_NAME
from ringfence.audit.tokens import take_out_tokens

SHAPES: Final = (*OPTIONS, *BY_NAME)
"""In this order: a shape that says more comes before one that says less."""
TEXT_MAX: Final = 4096
"""Characters of one text that a record keeps."""
NAME_MAX: Final = 512
"""Characters of a text that explains, such as a rule."""
_WINDOW: Final = 2 * TEXT_MAX
"""How much is looked at: what is taken out makes room for more."""
_VALUE_MIN: Final = 6
"""A shorter value of a variable, such as `1` or `true`, is no secret and would be found everywhere."""

_GROUPS: Final = tuple(
    (hints, tuple(shape for shape in SHAPES if shape.hints == hints))
    for hints in dict.fromkeys(shape.hints for shape in SHAPES)
)
"""Shapes by what is looked for first, so that it is looked for once."""

_SECRET_NAME: Final = re.compile(
    r"(?i)(?:(?:^|_)pass|password|passwd|passphrase|pwd|secret|token|credential|private|api_?key|access_?key|auth|cookie|session_?key"
    r"|_key|_dsn|_pat)(?:s|_\w*)?$|^(?:key|pat)$"
)
"""Variables whose value is not for the journal, by their name."""


class Redactor:
    """Takes secrets out of texts.

    Args:
        patterns: texts to take out as well; `*` stands for up to 256 characters that are neither blank nor a quote.
        variables: those that are handed to the box: values of the ones with a telling name are taken out.
    """

    __slots__ = ("_patterns", "_values")

    def __init__(self, patterns: Iterable[str] = (), variables: Iterable[tuple[str, str]] = ()) -> None:
        self._patterns = tuple(map(_configured, patterns))
        self._values = tuple(
            sorted(
                {value: name for name, value in variables if is_secret_name(name) and len(value) >= _VALUE_MIN}.items(),
                key=lambda item: -len(item[0]),  # a value may hold another one
            )
        )

    def knowing(self, variables: Iterable[tuple[str, str]]) -> "Redactor":
        """One that knows the values of further variables."""
        more = tuple(variables)
        if not any(is_secret_name(name) for name, _ in more):
            return self
        made = Redactor((), (*((name, value) for value, name in self._values), *more))
        made._patterns = self._patterns
        return made

    @lru_cache(maxsize=1024)  # noqa: B019  a redactor lives as long as its sandbox, and the cache is bounded
    def name(self, text: str) -> str:
        """The same for a text that comes again and again: a path, a rule, a reason."""
        return self.text(text, NAME_MAX)

    def text(self, text: str, length: int = TEXT_MAX) -> str:
        """The text without secrets, and at most so long."""
        if len(text) <= _WINDOW:
            return self._without_secrets(text)[:length]
        window = text[:_WINDOW]
        clean = self._without_secrets(window)
        if clean != window:  # what is near the window's end has moved up
            clean = self._without_secrets(_without_last_word(window))
        return clean[:length]

    def _without_secrets(self, text: str) -> str:
        for value, name in self._values:
            if value in text:
                text = text.replace(value, f"[redacted: {name}]")
        for pattern in self._patterns:
            text = pattern.sub("[redacted: configured]", text)
        text = take_out_tokens(text)
        lower = text.lower()
        for hints, shapes in _GROUPS:
            for hint in hints:
                if hint in lower:
                    for shape in shapes:
                        text = shape.take_out(text)
                    break
        return text


@lru_cache(maxsize=8)
def redactor(patterns: tuple[str, ...], variables: tuple[tuple[str, str], ...]) -> Redactor:
    """The same one for the same patterns and variables: boxes for one call each would make it, and what it remembers,
    anew for every call."""
    return Redactor(patterns, variables)


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None


def _without_last_word(window: str) -> str:
    """Half a secret has no shape any more."""
    return window[: max(0, *(window.rfind(blank) for blank in " \n\t"))] + " [cut]"


@lru_cache(maxsize=64)
def _configured(pattern: str) -> re.Pattern[str]:
    return re.compile(r"""[^\s'"]{0,256}""".join(map(re.escape, pattern.split("*"))))
