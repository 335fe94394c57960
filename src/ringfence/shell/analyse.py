"""Text to facts: what a command line would run, touch and call, seen through wrappers, nesting and variables.

The tree is walked in the order in which the shell would run it, with the shell's memory at hand: a variable that was
set before is known, a directory that was entered before counts for the paths after it, a here-document that is fed to a
shell is read as commands. Each branch is taken to run. What cannot be resolved is written down as opaque; facts never
say yes or no.

Bounds: nesting, and the number of commands that are walked, called functions and unrolled loops included.

What this does not protect against: what a program does by itself, without being told by its arguments; a value that
comes from outside; a race between this reading and the run. The wall holds there, not the analysis.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from ringfence.shell.each import MAX_UNROLLED
from ringfence.shell.lexer import Misread
from ringfence.shell.parse import parse
from ringfence.shell.running import Running
from ringfence.shell.state import NOTHING, UNKNOWN, Function, ShellOutput, worst
from ringfence.shell.tree import (
    Command,
    Compound,
    Item,
    Lit,
    Redirect,
    Script,
    Simple,
)
from ringfence.shell.words import MAX_VALUE, joined
from ringfence.values.facts import (
    NEVER_ENDED,
    Assignment,
    CommandShape,
    Construct,
    Facts,
    HostFact,
    Opaque,
    Origin,
    Span,
    Touch,
    Via,
    Word,
)

_COMPARES: Final = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_UNSET: Final = "\0unset"
"""No value of a variable holds a NUL."""
MAX_WALKED: Final = 10_000
MAX_WORDS: Final = 60_000
MAX_EXPANDED: Final = 1024 * 1024
FAULT: Final = "the analysis itself failed"
_SOCKET: Final = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/(\w+)")


class ScriptStream(Enum):
    """Standard input that something is written to, but that cannot be read ahead."""

    UNREAD = "unread"


STREAM: Final = ScriptStream.UNREAD
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def analyse(text: str, *, stdin: str | ScriptStream | None = None, variables: Mapping[str, str] = _NONE) -> Facts:
    """Everything that `text` tells about itself. Never raises; a text that cannot be read has a `problem`.

    Args:
        stdin: what is fed to it; `STREAM` if that cannot be known, None if nothing is.
        variables: what is set for it, besides the environment that every command has.
    """
    walk = CommandWalk(text)
    try:
        if "\0" in text:
            raise Misread("a NUL character", text.index("\0"), text.index("\0") + 1)
        reader = parse(text)
        walk.tell(reader)
        for name, value in variables.items():
            walk.set_outside(name, value)
        fed = None if stdin is None else UNKNOWN if isinstance(stdin, ScriptStream) else ShellOutput(stdin)
        walk.script(reader.root, fed)
        walk.leftovers()
    except Misread as error:
        walk.problem = walk.problem or Opaque(Span(error.start, error.end), error.why)
    except RecursionError:
        walk.problem = Opaque(Span(0, len(text)), "nested too deep")
    except Exception as error:  # a fault of ours must end in a refusal, not in a caller without facts
        walk.problem = Opaque(Span(0, len(text)), f"{FAULT} ({type(error).__name__})")
    return Facts(
        text,
        tuple(walk.programs),
        tuple(walk.paths),
        tuple(walk.hosts),
        tuple(walk.assignments),
        tuple(walk.opaque),
        walk.problem,
        tuple(walk.constructs),
        tuple(walk.codes),
    )


class CommandWalk(Running):
    """One pass over one text."""

    def script(self, script: Script, stdin: ShellOutput | None) -> ShellOutput:
        """Walk all commands; gives what they write together."""
        self.deeper()
        texts: list[str] = []
        known, origin = True, Origin.UNKNOWN
        names: tuple[str, ...] = ()
        sources: tuple[str, ...] = ()
        conditional = False
        for item in script.items:
            self.branch += conditional
            result = self._item(item, stdin)
            self.branch -= conditional
            conditional = item.joint in ("&&", "||")
            if result.text is None:
                known = False
            else:
                texts.append(result.text)
            origin = worst(origin, result.origin)
            names, sources = result.names or names, result.sources or sources
        self.level -= 1
        whole = "".join(texts) if known and sum(map(len, texts)) <= MAX_VALUE else None
        return ShellOutput(whole, origin, names, sources)

    def _item(self, item: Item, stdin: ShellOutput | None) -> ShellOutput:
        if len(item.stages) == 1:
            return self.command(item.stages[0], stdin)
        kept = self.state
        fed = stdin
        for stage in item.stages:
            self.state = kept.copy()
            fed = self.command(stage, fed)
        self.state = kept
        return fed or UNKNOWN

    def set_outside(self, name: str, value: str) -> None:
        """A variable that was set before the text runs."""
        whole = Span(0, len(self.text))
        kept, self.fixed = self.fixed, whole
        self.state.variables[name] = value
        self.note_assignment(name, value, whole, exported=True)
        self.fixed = kept

    def command(self, command: Command, stdin: ShellOutput | None) -> ShellOutput:
        self.walked += 1
        if stdin is None:
            stdin = self.fed
        if self.walked > MAX_WALKED:
            raise Misread(f"runs more than {MAX_WALKED} commands", 0, len(self.text))
        result = self._simple(command, stdin) if isinstance(command, Simple) else self._compound(command, stdin)
        if self.sinks:
            self.drain()
        return result

    def _compound(self, command: Compound, stdin: ShellOutput | None) -> ShellOutput:
        kind = command.kind
        if kind == "function":
            self.state.functions[command.name] = Function(command, self.offset, self.fixed)
            if _bomb(command):
                self.constructs.append(
                    Construct(CommandShape.FORK_BOMB, self.span(command.start, command.end), command.name)
                )
            return NOTHING
        stdin, targets = self._redirects(command.redirects, stdin)
        result = UNKNOWN
        if kind == "(":
            kept, self.state = self.state, self.state.copy()
            result = self.script(command.scripts[0], stdin)
            self.state = kept
        elif kind == "{":
            result = self.script(command.scripts[0], stdin)
        elif kind == "for":
            self._for(command, stdin)
        else:
            words = [word for node in command.words for word in self.expand(node)]
            if kind == "[[":
                self.subscripts(words, numbers=any(word.text in _COMPARES for word in words))
            self.branch += 1
            for script in command.scripts:
                self.script(script, stdin)
            self.branch -= 1
        return self._written(result, targets)

    def _for(self, command: Compound, stdin: ShellOutput | None) -> None:
        values = [word for node in command.words for word in self.expand(node)]
        if command.name:
            self.assignments.append(Assignment(command.name, None, self.span(command.start, command.end)))
        known = values and len(values) <= MAX_UNROLLED and all(word.text is not None for word in values)
        self.branch += 1
        if known and command.name and not any(word.pattern for word in values):
            for word in values:
                self.state.variables[command.name] = word.text
                self.script(command.scripts[0], stdin)
        else:
            if command.name:
                self.state.variables[command.name] = None
                patterns = [word for word in values if word.pattern and word.text]
                if len(patterns) == len(values) == 1:
                    self.state.variables[command.name] = patterns[0].text
                    self.state.globs |= {command.name}
            self.script(command.scripts[0], stdin)
        self.branch -= 1

    def leftovers(self) -> None:
        """Functions and aliases that are only defined: something else may call them."""
        for name, function in list(self.state.functions.items()):
            if name not in self.called:
                self.called.add(name)
                kept, self.state = self.state, self.state.copy()
                self.state.parameters = None
                self.body(function, None)
                self.state = kept
        for name, word in list(self.state.aliases.items()):
            if name not in self.called and word.text is not None:
                self.code(word, Via.SHELL, "alias", None)

    def _simple(self, command: Simple, stdin: ShellOutput | None) -> ShellOutput:
        argv: list[Word] = []
        for node in command.words:
            argv += self.expand(node)
        self.words += len(argv)
        self.expanded += sum([len(word.text) for word in argv if word.text is not None])
        if self.words > MAX_WORDS or self.expanded > MAX_EXPANDED:
            raise Misread("more words than can be followed, over all that is run", 0, len(self.text))
        before: dict[str, str | None] = {}
        for assign in command.assigns:
            if argv and assign.subscript is None:
                before[assign.name] = self.state.variables.get(assign.name, _UNSET)
            self.assign(assign, keep=not argv or assign.subscript is None, exported=bool(argv))
        stdin, targets = self._redirects(command.redirects, stdin) if command.redirects else (stdin, ())
        if not argv:
            return self._written(stdin or NOTHING, targets) if command.redirects else NOTHING
        if stdin is not None:
            self.state.files["/dev/fd/0"] = stdin
        if command.redirects and len(argv) == 1 and argv[0].text == "exec":
            self.fed = stdin
        if command.late:
            self._late(command, argv)
        result = self.run(tuple(argv), self.span(command.start, command.end), stdin)
        for name, value in before.items():  # set for this command only
            if value is _UNSET:
                self.state.variables.pop(name, None)
            else:
                self.state.variables[name] = value
        return self._written(result, targets) if targets else result

    def _late(self, command: Simple, argv: list[Word]) -> None:
        """`export a=b`, `declare -i n=...`."""
        flags = "".join(word.text for word in argv[1:] if word.text and word.text.startswith("-"))
        exported = argv[0].text == "export" or "x" in flags
        for assign in command.late:
            if "i" in flags:
                self.state.integers |= {assign.name}
            if argv[0].text != "export" and ("l" in flags or "u" in flags):
                self.state.cases = self.state.cases | {assign.name: "l" if "l" in flags else "u"}
            self.assign(assign, keep=True, exported=exported, reference="n" in flags)
            if argv[0].text == "alias" and assign.value is not None:
                value = self.expand(assign.value, doubts=False)
                if value:
                    self.state.aliases[assign.name] = value[0]

    def _redirects(
        self, redirects: tuple[Redirect, ...], stdin: ShellOutput | None
    ) -> tuple[ShellOutput | None, tuple[str, ...]]:
        targets: list[str] = []
        for redirect in redirects:
            op = redirect.op
            span = self.span(redirect.start, redirect.end)
            if redirect.here is not None or op == "<<<":
                fed = self._here(redirect, span)
                stdin = self._opened(redirect.descriptor, fed, stdin)
                continue
            if redirect.target is None:
                continue
            for word in self.expand(redirect.target):
                text = word.text
                if op in ("<&", ">&") and text is not None and re.fullmatch(r"[0-9]*-?", text):
                    number = text.rstrip("-")
                    if op == "<&" and number:
                        there = stdin if number == "0" else self.state.files.get(f"/dev/fd/{number}", UNKNOWN)
                        stdin = self._opened(redirect.descriptor, there, stdin)
                    continue
                if text is not None:
                    socket = _SOCKET.fullmatch(text)
                    if socket:
                        port = int(socket[2]) if socket[2].isdigit() else None
                        self.hosts.append(HostFact(socket[1], port, word.span, "/dev/tcp"))
                if op in ("<", "<&", "<>"):
                    self.touch(Touch.READ, word)
                    known = self.state.files.get(self.state.key(text)) if text is not None else None
                    source = (text,) if text is not None else ()
                    fed = known or ShellOutput(None, Origin.FILE, (), source)
                    stdin = self._opened(redirect.descriptor, fed, stdin)
                if op not in ("<", "<&"):
                    self.touch(Touch.WRITE, word)
                    if text is not None and redirect.descriptor in ("", "1"):
                        targets.append(self.state.key(text))
        return stdin, tuple(targets)

    def _here(self, redirect: Redirect, span: Span) -> ShellOutput:
        """The text of a here-document or a here-string."""
        kept, self.seen = self.seen, Origin.UNKNOWN
        if redirect.here is not None:
            detail = redirect.here.delimiter if redirect.here.ended else NEVER_ENDED
            self.constructs.append(Construct(CommandShape.HERE_DOCUMENT, span, detail))
            text = joined(redirect.here.parts, self)[0]
        else:
            text = joined(redirect.target.parts, self)[0] if redirect.target is not None else ""
            text = None if text is None else text + "\n"
        fed = ShellOutput(text, self.seen)
        self.seen = kept
        return fed

    def _opened(self, descriptor: str, fed: ShellOutput | None, stdin: ShellOutput | None) -> ShellOutput | None:
        """A stream is put on a descriptor: standard input, another number, or `{name}`, which the shell numbers."""
        if descriptor in ("", "0"):
            return fed
        if descriptor.startswith("{"):
            self.streams += 1
            number = str(10 + self.streams)
            self.state.variables[descriptor.strip("{}")] = number
        else:
            number = descriptor
        if fed is not None:
            self.state.files[f"/dev/fd/{number}"] = fed
        return stdin

    def _written(self, result: ShellOutput, targets: tuple[str, ...]) -> ShellOutput:
        if not targets:
            return result
        for target in targets:
            if target not in ("/dev/stdout", "/dev/stderr", "/dev/null"):
                before = self.state.files.get(target)
                if before is not None and before.text and result.text is not None and len(before.text) <= MAX_VALUE:
                    result = ShellOutput(before.text + result.text, worst(before.origin, result.origin))
                self.state.files[target] = result
        return NOTHING


def _bomb(function: Compound) -> bool:
    """A function that starts itself beside itself."""
    return any(name == function.name and beside for name, beside in _names(function.scripts[0]))


def _names(script: Script) -> Iterator[tuple[str, bool]]:
    waiting: list[tuple[Command, bool]] = [
        (stage, len(item.stages) > 1 or item.joint == "&") for item in script.items for stage in item.stages
    ]
    while waiting:
        command, beside = waiting.pop()
        if isinstance(command, Simple):
            first = command.words[0].parts if command.words else ()
            if first and isinstance(first[0], Lit):
                yield first[0].text, beside
        else:
            for inner in command.scripts:
                for item in inner.items:
                    for stage in item.stages:
                        waiting.append((stage, beside or len(item.stages) > 1 or item.joint == "&"))
