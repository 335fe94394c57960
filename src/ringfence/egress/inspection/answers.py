"""Answers without real values of secrets: a server that shows what it was sent must not show it to the box.

We ask for answers that are not compressed. A server that compresses all the same is read through zlib, which gives
back a bounded piece at a time; what zlib does not know is refused, since it cannot be looked through.
"""

import zlib
from collections.abc import AsyncIterator
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.egress.base import Headers, Swapped
from ringfence.egress.inspection.base import Answer, ServerFailed

_PIECE: Final = 64 * 1024
_KEPT: Final = frozenset((b"content-length", b"sec-websocket-accept"))
"""Never changed: they are numbers and digests, and the answer breaks without them."""
_OURS: Final = b"x-ringfence-"
"""Headers by which we tell a client that we refused: no server says that in our name."""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    answer: Answer
    body: AsyncIterator[bytes]
    swapped: Swapped

    def trailers(self, trailers: Headers) -> Headers:
        return _headers(trailers, self.swapped)


def scrubbed(answer: Answer, swapped: Swapped, body: AsyncIterator[bytes], *, is_head: bool) -> Scrubbed:
    """Raises:
    ServerFailed: the answer is compressed in a way that cannot be looked through.
    """
    headers = tuple(each for each in answer.headers if not each[0].lower().startswith(_OURS))
    if swapped.scrub is None and swapped.scrub_body is None:
        return Scrubbed(Answer(answer.status, answer.reason, headers, answer.ended), body, swapped)
    coding = b",".join(value for name, value in headers if name.lower() == b"content-encoding").strip().lower()
    if coding not in (b"", b"identity") and not is_head and answer.status not in (204, 304):
        if coding not in (b"gzip", b"x-gzip", b"deflate"):
            raise ServerFailed("Ringfence: the answer is compressed and cannot be searched for secrets")
        body = _decompressed(body, deflate=coding == b"deflate")
        headers = tuple(each for each in headers if each[0].lower() not in (b"content-encoding", b"content-length"))
    reason = swapped.scrub(answer.reason) if swapped.scrub else answer.reason
    clean = Answer(answer.status, reason, _headers(headers, swapped), answer.ended)
    return Scrubbed(clean, _body(body, swapped), swapped)


def _headers(headers: Headers, swapped: Swapped) -> Headers:
    scrub = swapped.scrub
    if scrub is None:
        return headers
    # A name that holds a value is dropped: what is left of it would be no name.
    return tuple(
        (name, value if name.lower() in _KEPT else scrub(value)) for name, value in headers if scrub(name) == name
    )


def _body(body: AsyncIterator[bytes], swapped: Swapped) -> AsyncIterator[bytes]:
    if swapped.scrub_body is not None:
        return swapped.scrub_body(body)
    return _by_chunks(body, swapped)


async def _by_chunks(body: AsyncIterator[bytes], swapped: Swapped) -> AsyncIterator[bytes]:
    async for data in body:
        yield swapped.scrub(data) if swapped.scrub else data


async def _decompressed(body: AsyncIterator[bytes], *, deflate: bool) -> AsyncIterator[bytes]:
    reader = zlib.decompressobj(zlib.MAX_WBITS if deflate else 16 + zlib.MAX_WBITS)
    first = True
    try:
        async for data in body:
            if first and data and deflate and data[0] & 0x0F != 8:  # some send it without zlib's head
                reader = zlib.decompressobj(-zlib.MAX_WBITS)
            first = first and not data
            while data:
                yield reader.decompress(data, _PIECE)
                data = reader.unconsumed_tail
                if reader.eof:  # gzip may have many members
                    data = reader.unused_data
                    reader = zlib.decompressobj(16 + zlib.MAX_WBITS) if data and not deflate else reader
                    if deflate:
                        break
        if not first and not reader.eof:
            yield reader.flush()
    except zlib.error as error:
        raise ServerFailed("Ringfence: the answer says that it is compressed, and is not") from error
