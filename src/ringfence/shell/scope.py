"""The shell that a text runs in: its memory, its places in the text, and what its words expand to."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final

from ringfence.shell.lexer import Misread
from ringfence.shell.parse import ShellReader
from ringfence.shell.state import ABSOLUTE, UNKNOWN, ShellOutput, State, certain, transform, worst
from ringfence.shell.tree import (
    Arith,
    Assign,
    Lit,
    Part,
    Proc,
    Script,
    Sub,
    Var,
    WordNode,
)
from ringfence.shell.words import SPECIAL, Values, expand, joined
from ringfence.values.facts import (
    Assignment,
    Code,
    CommandShape,
    Construct,
    HostFact,
    Opaque,
    Origin,
    PathFact,
    Program,
    Span,
    Touch,
    Unknown,
    Via,
    Word,
)

MAX_LEVELS: Final = 40
"""Scripts within scripts, and commands within commands."""

MAX_LISTED: Final = 16
"""File names of one substitution that are looked at."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_DIRECT: Final = (Via.DIRECT,)


_EVALUATING: Final = frozenset(
    (
        "declare",
        "typeset",
        "local",
        "export",
        "readonly",
        "read",
        "test",
        "[",
        "printf",
        "unset",
        "let",
        "mapfile",
        "readarray",
        "wait",
    )
)
"""Builtins that evaluate a subscript in their arguments."""


def _but_first(part: Part, name: str) -> bool:
    """`${name#?}`, all but the first letter: taken off the end, it leaves that letter."""
    return isinstance(part, Var) and part.name == name and part.op == "#" and _is_any(part.rest)


def _is_any(parts: tuple[Part, ...]) -> bool:
    return len(parts) == 1 and isinstance(parts[0], Lit) and parts[0].text == "?"


