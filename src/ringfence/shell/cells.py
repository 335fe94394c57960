"""Code of a language to facts: what it would run, as where the same code stands in the arguments of its interpreter.

Python has a notebook's lines besides: `!line`, `name = !line` and the cells `%%bash` and `%%sh` are shell lines. Every
line that looks like one counts as one, also where it stands in a string.

What this does not protect against: what `shell/foreign.py` does not find, here as there.
"""

import re
from collections.abc import Iterator
from typing import Final

from ringfence.shell.analyse import FAULT, CommandWalk
from ringfence.shell.lexer import MAX_TEXT, Misread
from ringfence.values.facts import Facts, Span, Unknown, Via, Word

_INTERPRETERS: Final = {"javascript": "node", "typescript": "node", "r": "Rscript"}
"""Languages that the catalog of programs calls by their interpreter."""
_LINE: Final = re.compile(r"(?:[^=!%?#]*=\s*|\s*)!!?")
_CELL: Final = re.compile(r"%%\s*(?:bash|sh)(?:\s|$)")
_PUT_IN: Final = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\{([^{}]+)\}|\$([A-Za-z_]\w*)")
"""Where the interpreter puts a value into a line before a shell reads it; `${...}` and `$(...)` are the shell's."""
_NO_EXPRESSION: Final = re.compile(r"[^'\"#]*[$;][^'\"#]*")
"""What is in braces and surely not Python, such as `{print $1}`: it stays as it is."""
_BLANKS: Final = re.compile(r"\s{16,}")
"""Longer than anybody needs, and slow to search."""
_MOST_LINES: Final = 1_000_000
"""Characters of shell lines, those that are part of several counted for each."""


def analyse_code(language: str, code: str) -> Facts:
    """What `code` tells about the programs that it runs. Never raises; what cannot be read is opaque."""
    walk, whole = CommandWalk(code), Span(0, len(code))
    try:
        if len(code) > MAX_TEXT:
            raise Misread(f"longer than {MAX_TEXT} characters", 0, len(code))
        if language == "python":
            for text, span, is_cell in _shell_lines(code):
                walk.code(Word(text, span), Via.SHELL, "%%" if is_cell else "!", None)
                if not is_cell:
                    _doubt_values(walk, text, span)
        shorter = _BLANKS.sub(lambda match: "\n" if "\n" in match[0] else " ", code)
        walk.code(Word(shorter, whole), Via.WRAPPER, language, None, _INTERPRETERS.get(language, language))
        walk.leftovers()
    except Misread as error:
        walk.doubt(whole, f"what code in {language} runs cannot be read: {error.why}", Unknown.CODE)
    except RecursionError:
        walk.doubt(whole, f"what code in {language} runs is nested too deep", Unknown.CODE)
    except Exception as error:  # a fault of ours must not end in a yes
        walk.doubt(whole, f"{FAULT} ({type(error).__name__})", Unknown.CODE)
    if walk.problem is not None:
        walk.doubt(walk.problem.span, walk.problem.why, Unknown.CODE)
    return Facts(
        code,
        tuple(walk.programs),
        tuple(walk.paths),
        tuple(walk.hosts),
        tuple(walk.assignments),
        tuple(walk.opaque),
        walk.problem,
        tuple(walk.constructs),
        tuple(walk.codes),
    )


def _doubt_values(walk: CommandWalk, text: str, span: Span) -> None:
    """Values of Python that are put into a line; into a cell none are."""
    for match in _PUT_IN.finditer(text):
        if match[2] is not None or (match[1] is not None and not _NO_EXPRESSION.fullmatch(match[1])):
            why = f"what {match[0]} puts into a shell line is not known before it runs"
            walk.doubt(span, why, Unknown.CODE)
            return


def _shell_lines(code: str) -> Iterator[tuple[str, Span, bool]]:
    """Texts that Python code has a shell run, where they stand, and whether each is a cell.

    Raises:
        Misread: they are too many.
    """
    lines, start, total = code.split("\n"), 0, 0
    is_head = True  # a cell begins with its name, but for the names of other cells, such as %%time
    for index, line in enumerate(lines):
        if is_head and _CELL.match(line):
            yield "\n".join(lines[index + 1 :]), Span(start, len(code)), True
            return
        is_head = is_head and (not line.strip() or line.startswith("%%"))
        match = _LINE.match(line)
        if match is not None:
            last = index
            while lines[last].endswith("\\") and last + 1 < len(lines):
                last += 1
            text = "\n".join((line[match.end() :], *lines[index + 1 : last + 1]))
            total += len(text)
            if total > _MOST_LINES:
                raise Misread("more shell lines than can be read", 0, len(code))
            if text.strip():
                yield text, Span(start, start + match.end() + len(text)), False
        start += len(line) + 1
