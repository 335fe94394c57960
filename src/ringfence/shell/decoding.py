"""Texts that a line carries in disguise and takes out again itself: what `base64 -d`, `rev` or `tr` make of them.

Only where both the text and the way are written down in the line. What comes out is judged like text that was written
plainly, and that it was disguised stays known.
"""

import base64
import binascii
import codecs
import re
from collections.abc import Callable
from typing import Final

from ringfence.shell.lexer import unescape_ansi
from ringfence.shell.options import operands, option_values
from ringfence.values.facts import Word

MAX_CODED: Final = 16 * 1024
"""Characters that are taken out; a longer text stays unknown."""
_CLASSES: Final = {
    "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
    "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "[:digit:]": "0123456789",
    "[:space:]": " \t\n\r\v\f",
    "[:blank:]": " \t",
}
_RANGE: Final = re.compile(r"(.)-(.)|(.)", re.DOTALL)


def decoded(name: str, arguments: tuple[Word, ...], text: str) -> str | None:
    """What the program makes of a known input; None if that is not followed."""
    way = _WAYS.get(name)
    if way is None or len(text) > MAX_CODED or any(word.text is None for word in arguments):
        return None
    try:
        return way(arguments, text)
    except (ValueError, binascii.Error, UnicodeError):
        return None


def _has(arguments: tuple[Word, ...], letter: str, *longs: str) -> bool:
    for word in arguments:
        given = word.text or ""
        if given.startswith("--"):
            if any(len(given) > 3 and long.startswith(given) for long in longs):
                return True
        elif given.startswith("-") and letter in given[1:]:
            return True
    return False


def _base(decode: Callable[[bytes], bytes]) -> Callable[[tuple[Word, ...], str], str | None]:
    def way(arguments: tuple[Word, ...], text: str) -> str | None:
        if any(word.text != "-" for word in operands(arguments, frozenset(("-w", "--wrap")))):
            return None
        if not (_has(arguments, "d", "--decode") or _has(arguments, "D")):
            return None
        return decode("".join(text.split()).encode()).decode()

    return way


def _basenc(arguments: tuple[Word, ...], text: str) -> str | None:
    for option, decode in _ALPHABETS.items():
        if any(word.text == option for word in arguments):
            return _base(decode)(arguments, text)
    return None


def _openssl(arguments: tuple[Word, ...], text: str) -> str | None:
    given = {word.text for word in arguments}
    if "-d" not in given or not given & {"base64", "-base64", "-a"} or given & {"-in", "-aes-256-cbc"}:
        return None
    return base64.b64decode("".join(text.split())).decode()


def _xxd(arguments: tuple[Word, ...], text: str) -> str | None:
    if not _has(arguments, "r", "-revert") or operands(arguments):
        return None
    if _has(arguments, "p", "-ps", "-plain"):
        return bytes.fromhex("".join(text.split())).decode()
    return None


def _rev(arguments: tuple[Word, ...], text: str) -> str | None:
    if operands(arguments):
        return None
    return "\n".join(line[::-1] for line in text.split("\n"))


def _tac(arguments: tuple[Word, ...], text: str) -> str | None:
    if arguments:
        return None
    return "".join(reversed(text.splitlines(keepends=True)))


def _tr(arguments: tuple[Word, ...], text: str) -> str | None:
    sets = [word.text or "" for word in operands(arguments)]
    if any((word.text or "").startswith("-") and word.text not in ("-d", "--delete", "--") for word in arguments):
        return None
    if _has(arguments, "d", "--delete"):
        return text.translate(dict.fromkeys(map(ord, _spread(sets[0])))) if len(sets) == 1 else None
    if len(sets) != 2:
        return None
    first, second = _spread(sets[0]), _spread(sets[1])
    if not second:
        return None
    second += second[-1] * (len(first) - len(second))
    table: dict[int, str] = {}
    for one, other in zip(first, second, strict=False):
        table[ord(one)] = other  # of two for one letter, tr takes the last
    return text.translate(table)


def _spread(letters: str) -> str:
    """The letters that a set of tr stands for."""
    for name, members in _CLASSES.items():
        letters = letters.replace(name, members)
    letters = unescape_ansi(letters)
    found: list[str] = []
    for match in _RANGE.finditer(letters):
        if match[3] is not None:
            found.append(match[3])
        else:
            found += map(chr, range(ord(match[1]), min(ord(match[2]), ord(match[1]) + 255) + 1))
    return "".join(found)


def _cut(arguments: tuple[Word, ...], text: str) -> str | None:
    """`cut -c`, and `cut -d -f` for one field or an open range."""
    if operands(arguments, frozenset(("-c", "-b", "-d", "-f"))):
        return None
    values = dict(option_values(arguments, frozenset(("-c", "-b", "-d", "-f", "--characters", "--fields"))))
    letters = values.get("-c") or values.get("-b")
    field = values.get("-f")
    given = letters or field
    wanted = given.text if given is not None else ""
    match = re.fullmatch(r"(\d{1,4})?(-)?(\d{1,4})?", wanted or "")
    if not wanted or match is None:
        return None
    begin = int(match[1] or 1) - 1
    end = int(match[3]) if match[3] else None if match[2] else begin + 1
    if letters is not None:
        return "\n".join(line[begin:end] for line in text.split("\n"))
    by = (values["-d"].text if "-d" in values else "\t") or "\t"
    return "\n".join(by.join(line.split(by)[begin:end]) if by in line else line for line in text.split("\n"))


def _ends(arguments: tuple[Word, ...], text: str, *, last: bool) -> str | None:
    if operands(arguments, frozenset(("-n", "-c"))):
        return None
    values = dict(option_values(arguments, frozenset(("-n", "-c"))))
    given = values.get("-n") or values.get("-c")
    numbers = [word.text for word in arguments if word.text and re.fullmatch(r"-\d{1,5}", word.text)]
    short = numbers[0][1:] if numbers else "10"
    match = re.fullmatch(r"(\+?)(\d{1,5})", (given.text or "") if given is not None else short)
    if match is None:
        return None
    parts = list(text) if "-c" in values else text.splitlines(keepends=True)
    count = int(match[2])
    if last:
        return "".join(parts[max(count - 1, 0) :] if match[1] else parts[max(len(parts) - count, 0) :])
    return "".join(parts[:count])


def _rot13(arguments: tuple[Word, ...], text: str) -> str | None:
    return codecs.encode(text, "rot13") if not arguments else None


_ALPHABETS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "--base64": base64.b64decode,
    "--base64url": base64.urlsafe_b64decode,
    "--base32": base64.b32decode,
    "--base16": base64.b16decode,
}
_WAYS: Final[dict[str, Callable[[tuple[Word, ...], str], str | None]]] = {
    "base64": _base(base64.b64decode),
    "base32": _base(base64.b32decode),
    "basenc": _basenc,
    "openssl": _openssl,
    "xxd": _xxd,
    "rev": _rev,
    "tac": _tac,
    "tr": _tr,
    "cut": _cut,
    "head": lambda arguments, text: _ends(arguments, text, last=False),
    "tail": lambda arguments, text: _ends(arguments, text, last=True),
    "rot13": _rot13,
}
