"""Spares a waiting shell a fork: a line that is one plain program replaces the shell, as `bash -c` does by itself.

`bash -c` sees the end of its text and runs the last command in its own process. A shell that evaluates text later does
not know that it is the last, and would fork. Only what is plainly one program counts: no operator, expansion, comment
or brace in it, and a first word that is no builtin and is there.
"""

import re
import shutil
from functools import lru_cache

_ONE_PROGRAM = re.compile(r"([A-Za-z0-9_./][A-Za-z0-9_.+/-]*)(?: [^;&|<>()$`\\\n\r{}#!]*)?")
_WORDS = """
. : [ [[ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs disown
do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help history if in
jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select set shift shopt source
suspend test then time times trap true type typeset ulimit umask unalias unset until wait while
"""
_OF_THE_SHELL = frozenset(_WORDS.split())
"""Builtins and keywords of bash."""


def as_last(command: str, path: str) -> str:
    """The command, with `exec` before it if it is one program that PATH reaches."""
    match = _ONE_PROGRAM.fullmatch(command)
    if match is None or match[1] in _OF_THE_SHELL or not _is_there(match[1], path):
        return command
    return f"exec {command}"


@lru_cache(maxsize=256)
def _is_there(program: str, path: str) -> bool:
    return shutil.which(program, path=path) is not None
