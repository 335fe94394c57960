"""Takes real values out of what comes back: an error page, an echo, a debug header.

Each value is looked for raw, in base64 at all three alignments, URL-encoded and escaped for JSON or HTML, and replaced
by what stands for it inside, or by stars, of the same length. Values that a source gave before are looked for as well.

What this does not protect against: a server that wants to hand a secret over finds a spelling that nobody looks for. It
was given the secret and could use it itself. Bodies that are compressed are not looked into: the desk asks the server
for uncompressed ones.
"""

from collections.abc import AsyncIterator
from typing import Final

from ringfence.egress.secrets.forms import replacements
from ringfence.egress.secrets.streams import Replacer, replace_all, replaced

_MOST_KEPT: Final = 512
"""Values; the oldest is forgotten then. Tokens that are renewed each hour reach it after three weeks."""


class Scrubber:
    """All values that were ever used, and what is written instead."""

    __slots__ = ("_pairs", "_values")

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._pairs: tuple[tuple[bytes, bytes], ...] = ()

    def __repr__(self) -> str:
        return f"<Scrubber of {len(self._values)} values>"

    @property
    def is_empty(self) -> bool:
        return not self._values

    def learn(self, value: bytes, stand_in: bytes) -> None:
        """From now on this value is taken out."""
        if value in self._values or value == stand_in:
            return
        self._values[value] = stand_in
        while len(self._values) > _MOST_KEPT:
            self._values.pop(next(iter(self._values)))
        self._pairs = tuple(pair for known, instead in self._values.items() for pair in replacements(known, instead))

    def scrub(self, data: bytes) -> bytes:
        """A whole text, such as the value of a header."""
        return replace_all(self._pairs, data)

    def scrub_body(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A body as it streams."""
        return replaced(chunks, Replacer(self._pairs))
