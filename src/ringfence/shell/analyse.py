"""Text to facts: what a command line would run, touch and call, seen through wrappers, nesting and variables.

The tree is walked in the order in which the shell would run it, with the shell's memory at hand: a variable that was set before
is known, a directory that was entered before counts for the paths after it, a here-document that is fed to a shell is
read as commands. Each branch is taken to run. What cannot be resolved is written down as opaque; facts never say yes or no.

Bounds: nesting, and the number of commands that are walked, called functions and unrolled loops included.

What this does not protect against: what a program does by itself, without being told by its arguments; a value that comes from
outside; a race between this reading and the run. The wall holds there, not the analysis.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from ringfence.shell import feeds, touches
from ringfence.shell.builtins import builtin
from ringfence.shell.foreign import read_code
from ringfence.shell.lexer import Misread
from ringfence.shell.parse import Reader, parse
from ringfence.shell.state import NOTHING, UNKNOWN, Output, State, transform, worst
from ringfence.shell.tree import (
    Arith,
    Assign,
    Command,
    Compound,
    Item,
    Lit,
    Part,
    Proc,
    Redirect,
    Script,
    Simple,
    Sub,
    Var,
    WordNode,
)
from ringfence.shell.unwrap import Inner, operands, option_values, unwrap
from ringfence.shell.words import MAX_VALUE, Values, expand, joined
from ringfence.values.facts import (
    NEVER_ENDED,
    Assignment,
    Construct,
    Facts,
    HostFact,
    Opaque,
    Origin,
    PathFact,
    Program,
    Shape,
    Span,
    Touch,
    Unknown,
    Via,
    Word,
)

MAX_WALKED: Final = 10_000
MAX_WORDS: Final = 60_000
MAX_EXPANDED: Final = 1024 * 1024
"""Characters of all arguments together."""
MAX_LEVELS: Final = 40
MAX_UNROLLED: Final = 16
"""Values of a `for` that are tried one by one; with more, the variable is not known."""

_SOCKET: Final = re.compile(r"/dev/(?:tcp|udp)/([^/]+)/(\w+)")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_SHAPES: Final = {shape.value: shape for shape in Shape}
_DIRECT: Final = (Via.DIRECT,)


def analyse(text: str) -> Facts:
    """Everything that `text` tells about itself. Never raises; a text that cannot be read has a `problem`."""
    walk = Walk(text)
    try:
        if "\0" in text:
            raise Misread("a NUL character", text.index("\0"), text.index("\0") + 1)
        reader = parse(text)
        walk.tell(reader)
        walk.script(reader.root, None)
        walk.leftovers()
    except Misread as error:
        walk.problem = walk.problem or Opaque(Span(error.start, error.end), error.why)
    except RecursionError:
        walk.problem = Opaque(Span(0, len(text)), "nested too deep")
    return Facts(
        text,
        tuple(walk.programs),
        tuple(walk.paths),
        tuple(walk.hosts),
        tuple(walk.assignments),
        tuple(walk.opaque),
        walk.problem,
        tuple(walk.constructs),
    )


class Walk:
    """One pass over one text."""

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
        self._offset = 0
        self._fixed: Span | None = None
        self._level = 0
        self._walked = 0
        self._words = 0
        self._expanded = 0
        self._branch = 0
        self._seen = Origin.UNKNOWN
        self._origins: dict[Span, Origin] = {}
        self._called: set[str] = set()
        self._calling: list[str] = []
        self._streams = 0

    # --- places ---------------------------------------------------------------------------------------------------------

    def span(self, start: int, end: int) -> Span:
        """A place in the text that was given to us, for one in the text that is being walked."""
        if self._fixed is not None:
            return self._fixed
        return Span(start + self._offset, end + self._offset)

    def tell(self, reader: Reader) -> None:
        """Write down the constructs that a reader met."""
        for joint in reader.joints:
            self.constructs.append(Construct(_SHAPES[joint.kind], self.span(joint.start, joint.end)))
        for start, end in reader.odd:
            self.constructs.append(Construct(Shape.ODD_CHARACTER, self.span(start, end), reader.text[start:end]))

    def doubt(self, span: Span, why: str, unknown: Unknown, origin: Origin = Origin.UNKNOWN) -> None:
        self.opaque.append(Opaque(span, why, unknown, origin))

    # --- scripts --------------------------------------------------------------------------------------------------------

    def script(self, script: Script, stdin: Output | None) -> Output:
        """Walk all commands; gives what they write together."""
        self._deeper()
        texts: list[str] = []
        known, origin = True, Origin.UNKNOWN
        conditional = False
        for item in script.items:
            self._branch += conditional
            result = self._item(item, stdin)
            self._branch -= conditional
            conditional = item.joint in ("&&", "||")
            if result.text is None:
                known = False
            else:
                texts.append(result.text)
            origin = worst(origin, result.origin)
        self._level -= 1
        return Output("".join(texts) if known and sum(map(len, texts)) <= MAX_VALUE else None, origin)

    def _deeper(self) -> None:
        self._level += 1
        if self._level > MAX_LEVELS:
            raise Misread("nested too deep", 0, len(self.text))

    def _item(self, item: Item, stdin: Output | None) -> Output:
        if len(item.stages) == 1:
            return self.command(item.stages[0], stdin)
        kept = self.state
        fed = stdin
        for stage in item.stages:
            self.state = kept.copy()
            fed = self.command(stage, fed)
        self.state = kept
        return fed or UNKNOWN

    def command(self, command: Command, stdin: Output | None) -> Output:
        self._walked += 1
        if self._walked > MAX_WALKED:
            raise Misread(f"runs more than {MAX_WALKED} commands", 0, len(self.text))
        if isinstance(command, Simple):
            return self._simple(command, stdin)
        return self._compound(command, stdin)

    def _compound(self, command: Compound, stdin: Output | None) -> Output:
        kind = command.kind
        if kind == "function":
            self.state.functions[command.name] = command
            if _bomb(command):
                self.constructs.append(Construct(Shape.FORK_BOMB, self.span(command.start, command.end), command.name))
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
                self._subscripts(words)
            self._branch += 1
            for script in command.scripts:
                self.script(script, stdin)
            self._branch -= 1
        return self._written(result, targets)

    def _for(self, command: Compound, stdin: Output | None) -> None:
        values = [word for node in command.words for word in self.expand(node)]
        known = values and len(values) <= MAX_UNROLLED and all(word.text is not None for word in values)
        self._branch += 1
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
            self.script(command.scripts[0], stdin)
        self._branch -= 1

    def leftovers(self) -> None:
        """Functions and aliases that are only defined: something else may call them."""
        for name, command in list(self.state.functions.items()):
            if name not in self._called:
                self._called.add(name)
                kept, self.state = self.state, self.state.copy()
                self.state.parameters = None
                self._through(Via.FUNCTION, partial(self.script, command.scripts[0], None))
                self.state = kept
        for name, word in list(self.state.aliases.items()):
            if name not in self._called and word.text is not None:
                self.code(word, Via.SHELL, "alias", None)

    def _through(self, via: Via, what: Callable[[], Output], label: str = "") -> Output:
        self._deeper()
        kept = self.via, self.wrappers
        self.via = (via,) if self.via == _DIRECT else (*self.via, via)
        if label:
            self.wrappers = (*self.wrappers, label)
        result = what()
        self.via, self.wrappers = kept
        self._level -= 1
        return result

    # --- simple commands ------------------------------------------------------------------------------------------------

    def _simple(self, command: Simple, stdin: Output | None) -> Output:
        argv: list[Word] = []
        for node in command.words:
            argv += self.expand(node)
        self._words += len(argv)
        self._expanded += sum([len(word.text) for word in argv if word.text is not None])
        if self._words > MAX_WORDS or self._expanded > MAX_EXPANDED:
            raise Misread("more words than can be followed, over all that is run", 0, len(self.text))
        for assign in command.assigns:
            self.assign(assign, keep=not argv, exported=bool(argv))
        stdin, targets = self._redirects(command.redirects, stdin) if command.redirects else (stdin, ())
        if not argv:
            return self._written(stdin or NOTHING, targets) if command.redirects else NOTHING
        if command.late:
            exported = argv[0].text == "export" or any((word.text or "").startswith("-x") for word in argv[1:])
            reference = any((word.text or "").startswith("-n") for word in argv[1:])
            for assign in command.late:
                self.assign(assign, keep=True, exported=exported, reference=reference)
                if argv[0].text == "alias" and assign.value is not None:
                    value = self.expand(assign.value, doubts=False)
                    if value:
                        self.state.aliases[assign.name] = value[0]
        result = self.run(tuple(argv), self.span(command.start, command.end), stdin)
        return self._written(result, targets) if targets else result

    def expand(self, node: WordNode, *, doubts: bool = True) -> list[Word]:
        span = self.span(node.start, node.end)
        parts = node.parts
        if len(parts) == 1 and isinstance(parts[0], Lit):
            return expand(node, self, span)
        kept, self._seen = self._seen, Origin.UNKNOWN
        words = expand(node, self, span)
        for word in words:
            if word.text is None and doubts:
                self.doubt(span, "its value is not known before it runs", Unknown.OPERAND, self._seen)
        if self._seen is not Origin.UNKNOWN:
            self._origins[span] = self._seen
        self._seen = worst(kept, self._seen)
        return words

    def assign(self, assign: Assign, *, keep: bool, exported: bool = False, reference: bool = False) -> None:
        span = self.span(assign.start, assign.end)
        if assign.subscript is not None:
            self._subscript_parts(assign.subscript, span)
        state, name = self.state, assign.name
        if assign.items is not None:
            words = [word for node in assign.items for word in self.expand(node)]
            texts = tuple(word.text for word in words)
            if keep:
                state.arrays[name] = (state.arrays.get(name, ()) if assign.append else ()) + texts
            self.assignments.append(
                Assignment(name, None if None in texts else " ".join(map(str, texts)), span, exported)
            )
            return
        kept, self._seen = self._seen, Origin.UNKNOWN
        value = joined(assign.value.parts, self)[0] if assign.value is not None else ""
        origin, self._seen = self._seen, kept
        self.assignments.append(Assignment(name, value, span, exported))
        if not keep:
            return
        if reference and value:
            state.references[name] = value
            return
        name = state.references.get(name, name)
        if assign.append:
            before = state.variables.get(name)
            value = None if before is None or value is None else before + value
        if self._branch and name in state.variables and state.variables[name] != value:
            value = None  # one branch says this, another that
        if assign.subscript is not None:
            state.arrays[name] = (*state.arrays.get(name, ()), value)
        else:
            state.variables[name] = value
        state.origins[name] = origin

    def _redirects(
        self, redirects: tuple[Redirect, ...], stdin: Output | None
    ) -> tuple[Output | None, tuple[str, ...]]:
        targets: list[str] = []
        for redirect in redirects:
            op = redirect.op
            span = self.span(redirect.start, redirect.end)
            if redirect.here is not None:
                detail = redirect.here.delimiter if redirect.here.ended else NEVER_ENDED
                self.constructs.append(Construct(Shape.HERE_DOCUMENT, span, detail))
                kept, self._seen = self._seen, Origin.UNKNOWN
                text = joined(redirect.here.parts, self)[0]
                if redirect.descriptor in ("", "0"):
                    stdin = Output(text, self._seen)
                self._seen = kept
                continue
            if redirect.target is None:
                continue
            if op == "<<<":
                kept, self._seen = self._seen, Origin.UNKNOWN
                text = joined(redirect.target.parts, self)[0]
                if redirect.descriptor in ("", "0"):
                    stdin = Output(None if text is None else text + "\n", self._seen)
                self._seen = kept
                continue
            for word in self.expand(redirect.target):
                text = word.text
                if op in ("<&", ">&") and text is not None and re.fullmatch(r"[0-9]*-?", text):
                    continue
                if text is not None:
                    socket = _SOCKET.fullmatch(text)
                    if socket:
                        port = int(socket[2]) if socket[2].isdigit() else None
                        self.hosts.append(HostFact(socket[1], port, word.span, "/dev/tcp"))
                if op in ("<", "<&", "<>"):
                    self.touch(Touch.READ, word)
                    if redirect.descriptor in ("", "0"):
                        known = self.state.files.get(self.state.key(text)) if text is not None else None
                        stdin = known or Output(None, Origin.FILE)
                if op not in ("<", "<&"):
                    self.touch(Touch.WRITE, word)
                    if text is not None and redirect.descriptor in ("", "1"):
                        targets.append(self.state.key(text))
        return stdin, tuple(targets)

    def _written(self, result: Output, targets: tuple[str, ...]) -> Output:
        if not targets:
            return result
        for target in targets:
            if target not in ("/dev/stdout", "/dev/stderr", "/dev/null"):
                before = self.state.files.get(target)
                if before is not None and before.text and result.text is not None and len(before.text) <= MAX_VALUE:
                    result = Output(before.text + result.text, worst(before.origin, result.origin))
                self.state.files[target] = result
        return NOTHING

    # --- running --------------------------------------------------------------------------------------------------------

    def run(self, argv: tuple[Word, ...], span: Span, stdin: Output | None) -> Output:
        """Write down one program, and walk what it runs."""
        program = Program(argv, span, self.via, self.wrappers)
        self.programs.append(program)
        first = argv[0]
        text = first.text
        if text is None or first.pattern:
            origin = self._origins.get(first.span, Origin.UNKNOWN)
            self.doubt(first.span, "which program this is is not known before it runs", Unknown.COMMAND, origin)
            if text is None:
                return UNKNOWN
        name = text.rpartition("/")[2]
        state = self.state
        if text in state.functions and text not in self._calling:
            return self._call(text, argv, stdin)
        if text in state.aliases and text not in self._calling:
            self._called.add(text)
            self._calling.append(text)
            self.code(state.aliases[text], Via.SHELL, "alias", stdin)
            self._calling.pop()
        if state.twins:
            twin = state.twins.get(state.key(text))
            if twin is not None:
                copied = (Word(twin, first.span), *argv[1:])
                return self._through(Via.WRAPPER, partial(self.run, copied, span, stdin), text)
        self._subscript_words(name, argv)
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
        self._called.add(name)
        self._calling.append(name)
        kept = self.state.parameters
        self.state.parameters = tuple(word.text for word in argv[1:])
        body = self.state.functions[name].scripts[0]
        result = self._through(Via.FUNCTION, lambda: self.script(body, stdin))
        self.state.parameters = kept
        self._calling.pop()
        return result

    def _inner(self, inner: Inner, stdin: Output | None) -> Output:
        for word in inner.assigns:
            name, _, value = (word.text or "").partition("=")
            self.assignments.append(Assignment(name, value, word.span, True))
        if inner.argv:
            span = Span(inner.argv[0].span.start, max(inner.argv[-1].span.end, inner.argv[0].span.end))
            return self._through(inner.via, lambda: self.run(inner.argv, span, stdin), inner.label)
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
            self._origins[span] = text.origin
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
            origin = self._origins.get(word.span, Origin.UNKNOWN)
            if stdin is not None and origin is Origin.UNKNOWN:
                origin = stdin.origin
            self.doubt(word.span, f"what {label} runs is not known before it runs", Unknown.CODE, origin)
            return UNKNOWN
        if language:
            return self._through(via, lambda: self._foreign(language, word.text or "", word.span), label)
        try:
            reader = parse(word.text)
        except Misread as error:
            self.problem = self.problem or Opaque(word.span, f"what {label} runs cannot be read: {error.why}")
            return UNKNOWN
        kept = self._offset, self._fixed, self.state
        self._place(word)
        self.tell(reader)
        if label not in ("eval", ".", "source", "trap", "alias"):
            self.state = self.state.copy()
            self.state.parameters = tuple(one.text for one in parameters[1:]) if parameters else ()
            if parameters:
                self.state.variables["0"] = parameters[0].text
        result = self._through(via, lambda: self.script(reader.root, stdin), label)
        self._offset, self._fixed, self.state = kept
        return result

    def _place(self, word: Word) -> None:
        """Where the code lies in our text: exactly, if it stands there as it is, else as a whole."""
        span, text = word.span, word.text or ""
        if self._fixed is None or self._fixed != span:
            for quote in (1, 0):
                if (
                    self.text[span.start + quote : span.end - quote] == text
                    and span.end - span.start == len(text) + 2 * quote
                ):
                    self._offset, self._fixed = span.start + quote, None
                    return
        self._fixed = span

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
            self._through(Via.WRAPPER, partial(self.run, argv, span, None), language)
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
            return self._through(Via.WRAPPER, lambda: self.run(full, span, stdin), "xargs")
        for value in given[:MAX_UNROLLED]:
            full = tuple(_put(word, replaces, value) for word in command)
            self._through(Via.WRAPPER, partial(self.run, full, span, stdin), "xargs")
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
                self._through(Via.WRAPPER, partial(self.run, full, span, None), "find")

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

    # --- what is touched ------------------------------------------------------------------------------------------------

    def touch(self, touch: Touch, word: Word, *, recursive: bool = False, sent: bool = False) -> None:
        path = word.text if word.text is not None else word.if_unset
        if not path:
            return
        if word.literal and path.startswith("~"):
            path = "./" + path
        self.paths.append(
            PathFact(touch, self.state.join(path), word.span, word.pattern, recursive, sent, word.text is not None)
        )

    # --- what words ask for (words.Scope) -------------------------------------------------------------------------------

    def directory(self) -> str | None:
        cwd = self.state.cwd
        return "." if cwd == "" else cwd

    def separators(self) -> str:
        value = self.state.variables.get("IFS", " \t\n")
        return " \t\n" if value is None else value

    def substitution(self, part: Sub) -> str | None:
        kept = self._offset, self._fixed, self.state, self._seen
        if part.inner is not None:
            self._fixed = self.span(part.start, part.end)
        self.state = self.state.copy()
        result = self._through(Via.SUBSTITUTION, lambda: self.script(part.script, None))
        self._offset, self._fixed, self.state, self._seen = kept
        self._seen = worst(self._seen, result.origin)
        return result.text

    def process(self, part: Proc) -> str | None:
        kept = self.state
        self.state = self.state.copy()
        result = self._through(Via.SUBSTITUTION, lambda: self.script(part.script, UNKNOWN if part.output else None))
        self.state = kept
        self._streams += 1
        name = f"/dev/fd/{62 + self._streams}"
        self.state.files[name] = result
        return name

    def arithmetic(self, part: Arith) -> str | None:
        span = self.span(part.start, part.end)
        text = self._subscript_parts(part.parts, span)
        for name in _NAME.findall(text):
            value = self.state.variables.get(name)
            if value and ("$(" in value or "`" in value):
                self._evaluated(value, span)
        return None

    def _subscript_parts(self, parts: tuple[Part, ...], span: Span) -> str:
        before = ""
        for part in parts:
            if isinstance(part, Sub) and before.endswith("["):
                self.constructs.append(Construct(Shape.SUBSCRIPT, span))
            before = part.text if isinstance(part, Lit) else ""
        return joined(parts, self)[1]

    def _subscript_words(self, name: str, argv: tuple[Word, ...]) -> None:
        if name in _EVALUATING:
            self._subscripts(argv[1:])

    def _subscripts(self, words: "tuple[Word, ...] | list[Word]") -> None:
        for word in words:
            text = word.text
            if text is not None and "[" in text and ("$(" in text or "`" in text):
                self._evaluated(text, word.span)

    def _evaluated(self, text: str, span: Span) -> None:
        """Text that the shell expands once more, and so runs the substitutions in it."""
        self.constructs.append(Construct(Shape.SUBSCRIPT, span))
        reader = Reader(text)
        kept = self._fixed
        self._fixed = span
        joined(reader.within(0, len(text)), self)
        self._fixed = kept

    def parameter(self, part: Var) -> Values:
        state = self.state
        name, op = part.name, part.op
        if part.subscript is not None:
            index = self._subscript_parts(part.subscript, self.span(part.start, part.end))
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
            return Values((value,))
        if op == "!":
            inner = self._value(value) if value and _NAME.fullmatch(value) else None
            return Values((inner,))
        if op == "length":
            return Values((None,))
        kept = self._seen
        rest, remains = joined(part.rest, self)
        if op in (":-", "-", ":=", "="):
            if value is None or (value == "" and op[0] == ":"):
                if op.endswith("="):
                    state.variables[name] = rest
                return Values((rest,))
            self._seen = kept
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
        name = state.references.get(name, name)
        if name in state.variables:
            self._seen = worst(self._seen, state.origins.get(name, Origin.UNKNOWN))
            return state.variables[name]
        if name in state.arrays:
            return state.arrays[name][0] if state.arrays[name] else ""
        if name == "HOME":
            return "~"
        if name == "PWD":
            return self.directory()
        if name == "IFS":
            return " \t\n"
        return None


_EVALUATING: Final = frozenset(
    [
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
        "wait",
    ]
)


def _put(word: Word, mark: str, value: Word) -> Word:
    """`word` with every `mark` in it replaced."""
    if word.text is None or mark not in word.text:
        return word
    if word.text == mark:
        return Word(value.text, word.span, value.pattern, value.if_unset, value.literal)
    if value.text is None:
        return Word(None, word.span, False, word.text.replace(mark, value.if_unset))
    return Word(word.text.replace(mark, value.text), word.span, value.pattern)


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
