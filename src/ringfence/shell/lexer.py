"""Words, quoting, expansions and here-documents: the part of the grammar below commands."""

import re
from abc import ABC, abstractmethod
from typing import Final

from ringfence.shell.tree import Arith, Assign, Here, Joint, Lit, Part, Proc, Redirect, Script, Sub, Var, WordNode

MAX_TEXT: Final = 256 * 1024
"""Characters. Linux takes no single argument above 128 KiB, so that a longer text cannot even be run by `sh -c`."""
MAX_DEPTH: Final = 30
"""Nested constructs. People stay below ten; each level costs us a handful of Python frames."""
MAX_COMMANDS: Final = 5_000
NO_CLOSERS: Final[frozenset[str]] = frozenset()
_ANSI_STRING: Final = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_BACKTICK: Final = re.compile(r"(?:[^`\\]|\\.)*`", re.DOTALL)
_BALANCE: Final = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.|[()\[\]]", re.DOTALL)
_OPERATOR: Final = re.compile(r":?[-=?+]|##?|%%?|//?|\^\^?|,,?|@|:|\*")

BLANK: Final = re.compile(r"(?:[ \t]|\\\n)*")
_PLAIN: Final = re.compile(r"[^ \t\n\\'\"$`;&|<>()]+")
_SIMPLE_WORD: Final = re.compile(r"[^ \t\n\\'\"$`;&|<>()#]+(?=[ \t\n;]|\Z)")
_IN_DOUBLE: Final = re.compile(r'[^"\\$`]+')
_IN_HERE: Final = re.compile(r"[^\\$`]+")
_IN_BRACE: Final = re.compile(r"[^\\'\"$`}]+")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_BRACED: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
ASSIGN: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[[^\]\n]*\])?(\+?)=")
REDIRECT: Final = re.compile(r"([0-9]+|\{[A-Za-z_]\w*\})?(<<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\())|(&>>|&>)")
DECLARING: Final = frozenset(("declare", "typeset", "export", "readonly", "local", "alias"))
_ANSI: Final = re.compile(
    r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


class Misread(Exception):
    """The text cannot be read; `start` and `end` say where."""

    def __init__(self, why: str, start: int, end: int) -> None:
        super().__init__(why)
        self.why = why
        self.start = start
        self.end = end


def unescape_ansi(body: str) -> str:
    """Undo the escapes of `$'...'`, which are those of `echo -e` and `printf` too."""

    def replace(match: re.Match[str]) -> str:
        octal, byte, short, long, control, letter = match.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        number = byte or short or long
        if number:
            value = int(number, 16)
            return chr(value) if value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd"
        if control:
            return chr(ord(control) & 0x1F)
        return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else "\\" + letter)

    return _ANSI.sub(replace, body) if "\\" in body else body


