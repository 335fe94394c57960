r"""Text to tree, by the shell's own grammar: Bash, and so POSIX sh.

A reader goes over the text once, from left to right, as the shell does: quoting is known at every character, a
here-document's body is taken at the newline after its operator, `$(` reads commands until its own `)`. What Bash would
not accept, and what it accepts but we do not understand, is a `Misread`; there is no recovery, since a guess about the
rest of a text is not a fact about it.

Bounds: the size of the text, the depth of nesting and the number of commands. All loops move forward, so that time
grows with the length of the text.

What this does not protect against: options that change the language while it is read (`shopt -s extglob`, aliases of
keywords, other shells' syntax). zsh and fish read some texts differently.
"""

import re
from typing import Final

from ringfence.shell.lexer import (
    ASSIGN,
    BLANK,
    DECLARING,
    MAX_COMMANDS,
    MAX_TEXT,
    NAME,
    NO_CLOSERS,
    REDIRECT,
    Lexer,
    Misread,
)
from ringfence.shell.tree import (
    Arith,
    Assign,
    Command,
    Compound,
    Item,
    Joint,
    Lit,
    Redirect,
    Script,
    Simple,
    Var,
    WordNode,
)

_KEYWORD: Final = re.compile(
    r"(?:if|while|until|for|case|select|function|coproc|time|!|\{|\[\[)(?=[ \t\n;&|()<>]|\\\n|\Z)"
)
_CLOSER: Final = re.compile(r"(?:then|else|elif|fi|done|do|esac|\})(?=[ \t\n;&|()<>]|\\\n|\Z)")
_RESERVED: Final = frozenset(
    ("if", "then", "else", "elif", "fi", "while", "until", "for", "do", "done", "case", "esac", "select", "function")
) | {"coproc", "time", "!", "{", "}", "[[", "]]", "in"}
_JOINT: Final = re.compile(r"&&|\|\||;(?!;|&)|&(?!&|>)|\n")
_IN: Final = re.compile(r"in(?=[ \t\n;]|\\\n|\Z)")


