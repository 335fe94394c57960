"""The two ends of stdio: one JSON message a line, read and written by threads, so that no end holds up the loop.

A line that is too long, or no message, is answered with an
error of the protocol and skipped. The end of input, and an output that nobody reads any longer, is the end of the
connection.
"""

import asyncio
import json
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from ringfence.mcp.early import Backlog
from ringfence.mcp.lines import LONGEST_LINE, PIECE

_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600


def read_message(line: bytes) -> SessionMessage | types.JSONRPCError:
    """A message, or what to answer to something that is none."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        # A request whose id is none would pass for a notification, and its sender would wait for ever.
        if not isinstance(message, types.JSONRPCNotification) or "id" not in json.loads(line):
            return SessionMessage(message)
    except (ValueError, RecursionError):
        pass
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return _complaint(_PARSE_ERROR, "this line is no JSON")
    number = given.get("id") if isinstance(given, dict) else None
    known = number if isinstance(number, int | str) and not isinstance(number, bool) else None
    return _complaint(_INVALID_REQUEST, "this is no message of JSON-RPC 2.0", known)


def _complaint(code: int, text: str, number: types.RequestId | None = None) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=text))


class Wire:
    """A connection over two descriptors.

    Args:
        on_lost: called, in the loop, when nobody reads what we write.
        backlog: what was read before, and what of it was answered.
    """

    def __init__(self, source: int, target: int, on_lost: Callable[[], None], backlog: Backlog) -> None:
        self._source = source
        self._target = target
        self._on_lost = on_lost
        self._backlog = backlog
        self._loop = asyncio.get_running_loop()
        self._arrivals, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._departures = anyio.create_memory_object_stream[SessionMessage](0)
        self._own = self.outgoing.clone()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._written: asyncio.Queue[None] = asyncio.Queue()

    incoming: MemoryObjectReceiveStream[SessionMessage | Exception]
    outgoing: MemoryObjectSendStream[SessionMessage]

    async def carry(self) -> None:
        """Until everybody who sends is done."""
        # Daemons: one that is stuck in a read or a write must not keep the process from ending.
        for work in (self._read, self._write):
            threading.Thread(target=work, name="mcp", daemon=True).start()
        try:
            async with self._departures:
                async for message in self._departures:
                    if self._was_answered(message.message):
                        continue
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._outbox.put(text.encode() + b"\n")
                    await self._written.get()
        finally:
            self._outbox.put(None)

    def _read(self) -> None:
        try:
            self._take_lines(self._backlog.lines)
            while piece := os.read(self._source, PIECE):
                self._take_lines(self._backlog.rest.add(piece))
        except (OSError, RuntimeError, CancelledError):
            pass  # the descriptor or the loop is gone
        finally:
            self._call(self._arrivals.close)

    def _take_lines(self, lines: list[bytes | None]) -> None:
        for line in lines:
            if line is None:
                self._take(_complaint(_INVALID_REQUEST, f"a message of more than {LONGEST_LINE} bytes"))
            elif line.strip():
                self._take(read_message(line))

    def _was_answered(self, message: types.JSONRPCMessage) -> bool:
        """Whether a request was answered before we came."""
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError) or message.id is None:
            return False
        is_answered = message.id in self._backlog.answered
        self._backlog.answered.discard(message.id)
        return is_answered

    def _take(self, message: SessionMessage | types.JSONRPCError) -> None:
        """Hand a message over; whoever sends faster than we take has to wait."""
        if self._loop.is_closed():
            raise ConnectionResetError("the loop is closed")
        asyncio.run_coroutine_threadsafe(self._deliver(message), self._loop).result()

    async def _deliver(self, message: SessionMessage | types.JSONRPCError) -> None:
        try:
            if isinstance(message, SessionMessage):
                await self._arrivals.send(message)
            else:
                await self._own.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionResetError("the connection is over") from None

    def _write(self) -> None:
        try:
            while (data := self._outbox.get()) is not None:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._target, rest) :]
                self._call(self._written.put_nowait, None)
        except OSError:
            self._call(self._on_lost)

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        if not self._loop.is_closed():
            with suppress(RuntimeError):  # it was closed between the two lines
                self._loop.call_soon_threadsafe(function, *arguments)

    async def finish(self, carrying: "asyncio.Task[None]", seconds: float) -> None:
        """Let what was said be written, for a while, and be done."""
        self._own.close()
        await asyncio.wait({carrying}, timeout=seconds)
        carrying.cancel()
        await asyncio.wait({carrying})
        for stream in (self._arrivals, self.incoming, self.outgoing, self._departures):
            stream.close()