class Lexer(ABC):
    """Reads `text[pos:end]`; `joints` and `odd` collect what is to be told besides the tree."""

    __slots__ = ("_pending", "commands", "depth", "end", "joints", "odd", "pos", "text")

    def __init__(self, text: str, pos: int = 0, end: int | None = None, depth: int = 0) -> None:
        self.text = text
        self.pos = pos
        self.end = len(text) if end is None else end
        self.depth = depth
        self.commands = 0
        self.joints: list[Joint] = []
        self.odd: list[tuple[int, int]] = []
        """Unquoted characters outside ASCII."""
        self._pending: list[tuple[Here, bool]] = []

    @abstractmethod
    def script(self, closers: frozenset[str]) -> Script:
        """Commands up to one of the closing words: what is nested in a word is read by the part above."""

    def another(self, text: str, pos: int, end: int | None) -> "Lexer":
        """A reader of the same kind for a part that has to be read apart."""
        return type(self)(text, pos, end, self.depth)

    def misread(self, why: str) -> Misread:
        return Misread(why, min(self.pos, max(len(self.text) - 1, 0)), min(self.pos + 1, len(self.text)))

    def expect(self, text: str) -> None:
        if not self.text.startswith(text, self.pos) or self.pos + len(text) > self.end:
            raise self.misread(f"expected {text!r}")
        self.pos += len(text)

    # --- blanks, newlines and the bodies of here-documents ----------------------------------------------------------

    def blank(self) -> None:
        """Skip blanks, line continuations and a comment."""
        if self.pos >= self.end or self.text[self.pos] not in " \t\\#":
            return
        match = BLANK.match(self.text, self.pos, self.end)
        if match:
            self.pos = match.end()
        if self.pos < self.end and self.text[self.pos] == "#":
            stop = self.text.find("\n", self.pos, self.end)
            self.pos = self.end if stop < 0 else stop

    def blank_lines(self) -> None:
        self.blank()
        while self.pos < self.end and self.text[self.pos] == "\n":
            self.newline()
            self.blank()

    def newline(self) -> None:
        """Step over a newline, and over the bodies that begin there."""
        self.pos += 1
        pending, self._pending = self._pending, []
        for here, strip in pending:
            self._body(here, strip)

    def _body(self, here: Here, strip: bool) -> None:
        start = self.pos
        while self.pos < self.end:
            stop = self.text.find("\n", self.pos, self.end)
            stop = self.end if stop < 0 else stop
            line = self.text[self.pos : stop]
            if (line.lstrip("\t") if strip else line) == here.delimiter:
                here.ended = True
                break
            self.pos = min(stop + 1, self.end)
        stop = self.pos
        if here.quoted:
            here.parts = (Lit(self.text[start:stop], True),)
        else:
            inner = self.another(self.text, start, stop)
            here.parts = inner.quoted_parts(_IN_HERE, "")
            self.joints += inner.joints
            self.commands += inner.commands
        if here.ended:
            newline = self.text.find("\n", stop, self.end)
            self.pos = self.end if newline < 0 else newline + 1

    # --- words ------------------------------------------------------------------------------------------------------

    def word(self) -> WordNode:
        """Read one word; there must be one."""
        text, start = self.text, self.pos
        match = _SIMPLE_WORD.match(text, start, self.end)
        if match:
            self.pos = match.end()
            if not match[0].isascii():
                self.odd.append((start, self.pos))
            return WordNode((Lit(match[0], False),), start, self.pos)
        parts: list[Part] = []
        while self.pos < self.end:
            match = _PLAIN.match(text, self.pos, self.end)
            if match:
                parts.append(Lit(match[0], False))
                if not match[0].isascii():
                    self.odd.append((self.pos, match.end()))
                self.pos = match.end()
                continue
            char = text[self.pos]
            if char in " \t\n;&|)":
                break
            if char == "'":
                stop = text.find("'", self.pos + 1, self.end)
                if stop < 0:
                    raise self.misread("a quote that is never closed")
                parts.append(Lit(text[self.pos + 1 : stop], True))
                self.pos = stop + 1
            elif char == '"':
                self.pos += 1
                parts.append(Lit("", True))
                parts += self.quoted_parts(_IN_DOUBLE, '"')
            elif char == "\\":
                if self.pos + 1 >= self.end:
                    parts.append(Lit("\\", True))
                elif text[self.pos + 1] != "\n":
                    parts.append(Lit(text[self.pos + 1], True))
                self.pos += 2
            elif char == "$":
                parts += self._dollar(quoted=False)
            elif char == "`":
                parts.append(self._backtick(quoted=False))
            elif char == "(":
                if not (parts and isinstance(parts[-1], Lit) and parts[-1].text[-1:] in ("?", "*", "+", "@", "!")):
                    break
                stop = self._balanced(self.pos + 1, "(", ")")
                parts.append(Lit(text[self.pos : stop + 1], False))
                self.pos = stop + 1
            elif text.startswith(("<(", ">("), self.pos):
                begin = self.pos
                self.pos += 2
                script = self.until_paren()
                parts.append(Proc(script, char == ">", begin, self.pos))
                self.joints.append(Joint(char + "(", begin, begin + 2))
            else:
                break
        if self.pos == start:
            found = text[self.pos] if self.pos < self.end else "the end"
            raise self.misread(f"expected a word, not {found!r}")
        self.pos = min(self.pos, self.end)
        return WordNode(tuple(parts), start, self.pos)

    def quoted_parts(self, plain: re.Pattern[str], close: str) -> tuple[Part, ...]:
        """Read as between double quotes, to `close` or, if that is empty, to the end."""
        text = self.text
        parts: list[Part] = []
        while self.pos < self.end:
            match = plain.match(text, self.pos, self.end)
            if match:
                parts.append(Lit(match[0], True))
                self.pos = match.end()
                continue
            char = text[self.pos]
            if char == close:
                self.pos += 1
                return tuple(parts)
            if char == "\\":
                follower = text[self.pos + 1 : self.pos + 2]
                if follower and follower in "$`\\" + close:
                    parts.append(Lit(follower, True))
                elif follower != "\n":
                    parts.append(Lit("\\" + follower, True))
                self.pos += 2
            elif char == "$":
                parts += self._dollar(quoted=True)
            else:
                parts.append(self._backtick(quoted=True))
        if close:
            raise self.misread("a quote that is never closed")
        self.pos = self.end
        return tuple(parts)

    def within(self, start: int, end: int) -> tuple[Part, ...]:
        """The parts of a stretch that is expanded like a here-document: arithmetic, subscripts."""
        inner = self.another(self.text, start, end)
        inner.depth += 1
        inner.check_depth()
        parts = inner.quoted_parts(_IN_HERE, "")
        self.joints += inner.joints
        self.commands += inner.commands
        return parts

    # --- expansions -------------------------------------------------------------------------------------------------

    def _dollar(self, *, quoted: bool) -> tuple[Part, ...]:
        text, start = self.text, self.pos
        follower = text[start + 1 : start + 2] if start + 1 < self.end else ""
        if follower == "(":
            if text.startswith("$((", start):
                close = self.arithmetic_end(start + 3)
                if close is not None:
                    parts = self.within(start + 3, close)
                    self.pos = close + 2
                    return (Arith(parts, quoted, start, self.pos),)
            self.pos = start + 2
            self.joints.append(Joint("$(", start, start + 2))
            script = self.until_paren()
            return (Sub(script, quoted, start, self.pos),)
        if follower == "{":
            return (self._braced(quoted=quoted),)
        if follower == "[":
            stop = self._balanced(start + 2, "[", "]")
            parts = self.within(start + 2, stop)
            self.pos = stop + 1
            return (Arith(parts, quoted, start, self.pos),)
        if follower == "'" and not quoted:
            match = _ANSI_STRING.match(text, start + 2, self.end)
            if not match:
                raise self.misread("a quote that is never closed")
            self.pos = match.end()
            return (Lit(unescape_ansi(match[0][:-1]).partition("\0")[0], True),)
        if follower == '"' and not quoted:
            self.pos = start + 2
            return (Lit("", True), *self.quoted_parts(_IN_DOUBLE, '"'))
        match = _VARIABLE.match(text, start + 1, self.end)
        if match:
            self.pos = match.end()
            return (Var(match[0], "", (), None, quoted, start, self.pos),)
        self.pos = start + 1
        return (Lit("$", quoted),)

    def _braced(self, *, quoted: bool) -> Part:
        text, start = self.text, self.pos
        self.joints.append(Joint("${", start, start + 2))
        self.pos = start + 2
        prefix = ""
        if text[self.pos : self.pos + 1] in ("!", "#") and _BRACED.match(text, self.pos + 1, self.end):
            prefix = "length" if text[self.pos] == "#" else "!"
            self.pos += 1
        match = _BRACED.match(text, self.pos, self.end)
        if not match:
            raise self.misread("an expansion that is not understood")
        self.pos = match.end()
        subscript = None
        if text.startswith("[", self.pos):
            stop = self._balanced(self.pos + 1, "[", "]")
            subscript = self.within(self.pos + 1, stop)
            self.pos = stop + 1
        op = prefix
        match_op = _OPERATOR.match(text, self.pos, self.end)
        if match_op:
            op += match_op[0]
            self.pos = match_op.end()
        self.depth += 1
        self.check_depth()
        rest = self._brace_rest(quoted=quoted)
        self.depth -= 1
        if rest and not op:
            raise self.misread("an expansion that is not understood")
        return Var(match[0], op, rest, subscript, quoted, start, self.pos)

    def _brace_rest(self, *, quoted: bool) -> tuple[Part, ...]:
        text = self.text
        parts: list[Part] = []
        while self.pos < self.end:
            match = _IN_BRACE.match(text, self.pos, self.end)
            if match:
                parts.append(Lit(match[0], quoted))
                self.pos = match.end()
                continue
            char = text[self.pos]
            if char == "}":
                self.pos += 1
                return tuple(parts)
            if char == "'" and not quoted:
                stop = text.find("'", self.pos + 1, self.end)
                if stop < 0:
                    raise self.misread("a quote that is never closed")
                parts.append(Lit(text[self.pos + 1 : stop], True))
                self.pos = stop + 1
            elif char == "'":
                parts.append(Lit("'", True))
                self.pos += 1
            elif char == '"':
                self.pos += 1
                parts += self.quoted_parts(_IN_DOUBLE, '"')
            elif char == "\\":
                parts.append(Lit(text[self.pos + 1 : self.pos + 2], True))
                self.pos += 2
            elif char == "$":
                parts += self._dollar(quoted=quoted)
            else:
                parts.append(self._backtick(quoted=quoted))
        raise self.misread("'${' without '}'")

    def _backtick(self, *, quoted: bool) -> Part:
        text, start = self.text, self.pos
        match = _BACKTICK.match(text, start + 1, self.end)
        if not match:
            raise self.misread("a backtick that is never closed")
        stop = match.end() - 1
        self.joints.append(Joint("`", start, start + 1))
        self.depth += 1
        self.check_depth()
        if "\\" in match[0]:
            body = re.sub(r'\\([$`\\"])' if quoted else r"\\([$`\\])", r"\1", text[start + 1 : stop])
            inner = self.another(body, 0, None)
            script = inner.script(NO_CLOSERS)
            copied: str | None = body
        else:
            inner = self.another(text, start + 1, stop)
            script = inner.script(NO_CLOSERS)
            copied = None
            self.joints += inner.joints
        if inner.pos < inner.end:
            raise self.misread("unexpected text between backticks")
        self.depth -= 1
        self.commands += inner.commands
        self.pos = stop + 1
        return Sub(script, quoted, start, self.pos, copied)

    def until_paren(self) -> Script:
        script = self.script(NO_CLOSERS)
        self.expect(")")
        return script

    def check_depth(self) -> None:
        if self.depth > MAX_DEPTH:
            raise self.misread(f"nested more than {MAX_DEPTH} levels deep")

    def _balanced(self, pos: int, opener: str, closer: str) -> int:
        """The position of the `closer` that belongs to an opener before `pos`; quotes are stepped over."""
        depth = 1
        for match in _BALANCE.finditer(self.text, pos, self.end):
            found = match[0]
            if found == opener:
                depth += 1
            elif found == closer:
                depth -= 1
                if not depth:
                    return match.start()
        raise self.misread(f"{opener!r} without {closer!r}")

    def arithmetic_end(self, pos: int) -> int | None:
        """Where the `))` is that ends arithmetic begun before `pos`; None if it is a subshell within a subshell."""
        depth = 0
        for match in _BALANCE.finditer(self.text, pos, self.end):
            if match[0] == "(":
                depth += 1
            elif match[0] == ")":
                if depth == 0:
                    return match.start() if self.text.startswith("))", match.start()) else None
                depth -= 1
        return None

    # --- redirections and assignments -------------------------------------------------------------------------------

    def redirect(self, match: re.Match[str]) -> Redirect:
        start = self.pos
        op = match[2] or match[3]
        self.pos = match.end()
        self.blank()
        if op in ("<<", "<<-"):
            word = self.word()
            raw = self.text[word.start : word.end]
            quoted = any(isinstance(part, Lit) and part.quoted for part in word.parts)
            if "$" in raw or "`" in raw:
                delimiter = re.sub(r"['\"\\]", "", raw)
            else:
                delimiter = "".join(part.text for part in word.parts if isinstance(part, Lit))
            here = Here(quoted, delimiter)
            self._pending.append((here, op == "<<-"))
            return Redirect(op, match[1] or "", word, here, start, self.pos)
        return Redirect(op, match[1] or "", self.word(), None, start, self.pos)

    def assignment(self, match: re.Match[str]) -> Assign:
        start = self.pos
        self.pos = match.end()
        subscript = self.within(match.start(2) + 1, match.end(2) - 1) if match[2] else None
        append = bool(match[3])
        if self.text.startswith("(", self.pos) and self.pos < self.end:
            self.pos += 1
            items: list[WordNode] = []
            while True:
                self.blank_lines()
                if self.text.startswith(")", self.pos) and self.pos < self.end:
                    self.pos += 1
                    return Assign(match[1], subscript, None, tuple(items), append, start, self.pos)
                items.append(self.word())
        value = None
        ends = self.pos >= self.end or self.text[self.pos] in " \t\n;&|)"
        if not ends and (self.text[self.pos] not in "<>" or self.text.startswith(("<(", ">("), self.pos)):
            value = self.word()
        return Assign(match[1], subscript, value, None, append, start, self.pos)
