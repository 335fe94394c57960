"""One program with its arguments: written down, and what it runs in turn is walked.

What this does not protect against: see `unwrap`.
"""

import re
from functools import partial
from typing import Final

from ringfence.shell import feeds, touches
from ringfence.shell.builtins import builtin
from ringfence.shell.catalog.known import SUSPECTS, is_followed
from ringfence.shell.catalog.operands import ROWS as OPERANDS
from ringfence.shell.catalog.places import DIRECTORY_OPTIONS, ROOTS, TEXT_COMMANDS
from ringfence.shell.catalog.runs import FILE_LISTS, PASSING_NAMES, SENDERS
from ringfence.shell.copies import remember
from ringfence.shell.dialects import DIALECTS
from ringfence.shell.each import MAX_UNROLLED, find_runs, xargs
from ringfence.shell.foreign import read_code
from ringfence.shell.lexer import Misread
from ringfence.shell.likely import HARM
from ringfence.shell.named import KEPT, REMOVING, commands_within, named, rooted
from ringfence.shell.options import Inner, operands, option_values
from ringfence.shell.parse import ShellReader, parse
from ringfence.shell.partial import STAND_IN, likely_names, with_gaps
from ringfence.shell.scope import Scoped
from ringfence.shell.state import UNKNOWN, Function, ShellOutput
from ringfence.shell.trees import trees
from ringfence.shell.unasked import HIDDEN, handed, unasked
from ringfence.shell.unwrap import unwrap
from ringfence.shell.variables import run_value
from ringfence.values.facts import (
    Assignment,
    Code,
    CommandShape,
    Construct,
    HostFact,
    Opaque,
    Origin,
    Program,
    Span,
    Touch,
    Unknown,
    Via,
    Word,
)

MAX_HANDLED: Final = 150_000
"""Words of all programs that are looked at, those within others included."""
_ZSH: Final = re.compile(r"\A(?:=|zf_)(?=[a-z])")
"""zsh: `=rm` is where `rm` lies, `zf_rm` a builtin of its own. Nothing else has names like these."""
_ASKS_SHELL: Final = re.compile(r"!|\b(?:shell|system)\b")
_KEEPING: Final = frozenset(name for name, row in OPERANDS.items() if row.operand is Touch.READ) - {"tar", "zip"} | {
    "find",
    "git",
}
"""Only read what they are given, whatever words stand beside it, or are looked at for themselves."""
SENDS: Final = "sends what it reads to another machine"
_SHAPES: Final = {shape.value: shape for shape in CommandShape}


