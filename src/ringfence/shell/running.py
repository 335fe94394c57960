"""One program with its arguments: written down, and what it runs in turn is walked.

What this does not protect against: see `unwrap`.
"""

import re
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

from ringfence.shell import feeds, touches
from ringfence.shell.builtins import builtin
from ringfence.shell.foreign import read_code
from ringfence.shell.lexer import Misread
from ringfence.shell.options import Inner, operands, option_values
from ringfence.shell.parse import Reader, parse
from ringfence.shell.scope import Scoped
from ringfence.shell.state import UNKNOWN, Output
from ringfence.shell.unwrap import unwrap
from ringfence.values.facts import (
    Assignment,
    Construct,
    HostFact,
    Opaque,
    Origin,
    Program,
    Shape,
    Span,
    Touch,
    Unknown,
    Via,
    Word,
)

MAX_UNROLLED: Final = 16
_SHAPES: Final = {shape.value: shape for shape in Shape}


class Running(Scoped):
    """Runs programs, as far as their text goes."""

    def run(self, argv: tuple[Word, ...], span: Span, stdin: Output | None) -> Output:
        """Write down one program, and walk what it runs."""
        program = Program(argv, span, self.via, self.wrappers)
        self.programs.append(program)
        first = argv[0]
        text = first.text
        if text is None or first.pattern:
            origin = self.origins.get(first.span, Origin.UNKNOWN)
            self.doubt(first.span, "which program this is is not known before it runs", Unknown.COMMAND, origin)
            for likely in _likely_names(first):
                self.through(Via.WRAPPER, partial(self.run, (Word(likely, first.span), *argv[1:]), span, stdin), "?")
            if text is None:
                return UNKNOWN
        name = text.rpartition("/")[2]
        state = self.state
        if text in state.functions and text not in self.calling:
            return self._call(text, argv, stdin)
        if text in state.aliases and text not in self.calling:
            self.called.add(text)
            self.calling.append(text)
            self.code(state.aliases[text], Via.SHELL, "alias", stdin)
            self.calling.pop()
        if state.twins:
            twin = state.twins.get(state.key(text))
            if twin is not None:
                copied = (Word(twin, first.span), *argv[1:])
                return self.through(Via.WRAPPER, partial(self.run, copied, span, stdin), text)
        self.subscript_words(name, argv)
        handled = builtin(self, name, argv, stdin)
        if handled is not None:
            return handled
        for touched in touches.paths(name, argv):
            self.touch(touched.touch, touched.word, recursive=touched.recursive, sent=touched.sent)
        for called in touches.hosts(name, argv):
            self.hosts.append(HostFact(called.host.strip("[]"), called.port, called.word.span, name))
        if "/" in text:
            self._run_file(first, argv, stdin)
        result: Output | None = None
        for inner in unwrap(name, argv):
            result = self._inner(inner, stdin)
        if name == "xargs":
            return self._xargs(argv, stdin)
        if name == "find":
            self._find(argv)
        self._files(name, argv, stdin)
        return result if result is not None else feeds.output(name, argv, stdin, state)

    def _call(self, name: str, argv: tuple[Word, ...], stdin: Output | None) -> Output:
        self.called.add(name)
        self.calling.append(name)
        kept = self.state.parameters
        self.state.parameters = tuple(word.text for word in argv[1:])
        body = self.state.functions[name].scripts[0]
        result = self.through(Via.FUNCTION, lambda: self.script(body, stdin))
        self.state.parameters = kept
        self.calling.pop()
        return result

    def _inner(self, inner: Inner, stdin: Output | None) -> Output:
        for word in inner.assigns:
            name, _, value = (word.text or "").partition("=")
            self.assignments.append(Assignment(name, value, word.span, True))
        if inner.argv:
            span = Span(inner.argv[0].span.start, max(inner.argv[-1].span.end, inner.argv[0].span.end))
            return self.through(inner.via, lambda: self.run(inner.argv, span, stdin), inner.label)
        if inner.code is not None:
            return self.code(inner.code, inner.via, inner.label, stdin, inner.language, inner.parameters)
        if inner.stdin:
            return self.source(stdin, inner, self.programs[-1].span)
        if inner.file is not None:
            if inner.file.text is not None:
                self.touch(Touch.READ if inner.via is Via.SHELL else Touch.EXECUTE, inner.file)
                found = self.state.files.get(self.state.key(inner.file.text))
                if found is not None:
                    return self.source(found, inner, inner.file.span)
            else:
                self.doubt(inner.file.span, "which file is run is not known", Unknown.CODE, Origin.UNKNOWN)
        return UNKNOWN

    def source(self, text: Output | None, inner: Inner, span: Span) -> Output:
        """Run what was read: a here-document, the output of a pipe, a file that was written before."""
        if text is None:
            return UNKNOWN  # an interactive shell: nothing is fed to it
        word = Word(text.text, span)
        if text.text is None:
            self.doubt(span, f"what {inner.label} runs is not known before it runs", Unknown.CODE, text.origin)
            return UNKNOWN
        if text.origin is not Origin.UNKNOWN:
            self.origins[span] = text.origin
        return self.code(word, inner.via, inner.label, None, inner.language, inner.parameters)

    def _run_file(self, first: Word, argv: tuple[Word, ...], stdin: Output | None) -> None:
        self.touch(Touch.EXECUTE, first)
        found = self.state.files.get(self.state.key(first.text or ""))
        if found is not None:
            self.source(found, Inner(Via.SHELL, first.text or "", stdin=True, parameters=argv[1:]), first.span)

    def code(
        self,
        word: Word,
        via: Via,
        label: str,
        stdin: Output | None,
        language: str = "",
        parameters: tuple[Word, ...] = (),
    ) -> Output:
        """Walk text that something runs as code."""
        if word.text is None:
            origin = self.origins.get(word.span, Origin.UNKNOWN)
            if stdin is not None and origin is Origin.UNKNOWN:
                origin = stdin.origin
            self.doubt(word.span, f"what {label} runs is not known before it runs", Unknown.CODE, origin)
            return UNKNOWN
        if language:
            return self.through(via, lambda: self._foreign(language, word.text or "", word.span), label)
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

    def tell(self, reader: Reader) -> None:
        """Write down the constructs that a reader met."""
        for joint in reader.joints:
            self.constructs.append(Construct(_SHAPES[joint.kind], self.span(joint.start, joint.end)))
        for start, end in reader.odd:
            self.constructs.append(Construct(Shape.ODD_CHARACTER, self.span(start, end), reader.text[start:end]))

    def _foreign(self, language: str, code: str, span: Span) -> Output:
        reading = read_code(language, code)
        for note in reading.notes:
            self.constructs.append(Construct(Shape.FOREIGN, span, note))
        for touch, path in reading.paths:
            self.touch(touch, Word(path, span), recursive=touch is Touch.REMOVE)
        for text in reading.shell:
            problem = self.problem
            self.code(Word(text, span), Via.SHELL, language, None)
            if self.problem is not problem:
                self.problem = problem
                self.doubt(span, f"what {language} gives to a shell cannot be read", Unknown.CODE)
        for words in reading.commands:
            argv = tuple(Word(text, span) for text in words)
            self.through(Via.WRAPPER, partial(self.run, argv, span, None), language)
        return UNKNOWN

    def _xargs(self, argv: tuple[Word, ...], stdin: Output | None) -> Output:
        takes = frozenset(
            [
                "-I",
                "-i",
                "-n",
                "-P",
                "-L",
                "-s",
                "-d",
                "-E",
                "-a",
                "--arg-file",
                "--delimiter",
                "--max-args",
                "--max-procs",
                "--replace",
            ]
        )
        position = 1
        replaces = ""
        for option, value in option_values(argv[1:], frozenset(("-I", "-i", "--replace", "-a", "--arg-file"))):
            if option in ("-a", "--arg-file"):
                self.touch(Touch.READ, value)
                stdin = Output(None, Origin.FILE)
            else:
                replaces = value.text or "{}"
        while position < len(argv) and (argv[position].text or "").startswith("-"):
            text = argv[position].text or ""
            position += 2 if text in takes else 1
        command = argv[position:] or (Word("echo", argv[0].span),)
        given: list[Word] = []
        if stdin is None or stdin.text is None:
            given = [Word(name, argv[0].span, True) for name in (stdin.names if stdin is not None else ())]
            given = given or [Word(None, argv[0].span)]
        else:
            given = [Word(text, argv[0].span) for text in re.split(r"[\s\0]+", stdin.text) if text]
            whole = [Word(text, argv[0].span) for text in re.split(r"[\n\0]+", stdin.text) if text]
            if replaces or any("0" in (word.text or "") or "d" in (word.text or "") for word in argv[1:position]):
                given = whole
        span = Span(command[0].span.start, argv[-1].span.end)
        if not replaces:
            full = (*command, *given)
            return self.through(Via.WRAPPER, lambda: self.run(full, span, stdin), "xargs")
        for value in given[:MAX_UNROLLED]:
            full = tuple(_put(word, replaces, value) for word in command)
            self.through(Via.WRAPPER, partial(self.run, full, span, stdin), "xargs")
        return UNKNOWN

    def _find(self, argv: tuple[Word, ...]) -> None:
        roots, expression = touches.find_parts(argv[1:])
        roots = roots or [Word(".", argv[0].span)]
        position = 0
        while position < len(expression):
            if expression[position].text not in ("-exec", "-execdir", "-ok", "-okdir"):
                position += 1
                continue
            stop = position + 1
            while stop < len(expression) and expression[stop].text not in (";", "+"):
                stop += 1
            command = tuple(expression[position + 1 : stop])
            tests = expression[:position] + expression[stop + 1 :]
            position = stop + 1
            if not command:
                continue
            span = Span(command[0].span.start, command[-1].span.end)
            for found in touches.found_by(roots, tests):
                full = tuple(_put(word, "{}", found) for word in command)
                self.through(Via.WRAPPER, partial(self.run, full, span, None), "find")

    def _files(self, name: str, argv: tuple[Word, ...], stdin: Output | None) -> None:
        """Files whose content, or whose likeness to a program, is known from here on."""
        state = self.state
        if name == "tee" and stdin is not None:
            for word in operands(argv[1:]):
                if word.text:
                    state.files[state.key(word.text)] = stdin
        elif name in ("curl", "wget"):
            options = frozenset(("-o", "--output") if name == "curl" else ("-O", "--output-document"))
            named = [value.text for _, value in option_values(argv[1:], options) if value.text]
            if not named:
                named = [
                    word.text.partition("?")[0].rstrip("/").rpartition("/")[2]
                    for word in argv[1:]
                    if word.text and "/" in word.text and not word.text.startswith("-")
                ]
            for path in named:
                if path:
                    state.files[state.key(path)] = Output(None, Origin.NETWORK)
        elif name in ("cp", "ln", "mv", "install"):
            words = operands(argv[1:], frozenset(("-m", "-o", "-g")))
            if len(words) == 2 and words[0].text and words[1].text:
                source, target = state.key(words[0].text), state.key(words[1].text)
                if source in state.files:
                    state.files[target] = state.files[source]
                elif source.startswith(("/bin/", "/usr/", "/sbin/")):
                    state.twins[target] = source


_DANGEROUS: Final = (
    "rm",
    "dd",
    "sh",
    "bash",
    "sudo",
    "su",
    "cat",
    "mv",
    "cp",
    "chmod",
    "chown",
    "find",
    "shred",
    "reboot",
)


def _likely_names(first: Word) -> list[str]:
    """What an unknown name may well be: what is left if the unknown is empty, what a glob may match."""
    if first.text is None:
        return [first.if_unset] if first.if_unset and "/" not in first.if_unset else []
    glob = first.text.rpartition("/")[2]
    return [name for name in _DANGEROUS if fnmatchcase(name, glob)]


def _put(word: Word, mark: str, value: Word) -> Word:
    """`word` with every `mark` in it replaced."""
    if word.text is None or mark not in word.text:
        return word
    if word.text == mark:
        return Word(value.text, word.span, value.pattern, value.if_unset, value.literal)
    if value.text is None:
        return Word(None, word.span, False, word.text.replace(mark, value.if_unset))
    return Word(word.text.replace(mark, value.text), word.span, value.pattern)
