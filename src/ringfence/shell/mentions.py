"""Names of programs in places from which they may be run, although nothing is seen to run them.

Code in another language that names one, a file that is run, a variable that holds one, an argument of a program that
nothing is known of. For those who forbid a program: what cannot be followed is asked about rather than passed.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ringfence.shell.catalog.known import is_followed
from ringfence.shell.catalog.places import TEXT_COMMANDS
from ringfence.shell.foreign import said_by
from ringfence.values.facts import Facts, Span, Touch

_WORD: Final = re.compile(r"[\w.+-]+")
_READ_WHOLLY: Final = frozenset(("sed", "make"))
"""Languages whose every command is seen."""


class Mention(NamedTuple):
    words: frozenset[str]
    why: str
    span: Span
    runs: bool = False
    """It is surely run."""


def mentions(facts: Facts) -> Iterator[Mention]:
    """What is named where it may be run; each with all words that stand there."""
    for code in facts.codes:
        if code.language == "awk" and not _AWK_RUNS.search(code.text):
            continue  # it compares and prints
        if code.language not in _READ_WHOLLY:
            words = frozenset(_WORD.findall(said_by(code.language, code.text)))
            yield Mention(words, f"is named by code in {code.language}, which may run it", code.span)
    for path in facts.paths:
        if path.touch is Touch.EXECUTE:
            yield Mention(frozenset((path.path.rpartition("/")[2],)), "is the file that is run", path.span, runs=True)
    for assignment in facts.assignments:
        if assignment.exported and assignment.value:
            words = frozenset((assignment.value.partition(" ")[0].rpartition("/")[2],))
            yield Mention(words, f"is what {assignment.name} holds", assignment.span)
    for program in facts.programs:
        name = program.name
        if name is None or "/" in (program.argv[0].text or ""):
            continue
        unknown = not is_followed(name)
        if name in _COPIES:
            for word in program.argv[1:]:
                if _PROGRAM.fullmatch(word.text or ""):
                    words = frozenset(((word.text or "").rpartition("/")[2],))
                    yield Mention(words, f"is given another name by {name}", word.span)
        for word in program.argv[1:]:
            if word.text and " " in word.text and name not in TEXT_COMMANDS and (calls := _CALLS.findall(word.text)):
                words = frozenset(call.rpartition("/")[2] for call in calls)
                yield Mention(words, f"is called by a text that {name} is given", word.span)
        if name in _PACKAGES:
            words = frozenset(part for word in program.argv[1:] for part in _PARTS.split(word.text or ""))
            yield Mention(words, f"is among what {name} is told to run", program.span)
        elif name in _SETS and "config" in (texts := [word.text or "" for word in program.argv[1:]]) and "set" in texts:
            words = frozenset(part for text in texts[2:] for part in _PARTS.split(text))
            yield Mention(words, f"is given to {name} as a setting", program.span)
        for word in program.argv[1:] if unknown or name in _TAKES_VARIABLES else ():
            if word.text is None:
                continue
            _, equals, value = word.text.partition("=")
            if equals:
                text = value.partition(" ")[0]
            elif unknown:
                text = word.text
            else:
                continue
            yield Mention(frozenset((text.rpartition("/")[2],)), f"is given to {name}, which may run it", word.span)


_AWK_RUNS: Final = re.compile(r"\bsystem\b|\bgetline\b|(?<!\|)\|(?!\|)|@load|@include|\bclose\b")
_CALLS: Final = re.compile(r"\b(?:exec|system|shell|spawn|popen|execute)\b[\s(\[\"']{1,4}([\w./+-]+)")
_COPIES: Final = frozenset(("cp", "ln", "install", "mv", "link", "rsync", "dd"))
_PROGRAM: Final = re.compile(r"(?:if=)?/(?:usr/(?:local/)?|opt/\S{1,80}/)?s?bin/[\w.+-]+")
_PARTS: Final = re.compile(r"[#@/:=\s]+")
_PACKAGES: Final = frozenset(("nix", "snap", "flatpak", "pkgx", "guix", "devbox", "pipx"))
"""Run programs by the name of their package."""
_SETS: Final = frozenset(("npm", "pnpm", "yarn"))
"""Have settings that name programs."""
_TAKES_VARIABLES: Final = frozenset(("make", "gmake", "cmake", "configure", "meson", "scons", "cargo", "go", "npm"))
"""Take programs by arguments such as `CC=...`."""
