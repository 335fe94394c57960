"""An execution as a stream: server-sent events for browsers, frames of bytes for programs.

Events: `output` (`OutputEvent`; its id is how much was said so far, in bytes), `gap` (`GapEvent`), and last `execution`
(`Execution` with its result). A comment comes every 15 s. Reconnecting with `Last-Event-ID` goes on from there.

Frames: one byte of kind, four of length (big-endian), then so many bytes: 1 stdout, 2 stderr, 3 gap (JSON), 4 still
there (empty), 5 the execution (JSON), after which nothing comes.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator, Callable
from typing import Final, Literal

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ringfence.server import wire
from ringfence.server.endpoint import Media
from ringfence.server.executions import Ended, Event, Execution, Gap, Piece
from ringfence.values.request import Stream

PING_SECONDS: Final = 15.0
NO_BUFFERING: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_encode = msgspec.json.Encoder().encode
_STDOUT, _STDERR, _GAP, _PING, _EXECUTION = 1, 2, 3, 4, 5
_KIND: Final = {Stream.STDOUT: _STDOUT, Stream.STDERR: _STDERR}


class WatchedStream(StreamingResponse):
    """A stream that ends with its reader, also while there is nothing to send: Starlette would notice at the next
    piece, uvicorn at none."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        both = (asyncio.ensure_future(self.wait_gone(receive)), asyncio.ensure_future(self.stream_response(send)))
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
            for task in both:
                if not task.cancelled():
                    task.exception()  # looked at
            await self.body_iterator.aclose()  # type: ignore[attr-defined]  # ours: an async generator

    async def wait_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


def stream_response(execution: Execution, media: Media, *, after: int = 0, owns: bool = False) -> WatchedStream:
    """
    Args:
        owns: whether the execution waits for this listener, and ends if it goes away.
    """
    form = _as_frame if media is Media.FRAMES else _as_event
    return WatchedStream(_stream(execution, form, after, owns=owns), headers=NO_BUFFERING, media_type=media.value)


async def _stream(
    execution: Execution, write: Callable[[Execution, Event | None], bytes], after: int, *, owns: bool
) -> AsyncIterator[bytes]:
    batches = execution.batches(after, holds=owns)
    pending: asyncio.Future[tuple[Event, ...]] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(batches))
            done, _ = await asyncio.wait((pending,), timeout=PING_SECONDS)
            if not done:
                yield write(execution, None)
                continue
            batch, pending = pending.result(), None
            yield b"".join([write(execution, event) for event in batch])
            if isinstance(batch[-1], Ended):
                return
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.wait((pending,))
        await batches.aclose()
        if owns and execution.is_running:
            await execution.cancel()


def output_event(piece: Piece) -> wire.OutputEvent:
    stream: Literal["stdout", "stderr"] = "stdout" if piece.stream is Stream.STDOUT else "stderr"
    try:
        return wire.OutputEvent(stream=stream, text=piece.data.decode())
    except UnicodeDecodeError:
        return wire.OutputEvent(stream=stream, base64=base64.b64encode(piece.data).decode())


def _as_event(execution: Execution, event: Event | None) -> bytes:
    match event:
        case None:
            return b": still there\n\n"
        case Piece():
            return b"event: output\nid: %d\ndata: %s\n\n" % (event.end, _encode(output_event(event)))
        case Gap():
            return b"event: gap\nid: %d\ndata: %s\n\n" % (
                event.end,
                _encode(wire.GapEvent(dropped_bytes=event.dropped_bytes)),
            )
        case Ended():
            return b"event: execution\nid: %d\ndata: %s\n\n" % (event.end, _encode(execution.answer()))


def _as_frame(execution: Execution, event: Event | None) -> bytes:
    match event:
        case None:
            return frame(_PING, b"")
        case Piece():
            return frame(_KIND[event.stream], event.data)
        case Gap():
            return frame(_GAP, _encode(wire.GapEvent(dropped_bytes=event.dropped_bytes)))
        case Ended():
            return frame(_EXECUTION, _encode(execution.answer()))


def frame(kind: int, data: bytes) -> bytes:
    return struct.pack(">BI", kind, len(data)) + data
