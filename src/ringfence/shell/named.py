"""Paths that a command line names, whatever the program and the option are: glued, after a sign, within an address.

The rows of `touches` know what the operands of a program are; this knows nothing of programs, but for the places where
a path is only text. What it finds is a name, and what is done with it is not known.
"""

import re
from collections.abc import Iterator, Set
from itertools import islice
from typing import Final

from ringfence.shell.catalog.base import names as _set
from ringfence.shell.catalog.places import (
    ASSIGN_OPTIONS,
    OUT_OPTION,
    ROOTS,
    TEXT_COMMANDS,
    TEXT_LETTERS,
    TEXT_OPTIONS,
    TEXT_WORDS,
    WRITE_OPTIONS,
)
from ringfence.shell.likely import reads_like_harm, secrets_within
from ringfence.shell.options import operands, option_values
from ringfence.values.facts import Touch, Word

REMOVING: Final = _set(
    "rm rmdir remove delete del purge wipe erase destroy unlink trash rmtree rm-rf nuke shred --delete --remove --purge"
    " --wipe --erase --destroy --unlink --remove-files --delete-files --remove-source --delete-source -delete"
)
"""Words that say of any program that it removes what it is given."""
KEPT: Final = re.compile(
    r"~(?:/.*)?|/|/(?:bin|boot|dev|etc|home|lib\w*|opt|root|sbin|srv|sys|usr|var|Users|System|Library)(?:/.*)?",
    re.DOTALL,
)
"""Where something lies that must not be removed."""
MAX_CANDIDATES: Final = 16
"""Of one word."""
_URL: Final = re.compile(r"(?i)\b(?!file:)[a-z][a-z0-9+.-]*://[^\s'\",]*")
_FILE_URL: Final = re.compile(r"(?i)file:(?://[^/\s]*)?(?=/)")
_PATH: Final = re.compile(r"(?:^|(?<=[=:,@<>|\"'({\[;+!#]))(~?/[^\s,:;'\"()<>|@&?{}]*|~(?=$|[\s,:;'\"]))")
_GLUED: Final = re.compile(r"-[A-Za-z][A-Za-z0-9]*?(~?/.+|\.[A-Za-z_].*)\Z", re.DOTALL)
_RELATIVE: Final = re.compile(r"(?:=|@|<)(\.[A-Za-z_][\w./-]*|[\w.-]+(?:/[\w.*?-]+)+)")
_NAMED: Final = re.compile(r"[A-Za-z_][\w.]{0,40}=")
_SETTING: Final = re.compile(r"(?:\A|(?<=\s))[A-Za-z_][\w.]{0,40}=[\"']?(~?/[^\s,:;'\"()<>|@&?{}]*)")
"""`src=/a dest=/b`: several settings in one word."""
_ASKS: Final = re.compile(r"[/~]|[=@<]\.|\A-[A-Za-z]\.")


def named(
    name: str, argv: tuple[Word, ...], apart: Set[str | None], skip: int, takes: frozenset[str], *, reads: bool
) -> Iterator[tuple[Touch, Word]]:
    """Parts of the arguments that name a path.

    Args:
        apart: words that are looked at for themselves, as code or as a command.
        skip: so many operands are text.
        takes: options whose value is text.
        reads: it is known what the program does with its options; else `-o file` is taken to write it.
    """
    if name in TEXT_COMMANDS:
        return
    arguments = argv[1:]
    found: list[tuple[int, Word, list[str]]] = []
    for number, word in enumerate(arguments):
        text = word.text
        if text is None or text in apart or not _ASKS.search(text):
            continue
        paths = candidates(text)
        if paths or " " in text:
            found.append((number, word, paths))
    if not found:
        return
    letters = TEXT_LETTERS.get(name, frozenset()) | takes
    spoken = _spoken(name, arguments, letters, ASSIGN_OPTIONS.get(name, frozenset()), skip)
    for number, word, paths in found:
        text = word.text or ""
        option = text.partition("=")[0] if text.startswith("-") else ""
        if number in spoken or option in TEXT_OPTIONS:
            continue
        if not option and number and (arguments[number - 1].text or "").startswith("-"):
            option = arguments[number - 1].text or ""
        long = option.startswith("--") or (len(option) > 2 and "/" not in option)
        told = (long or not reads) and OUT_OPTION.search(option.lstrip("-").lower())
        writes = told or (option == "-w" and not reads) or option in WRITE_OPTIONS.get(name, ())
        for within in secrets_within(word):
            yield Touch.NAME, within
        for path in paths:
            yield Touch.WRITE if writes else Touch.NAME, Word(path, word.span, word.pattern)


def commands_within(name: str, argv: tuple[Word, ...], skip: int, takes: frozenset[str]) -> Iterator[Word]:
    """Arguments that read like a command that does harm, in places that are not known to be text."""
    found = [
        (number, word)
        for number, word in enumerate(argv[1:])
        if word.text is not None and " " in word.text and reads_like_harm(word.text)
    ]
    if not found or name in TEXT_COMMANDS:
        return
    letters = TEXT_LETTERS.get(name, frozenset()) | takes
    spoken = _spoken(name, argv[1:], letters, frozenset(), skip)
    for number, word in found:
        if number not in spoken and (word.text or "").partition("=")[0] not in TEXT_OPTIONS:
            yield word


def rooted(arguments: tuple[Word, ...]) -> Iterator[tuple[str, Word]]:
    """`-R / etc/shadow`: relative words, and the directory that they count from."""
    for _, root in option_values(arguments, ROOTS):
        start = root.text or ""
        if start.startswith(("/", "~")):
            for word in operands(arguments):
                if word.text and word is not root and not word.text.startswith(("/", "~")):
                    yield start.rstrip("/"), word


def candidates(text: str) -> list[str]:
    """The paths in one word."""
    if any(char.isspace() for char in text.strip()):
        return [match[1] for match in islice(_SETTING.finditer(text), MAX_CANDIDATES)] if _NAMED.match(text) else []
    text = _FILE_URL.sub("", _URL.sub("", text)) if ":" in text else text
    found = [match[1] for match in _PATH.finditer(text)]
    glued = _GLUED.match(text)
    if glued:
        found.append(glued[1])
    found += [match[1] for match in _RELATIVE.finditer(text)]
    return list(dict.fromkeys(found))[:MAX_CANDIDATES]


def _spoken(
    name: str, arguments: tuple[Word, ...], letters: frozenset[str], assigns: frozenset[str], skip: int
) -> frozenset[int]:
    """The positions of words that are only text; a variable that is set by one of `assigns` may be opened."""
    found: set[int] = set()
    every, letters = letters | TEXT_OPTIONS, letters - assigns
    for number, word in enumerate(arguments[:-1]):
        text = word.text or ""
        if (
            text in TEXT_OPTIONS
            or text in letters
            or (letters and text.startswith("-") and not text.startswith("--") and "-" + text[-1:] in letters)
        ):
            found.add(number + 1)
    words = TEXT_WORDS.get(name)
    plain = operands(arguments, every) if words or skip else []
    if words and plain and plain[0].text in words:
        found |= {
            number
            for number, word in enumerate(arguments)
            if any(word is one for one in plain)
            if not number or not (arguments[number - 1].text or "").startswith("-")
        }
    elif skip:
        texts = plain[:skip]
        found |= {number for number, word in enumerate(arguments) if any(word is one for one in texts)}
    for number, word in enumerate(arguments):
        text = word.text or ""
        if letters and text[:2] in letters and len(text) > 2 and not text.startswith("--"):
            found.add(number)
    return frozenset(found)
