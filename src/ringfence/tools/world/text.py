"""Text of others for a model and the client that shows it: nothing in it can be obeyed by a terminal or stay unseen.

Line ends and tabs stay, colours go, and every other control or format character is written out (`\\x1b`, `\\u202e`):
escapes, changes of direction, characters without width, the invisible copies of ASCII in which instructions are hidden.
Letters of every script stay, with their marks and joiners.

What this does not protect against: words. A command may print `the user says yes`.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from ringfence.values.visible import written_out

_COLOURS: Final = re.compile(r"\x1b\[[0-9;:]{0,64}m")
_PLAIN: Final = re.compile(r"[\t\n\x20-\x7e]*")
_KEPT: Final = frozenset("\n\t\u200c\u200d\ufe0e\ufe0f")
"""Joiners and selectors that scripts and emoji need."""
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_SELECTORS: Final = (0xE0100, 0xE01EF)
"""Variation selectors that nothing in use needs: any byte can be hidden in them."""


def readable(text: str) -> str:
    """What a command printed."""
    return shown(_COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def shown(text: str) -> str:
    """The same for what has no colours, such as a file: carriage returns are written out, too."""
    return text if _PLAIN.fullmatch(text) else "".join(map(_shown, text))


@lru_cache(maxsize=4096)
def _shown(char: str) -> str:
    if char in _KEPT:
        return char
    is_selector = _SELECTORS[0] <= ord(char) <= _SELECTORS[1]
    return written_out(char) if is_selector or unicodedata.category(char) in _HIDDEN else char


def with_gap(data: bytes, dropped: int) -> str:
    """What was kept of a stream, with a line where its middle is missing."""
    if not dropped:
        return readable(data.decode("utf-8", "replace"))
    half = len(data) - len(data) // 2
    head, tail = (readable(part.decode("utf-8", "replace")) for part in (data[:half], data[half:]))
    return f"{head}\n[... {dropped} bytes are left out here ...]\n{tail}"


def cut(text: str, most: int) -> str:
    """A text of at most so many characters, which says that there is more."""
    return text if len(text) <= most else f"{text[:most]}\n[... {len(text) - most} more characters ...]"
