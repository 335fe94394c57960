"""Takes a shell line apart into what the runner can do: programs, pipes, sequences, conditions, redirections.

There is no shell in a box of this engine. A line that is only these is run as one would; any other part of the
language (loops, substitutions, functions, jobs in the background) is refused, and the refusal names it: half of a line
is never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ringfence.dataclass import dataclass
from ringfence.shell.lexer import Misread
from ringfence.shell.parse import parse
from ringfence.shell.tree import Assign, Compound, Item, Lit, Part, Redirect, Simple, Var, WordNode

_MAGIC: Final = frozenset("*?[")
_REDIRECTIONS: Final = {">": ">", ">>": ">>", ">|": ">", "<": "<"}
_BOTH: Final = {"&>": ">", "&>>": ">>"}
_BUILTINS: Final = frozenset({"cd", "exit"})
_NAMES: Final = {
    "Sub": "a command substitution",
    "Proc": "a process substitution",
    "Arith": "arithmetic",
    "(": "a subshell",
    "{": "a group",
    "[[": "`[[`",
    "((": "arithmetic",
}


class CannotRun(Exception):
    """A part of a line that is not run here."""

    def __init__(self, what: str, text: str = "") -> None:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        super().__init__(f"{what}: {shown}" if shown else what)


@dataclass(frozen=True, slots=True)
class Stage:
    """One program of a pipeline."""

    words: tuple[str | tuple[str], ...]
    """Each a text, or a pattern of names in a tuple of its own."""
    env: tuple[tuple[str, str], ...]
    redirects: tuple[tuple[int, str, str | int], ...]
    """(descriptor, `<`, `>`, `>>`, path) or (descriptor, `&`, descriptor) or (descriptor, `text`, content)"""

    @property
    def program(self) -> str:
        first = self.words[0]
        return first if isinstance(first, str) else first[0]

    @property
    def is_builtin(self) -> bool:
        return self.program in _BUILTINS

    @property
    def argv(self) -> list[Any]:
        """As the runner takes it."""
        return [word if isinstance(word, str) else list(word) for word in self.words]


@dataclass(frozen=True, slots=True)
class Pipeline:
    stages: tuple[Stage, ...]
    joint: str
    """What follows it: `;`, `&&`, `||` or nothing."""


def take_apart(text: str, variables: Mapping[str, str]) -> tuple[Pipeline, ...]:
    """The pipelines of a line.

    Args:
        variables: what `$NAME` stands for.

    Raises:
        CannotRun: something in it is more than that; says what.
    """
    try:
        script = parse(text).root
    except Misread as fault:
        raise CannotRun(f"it cannot be read: {fault.why}", text[fault.start : fault.end + 20]) from None
    return tuple(_Reader(text, variables).item(item) for item in script.items)


class _Reader:
    def __init__(self, text: str, variables: Mapping[str, str]) -> None:
        self._text = text
        self._variables = variables

    def item(self, item: Item) -> Pipeline:
        if item.joint == "&":
            raise CannotRun("a job in the background", self._text[item.start : item.end])
        if self._text[item.start : item.end].startswith("!"):
            raise CannotRun("`!`", self._text[item.start : item.end])
        joint = ";" if item.joint == "\n" else item.joint
        return Pipeline(tuple(self._stage(command) for command in item.stages), joint)

    def _stage(self, command: Simple | Compound) -> Stage:
        text = self._text[command.start : command.end]
        if isinstance(command, Compound):
            raise CannotRun(_NAMES.get(command.kind, f"`{command.kind}`"), text)
        if command.late:
            raise CannotRun("a declaration", text)
        if not command.words:
            raise CannotRun("an assignment without a program" if command.assigns else "a redirection alone", text)
        env = tuple(self._assign(each) for each in command.assigns)
        words = tuple(self._word(word) for word in command.words)
        redirects = tuple(part for redirect in command.redirects for part in self._redirect(redirect))
        return Stage(words, env, redirects)

    def _assign(self, assign: Assign) -> tuple[str, str]:
        text = self._text[assign.start : assign.end]
        if assign.subscript is not None or assign.items is not None or assign.append:
            raise CannotRun("an array or an addition", text)
        return assign.name, "" if assign.value is None else self._plain(assign.value)

    def _word(self, word: WordNode) -> str | tuple[str]:
        """A word, or a pattern; of a pattern what was quoted stands for itself."""
        source = self._text[word.start : word.end]
        if source.startswith("~"):
            raise CannotRun("a home directory", source)
        is_pattern, plain, pattern = False, "", ""
        for part in word.parts:
            text = self._part(part)
            plain += text
            if isinstance(part, Lit) and not part.quoted:
                if "{" in text and ("," in text or ".." in text):
                    raise CannotRun("braces", source)
                is_pattern |= bool(_MAGIC & set(text))
                pattern += text
            else:
                pattern += "".join(f"[{sign}]" if sign in _MAGIC else sign for sign in text)
        return (pattern,) if is_pattern else plain

    def _plain(self, word: WordNode) -> str:
        found = self._word(word)
        if not isinstance(found, str):
            raise CannotRun("a pattern where a single name is needed", self._text[word.start : word.end])
        return found

    def _part(self, part: Part) -> str:
        if isinstance(part, Lit):
            return part.text
        if isinstance(part, Var) and not part.op and part.subscript is None and part.name in self._variables:
            return self._variables[part.name]
        source = self._text[part.start : part.end]
        if isinstance(part, Var):
            raise CannotRun("a variable that was not granted, or a form of it that is not known", source)
        raise CannotRun(_NAMES[type(part).__name__], source)

    def _redirect(self, redirect: Redirect) -> tuple[tuple[int, str, str | int], ...]:
        source = self._text[redirect.start : redirect.end]
        if redirect.descriptor and not redirect.descriptor.isdigit():
            raise CannotRun("a redirection by a variable", source)
        if redirect.here is not None:
            content = "".join(self._part(part) for part in redirect.here.parts)
            return ((int(redirect.descriptor or 0), "text", content),)
        if redirect.target is None:
            raise CannotRun("a redirection", source)
        target = self._plain(redirect.target)
        if redirect.op == "<<<":
            return ((int(redirect.descriptor or 0), "text", f"{target}\n"),)
        if redirect.op in _BOTH and not redirect.descriptor:
            return (1, _BOTH[redirect.op], target), (2, "&", 1)
        if redirect.op in (">&", "<&") and target in ("0", "1", "2"):
            return ((int(redirect.descriptor or (1 if redirect.op == ">&" else 0)), "&", int(target)),)
        if redirect.op not in _REDIRECTIONS or int(redirect.descriptor or 0) > 2:
            raise CannotRun("a redirection", source)
        usual = 0 if redirect.op == "<" else 1
        return ((int(redirect.descriptor or usual), _REDIRECTIONS[redirect.op], target),)
