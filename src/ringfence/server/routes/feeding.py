"""An execution whose input comes while it runs: frames there, frames back, on one request.

The body is frames as `streaming.py` has them: first 7, what is to run (JSON, `ExecutionCreate`), then 6, pieces of its
input, until the body ends. The command waits for input that has not come, and the sender for a command that does not
read. A sender that goes away ends the command.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, MutableMapping
from typing import Any, Final

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive

from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint, Media
from ringfence.server.problems import http_fault
from ringfence.server.streaming import WatchedStream, stream_response
from ringfence.server.tenants import Scope

_HEAD: Final = struct.Struct(">BI")
_INPUT, _REQUEST = 6, 7
_LONGEST: Final = 32 * 1024 * 1024
_AHEAD: Final = 8
"""Pieces that wait for the command; then the sender waits."""
_decode = msgspec.json.Decoder(wire.ExecutionCreate).decode


async def feed(call: Call) -> Response:
    session = call.service.session(call.caller, call["session"])
    frames = _Frames(call.request.receive)
    try:
        kind, data = await frames.next()
    except _Over:
        raise http_fault(
            "malformed_request", "the body is empty", hint="send frames, as docs/server.md has it"
        ) from None
    if kind != _REQUEST:
        raise http_fault("malformed_request", "the first frame does not say what is to run")
    try:
        asked = _decode(data)
    except msgspec.DecodeError as fault:
        raise http_fault("malformed_request", str(fault)) from None
    if asked.background or asked.interactive or asked.terminal is not None or asked.stdin or asked.stdin_base64:
        raise http_fault("malformed_request", "its input is in frames; it waits for its end", hint="leave the rest out")
    execution = await call.service.start_execution(call.caller, asked, session, frames.input())
    return _Fed(stream_response(execution, Media.FRAMES, owns=True), frames)


class _Over(Exception):
    """There is no further frame."""


class _Frames:
    """The frames of a body, as they come."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._held = bytearray()
        self._is_over = False
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_AHEAD)

    async def next(self) -> tuple[int, bytes]:
        """
        Raises:
            HttpFault: it is none.
            _Over: the body is.
            ClientDisconnect: whoever sends it is gone.
        """
        head = await self._take(_HEAD.size)
        kind, length = _HEAD.unpack(head)
        if length > _LONGEST:
            raise http_fault("body_too_large", f"a frame of {length} bytes", hint=f"at most {_LONGEST}")
        return kind, await self._take(length)

    async def _take(self, size: int) -> bytes:
        while len(self._held) < size:
            if self._is_over:
                if self._held or size > _HEAD.size:
                    raise http_fault("malformed_request", "the last frame is cut off")
                raise _Over
            message: MutableMapping[str, Any] = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._held += message.get("body", b"")
            self._is_over = not message.get("more_body", False)
        data = bytes(memoryview(self._held)[:size])
        del self._held[:size]
        return data

    async def input(self) -> AsyncIterator[bytes]:
        """What the command reads."""
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def pump(self) -> None:
        """Hand input on until whoever sends it is gone."""
        try:
            while True:
                kind, data = await self.next()
                if kind == _INPUT and data:
                    await self._pieces.put(data)
        except _Over:
            await self._pieces.put(None)
        while (await self._receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect


class _Fed(WatchedStream):
    """Streams an answer while its request's body still comes."""

    def __init__(self, answer: WatchedStream, frames: _Frames) -> None:
        super().__init__(answer.body_iterator, headers=answer.headers, media_type=answer.media_type)
        self._frames = frames

    async def wait_gone(self, receive: Receive) -> None:
        await self._frames.pump()


ROUTES = (
    Endpoint(
        method="POST",
        path="/v1/sessions/{session}/executions/fed",
        name="run_fed_in_session",
        does="Run something whose input comes, as frames, while it runs.",
        handler=feed,
        scope=Scope.RUN,
        tag="executions",
        kind=BodyKind.STREAM,
        media=(Media.FRAMES,),
        waits=True,
    ),
)
