"""What a shell remembers while it runs a text: variables, directory, functions, files it wrote."""

import posixpath
import re
from fnmatch import translate
from typing import Final, NamedTuple

from ringfence.shell.tree import Compound
from ringfence.values.facts import Origin, Word

_RANK: Final = {Origin.UNKNOWN: 0, Origin.FILE: 1, Origin.DECODED: 2, Origin.NETWORK: 3}


class Output(NamedTuple):
    """Text that a command gives to the next one, a variable or a file; None if it is not known."""

    text: str | None
    origin: Origin = Origin.UNKNOWN
    names: tuple[str, ...] = ()
    """Where the text is not known: file names or patterns that it is made of."""


NOTHING: Final = Output("")
UNKNOWN: Final = Output(None)


def worst(*origins: Origin) -> Origin:
    return max(origins, key=_RANK.__getitem__)


class State:
    """A shell's memory. A subshell works on a copy."""

    __slots__ = (
        "aliases",
        "arrays",
        "cwd",
        "files",
        "functions",
        "globs",
        "origins",
        "parameters",
        "previous",
        "references",
        "stack",
        "twins",
        "variables",
    )

    def __init__(self) -> None:
        self.variables: dict[str, str | None] = {}
        self.arrays: dict[str, tuple[str | None, ...]] = {}
        self.globs: frozenset[str] = frozenset()
        """Variables that stand for what a glob matches."""
        self.references: dict[str, str] = {}
        """`declare -n`."""
        self.origins: dict[str, Origin] = {}
        self.parameters: tuple[str | None, ...] | None = None
        """`$1` and on; None if they are not known."""
        self.functions: dict[str, Compound] = {}
        self.aliases: dict[str, Word] = {}
        self.files: dict[str, Output] = {}
        self.twins: dict[str, str] = {}
        """Copies of and links to programs."""
        self.cwd: str | None = ""
        """"" is where the text starts, None is not known."""
        self.previous: str | None = None
        self.stack: list[str | None] = []

    def copy(self) -> "State":
        other = State()
        other.variables = dict(self.variables)
        other.arrays = dict(self.arrays)
        other.globs = self.globs
        other.references = dict(self.references)
        other.origins = dict(self.origins)
        other.parameters = self.parameters
        other.functions = dict(self.functions)
        other.aliases = dict(self.aliases)
        other.files = self.files  # the file system is shared
        other.twins = self.twins
        other.cwd = self.cwd
        other.previous = self.previous
        other.stack = list(self.stack)
        return other

    def join(self, path: str) -> str:
        """`path` as seen from where the text starts; as it is, if the present directory is not known."""
        if path.startswith(("/", "~")) or not self.cwd:
            return path
        return posixpath.join(self.cwd, path)

    def enter(self, path: str | None) -> None:
        """What `cd` does."""
        if path is None:
            self.cwd, self.previous = None, self.cwd
        elif path == "-":
            self.cwd, self.previous = self.previous, self.cwd
        else:
            there = self.join(path)
            unknown = self.cwd is None and not path.startswith(("/", "~"))
            self.cwd, self.previous = (None if unknown else _tidy(there)), self.cwd

    def key(self, path: str) -> str:
        """One name for a file, however it is written."""
        return _tidy(self.join(path))


def _tidy(path: str) -> str:
    return posixpath.normpath(path) if path else ""


def transform(value: str, op: str, rest: str) -> str | None:
    """`${x<op><rest>}` of a known value; None if we do not follow."""
    if op in ("%", "%%", "#", "##"):
        return _strip(value, op, rest)
    if op in ("/", "//"):
        pattern, _, replacement = rest.partition("/")
        return _replace(value, pattern, replacement, 0 if op == "//" else 1)
    if op == "^^" or (op == "@" and rest == "U"):
        return value.upper()
    if op == ",," or (op == "@" and rest == "L"):
        return value.lower()
    if op == "^" or (op == "@" and rest == "u"):
        return value[:1].upper() + value[1:]
    if op == ",":
        return value[:1].lower() + value[1:]
    if op == "@":
        return value
    if op == ":":
        match = re.fullmatch(r"\s*(-?\d+)\s*(?::\s*(-?\d+)\s*)?", rest)
        if not match:
            return None
        begin = int(match[1])
        if match[2] is None:
            return value[begin:]
        length = int(match[2])
        return value[begin : begin + length] if length >= 0 else value[begin:length]
    return None


def _expression(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(translate(pattern).removesuffix("\\Z").removesuffix("\\z"), re.DOTALL)
    except re.error:
        return None


def _strip(value: str, op: str, pattern: str) -> str | None:
    """Try every cut; values here are short, and a longer one is not followed."""
    if len(value) > 500 or len(pattern) > 100:
        return None
    expression = _expression(pattern)
    if expression is None:
        return None
    cuts = range(len(value) + 1)
    if op[0] == "%":
        for cut in reversed(cuts) if op == "%" else cuts:
            if expression.fullmatch(value, cut):
                return value[:cut]
    else:
        for cut in cuts if op == "#" else reversed(cuts):
            if expression.fullmatch(value, 0, cut):
                return value[cut:]
    return value


def _replace(value: str, pattern: str, replacement: str, count: int) -> str | None:
    if len(value) > 500 or len(pattern) > 100 or len(replacement) > 100:
        return None
    expression = _expression(pattern)
    if expression is None or not pattern:
        return None
    return expression.sub(lambda _: replacement, value, count=count)
