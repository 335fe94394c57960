"""The shell's grammar as values: what `parse` makes of a text.

NamedTuples, because a short command is a few dozen of them and they are the cheapest immutable value that Python has.
`start` and `end` are positions in the text that was parsed.
"""

from typing import NamedTuple


class Lit(NamedTuple):
    """Text that stands for itself; only the unquoted kind can hold globs, braces and a tilde."""

    text: str
    quoted: bool


class Var(NamedTuple):
    """`$name`, `${name<op><rest>}`; `op` is "" for the plain form."""

    name: str
    op: str
    rest: "tuple[Part, ...]"
    subscript: "tuple[Part, ...] | None"
    quoted: bool
    start: int
    end: int


class Sub(NamedTuple):
    """`$(...)` or backticks. `script` holds positions of the text only if `inner` is None, else of `inner`."""

    script: "Script"
    quoted: bool
    start: int
    end: int
    inner: str | None = None


class Proc(NamedTuple):
    """`<(...)` or `>(...)`."""

    script: "Script"
    output: bool
    start: int
    end: int


class Arith(NamedTuple):
    """`$((...))` or `$[...]`."""

    parts: "tuple[Part, ...]"
    quoted: bool
    start: int
    end: int


Part = Lit | Var | Sub | Proc | Arith


class WordNode(NamedTuple):
    parts: tuple[Part, ...]
    start: int
    end: int


class Here:
    """A here-document. Its body comes after the line that names it, so that this is filled in later than the tree."""

    __slots__ = ("delimiter", "ended", "parts", "quoted")

    def __init__(self, quoted: bool, delimiter: str) -> None:
        self.quoted = quoted
        """Nothing in it is expanded."""
        self.delimiter = delimiter
        self.parts: tuple[Part, ...] = ()
        self.ended = False


class Redirect(NamedTuple):
    op: str
    descriptor: str
    target: WordNode | None
    here: Here | None
    start: int
    end: int


class Assign(NamedTuple):
    name: str
    subscript: tuple[Part, ...] | None
    value: WordNode | None
    items: tuple[WordNode, ...] | None
    """The elements of `name=(...)`."""
    append: bool
    start: int
    end: int


class Simple(NamedTuple):
    assigns: tuple[Assign, ...]
    words: tuple[WordNode, ...]
    redirects: tuple[Redirect, ...]
    late: tuple[Assign, ...]
    """Assignments after a declaring builtin: `export a=b`."""
    start: int
    end: int


class Compound(NamedTuple):
    """Every other command. `kind` is its keyword, `(`, `{`, `[[` or `((`."""

    kind: str
    scripts: "tuple[Script, ...]"
    words: tuple[WordNode, ...]
    redirects: tuple[Redirect, ...]
    name: str
    """The variable of `for` and `select`, the name of a function or coprocess."""
    start: int
    end: int


Command = Simple | Compound


class Item(NamedTuple):
    """One pipeline and the operator that follows it: `;`, newline, `&`, `&&`, `||` or nothing."""

    stages: tuple[Command, ...]
    joint: str
    start: int
    end: int


class Script(NamedTuple):
    items: tuple[Item, ...]
    start: int
    end: int


class Joint(NamedTuple):
    """An operator in the text, for those who forbid it."""

    kind: str
    start: int
    end: int
