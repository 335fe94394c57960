"""Languages that a box can run: under which names, by which programs, and how these are given code.

python and bash have rows as well, for engines without an interpreter that stays or a shell of their own.
"""

import difflib
from collections.abc import Callable
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument
from ringfence.languages import javascript
from ringfence.languages.typescript import erase

CODE: Final = "{code}"
"""Stands for the code in `Language.inline`; alone, or at the end of an argument."""

LONGEST_INLINE: Final = 100_000
"""Bytes of code that go into an argument. Linux allows 131,072 for one argument, its zero included."""

Prepare = Callable[[str], tuple[str, tuple[str, ...]]]
"""From the code as given to the code to run, and the options that it needs."""


def _as_given(code: str) -> tuple[str, tuple[str, ...]]:
    return code, ()


def _from_typescript(code: str) -> tuple[str, tuple[str, ...]]:
    return javascript.prepare(erase(code))


def _with_opening_tag(code: str) -> tuple[str, tuple[str, ...]]:
    """PHP copies everything outside of tags to its output, so that bare code needs one. It moves no line."""
    return (code if code.lstrip().startswith(("<", "#!")) else f"<?php {code}"), ()


@dataclass(frozen=True, slots=True)
class Language:
    """One row."""

    name: str
    aliases: tuple[str, ...]
    programs: tuple[str, ...]
    """Looked for inside, in this order."""
    install: str
    """How to get it, for when none of the programs is there."""
    piped: tuple[str, ...]
    """Arguments when the code comes from standard input."""
    inline: tuple[str, ...] = ()
    """Arguments when the code is one of them, which leaves standard input to it; empty if it is always piped."""
    prepare: Prepare = _as_given


@dataclass(frozen=True, slots=True)
class Invocation:
    argv: tuple[str, ...]
    stdin: bytes | None
    """None: the code does not take up standard input."""


_NODE: Final = "install Node.js 18 or later: `apt-get install nodejs`, or https://nodejs.org"

LANGUAGES: Final = (
    Language(
        "python",
        aliases=("py", "python3"),
        programs=("python3", "python"),
        install="install Python 3: `apt-get install python3`",
        inline=("-c", CODE),
        piped=("-",),
    ),
    Language(
        "javascript",
        aliases=("js", "mjs", "cjs", "node", "nodejs"),
        programs=("node", "nodejs"),
        install=_NODE,
        inline=(f"--eval={CODE}",),  # one argument, because code may start with `-`
        piped=("-",),
        prepare=javascript.prepare,
    ),
    Language(
        "typescript",
        aliases=("ts", "mts", "cts"),
        programs=("node", "nodejs"),
        install=_NODE,
        inline=(f"--eval={CODE}",),
        piped=("-",),
        prepare=_from_typescript,
    ),
    Language(
        "bash",
        aliases=("sh", "shell"),
        programs=("bash", "sh"),
        install="install Bash: `apt-get install bash`",
        inline=("-c", "--", CODE),  # code may start with `-`
        piped=("-s",),
    ),
    Language(
        "r",
        aliases=("rscript",),
        programs=("Rscript",),
        install="install R: `apt-get install r-base-core`",
        piped=("-",),  # never `-e`: R's start script sends that through `echo`, which eats backslashes
    ),
    Language(
        "ruby",
        aliases=("rb",),
        programs=("ruby",),
        install="install Ruby: `apt-get install ruby`",
        inline=("-e", CODE),
        piped=("-",),
    ),
    Language(
        "perl",
        aliases=("pl",),
        programs=("perl",),
        install="install Perl: `apt-get install perl`",
        inline=("-e", CODE),
        piped=("-",),
    ),
    Language(
        "php",
        aliases=(),
        programs=("php",),
        install="install PHP: `apt-get install php-cli`",
        piped=(),  # never `-r`: it takes no tags, and code comes with and without
        prepare=_with_opening_tag,
    ),
    Language(
        "lua",
        aliases=(),
        programs=("lua", "lua5.4", "lua5.3", "luajit"),
        install="install Lua: `apt-get install lua5.4`",
        inline=("-e", CODE),
        piped=("-",),
    ),
    Language(
        "julia",
        aliases=("jl",),
        programs=("julia",),
        install="install Julia: https://julialang.org/downloads",
        inline=("-e", CODE),
        piped=("-",),
    ),
)

_BY_NAME: Final = {name: language for language in LANGUAGES for name in (language.name, *language.aliases)}


def find(name: str) -> Language:
    """The language of this name or alias, in any case.

    Raises:
        InvalidArgument: there is none; names the nearest one, and all.
    """
    given = name.strip().lower()
    if given in _BY_NAME:
        return _BY_NAME[given]
    near = difflib.get_close_matches(given, _BY_NAME, 1)
    known = "one of " + ", ".join(language.name for language in LANGUAGES)
    raise InvalidArgument(f"unknown language {name!r}", hint=f"did you mean {near[0]!r}? {known}" if near else known)


def invocation(language: Language, code: str, program: str) -> Invocation:
    """What to run for this code, with `program` the one of `language.programs` that is there.

    Raises:
        InvalidArgument: the code is not text, or TypeScript that cannot be turned into JavaScript.
    """
    try:
        code.encode("utf-8")
    except UnicodeEncodeError as fault:
        line = code.count("\n", 0, fault.start) + 1
        raise InvalidArgument("half of a surrogate pair, which no file can hold", source="code", line=line) from None
    prepared, options = language.prepare(code)
    encoded = prepared.encode("utf-8")
    # Node takes no empty argument for code, and no argument can hold a zero
    if language.inline and 0 < len(encoded) < LONGEST_INLINE and b"\0" not in encoded:
        arguments = (argument.replace(CODE, prepared) for argument in language.inline)
        return Invocation((program, *options, *arguments), None)
    return Invocation((program, *options, *language.piped), encoded)
