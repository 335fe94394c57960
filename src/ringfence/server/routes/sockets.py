"""Executions over WebSockets: output, input, signals and the terminal's size on one connection.

The first message starts it (`ExecutionCreate`, as text). From then on: binary messages of the client are input; text is
`{"type": "resize", "rows", "columns"}`, `{"type": "signal", "signal"}` or `{"type": "eof"}`. Of the server: binary
messages are output, their first byte 1 for stdout and 2 for stderr; text is `{"event", "data"}`: `started`, `gap`,
`fault` and last `execution`. Anything else from the client ends the connection with 1008.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from ringfence.errors import RingfenceError
from ringfence.server import wire
from ringfence.server.endpoint import Endpoint, Talk
from ringfence.server.executions import STALL_SECONDS, Ended, Execution, Gap, Piece
from ringfence.server.problems import HttpFault, problem_of
from ringfence.server.starting import signal_number
from ringfence.server.talking import still
from ringfence.server.tenants import Scope
from ringfence.values.request import Stream

_encode = msgspec.json.Encoder().encode
_START_SECONDS = 30.0
_NORMAL, _WRONG, _TOO_SLOW = 1000, 1008, 1013
_KIND = {Stream.STDOUT: b"\x01", Stream.STDERR: b"\x02"}


async def run(talk: Talk) -> None:
    session = talk.service.session(talk.caller, talk["session"])
    await talk.socket.accept()
    try:
        async with asyncio.timeout(_START_SECONDS):
            first = await talk.socket.receive()
    except TimeoutError:
        await talk.socket.close(_WRONG, "nothing was started")
        return
    if first["type"] != "websocket.receive" or first.get("text") is None:
        await _close(talk.socket, first, "the first message starts something, as text")
        return
    try:
        asked = msgspec.json.decode(first["text"], type=wire.ExecutionCreate)
    except (msgspec.DecodeError, RecursionError) as fault:
        await talk.socket.close(_WRONG, f"no ExecutionCreate: {fault}"[:120])
        return
    try:
        execution = await talk.service.start_execution(talk.caller, asked, session)
    except (RingfenceError, HttpFault) as fault:
        await _send(talk.socket, "fault", problem_of(fault, talk.request_id))
        await talk.socket.close(_NORMAL)
        return
    await _send(talk.socket, "started", execution.answer())
    await _converse(talk, execution, owns=not asked.background)


async def attach(talk: Talk) -> None:
    execution = talk.service.execution(talk.caller, talk["execution"])
    await talk.socket.accept()
    await _send(talk.socket, "started", execution.answer(with_output=False))
    await _converse(talk, execution, owns=False)


async def _converse(talk: Talk, execution: Execution, *, owns: bool) -> None:
    """Both directions, until it has ended or the client goes away; who owns it and goes away ends it."""
    saying = asyncio.ensure_future(_say(talk.socket, execution, owns=owns))
    hearing = asyncio.ensure_future(_hear(talk, execution))
    try:
        await asyncio.wait((saying, hearing), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (saying, hearing):
            task.cancel()
        await asyncio.wait((saying, hearing))
        if owns and execution.is_running:
            await execution.cancel()
        for task in (saying, hearing):
            if not task.cancelled():
                task.exception()  # looked at: the connection is gone


async def _say(socket: WebSocket, execution: Execution, *, owns: bool) -> None:
    async for event in execution.events(holds=owns):
        try:
            async with asyncio.timeout(STALL_SECONDS):
                match event:
                    case Piece():
                        await socket.send_bytes(_KIND[event.stream] + event.data)
                    case Gap():
                        await _send(socket, "gap", wire.GapEvent(dropped_bytes=event.dropped_bytes))
                    case Ended():
                        await _send(socket, "execution", execution.answer())
        except TimeoutError:
            await socket.close(_TOO_SLOW, "nothing was read for a minute")
            return
    await socket.close(_NORMAL)


async def _hear(talk: Talk, execution: Execution) -> None:
    socket = talk.socket
    while True:
        message = await socket.receive()
        if message["type"] != "websocket.receive":
            return
        try:
            caller = still(talk, Scope.RUN)
            if (data := message.get("bytes")) is not None:
                talk.service.note_writer(caller, execution)
                await execution.running_process().write(data)
            else:
                _command(execution, msgspec.json.decode(message["text"], type=wire.SocketCommand))
        except (RingfenceError, HttpFault) as fault:
            if not execution.is_running:
                continue  # it came too late, which nobody can help
            await _send(socket, "fault", problem_of(fault))
        except (msgspec.DecodeError, RecursionError):
            await socket.close(_WRONG, "text is resize, signal or eof")
            return


def _command(execution: Execution, given: wire.SocketCommand) -> None:
    process = execution.running_process()
    match given.type:
        case "resize":
            process.resize(given.rows, given.columns)
        case "signal":
            process.signal(signal_number(given.signal))
        case "eof":
            process.close_input()


async def _send(socket: WebSocket, event: str, data: object) -> None:
    await socket.send_text(_encode({"event": event, "data": data}).decode())


async def _close(socket: WebSocket, message: Any, why: str) -> None:
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect
    await socket.close(_WRONG, why)


_TAG = "executions"
ROUTES = (
    Endpoint(
        method="WEBSOCKET",
        path="/v1/sessions/{session}/executions/socket",
        name="talk_execution",
        does="Run something, with its output, input, signals and terminal on one connection.",
        handler=run,
        scope=Scope.RUN,
        tag=_TAG,
    ),
    Endpoint(
        method="WEBSOCKET",
        path="/v1/executions/{execution}/socket",
        name="attach_execution",
        does="Look on, and, with the scope `run`, write to one that runs.",
        handler=attach,
        scope=Scope.VIEW,
        tag=_TAG,
    ),
)
