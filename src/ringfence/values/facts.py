"""What a command line would do, as far as its text tells: facts, never yes or no."""

from enum import IntEnum, StrEnum
from typing import Final

from ringfence.dataclass import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A stretch of the command's text, in characters; `text[start:end]`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Word:
    """One argument after quoting is undone. `text` is None where it cannot be known before the command runs."""

    text: str | None
    span: Span
    pattern: bool = False
    """Whether an unquoted glob in it will be expanded."""
    if_unset: str = ""
    """Where `text` is None: what the word would be if everything unknown in it were empty; `$x/etc` gives `/etc`."""
    literal: bool = False
    """It begins with a quoted `~`, which is a plain name and not somebody's home."""
    gaps: tuple[int, ...] = ()
    """Where in `if_unset` something unknown stands."""


class Via(StrEnum):
    """How a program comes to be run."""

    DIRECT = "direct"
    WRAPPER = "wrapper"  # env, sudo, timeout, xargs, find -exec ...
    SHELL = "shell"  # sh -c, eval, source of a here-document
    SUBSTITUTION = "substitution"  # $(...), `...`, <(...)
    FUNCTION = "function"  # the body of a function that is called
    REMOTE = "remote"  # ssh host command


@dataclass(frozen=True, slots=True)
class Program:
    """One program with its arguments, seen through wrappers and nesting. argv[0] is the name as written."""

    argv: tuple[Word, ...]
    span: Span
    via: tuple[Via, ...] = (Via.DIRECT,)
    wrappers: tuple[str, ...] = ()
    """The wrappers around it, outermost first: `("sudo", "env")`."""

    @property
    def name(self) -> str | None:
        """The program's base name, or None if it cannot be known."""
        text = self.argv[0].text if self.argv else None
        return None if text is None else text.rpartition("/")[2]


class Touch(StrEnum):
    READ = "read"
    WRITE = "write"
    REMOVE = "remove"
    EXECUTE = "execute"
    NAME = "name"  # a program is given it, and what it does with it is not known


@dataclass(frozen=True, slots=True)
class PathFact:
    """A path that the command would touch. Relative ones are joined to a `cd` before them, if that is known."""

    touch: Touch
    path: str
    span: Span
    pattern: bool = False
    recursive: bool = False
    sent: bool = False
    """Its content goes to another machine."""
    sure: bool = True
    """False: a part of the path is unknown, and this is what remains if that part is empty."""


@dataclass(frozen=True, slots=True)
class HostFact:
    host: str
    port: int | None
    span: Span
    program: str


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: str | None
    span: Span
    exported: bool = False


class Unknown(StrEnum):
    """What it is that cannot be known."""

    TEXT = "text"  # the whole text: it could not be read
    COMMAND = "command"  # which program is run
    CODE = "code"  # what is run: a shell's or an interpreter's input
    OPERAND = "operand"  # an argument, an assigned value, the target of a redirection


class Origin(StrEnum):
    """Where text that is run comes from."""

    UNKNOWN = "unknown"
    NETWORK = "network"
    DECODED = "decoded"  # base64 -d, xxd -r, rev, tr ...: made so that it is not read
    FILE = "file"
    BUILT = "built"  # by code of another language that is read: ordinary, but no rule on commands sees what it runs


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part that cannot be resolved before it runs. Opaque is never safe."""

    span: Span
    why: str
    unknown: Unknown = Unknown.TEXT
    origin: Origin = Origin.UNKNOWN


class CommandShape(StrEnum):
    """A construct of the language that a check may forbid or doubt."""

    SEQUENCE = ";"
    AND = "&&"
    OR = "||"
    PIPE = "|"
    BACKGROUND = "&"
    BACKTICK = "`"
    SUBSTITUTION = "$("
    EXPANSION = "${"
    PROCESS_INPUT = "<("
    PROCESS_OUTPUT = ">("
    HERE_DOCUMENT = "<<"
    SUBSCRIPT = "subscript"  # text that is evaluated as a subscript or arithmetic, and so can run commands
    FORK_BOMB = "fork bomb"
    ODD_CHARACTER = "odd character"  # outside ASCII and unquoted
    FOREIGN = "foreign"  # something that code in another language does; `detail` says what


NEVER_ENDED: Final = "\n"
"""The `detail` of a here-document whose delimiter does not come; a delimiter itself holds no newline."""


@dataclass(frozen=True, slots=True)
class Construct:
    shape: CommandShape
    span: Span
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Text in another language that is run: only its literals were looked at."""

    language: str
    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is known about one command line. `problem` is set when the text could not be parsed."""

    text: str
    programs: tuple[Program, ...] = ()
    paths: tuple[PathFact, ...] = ()
    hosts: tuple[HostFact, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    opaque: tuple[Opaque, ...] = ()
    problem: Opaque | None = None
    constructs: tuple[Construct, ...] = ()
    codes: tuple[Code, ...] = ()


class Strictness(StrEnum):
    PERMISSIVE = "permissive"
    NORMAL = "normal"
    STRICT = "strict"


class CheckAnswer(IntEnum):
    """What a check says; ordered, so that the strictest of many is their `max()`."""

    PASS = 0
    WARN = 1
    BLOCK = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's answer about one stretch of the text."""

    check: str
    answer: CheckAnswer
    why: str
    span: Span
    rule: str
    """The row of the check's own table that spoke."""
    allow_by: str = ""
