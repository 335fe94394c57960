"""Rules about commands and paths: what they match, by argument vectors and not by substrings.

A command rule is a program and words. To *deny*, it matches more rather than less: `rm -rf` also catches `rm -r -f x`,
`rm x --recursive --force` and `/bin/rm -fr x`; words that are no options have to come in order, where a word right
after an option may be that option's value. To *allow*, it matches less rather than more: the program by its own name
or in a directory of the system, and the rule's words exactly at the beginning of its arguments.

A word that cannot be known before the command runs makes a deny rule say MAYBE, which asks, and an allow rule say no.

What this does not protect against: a program that is allowed does whatever it is able to. `python` on the allow-list is
every command; the wall is what holds then.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument
from ringfence.policy.globs import BlacklistRow, PathRules, compiled

if TYPE_CHECKING:
    from ringfence.policy.document import Mark
    from ringfence.values.facts import Program, Word


class Match(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


_SYNONYMS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "": {"f": ("--force",), "r": ("--recursive",), "R": ("--recursive",)},
        "rm": {"f": ("--force",), "r": ("R", "--recursive"), "R": ("r", "--recursive"), "d": ("--dir",)},
        "cp": {"f": ("--force",), "r": ("R", "a", "--recursive", "--archive"), "R": ("r", "a", "--recursive")},
        "git": {"f": ("--force", "--force-with-lease")},
        "curl": {"d": ("--data", "--data-binary", "--data-raw", "--data-urlencode"), "T": ("--upload-file",)},
    }
)
"""Other spellings of a short option, by program; the empty name is for all others."""

_SINGLE_DASH: Final = frozenset({"find", "java", "openssl", "ffmpeg", "convert", "tar"})
"""Programs whose `-name` is one option and not four."""

_SYSTEM: Final = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin")
"""Where a program of a name is the one that the name stands for; what the agent writes lies elsewhere."""

# Built into the shell, starting nothing and reaching nothing but the shell itself. What they print can be redirected,
# but a redirection is a path that is judged on its own.
_BUILT_IN: Final = """
    : [ [[ break cd continue declare dirs echo exit export false getopts let local popd printf pushd pwd read readonly
    return set shift shopt test times true type typeset umask unset wait
"""
FREE: Final = frozenset(_BUILT_IN.split())
"""Needs no place on an allow-list."""

TRANSPARENT: Final = frozenset(
    ("builtin", "command", "env", "exec", "ionice", "nice", "nohup", "setsid", "stdbuf", "time", "timeout")
)
"""Wrappers that add nothing to what the program inside can do, which has to be allowed itself."""

REDIRECTING: Final = frozenset(("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "BASH_ENV", "ENV"))
"""Variables that change which program, or whose code, stands behind an allowed name."""

SETTERS: Final = frozenset(
    ("declare", "export", "getopts", "local", "mapfile", "printf", "read", "readarray", "readonly", "typeset", "unset")
)
"""Built-ins that set the variables that they name."""

HARMLESS_DEVICES: Final = frozenset(
    ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random", "/dev/stdin", "/dev/stdout", "/dev/stderr")
)
"""Hold nothing and keep nothing, so that a list of allowed paths need not name them."""


@dataclass(frozen=True, slots=True)
class CommandRule:
    written: str
    words: tuple[str, ...]
    mark: Mark
    why: str = ""

    @classmethod
    def parse(cls, text: str, mark: Mark, why: str = "") -> Self:
        """A rule such as `rm -rf`.

        Raises:
            InvalidConfig: it names no program.
        """
        try:
            words = tuple(shlex.split(text))
        except ValueError as fault:
            raise mark.fault(f"the command rule {text!r} has an open quote ({fault})", "close it") from None
        if not words or not words[0].strip("/"):
            raise mark.fault("a command rule names no program", "write a program's name, such as `ls`")
        for sign in ("|", "&&", "||", ";", "&", ">", "<"):
            if sign in words:
                raise mark.fault(
                    f"the command rule {text!r} holds {sign!r}",
                    "write one rule for each program; pipes are seen through",
                )
        return cls(text, words, mark, why)

    @property
    def matches_everything(self) -> bool:
        """Whether no character of the program's name is fixed."""
        return not re.sub(r"\[[^]]*\]|[*?]", "", self.words[0])

    def denies(self, program: Program) -> Match:
        """Whether the program is one that the rule means, or may turn out to be one."""
        found = self._names(program, trusted_only=False)
        return min(found, _loosely(self.words, program)) if found is not Match.NO else Match.NO

    def is_meant_by(self, words: frozenset[str]) -> bool:
        """Whether all of the rule's words are among these, in any order."""
        return all(any(_equal(word, wanted) is Match.YES for word in words) for wanted in self.words)

    def allows(self, program: Program) -> Match:
        """Whether the program is surely one that the rule means."""
        found = self._names(program, trusted_only=True)
        arguments = program.argv[1:]
        for index, wanted in enumerate(self.words[1:]):
            if found is Match.NO or index >= len(arguments):
                return Match.NO
            text = arguments[index].text
            found = min(found, Match.MAYBE if text is None else _equal(text, wanted))
        return found

    def _names(self, program: Program, *, trusted_only: bool) -> Match:
        name, wanted = program.name, self.words[0]
        if name is None:
            return Match.MAYBE
        written = program.argv[0].text or ""
        if "/" in wanted:
            return _equal(written, wanted)
        if trusted_only and "/" in written and written.rpartition("/")[0] not in _SYSTEM:
            return Match.NO
        return _equal(name, wanted)


def _equal(text: str, wanted: str) -> Match:
    if text == wanted:
        return Match.YES
    is_glob = "*" in wanted or "?" in wanted or "[" in wanted
    return Match.YES if is_glob and fnmatchcase(text, wanted) else Match.NO


def _loosely(rule: tuple[str, ...], program: Program) -> Match:
    """Whether the rule's words, but for the program's name, are among the arguments."""
    arguments = program.argv[1:]
    name = program.name or ""
    options = [word for word in rule[1:] if _is_option(word)]
    others = [word for word in rule[1:] if not _is_option(word)]
    unknown = any(word.text is None for word in arguments)
    missing = Match.MAYBE if unknown else Match.NO
    known = [word.text for word in arguments if word.text is not None]
    found = Match.YES
    for option in options:
        found = min(found, Match.YES if _has_option(option, known, name) else missing)
    return min(found, _in_order(others, arguments))


def _is_option(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and word != "--"


def _has_option(wanted: str, arguments: Sequence[str], program: str) -> bool:
    if wanted in arguments:
        return True
    if wanted.startswith("--"):
        return any(_is_long(argument, wanted) for argument in arguments) or any(
            wanted in others and _has_letter(letter, arguments, program, follow=False)
            for letter, others in _synonyms(program).items()
        )
    letters = wanted[1:]
    if program in _SINGLE_DASH or len(letters) > 3:
        return False
    return all(_has_letter(letter, arguments, program) for letter in letters)


def _has_letter(letter: str, arguments: Sequence[str], program: str, *, follow: bool = True) -> bool:
    if any(re.match(r"-[^-]", argument) and letter in argument[1:] for argument in arguments):
        return True
    others = _synonyms(program).get(letter, ()) if follow else ()
    return any(
        any(_is_long(argument, other) for argument in arguments)
        if other.startswith("--")
        else _has_letter(other, arguments, program, follow=False)
        for other in others
    )


def _is_long(argument: str, wanted: str) -> bool:
    """`--recursive`, `--recursive=x` and GNU's abbreviation `--recurs`."""
    name = argument.partition("=")[0]
    return name.startswith("--") and len(name) > 2 and wanted.startswith(name)


def _synonyms(program: str) -> Mapping[str, tuple[str, ...]]:
    return _SYNONYMS.get(program, _SYNONYMS[""])


def _in_order(wanted: Sequence[str], arguments: Sequence[Word]) -> Match:
    """Whether the words come in this order; one right after an option may be passed over, as its value."""
    at = 0
    after_option = False
    for word in arguments:
        if at == len(wanted):
            break
        if word.text is None:
            return Match.MAYBE
        if _is_option(word.text):
            after_option = "=" not in word.text
            continue
        if _equal(word.text, wanted[at]) is Match.YES:
            at += 1
        elif not after_option and word.text != "--":
            return Match.NO
        after_option = False
    return Match.YES if at == len(wanted) else Match.NO


@dataclass(frozen=True, slots=True)
class PathRule:
    written: str
    row: str
    """With the home directory and variables put in."""
    mark: Mark
    why: str = ""

    @classmethod
    def parse(cls, written: str, row: str, mark: Mark, why: str = "") -> Self:
        """A glob of `policy.globs`; relative ones are refused unless they hold at any depth.

        Raises:
            InvalidConfig: it makes no sense, or could be meant in two ways.
        """
        if not row.startswith(("/", "**/")):
            raise mark.fault(
                f"the path {written!r} is relative", f"write /workspace/{written}, or **/{written} for any depth"
            )
        try:
            BlacklistRow.parse(row)
        except InvalidArgument as fault:
            raise mark.fault(fault.message.replace("blacklist row", "the path"), fault.hint) from None
        return cls(written, row, mark, why)


class PathList:
    """Rules about paths, ready to be asked about many."""

    __slots__ = ("_by_row", "_matcher", "rules")

    def __init__(self, rules: Iterable[PathRule]) -> None:
        self.rules = tuple(rules)
        self._by_row = {rule.row: rule for rule in reversed(self.rules)}
        self._matcher: PathRules | None = compiled(tuple(self._by_row)) if self._by_row else None

    def first(self, spellings: Iterable[str]) -> PathRule | None:
        """The first rule that names the path in one of its spellings."""
        if self._matcher is None:
            return None
        for path in spellings:
            row = self._matcher.matches(path)
            if row is not None:
                return self._by_row[row]
        return None
