"""Writes out every character that a terminal would not show as what it is, so that no text can hide a part of itself.

Shown as they are: ASCII, and letters, digits, punctuation and symbols that are read from left to right and leave ink.
Everything else is written out: control and format characters, line and paragraph separators, blanks other than the
space, marks that sit on the character before them, letters that turn the direction of what stands beside them, and
characters that Unicode lets a program leave out or that are drawn as nothing at all.

What this does not protect against: characters that look like others (a Cyrillic `a`); whoever shows a text says how
many of its characters are outside ASCII.
"""

import unicodedata
from functools import lru_cache
from typing import Final

_TURNS: Final = frozenset({"R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "PDF", "PDI", "FSI"})
"""Bidirectional classes that change the order in which a terminal shows a line."""
_LEAVES_INK: Final = "LNPS"
"""General categories, by their first letter: letters, numbers, punctuation, symbols."""
_NOTHING: Final = (
    (0x115F, 0x1160, "fillers of Hangul syllables"),
    (0x1161, 0x11FF, "vowels and finals of Hangul that sit on the letter before them"),
    (0xD7B0, 0xD7FF, "more of them"),
    (0x17B4, 0x17B5, "inherent vowels of Khmer"),
    (0x2800, 0x2800, "the Braille cell without dots"),
    (0x3164, 0x3164, "the Hangul filler"),
    (0xFFA0, 0xFFA0, "the Hangul filler of half width"),
    (0xFFFC, 0xFFFD, "stand for something that is not there"),
    (0x1D159, 0x1D159, "a note without a head"),
    (0x1D173, 0x1D17A, "format characters of music"),
)
"""Letters and symbols by their category that are drawn as nothing, or stand for something else."""


def visible(text: str) -> str:
    """A text on one line, with everything written out that a terminal would not show as it is."""
    return text if text.isascii() and text.isprintable() else "".join(map(shown, text))


def shown(char: str) -> str:
    """One character as itself, or written out: `\\x1b`, `\\u200b`, `\\U000e0041`."""
    if " " <= char <= "~":
        return char
    return char if _is_shown(char) else written_out(char)


def written_out(char: str) -> str:
    """A character by its number, in a length that says where it ends."""
    number = ord(char)
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


@lru_cache(maxsize=4096)
def _is_shown(char: str) -> bool:
    return (
        char.isprintable()
        and unicodedata.category(char)[0] in _LEAVES_INK
        and unicodedata.bidirectional(char) not in _TURNS
        and not any(first <= ord(char) <= last for first, last, _ in _NOTHING)
    )