class ShellReader(Lexer):
    """Commands, lists and pipelines on top of the words."""

    __slots__ = ("root",)

    root: Script

    def program(self) -> Script:
        script = self.script(NO_CLOSERS)
        if self.pos < self.end:
            raise self.misread(f"unexpected {self.text[self.pos]!r}")
        return script

    # --- lists and pipelines ------------------------------------------------------------------------------------------

    def script(self, closers: frozenset[str]) -> Script:
        """Read commands up to the end, a `)`, a `;;` or one of the reserved words in `closers`."""
        self.depth += 1
        self.check_depth()
        start = self.pos
        items: list[Item] = []
        owed = False
        while True:
            self.blank_lines()
            if self.pos >= self.end or self.text[self.pos] == ")" or self.text.startswith(";;", self.pos):
                break
            if self.text.startswith(";&", self.pos):
                break
            closer = _CLOSER.match(self.text, self.pos, self.end)
            if closer:
                if closer[0] in closers and not owed:
                    break
                raise self.misread(f"unexpected {closer[0]!r}")
            begin = self.pos
            stages = self._pipeline()
            joint = self._joint()
            items.append(Item(stages, joint, begin, self.pos))
            owed = joint in ("&&", "||")
            if not joint:
                break
        if owed:
            raise self.misread("an operator with nothing after it")
        if closers and not items and "esac" not in closers:
            raise self.misread("expected a command")
        self.depth -= 1
        return Script(tuple(items), start, self.pos)

    def _joint(self) -> str:
        self.blank()
        match = _JOINT.match(self.text, self.pos, self.end)
        if not match:
            return ""
        joint = match[0]
        if joint == "\n":
            self.newline()
        else:
            self.joints.append(Joint(joint, self.pos, match.end()))
            self.pos = match.end()
        return joint

    def _pipeline(self) -> tuple[Command, ...]:
        stages: list[Command] = []
        while True:
            self.blank()
            match = _KEYWORD.match(self.text, self.pos, self.end)
            if match and match[0] in ("!", "time"):
                if match[0] == "!" and stages:
                    raise self.misread("unexpected '!'")
                self.pos = match.end()
                self.blank()
                if match[0] == "time" and self.text.startswith("-p", self.pos):
                    self.pos += 2
                    self.blank()
                if self.pos >= self.end or self.text[self.pos] in ";\n&|)":
                    stages.append(Simple((), (), (), (), match.start(), match.end()))
                else:
                    continue
            else:
                stages.append(self._command(match[0] if match else ""))
            self.blank()
            if self.pos < self.end and self.text[self.pos] == "|" and not self.text.startswith("||", self.pos):
                length = 2 if self.text.startswith("|&", self.pos) else 1
                self.joints.append(Joint("|", self.pos, self.pos + length))
                self.pos += length
                self.blank_lines()
                continue
            return tuple(stages)

    # --- commands -----------------------------------------------------------------------------------------------------

    def _command(self, keyword: str) -> Command:
        self.commands += 1
        if self.commands > MAX_COMMANDS:
            raise self.misread(f"more than {MAX_COMMANDS} commands")
        if keyword:
            return self._keyword(keyword)
        closer = _CLOSER.match(self.text, self.pos, self.end)
        if closer:
            raise self.misread(f"unexpected {closer[0]!r}")
        if self.pos < self.end and self.text[self.pos] == "(":
            start = self.pos
            if self.text.startswith("((", start):
                close = self.arithmetic_end(start + 2)
                if close is not None:
                    parts = self.within(start + 2, close)
                    self.pos = close + 2
                    word = WordNode((Arith(parts, False, start, self.pos),), start, self.pos)
                    return self._finish("((", (), (word,), "", start)
            self.pos += 1
            body = self.until_paren()
            if not body.items:
                raise self.misread("a subshell with nothing in it")
            return self._finish("(", (body,), (), "", start)
        return self._simple()

    def _keyword(self, keyword: str) -> Command:
        start = self.pos
        self.pos += len(keyword)
        if keyword == "{":
            body = self.script(frozenset(("}",)))
            self.expect("}")
            return self._finish("{", (body,), (), "", start)
        if keyword == "[[":
            return self._test(start)
        if keyword == "if":
            return self._if(start)
        if keyword in ("while", "until"):
            condition = self.script(frozenset(("do",)))
            return self._finish("while", (condition, self._do()), (), "", start)
        if keyword in ("for", "select"):
            return self._for(start)
        if keyword == "case":
            return self._case(start)
        if keyword == "function":
            self.blank()
            word = self.word()
            name = "".join(part.text for part in word.parts if isinstance(part, Lit))
            self.blank()
            if self.text.startswith("(", self.pos):
                self.pos += 1
                self.blank()
                self.expect(")")
            return self._function(name, start)
        self.blank()  # coproc [name] command
        match = NAME.match(self.text, self.pos, self.end)
        if match:
            after = BLANK.match(self.text, match.end(), self.end)
            if after and after.end() > match.end() and self.text[after.end() : after.end() + 1] in ("{", "("):
                self.pos = after.end()
        match = _KEYWORD.match(self.text, self.pos, self.end)
        inner = self._command(match[0] if match else "")
        body = Script((Item((inner,), "&", inner.start, inner.end),), inner.start, inner.end)
        return Compound("coproc", (body,), (), (), "", start, self.pos)

    def _if(self, start: int) -> Command:
        scripts = [self.script(frozenset(("then",)))]
        self.expect("then")
        while True:
            scripts.append(self.script(frozenset(("elif", "else", "fi"))))
            if self.text.startswith("elif", self.pos):
                self.pos += 4
                scripts.append(self.script(frozenset(("then",))))
                self.expect("then")
            elif self.text.startswith("else", self.pos):
                self.pos += 4
                scripts.append(self.script(frozenset(("fi",))))
                self.expect("fi")
                break
            else:
                self.expect("fi")
                break
        return self._finish("if", tuple(scripts), (), "", start)

    def _do(self) -> Script:
        self.blank_lines()
        if self.text.startswith("{", self.pos):
            self.pos += 1
            body = self.script(frozenset(("}",)))
            self.expect("}")
            return body
        self.expect("do")
        body = self.script(frozenset(("done",)))
        self.expect("done")
        return body

    def _for(self, start: int) -> Command:
        self.blank()
        words: list[WordNode] = []
        name = ""
        if self.text.startswith("((", self.pos):
            close = self.arithmetic_end(self.pos + 2)
            if close is None:
                raise self.misread("unfinished 'for (('")
            parts = self.within(self.pos + 2, close)
            words.append(WordNode((Arith(parts, False, self.pos, close + 2),), self.pos, close + 2))
            self.pos = close + 2
        else:
            match = NAME.match(self.text, self.pos, self.end)
            if not match:
                raise self.misread("'for' without a name")
            name = match[0]
            self.pos = match.end()
            self.blank_lines()
            if _IN.match(self.text, self.pos, self.end):
                self.pos += 2
                while True:
                    self.blank()
                    if self.pos >= self.end or self.text[self.pos] in ";\n&|)":
                        break
                    words.append(self.word())
            else:
                words.append(WordNode((Var("@", "", (), None, True, self.pos, self.pos),), self.pos, self.pos))
        self.blank()
        if self.text.startswith(";", self.pos):
            self.pos += 1
        body = self._do()
        return self._finish("for", (body,), tuple(words), name, start)

    def _case(self, start: int) -> Command:
        self.blank()
        words = [self.word()]
        self.blank_lines()
        self.expect("in")
        scripts: list[Script] = []
        while True:
            self.blank_lines()
            if _CLOSER.match(self.text, self.pos, self.end) and self.text.startswith("esac", self.pos):
                break
            if self.text.startswith("(", self.pos):
                self.pos += 1
            while True:
                self.blank()
                words.append(self.word())
                self.blank()
                if not self.text.startswith("|", self.pos):
                    break
                self.pos += 1
            self.expect(")")
            scripts.append(self.script(frozenset(("esac",))))
            for ending in (";;&", ";;", ";&"):
                if self.text.startswith(ending, self.pos):
                    self.pos += len(ending)
                    break
        self.expect("esac")
        return self._finish("case", tuple(scripts), tuple(words), "", start)

    def _test(self, start: int) -> Command:
        words: list[WordNode] = []
        while True:
            self.blank_lines()
            if self.pos >= self.end:
                raise self.misread("'[[' without ']]'")
            if self.text.startswith("]]", self.pos):
                self.pos += 2
                return self._finish("[[", (), tuple(words), "", start)
            if self.text[self.pos] in "()&|<>;" and not self.text.startswith(("<(", ">("), self.pos):
                self.pos += 1
            else:
                words.append(self.word())

    def _function(self, name: str, start: int) -> Command:
        self.blank_lines()
        match = _KEYWORD.match(self.text, self.pos, self.end)
        if not (match or self.text.startswith("(", self.pos)):
            raise self.misread("a function without a body")
        body = self._command(match[0] if match else "")
        script = Script((Item((body,), "", body.start, body.end),), body.start, body.end)
        return Compound("function", (script,), (), (), name, start, self.pos)

    def _finish(
        self, kind: str, scripts: tuple[Script, ...], words: tuple[WordNode, ...], name: str, start: int
    ) -> Compound:
        redirects: list[Redirect] = []
        self.blank()
        while (match := REDIRECT.match(self.text, self.pos, self.end)) is not None:
            redirects.append(self.redirect(match))
            self.blank()
        return Compound(kind, scripts, words, tuple(redirects), name, start, self.pos)

    def _simple(self) -> Command:
        start = self.pos
        assigns: list[Assign] = []
        late: list[Assign] = []
        words: list[WordNode] = []
        redirects: list[Redirect] = []
        text = self.text
        declaring = False
        while True:
            self.blank()
            if self.pos >= self.end:
                break
            char = text[self.pos]
            if char in ";\n|)" or (char == "&" and not text.startswith("&>", self.pos)):
                break
            if char == "(":
                if len(words) == 1 and not (assigns or redirects):
                    self.pos += 1
                    self.blank()
                    self.expect(")")
                    return self._function(text[words[0].start : words[0].end], start)
                raise self.misread("unexpected '('")
            if char in "<>&{" or char.isdigit():
                match = REDIRECT.match(text, self.pos, self.end)
                if match:
                    redirects.append(self.redirect(match))
                    continue
            if not words or declaring:
                match = ASSIGN.match(text, self.pos, self.end)
                if match:
                    (late if words else assigns).append(self.assignment(match))
                    continue
            word = self.word()
            words.append(word)
            if len(words) == 1:
                first = word.parts[0] if word.parts else None
                if isinstance(first, Lit) and len(word.parts) == 1:
                    declaring = first.text in DECLARING
                elif "\\\n" in text[word.start : word.end] and _joined(word) in _RESERVED:
                    raise self.misread("a keyword that is cut by a line continuation")
        if not (words or assigns or redirects):
            raise self.misread("expected a command")
        return Simple(tuple(assigns), tuple(words), tuple(redirects), tuple(late), start, self.pos)


def _joined(word: WordNode) -> str:
    return "".join(part.text for part in word.parts if isinstance(part, Lit) and not part.quoted)


def parse(text: str) -> ShellReader:
    """Read all of `text`; the tree is in `root`.

    Raises:
        Misread: it is not text that we understand, or too large a one.
    """
    if len(text) > MAX_TEXT:
        raise Misread(f"longer than {MAX_TEXT} characters", 0, len(text))
    reader = ShellReader(text)
    reader.root = reader.program()
    return reader
