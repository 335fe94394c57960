"""Undo quoting and expand: a word of the tree to the arguments that a program would get.

In the order of the shell: braces, tilde, parameters and substitutions, splitting; file names stay patterns, since what
exists is not asked here. A part that cannot be known makes the whole argument's text None.

What this does not protect against: values that come from outside of the text. `$x` is known only if the same text set
it.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from ringfence.shell.tree import Arith, Lit, Part, Proc, Sub, Var, WordNode
from ringfence.values.facts import Span, Word

MAX_ALTERNATIVES: Final = 256
"""Arguments that one word with braces may become; more are not known."""

MAX_BRACES: Final = 100
"""Opening braces in one word; with more, its arguments are not known."""
MAX_VALUE: Final = 64 * 1024
"""Characters of one value that is put together; a longer one is not known. `x=$x$x` doubles each time."""

SPECIAL: Final = re.compile(r"[*?\[{~]")
_BRACE: Final = re.compile(r"([{},])")
_RANGE: Final = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")
_HOME: Final = re.compile(r"~([A-Za-z0-9_.+-]*)(?=/|\Z)")


class Values(NamedTuple):
    """What a parameter stands for: one text, or several as of `$@`. None is unknown."""

    texts: tuple[str | None, ...]
    several: bool = False
    pattern: bool = False
    """It came from a glob, as in `for f in /*`, and stands for what that matches."""


class Scope(Protocol):
    """What a word needs to know about the shell that expands it."""

    def parameter(self, part: Var) -> Values: ...
    def substitution(self, part: Sub) -> str | None: ...
    def process(self, part: Proc) -> str | None: ...
    def arithmetic(self, part: Arith) -> str | None: ...
    def directory(self) -> str | None: ...
    def separators(self) -> str: ...


class _Field:
    """An argument while it is put together."""

    __slots__ = ("begun", "gaps", "known", "length", "literal", "pattern", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.known = True
        self.length = 0
        self.pattern = False
        self.literal = False
        self.begun = False
        self.gaps: list[int] = []

    def add(self, text: str | None, *, quoted: bool) -> None:
        self.begun = self.begun or quoted or bool(text) or text is None
        if text is None:
            self.known = False
            self.gaps.append(self.length)
        elif text:
            if not self.texts and text[0] == "~":
                self.literal = True
            if not quoted and not self.pattern and _is_glob(text):
                self.pattern = True
            self.length += len(text)
            if self.length > MAX_VALUE and self.texts:
                self.known = False
            else:
                self.texts.append(text)

    def word(self, span: Span) -> Word:
        text = "".join(self.texts)
        if self.known:
            return Word(text, span, self.pattern, "", self.literal)
        return Word(None, span, self.pattern, text, self.literal, tuple(self.gaps))


def _is_glob(text: str) -> bool:
    """Whether the shell would look for files by it. Without a pattern: `[` again and again would be read as often."""
    return "*" in text or "?" in text or text.rfind("]") >= text.find("[") + 2 > 1


def expand(node: WordNode, scope: Scope, span: Span) -> list[Word]:
    """The arguments that `node` becomes: often one, none for an unset variable, several for braces or a split value."""
    parts = node.parts
    if len(parts) == 1:
        part = parts[0]
        if isinstance(part, Lit) and (part.quoted or not SPECIAL.search(part.text)):
            return [Word(part.text, span, False, "", part.text.startswith("~"))]
    words: list[Word] = []
    for alternative in _alternatives(parts):
        words += _fields(alternative, scope, span)
    return words


def joined(parts: tuple[Part, ...], scope: Scope) -> tuple[str | None, str]:
    """The value where nothing is split, and what it would be if all that is unknown were empty."""
    known = True
    length = 0
    texts: list[str] = []
    for number, part in enumerate(parts):
        if isinstance(part, Lit):
            text: str | None = part.text
            if number == 0 and not part.quoted and part.text.startswith("~"):
                text = _tilde(part.text, scope)
        elif isinstance(part, Var):
            values = scope.parameter(part).texts
            text = None if None in values else " ".join(value for value in values if value is not None)
        else:
            text = _computed(part, scope)
        if text is not None:
            length += len(text)
        if text is None or (length > MAX_VALUE and texts):
            known = False
        else:
            texts.append(text)
    whole = "".join(texts)
    return (whole if known else None), whole


def _computed(part: Sub | Proc | Arith, scope: Scope) -> str | None:
    if isinstance(part, Sub):
        text = scope.substitution(part)
        return None if text is None else text.rstrip("\n")
    if isinstance(part, Proc):
        return scope.process(part)
    return scope.arithmetic(part)


def _fields(parts: tuple[Part, ...], scope: Scope, span: Span) -> Iterator[Word]:
    field = _Field()
    for number, part in enumerate(parts):
        if isinstance(part, Lit):
            if number == 0 and not part.quoted and part.text.startswith("~"):
                text = _tilde(part.text, scope)
                field.add(text, quoted=False)
                field.literal = False
            else:
                field.add(part.text, quoted=part.quoted)
            continue
        if isinstance(part, Var):
            values = scope.parameter(part)
            texts, quoted = values.texts, part.quoted
            field.pattern = field.pattern or values.pattern
            if quoted and not values.several:
                glue = scope.separators()[:1]
                field.add(glue.join(t for t in texts if t is not None) if None not in texts else None, quoted=True)
                field.literal = False  # the home that it was set to, not a file of that name
                continue
            home = True
        else:
            texts, quoted, home = (_computed(part, scope),), isinstance(part, Proc) or part.quoted, False
            if quoted:
                field.add(texts[0], quoted=True)
                continue
        first = True
        for text in texts:
            if not first:
                if field.begun:
                    yield field.word(span)
                field = _Field()
            first = False
            if text is None or quoted:
                field.add(text, quoted=quoted)
                continue
            separators = scope.separators()
            if not any(char in text for char in separators):  # few separators, and a text may be long
                field.add(text, quoted=False)
                if home:
                    field.literal = False
                continue
            pieces = re.split(f"[{re.escape(separators)}]+", text)
            for index, piece in enumerate(pieces):
                if index:
                    if field.begun:
                        yield field.word(span)
                    field = _Field()
                field.add(piece, quoted=False)
    if field.begun:
        yield field.word(span)


def _tilde(text: str, scope: Scope) -> str | None:
    """`~` stays as it is and means home from here on; `~user` becomes that user's usual home."""
    match = _HOME.match(text)
    if not match:
        return text
    who, rest = match[1], text[match.end() :]
    if who == "":
        return text
    if who == "+":
        here = scope.directory()
        return None if here is None else here + rest
    if who == "-" or who.isdigit():
        return None
    return ("/root" if who == "root" else f"/home/{who}") + rest


