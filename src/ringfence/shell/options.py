"""Argument vectors: options, their values and operands, by the conventions of getopt."""

from itertools import accumulate
from typing import Final, NamedTuple

from ringfence.values.facts import Span, Via, Word


class Inner(NamedTuple):
    """One thing that is run from within a command; exactly one of `argv`, `code`, `file` and `stdin` is set."""

    via: Via
    label: str
    """The wrapper, as it is told to people: `sudo`, `tar --to-command`."""
    argv: tuple[Word, ...] = ()
    code: Word | None = None
    file: Word | None = None
    stdin: bool = False
    language: str = ""
    """Empty for the shell's own."""
    parameters: tuple[Word, ...] = ()
    assigns: tuple[Word, ...] = ()
    loads: bool = False
    """The file's code becomes part of the program."""


def option_values(
    arguments: tuple[Word, ...], options: frozenset[str], *, bundled: bool = True
) -> list[tuple[str, Word]]:
    """The values of those options, attached (`-Ix`, `--long=x`) or not; `bundled`: letters may stand together."""
    found: list[tuple[str, Word]] = []
    for number, word in enumerate(arguments):
        text = word.text
        if text is None or not text.startswith("-"):
            continue
        if text == "--":
            break
        if text in options:
            if number + 1 < len(arguments):
                found.append((text, arguments[number + 1]))
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            full = _whole_name(name, options)
            if full and equals:
                found.append((full, tail(word, value)))
            elif full and number + 1 < len(arguments):
                found.append((full, arguments[number + 1]))
        elif (name := text.partition("=")[0]) in options and len(name) > 2:  # -eval-command=x
            found.append((name, tail(word, text[len(name) + 1 :])))
        else:
            for position in range(1, len(text) if bundled else 2):
                short = "-" + text[position] if position < len(text) else ""
                if short in options:
                    if position + 1 < len(text):
                        found.append((short, tail(word, text[position + 1 :])))
                    elif number + 1 < len(arguments):
                        found.append((short, arguments[number + 1]))
                    break
    return found


_DISTINCT: Final = (
    "--checkpoint --file --files --out --output --include --data --form --config --command --option --exec --log"
    " --post --pre --input --body --sort --color --colour --dir --name --no --rsync --recursive --update --user"
    " --to --from --with --all --upload --receive --filter --eval --print --load --list --check --clear --source --env"
)
DISTINCT: Final = frozenset(_DISTINCT.split())
"""Options of their own, although longer ones begin so."""


def _whole_name(name: str, options: frozenset[str]) -> str:
    """The option that a long name stands for; getopt takes every unambiguous beginning of one."""
    if name in options:
        return name
    if len(name) < 5 or name in DISTINCT:
        return ""
    return next((option for option in options if option.startswith(name) and option.startswith("--")), "")


def operands(arguments: tuple[Word, ...], takes: frozenset[str] = frozenset()) -> list[Word]:
    """The arguments that are neither options nor values of options."""
    found: list[Word] = []
    skip = False
    for number, word in enumerate(arguments):
        text = word.text
        if skip:
            skip = False
        elif text is None or not text.startswith("-") or text == "-":
            found.append(word)
        elif text == "--":
            return found + list(arguments[number + 1 :])
        else:
            skip = takes_next(text, takes)
    return found


def operands_from(arguments: tuple[Word, ...], takes: frozenset[str]) -> tuple[Word, ...]:
    """Everything from the first operand on."""
    position = 0
    while position < len(arguments):
        text = arguments[position].text
        if text is None or not text.startswith("-"):
            break
        position += 2 if takes_next(text, takes) else 1
    return arguments[position:]


def takes_next(text: str, takes: frozenset[str]) -> bool:
    if text in takes:
        return True
    if text.startswith("--"):
        return False
    for position in range(1, len(text)):
        if "-" + text[position] in takes:
            return position == len(text) - 1
    return False


def tail(word: Word, text: str) -> Word:
    return Word(text, word.span, word.pattern)


def join(words: tuple[Word, ...] | list[Word]) -> Word:
    """Put arguments together as `eval` does; unknown if one of them is."""
    texts = [word.text for word in words]
    span = words[0].span if len(words) == 1 else Span(words[0].span.start, words[-1].span.end)
    if None in texts:
        remains = [word.if_unset if word.text is None else word.text for word in words]
        begins = accumulate((len(text) + 1 for text in remains), initial=0)
        gaps = tuple(begin + gap for begin, word in zip(begins, words, strict=False) for gap in word.gaps)
        return Word(None, span, if_unset=" ".join(remains), gaps=gaps)
    return Word(" ".join(text for text in texts if text is not None), span)


def script_of(name: str, file: Word, parameters: tuple[Word, ...], via: Via) -> Inner:
    if file.text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        return Inner(via, name, stdin=True, parameters=parameters)
    return Inner(via, name, file=file, parameters=parameters)