class Running(Scoped):
    """Runs programs, as far as their text goes."""

    def note_assignment(self, name: str, value: str | None, span: Span, *, exported: bool) -> None:
        self.assignments.append(Assignment(name, value, span, exported))
        if value:
            run_value(self, name, value, span)

    def evaluate(self, text: str, span: Span) -> None:
        """Walk the substitutions in text that is expanded once more."""
        if "$(" in text or "`" in text:
            self._evaluated(text, span)

    def doubt_code(self, inner: Inner) -> None:
        """What is run cannot be read."""
        span = inner.code.span if inner.code is not None else self.programs[-1].span if self.programs else Span(0, 0)
        self.doubt(span, f"what {inner.label} runs cannot be read", Unknown.CODE)

    def run(self, argv: tuple[Word, ...], span: Span, stdin: ShellOutput | None) -> ShellOutput:
        """Write down one program, and walk what it runs."""
        self.handled += len(argv)
        if self.handled > MAX_HANDLED:
            raise Misread("more programs within programs than can be followed", 0, len(self.text))
        if argv[0].text and _ZSH.match(argv[0].text):
            argv = (Word(_ZSH.sub("", argv[0].text), argv[0].span), *argv[1:])
        program = Program(argv, span, self.via, self.wrappers)
        self.programs.append(program)
        first = argv[0]
        text = first.text
        result: ShellOutput | None
        if text is None or first.pattern:
            origin = self.origins.get(first.span, Origin.UNKNOWN)
            self.doubt(first.span, "which program this is is not known before it runs", Unknown.COMMAND, origin)
            for likely in likely_names(first):
                self.through(Via.WRAPPER, partial(self.run, (Word(likely, first.span), *argv[1:]), span, stdin), "?")
            if text is None:
                return UNKNOWN
        elif self.origins and self.origins.get(first.span) in HIDDEN:
            why = "which program this is is hidden from whoever reads the line"
            self.doubt(first.span, why, Unknown.COMMAND, self.origins[first.span])
        name = text.rpartition("/")[2]
        if name == "exe" and text.startswith("/proc/"):
            name = "bash"  # the program that runs this: the shell
        state = self.state
        if text in state.functions and text not in self.calling:
            return self._call(text, argv, stdin)
        if text in state.aliases and text not in self.calling:
            self.called.add(text)
            self.calling.append(text)
            self.code(state.aliases[text], Via.SHELL, "alias", stdin)
            self.calling.pop()
        if state.twins:
            twin = state.twins.get(text) or state.twins.get(state.key(text))
            if twin is not None and text not in self.calling and twin.rpartition("/")[2] != name:
                self.calling.append(text)
                copied = (Word(twin, first.span), *argv[1:])
                result = self.through(Via.WRAPPER, partial(self.run, copied, span, stdin), text)
                self.calling.pop()
                return result
        self.subscript_words(name, argv)
        handled = builtin(self, name, argv, stdin)
        if handled is not None:
            return handled
        entered = DIRECTORY_OPTIONS.get(name)
        kept = state.cwd, state.previous
        for _, directory in option_values(argv[1:], entered) if entered is not None else ():
            state.enter(directory.text)
        inners = unwrap(name, feeds.with_lines(name, argv, stdin))
        self._touches(name, argv, inners)
        for called in touches.hosts(name, argv):
            self.hosts.append(HostFact(called.host.strip("[]"), called.port, called.word.span, name))
        if "/" in text:
            self._run_file(first, argv, stdin)
        if state.files:
            unasked(self, name, first)
            if self.streams and not inners and name not in OPERANDS and name not in TEXT_COMMANDS:
                handed(self, name, argv)
        result = None
        for inner in inners:
            written = self.inner(inner, stdin)
            if not inner.language and not inner.loads:
                result = written
        if entered is not None:
            state.cwd, state.previous = kept
        if name == "xargs":
            return xargs(self, argv, stdin)
        if name == "find":
            find_runs(self, argv)
        elif name in PASSING_NAMES and stdin is not None and stdin.text is not None:
            for path in stdin.text.split("\n")[:MAX_UNROLLED]:
                self.touch(Touch.READ, Word(path, first.span))
        elif not inners and "/" not in text and not is_followed(name):
            self._suspected(argv, stdin)
            if stdin is not None and stdin.text is not None:
                self.codes.append(Code(name, stdin.text, argv[-1].span))
            if stdin is not None and stdin.text is not None and _ASKS_SHELL.search(stdin.text):
                self.code(Word(stdin.text, argv[-1].span), Via.WRAPPER, f"{name} !", None, "repl")
        if stdin is not None and name in SENDERS and stdin.text is None and self.hosts:
            sent = self.hosts[-1].host not in ("localhost", "127.0.0.1", "::1")
            if sent and self.hosts[-1].program == name:
                self.constructs.append(Construct(CommandShape.FOREIGN, span, SENDS))
        remember(state, name, argv, stdin)
        return result if result is not None else feeds.output(name, argv, stdin, state)

    def _suspected(self, argv: tuple[Word, ...], stdin: ShellOutput | None) -> None:
        """A program that nothing is known of may run what it is given, if that looks like a command."""
        for number, word in enumerate(argv[1:], 1):
            if word.text is not None and word.text.rpartition("/")[2] in SUSPECTS:
                span = Span(word.span.start, max(word.span.end, argv[-1].span.end))
                self.through(Via.WRAPPER, partial(self.run, argv[number:], span, stdin), argv[0].text or "?")
                return

    def _touches(self, name: str, argv: tuple[Word, ...], inners: list[Inner]) -> None:
        """The files that the arguments name, by what is known of the program and by what they look like."""
        seen: set[tuple[Touch, str]] = set()
        apart = {word.text for inner in inners for word in (inner.code, *inner.argv) if word is not None}
        if name in DIRECTORY_OPTIONS and self.state.cwd:
            for word in operands(argv[1:]):
                self.touch(Touch.NAME, word)
        elif name not in OPERANDS and any(word.text in ROOTS for word in argv[1:]):
            for root, word in rooted(argv[1:]):
                self.touch(Touch.NAME, Word(f"{root}/{word.text}", word.span))
        for _, value in option_values(argv[1:], FILE_LISTS[name]) if name in FILE_LISTS else ():
            known = self.state.files.get(self.state.key(value.text or ""))
            for path in re.split(r"[\n\0]", known.text)[:MAX_UNROLLED] if known is not None and known.text else ():
                self.touch(Touch.READ, Word(path, value.span))
        for touched in touches.paths(name, argv):
            self.touch(touched.touch, touched.word, recursive=touched.recursive, sent=touched.sent)
            if touched.word.text is not None:
                seen.add((touched.touch, touched.word.text))
        for touch, word in trees(name, argv, self.state.variables):
            if (touch, word.text or "") not in seen:
                self.touch(touch, word, recursive=True)
                seen.add((touch, word.text or ""))
        skip, takes = touches.spoken(name, argv)
        for word in commands_within(name, argv, skip, takes) if name not in _KEEPING else ():
            if word.text not in apart:
                self.constructs.append(Construct(CommandShape.FOREIGN, word.span, HARM))
        for touch, word in named(name, argv, apart, skip, takes, reads=name in OPERANDS):
            path = word.text or ""
            if KEPT.fullmatch(path) and name not in _KEEPING and any(word.text in REMOVING for word in argv[1:]):
                self.touch(Touch.REMOVE, word, recursive=True)
            if (touch, path) not in seen and (touch is Touch.WRITE or (Touch.READ, path) not in seen):
                self.touch(touch, word)

    def _call(self, name: str, argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput:
        self.called.add(name)
        self.calling.append(name)
        kept = self.state.parameters
        self.state.parameters = tuple(word.text for word in argv[1:])
        result = self.body(self.state.functions[name], stdin)
        self.state.parameters = kept
        self.calling.pop()
        return result

    def body(self, function: Function, stdin: ShellOutput | None) -> ShellOutput:
        """Walk a function where it was defined."""
        kept = self.offset, self.fixed
        self.offset, self.fixed = function.offset, function.fixed
        result = self.through(Via.FUNCTION, lambda: self.script(function.body.scripts[0], stdin))
        self.offset, self.fixed = kept
        return result

    def inner(self, inner: Inner, stdin: ShellOutput | None) -> ShellOutput:
        for word in inner.assigns:
            name, _, value = (word.text or "").partition("=")
            self.note_assignment(name, value, word.span, exported=True)
            self.state.variables.setdefault(name, value)
        if inner.argv:
            span = Span(inner.argv[0].span.start, max(inner.argv[-1].span.end, inner.argv[0].span.end))
            return self.through(inner.via, lambda: self.run(inner.argv, span, stdin), inner.label)
        if inner.code is not None:
            return self.code(inner.code, inner.via, inner.label, stdin, inner.language, inner.parameters)
        if inner.stdin:
            return self.source(stdin, inner, self.programs[-1].span)
        if inner.loads and inner.file is not None:
            self.touch(Touch.EXECUTE, inner.file)
            self.doubt(inner.file.span, f"what {inner.label} loads is not seen here", Unknown.CODE)
            return UNKNOWN
        if inner.file is not None:
            if inner.file.text is not None:
                if inner.via is Via.SHELL:
                    self.touch(Touch.READ, inner.file)
                self.touch(Touch.EXECUTE, inner.file)
                found = self.state.files.get(self.state.key(inner.file.text))
                if found is not None:
                    return self.source(found, inner, inner.file.span)
            else:
                self.doubt(inner.file.span, "which file is run is not known", Unknown.CODE, Origin.UNKNOWN)
        return UNKNOWN

    def source(self, text: ShellOutput | None, inner: Inner, span: Span) -> ShellOutput:
        """Run what was read: a here-document, the output of a pipe, a file that was written before."""
        if text is None:
            return UNKNOWN  # an interactive shell: nothing is fed to it
        word = Word(text.text, span)
        for name in text.sources:
            self.touch(Touch.EXECUTE, Word(name, span))
        if text.text is None and inner.language in DIALECTS and text.origin is not Origin.NETWORK:
            return UNKNOWN  # a query or a sum, most of the time
        if text.text is None:
            self.doubt(span, f"what {inner.label} runs is not known before it runs", Unknown.CODE, text.origin)
            return UNKNOWN
        if text.origin is not Origin.UNKNOWN:
            self.origins[span] = text.origin
        return self.code(word, inner.via, inner.label, None, inner.language, inner.parameters)

    def _run_file(self, first: Word, argv: tuple[Word, ...], stdin: ShellOutput | None) -> None:
        self.touch(Touch.EXECUTE, first)
        found = self.state.files.get(self.state.key(first.text or ""))
        if found is None and self.state.unpacked and not (first.text or "/").startswith("/"):
            why = "what is run may have come out of an archive from the network"
            self.doubt(first.span, why, Unknown.CODE, Origin.FILE)
        if found is not None:
            self.source(found, Inner(Via.SHELL, first.text or "", stdin=True, parameters=argv[1:]), first.span)

    def code(
        self,
        word: Word,
        via: Via,
        label: str,
        stdin: ShellOutput | None,
        language: str = "",
        parameters: tuple[Word, ...] = (),
    ) -> ShellOutput:
        """Walk text that something runs as code."""
        if word.text is None:
            origin = self.origins.get(word.span, Origin.UNKNOWN)
            if stdin is not None and origin is Origin.UNKNOWN:
                origin = stdin.origin
            self.doubt(word.span, f"what {label} runs is not known before it runs", Unknown.CODE, origin)
            if word.gaps and word.if_unset.strip():
                problem = self.problem
                known = with_gaps(word, STAND_IN if language else f"${{{STAND_IN}}}")
                self.code(Word(known, word.span), via, label, stdin, language, parameters)
                self.problem = problem
            return UNKNOWN
        if self.origins and self.origins.get(word.span) in HIDDEN:
            why = f"what {label} runs is hidden from whoever reads the line"
            self.doubt(word.span, why, Unknown.CODE, self.origins[word.span])
        if language:
            return self.through(via, lambda: self._foreign(word, language, label, parameters), label)
        try:
            reader = parse(word.text)
        except Misread as error:
            self.problem = self.problem or Opaque(word.span, f"what {label} runs cannot be read: {error.why}")
            return UNKNOWN
        kept = self.offset, self.fixed, self.state
        self.place(word)
        self.tell(reader)
        if label not in ("eval", ".", "source", "trap", "alias"):
            self.state = self.state.copy()
            self.state.parameters = tuple(one.text for one in parameters[1:]) if parameters else ()
            if parameters:
                self.state.variables["0"] = parameters[0].text
        result = self.through(via, lambda: self.script(reader.root, stdin), label)
        self.offset, self.fixed, self.state = kept
        return result

    def place(self, word: Word) -> None:
        """Where the code lies in our text: exactly, if it stands there as it is, else as a whole."""
        span, text = word.span, word.text or ""
        if self.fixed is None or self.fixed != span:
            for quote in (1, 0):
                if (
                    self.text[span.start + quote : span.end - quote] == text
                    and span.end - span.start == len(text) + 2 * quote
                ):
                    self.offset, self.fixed = span.start + quote, None
                    return
        self.fixed = span

    def tell(self, reader: ShellReader) -> None:
        """Write down the constructs that a reader met."""
        for joint in reader.joints:
            self.constructs.append(Construct(_SHAPES[joint.kind], self.span(joint.start, joint.end)))
        for start, end in reader.odd:
            self.constructs.append(Construct(CommandShape.ODD_CHARACTER, self.span(start, end), reader.text[start:end]))

    def _foreign(self, word: Word, language: str, label: str, parameters: tuple[Word, ...]) -> ShellOutput:
        code, span = word.text or "", word.span
        reading = read_code(language, code)
        self.codes.append(Code(language, code, span))
        if parameters and reading.runs_arguments:
            self.through(Via.WRAPPER, partial(self.run, parameters, span, None), language)
        if reading.unseen:
            self.doubt(span, f"what this {language} code runs is put together by it", Unknown.CODE, Origin.BUILT)
        for note in reading.notes:
            self.constructs.append(Construct(CommandShape.FOREIGN, span, note))
        for touch, path in reading.paths:
            self.touch(touch, Word(path, span), recursive=touch is Touch.REMOVE)
        for text in reading.shell:
            problem = self.problem
            inner = f"{label.partition(' ')[0]} !" if language in DIALECTS and language != "scripts" else language
            self.code(Word(text, span), Via.SHELL, inner, None)
            if self.problem is not problem:
                self.problem = problem
                self.doubt(span, f"what {language} gives to a shell cannot be read", Unknown.CODE)
        for words in reading.commands:
            argv = tuple(Word(text, span) for text in words)
            self.through(Via.WRAPPER, partial(self.run, argv, span, None), language)
        return UNKNOWN
