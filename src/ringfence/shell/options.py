"""Argument vectors: options, their values and operands, by the conventions of getopt."""

from typing import NamedTuple

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


def option_values(arguments: tuple[Word, ...], options: frozenset[str]) -> list[tuple[str, Word]]:
    """The values of those options, attached (`-Ix`, `--long=x`) or not."""
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
            if equals and name in options:
                found.append((name, tail(word, value)))
        else:
            for position in range(1, len(text)):
                short = "-" + text[position]
                if short in options:
                    if position + 1 < len(text):
                        found.append((short, tail(word, text[position + 1 :])))
                    elif number + 1 < len(arguments):
                        found.append((short, arguments[number + 1]))
                    break
    return found


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
        return Word(None, span, if_unset=" ".join(word.if_unset if word.text is None else word.text for word in words))
    return Word(" ".join(text for text in texts if text is not None), span)


def script_of(name: str, file: Word, parameters: tuple[Word, ...], via: Via) -> Inner:
    if file.text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        return Inner(via, name, stdin=True, parameters=parameters)
    return Inner(via, name, file=file, parameters=parameters)
