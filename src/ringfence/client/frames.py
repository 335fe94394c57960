"""What a server streams of an execution: frames of a kind, a length, and so many bytes (docs/server.md)."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from enum import IntEnum
from typing import Final

from ringfence.errors import Internal

MEDIA: Final = "application/x-ringfence-frames"
_HEAD: Final = struct.Struct(">BI")
_LONGEST: Final = 256 * 1024 * 1024
"""Of a frame; a result holds at most its output limit of each stream."""


class Frame(IntEnum):
    """What a frame holds."""

    STDOUT = 1
    STDERR = 2
    GAP = 3
    """JSON: how much this listener was too late for."""
    ALIVE = 4
    """Nothing; it is still there."""
    EXECUTION = 5
    """JSON: the execution with its result, or why it has none. The last."""
    INPUT = 6
    """To the server: a piece of what the command reads."""
    REQUEST = 7
    """To the server, first: JSON, what is to run."""


async def frames(pieces: AsyncIterator[bytes | bytearray]) -> AsyncIterator[tuple[int, bytes]]:
    """The frames in pieces that were cut anywhere.

    Raises:
        Internal: a frame is longer than any may be, or the last one is cut off.
    """
    held = bytearray()
    async for piece in pieces:
        held += piece
        at = 0
        while len(held) - at >= _HEAD.size:
            kind, length = _HEAD.unpack_from(held, at)
            if length > _LONGEST:
                raise Internal(f"a frame of {length} bytes", hint="are server and client of one version?")
            end = at + _HEAD.size + length
            if len(held) < end:
                break
            yield kind, bytes(memoryview(held)[at + _HEAD.size : end])
            at = end
        if at:
            del held[:at]
    if held:
        raise Internal("the server's output was cut off", hint="the run may have ended; look at the record")


def frame(kind: Frame, data: bytes) -> bytes:
    return _HEAD.pack(kind, len(data)) + data