def _alternatives(parts: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    """Brace expansion."""
    if not any(isinstance(part, Lit) and not part.quoted and "{" in part.text for part in parts):
        return [parts]
    tokens: list[Part | str] = []
    for part in parts:
        if isinstance(part, Lit) and not part.quoted:
            for piece in _BRACE.split(part.text):
                if piece in ("{", "}", ","):
                    tokens.append(piece)
                elif piece:
                    tokens.append(Lit(piece, False))
        else:
            tokens.append(part)
    results = None
    if tokens.count("{") <= MAX_BRACES:
        results = _spread(tokens, 0, len(tokens), _pairs(tokens), 0)
    if results is None:
        return [(Var("", "?", (), None, False, 0, 0),)]  # too many: nobody knows
    return [tuple(result) for result in results]


def _pairs(tokens: list[Part | str]) -> dict[int, int]:
    """Which `{` belongs to which `}`. One that would close without a comma or a range is plain text: `{a},b}`."""
    pairs: dict[int, int] = {}
    for opener in (number for number, token in enumerate(tokens) if token == "{"):
        level, comma = 0, False
        for number in range(opener + 1, len(tokens)):
            token = tokens[number]
            if token == "{":
                level += 1
            elif token == "," and not level:
                comma = True
            elif token == "}":
                if level:
                    level -= 1
                elif comma or _is_range(tokens[opener + 1 : number]):
                    pairs[opener] = number
                    break
    return pairs


def _is_range(inside: list[Part | str]) -> bool:
    return len(inside) == 1 and isinstance(inside[0], Lit) and _RANGE.fullmatch(inside[0].text) is not None


def _spread(
    tokens: list[Part | str], start: int, end: int, pairs: dict[int, int], depth: int
) -> list[list[Part]] | None:
    results: list[list[Part]] = [[]]
    position = start
    while position < end:
        token = tokens[position]
        choices: list[list[Part]] | None
        if token == "{" and pairs.get(position, end) < end:
            close = pairs[position]
            choices = _choices(tokens, position, close, pairs, depth)
            position = close + 1
        else:
            choices = [[Lit(token, False) if isinstance(token, str) else token]]
            position += 1
        if choices is None or len(results) * len(choices) > MAX_ALTERNATIVES:
            return None
        results = (
            [left + right for left in results for right in choices]
            if len(choices) > 1
            else [left + choices[0] for left in results]
        )
    return results


def _choices(
    tokens: list[Part | str], start: int, close: int, pairs: dict[int, int], depth: int
) -> list[list[Part]] | None:
    if depth > 20:
        return None
    commas: list[int] = []
    position = start + 1
    while position < close:
        if tokens[position] == "{" and pairs.get(position, close) < close:
            position = pairs[position]
        elif tokens[position] == ",":
            commas.append(position)
        position += 1
    if not commas:
        inside = tokens[start + 1 : close]
        if len(inside) == 1 and isinstance(inside[0], Lit):
            match = _RANGE.fullmatch(inside[0].text)
            if match:
                return _range(match)
        inner = _spread(tokens, start + 1, close, pairs, depth + 1)
        if inner is None:
            return None
        return [[Lit("{", False), *one, Lit("}", False)] for one in inner]
    choices: list[list[Part]] = []
    left = start + 1
    for comma in [*commas, close]:
        inner = _spread(tokens, left, comma, pairs, depth + 1)
        if inner is None:
            return None
        choices += inner
        left = comma + 1
    return choices


def _range(match: re.Match[str]) -> list[list[Part]] | None:
    low, high, step = match[1], match[2], abs(int(match[3])) if match[3] else 1
    numeric = low.lstrip("-").isdigit() and high.lstrip("-").isdigit()
    if not numeric and (len(low) != 1 or len(high) != 1 or low.isdigit() or high.isdigit()):
        return [[Lit("{" + match[0] + "}", False)]]
    begin, finish = (int(low), int(high)) if numeric else (ord(low), ord(high))
    sign = 1 if begin <= finish else -1
    if abs(finish - begin) // (step or 1) >= MAX_ALTERNATIVES:
        return None
    values = range(begin, finish + sign, sign * (step or 1))
    return [[Lit(str(value) if numeric else chr(value), False)] for value in values]
