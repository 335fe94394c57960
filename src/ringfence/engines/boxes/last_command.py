"""Spares shells and forks where a line is one program: `bash -c` would become that program itself.

`bash -c` sees the end of its text and runs the last command in its own process. A shell that evaluates text later does
not know that it is the last, and would fork. Only what is plainly one program counts: no operator, expansion, comment
or brace in it, and a first word that is no builtin and is there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.engines.boxes.programs import Programs

_ONE_PROGRAM = re.compile(r"([A-Za-z0-9_./][A-Za-z0-9_.+/-]*)(?: [^;&|<>()$`\\\n\r{}#!]*)?")
_PLAIN_WORDS = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_.+/-]*(?: [A-Za-z0-9_.,:@%+/-][A-Za-z0-9_.,:@%+/=-]*)*")
_WORDS = """
. : [ [[ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs disown
do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in
jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source
suspend test then time times trap true type typeset ulimit umask unalias unset until wait while
"""
_OF_THE_SHELL = frozenset(_WORDS.split())
"""Builtins and keywords of bash."""


def as_program(command: str, programs: Programs) -> tuple[str, ...] | None:
    """The program and its arguments, if the line is that and nothing in it means anything to a shell."""
    if _PLAIN_WORDS.fullmatch(command) is None:
        return None
    words = tuple(command.split(" "))
    if words[0] in _OF_THE_SHELL or not programs.has(words[0]):
        return None
    return words


def as_last(command: str, programs: Programs) -> str:
    """The command, with `exec` before it if it is one program that PATH reaches."""
    match = _ONE_PROGRAM.fullmatch(command)
    if match is None or match[1] in _OF_THE_SHELL or not programs.has(match[1]):
        return command
    return f"exec {command}"
