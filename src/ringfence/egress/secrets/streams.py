"""Finding and replacing texts in bytes that come in pieces, also where one lies across a border.

`Replacer` holds back no more than what may be the beginning of a text that it looks for. `Watcher` holds nothing back:
it knows a text when its last byte comes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

LINGER_SECONDS: Final = 0.5
"""How long a stream that has gone quiet is kept waiting for bytes that are held back: the other side may answer only
once it has these (gRPC in both directions)."""


class Replacer:
    """Replaces texts: the leftmost first, of those at one place the longest."""

    __slots__ = ("_held", "_pairs")

    def __init__(self, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        self._pairs = tuple(sorted(((old, new) for old, new in pairs if old), key=lambda pair: -len(pair[0])))
        self._held = b""

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def feed(self, chunk: bytes) -> bytes:
        """What can go on after this piece."""
        return self._run(self._held + chunk if self._held else chunk, is_last=False)

    def flush(self) -> bytes:
        """What was held back; nothing more comes."""
        return self._run(self._held, is_last=True)

    def _run(self, data: bytes, *, is_last: bool) -> bytes:
        out: list[bytes] = []
        at = 0
        found = [data.find(old) for old, _ in self._pairs]
        while True:
            end = len(data) if is_last else self._hold_from(data, at)
            best = min((place, index) for index, place in enumerate((*found, end)) if place >= 0)
            start, index = best
            if start >= end:
                out.append(data[at:end])
                self._held = data[end:]
                return b"".join(out)
            old, new = self._pairs[index]
            out += (data[at:start], new)
            at = start + len(old)
            found = [
                place if place < 0 or place >= at else data.find(old, at)
                for place, (old, _) in zip(found, self._pairs, strict=True)
            ]

    def _hold_from(self, data: bytes, at: int) -> int:
        """Where the first text may have begun of which only a beginning is there yet."""
        earliest = len(data)
        for old, _ in self._pairs:
            place = data.find(old[:1], max(at, len(data) - len(old) + 1))
            while 0 <= place < earliest:
                if old.startswith(data[place:]):
                    earliest = place
                    break
                place = data.find(old[:1], place + 1)
        return earliest


class Watcher:
    """Says which of some texts went by; capitals and small letters are the same."""

    __slots__ = ("_longest", "_needles", "_tail")

    def __init__(self, needles: Sequence[tuple[str, bytes]]) -> None:
        """
        Args:
            needles: a name, and a text that stands for it.
        """
        self._needles = tuple((name, text.lower()) for name, text in needles)
        self._longest = max((len(text) for _, text in needles), default=1)
        self._tail = b""

    def feed(self, chunk: bytes) -> str:
        """The name of a text that ends in this piece; else empty."""
        data = self._tail + chunk.lower()
        self._tail = data[len(data) - self._longest + 1 :] if len(data) >= self._longest else data
        return next((name for name, text in self._needles if text in data), "")


def replace_all(pairs: Iterable[tuple[bytes, bytes]], data: bytes) -> bytes:
    replacer = Replacer(pairs)
    return replacer.feed(data) + replacer.flush()


async def replaced(
    chunks: AsyncIterator[bytes], replacer: Replacer, linger_seconds: float = LINGER_SECONDS
) -> AsyncIterator[bytes]:
    """A stream with texts replaced."""
    waiting: asyncio.Future[bytes | None] | None = None
    try:
        while True:
            if replacer.is_holding:
                waiting = asyncio.ensure_future(_next(chunks))
                done, _ = await asyncio.wait({waiting}, timeout=linger_seconds)
                if not done:
                    yield replacer.flush()
                chunk = await waiting
                waiting = None
            else:
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            if out := replacer.feed(chunk):
                yield out
        if out := replacer.flush():
            yield out
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.wait({waiting})


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    return await anext(chunks, None)