class Scoped(ABC):
    """Collects facts; knows the shell's memory, and so is what words ask (`words.Scope`)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.programs: list[Program] = []
        self.paths: list[PathFact] = []
        self.hosts: list[HostFact] = []
        self.assignments: list[Assignment] = []
        self.opaque: list[Opaque] = []
        self.constructs: list[Construct] = []
        self.problem: Opaque | None = None
        self.state = State()
        self.via: tuple[Via, ...] = _DIRECT
        self.wrappers: tuple[str, ...] = ()
        self.offset = 0
        self.fixed: Span | None = None
        self.level = 0
        self.walked = 0
        self.words = 0
        self.expanded = 0
        self.handled = 0
        self.branch = 0
        self.seen = Origin.UNKNOWN
        self.origins: dict[Span, Origin] = {}
        self.called: set[str] = set()
        self.calling: list[str] = []
        self.streams = 0
        self.codes: list[Code] = []
        self.sinks: dict[str, Script] = {}
        self.listed: tuple[str, ...] = ()
        """File names that the last substitution gives."""
        self.fed: ShellOutput | None = None
        """What `exec <...` put on the shell's own standard input."""

    def span(self, start: int, end: int) -> Span:
        """A place in the text that was given to us, for one in the text that is being walked."""
        if self.fixed is not None:
            return self.fixed
        return Span(start + self.offset, end + self.offset)

    def doubt(self, span: Span, why: str, unknown: Unknown, origin: Origin = Origin.UNKNOWN) -> None:
        self.opaque.append(Opaque(span, why, unknown, origin))

    def touch(self, touch: Touch, word: Word, *, recursive: bool = False, sent: bool = False) -> None:
        path = word.text if word.text is not None else word.if_unset
        if not path:
            return
        if word.literal and path.startswith("~"):
            path = "./" + path
        self.paths.append(
            PathFact(touch, self.state.join(path), word.span, word.pattern, recursive, sent, word.text is not None)
        )

    def deeper(self) -> None:
        self.level += 1
        if self.level > MAX_LEVELS:
            raise Misread("nested too deep", 0, len(self.text))

    def through(self, via: Via, what: Callable[[], ShellOutput], label: str = "") -> ShellOutput:
        self.deeper()
        kept = self.via, self.wrappers
        self.via = (via,) if self.via == _DIRECT else (*self.via, via)
        if label:
            self.wrappers = (*self.wrappers, label)
        result = what()
        self.via, self.wrappers = kept
        self.level -= 1
        return result

    def expand(self, node: WordNode, *, doubts: bool = True) -> list[Word]:
        span = self.span(node.start, node.end)
        parts = node.parts
        if len(parts) == 1 and isinstance(parts[0], Lit):
            text, quoted = parts[0]
            if quoted or not SPECIAL.search(text):  # nearly every word
                return [Word(text, span, False, "", text[:1] == "~")]
            return expand(node, self, span)
        kept, self.seen = self.seen, Origin.UNKNOWN
        self.listed = ()
        words = expand(node, self, span)
        if self.listed and len(parts) == 1 and isinstance(parts[0], Sub):
            words = [Word(name, span, True) for name in self.listed[:MAX_LISTED]]
            self.doubt(span, "its value is not known before it runs", Unknown.OPERAND, self.seen)
        for word in words:
            if word.text is None and doubts:
                self.doubt(span, "its value is not known before it runs", Unknown.OPERAND, self.seen)
        if self.seen is not Origin.UNKNOWN:
            self.origins[span] = self.seen
        self.seen = worst(kept, self.seen)
        return words

    def assign(self, assign: Assign, *, keep: bool, exported: bool = False, reference: bool = False) -> None:
        span = self.span(assign.start, assign.end)
        if assign.subscript is not None:
            self.subscript_parts(assign.subscript, span)
        state = self.state
        name = assign.name if reference else state.target(assign.name)
        reference = reference or state.references.get(name) == name  # `declare -n r` binds what it is given first
        if assign.items is not None:
            words = [word for node in assign.items for word in self.expand(node)]
            texts = tuple(word.text for word in words)
            if keep:
                state.arrays[name] = (state.arrays.get(name, ()) if assign.append else ()) + texts
            self.note_assignment(name, None if None in texts else " ".join(map(str, texts)), span, exported=exported)
            return
        kept, self.seen = self.seen, Origin.UNKNOWN
        value = joined(assign.value.parts, self)[0] if assign.value is not None else ""
        origin, self.seen = self.seen, kept
        if value and name in state.cases:
            value = value.lower() if state.cases[name] == "l" else value.upper()
        self.note_assignment(name, value, span, exported=exported)
        if name in state.integers and value and ("$(" in value or "`" in value):
            self._evaluated(value, span)
        if name == "BASH_CMDS" and assign.subscript is not None and value:
            state.twins[joined(assign.subscript, self)[1]] = value
        if not keep:
            return
        if reference and value:
            state.references[name] = value
            return
        if assign.append:
            before = state.variables.get(name)
            value = None if before is None or value is None else before + value
        if self.branch and name in state.variables and state.variables[name] != value:
            value = None  # one branch says this, another that
        if assign.subscript is not None:
            state.arrays[name] = (*state.arrays.get(name, ()), value)
        else:
            state.variables[name] = value
            state.globs -= {name}
        state.origins[name] = origin

    def directory(self) -> str | None:
        cwd = self.state.cwd
        return "." if cwd == "" else cwd

    def separators(self) -> str:
        value = self.state.variables.get("IFS", " \t\n")
        return " \t\n" if value is None else value

    def substitution(self, part: Sub) -> str | None:
        kept = self.offset, self.fixed, self.state, self.seen
        if part.inner is not None:
            self.fixed = self.span(part.start, part.end)
        self.state = self.state.copy()
        result = self.through(Via.SUBSTITUTION, lambda: self.script(part.script, None))
        self.offset, self.fixed, self.state, self.seen = kept
        self.seen = worst(self.seen, result.origin)
        self.listed = result.names if result.text is None else ()
        return result.text

    def process(self, part: Proc) -> str | None:
        self.streams += 1
        name = f"/dev/fd/{62 + self.streams}"
        if part.output:
            self.sinks[name] = part.script  # walked when it is known what is written to it
            return name
        kept = self.state
        self.state = self.state.copy()
        result = self.through(Via.SUBSTITUTION, lambda: self.script(part.script, None))
        self.state = kept
        self.state.files[name] = result
        return name

    def drain(self) -> None:
        """Walk the commands of `>(...)` with what was written to them."""
        while self.sinks:
            name, script = self.sinks.popitem()
            fed = self.state.files.get(name, UNKNOWN)
            kept, self.state = self.state, self.state.copy()
            self.through(Via.SUBSTITUTION, partial(self.script, script, fed))
            self.state = kept

    def arithmetic(self, part: Arith) -> str | None:
        span = self.span(part.start, part.end)
        text = self.subscript_parts(part.parts, span)
        for name in _NAME.findall(text):
            self._evaluated_value(name, span)
        return None

    def _evaluated_value(self, name: str, span: Span) -> None:
        """A name in an arithmetic expression: its value is evaluated in turn."""
        value = self.state.variables.get(name)
        if value and ("$(" in value or "`" in value):
            self._evaluated(value, span)

    def subscript_parts(self, parts: tuple[Part, ...], span: Span) -> str:
        before = ""
        for part in parts:
            if isinstance(part, Sub) and before.endswith("["):
                self.constructs.append(Construct(CommandShape.SUBSCRIPT, span))
            before = part.text if isinstance(part, Lit) else ""
        return joined(parts, self)[1]

    def subscript_words(self, name: str, argv: tuple[Word, ...]) -> None:
        if name in _EVALUATING:
            self.subscripts(argv[1:], numbers=name == "let")

    def subscripts(self, words: "tuple[Word, ...] | list[Word]", *, numbers: bool = False) -> None:
        """Text that a builtin evaluates; with `numbers`, a plain name is one too."""
        for word in words:
            text = word.text
            if text is not None and "[" in text and ("$(" in text or "`" in text):
                self._evaluated(text, word.span)
            elif text is not None and numbers and _NAME.fullmatch(text):
                self._evaluated_value(text, word.span)

    def _evaluated(self, text: str, span: Span) -> None:
        """Text that the shell expands once more, and so runs the substitutions in it."""
        self.constructs.append(Construct(CommandShape.SUBSCRIPT, span))
        reader = ShellReader(text)
        kept = self.fixed
        self.fixed = span
        joined(reader.within(0, len(text)), self)
        self.fixed = kept

    def parameter(self, part: Var) -> Values:
        state = self.state
        name, op = part.name, part.op
        if part.subscript is not None:
            index = self.subscript_parts(part.subscript, self.span(part.start, part.end))
            array = state.arrays.get(name)
            if array is not None and op in ("", "length"):
                if index in ("@", "*"):
                    return Values(array, index == "@") if not op else Values((str(len(array)),))
                if index.isdigit() and int(index) < len(array):
                    return Values((array[int(index)],))
            return Values((None,), index == "@" and part.quoted)
        if name in ("@", "*") and not op:
            if state.parameters is None:
                return Values((None,), name == "@")
            return Values(state.parameters or ("",), name == "@")
        value = self._value(name)
        if op == "":
            return Values((value,), False, name in state.globs)
        if op == "!":
            inner = self._value(value) if value and _NAME.fullmatch(value) else None
            return Values((inner,))
        if op == "length":
            return Values((None,))
        kept = self.seen
        rest, remains = joined(part.rest, self)
        if op in (":-", "-", ":=", "="):
            if value is None or (value == "" and op[0] == ":"):
                if op.endswith("="):
                    state.variables[name] = rest
                return Values((rest,))
            self.seen = kept
            return Values((value,))
        if op in (":+", "+"):
            return Values((rest,))
        if op in (":?", "?"):
            return Values((value,))
        if op == "@" and remains == "P":
            if value is None:
                self.doubt(self.span(part.start, part.end), "a prompt that is expanded is not known", Unknown.CODE)
            elif "$(" in value or "`" in value:
                self._evaluated(value, self.span(part.start, part.end))
            return Values((None,))
        if name in ABSOLUTE and rest is not None and not (value or "").startswith("/") and name not in state.variables:
            sure = certain(op, rest)
            if sure is not None:
                return Values((sure,))
        if name in ABSOLUTE and op in ("%", "%%") and part.rest and _but_first(part.rest[0], name):
            return Values(("/",)) if name not in state.variables else Values((value[:1] if value else value,))
        if value is None:
            if op in ("/", "//") and remains.partition("/")[0].strip("*") == "":
                return Values((remains.partition("/")[2],))
            return Values((None,))
        return Values((transform(value, op, rest) if rest is not None else None,))

    def _value(self, name: str) -> str | None:
        state = self.state
        if name.isdigit() and name != "0":
            if state.parameters is None:
                return None
            number = int(name)
            return state.parameters[number - 1] if number <= len(state.parameters) else ""
        name = state.target(name)
        if name in state.variables:
            self.seen = worst(self.seen, state.origins.get(name, Origin.UNKNOWN))
            return state.variables[name]
        if name in state.arrays:
            return state.arrays[name][0] if state.arrays[name] else ""
        if name == "HOME":
            return "~"
        if name == "BASH":
            return "/bin/bash"
        if name in ("$", "PPID", "BASHPID", "!"):
            return "4242"  # some process that is not the first
        if name == "PWD":
            return self.directory()
        if name == "IFS":
            return " \t\n"
        return None

    @abstractmethod
    def note_assignment(self, name: str, value: str | None, span: Span, *, exported: bool) -> None:
        """Write down a variable that is set, and walk its value if something runs that."""

    @abstractmethod
    def script(self, script: Script, stdin: ShellOutput | None) -> ShellOutput:
        """Walk all commands; gives what they write together."""
