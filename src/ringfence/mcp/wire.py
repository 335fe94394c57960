"""The two ends of stdio: one JSON message a line, read and written by threads, so that no end holds up the loop.

Descriptor 1 belongs to the protocol alone: `claim_standard_streams` keeps it for us and lets everything else that
prints do so on stderr; whoever reads stdin finds it empty. A line that is too long, or no message, is answered with an
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
from dataclasses import dataclass, field
from typing import Final

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

LONGEST_LINE: Final = 16 * 1024 * 1024
"""Bytes of one message: a file that a model writes is far smaller."""
_PIECE: Final = 256 * 1024
_PARSE_ERROR: Final = -32700
_INVALID_REQUEST: Final = -32600


def claim_standard_streams() -> tuple[int, int]:
    """Input and output of the protocol, as descriptors that nobody else knows. Call it once."""
    private_in, private_out = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return private_in, private_out


@dataclass(slots=True)
class Lines:
    """Cuts pieces into lines of bounded length."""

    longest: int = LONGEST_LINE
    _kept: bytearray = field(default_factory=bytearray)
    _is_skipping: bool = False

    def add(self, piece: bytes) -> list[bytes | None]:
        """The lines that are whole now; None for one that is too long."""
        found: list[bytes | None] = []
        while piece:
            line, newline, piece = piece.partition(b"\n")
            if not self._is_skipping:
                self._kept += line
                if len(self._kept) > self.longest:
                    self._kept.clear()
                    self._is_skipping = True
                    found.append(None)
            if newline and not self._is_skipping:
                found.append(bytes(self._kept))
                self._kept.clear()
            if newline:
                self._is_skipping = False
        return found


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
    """

    def __init__(self, source: int, target: int, on_lost: Callable[[], None]) -> None:
        self._source = source
        self._target = target
        self._on_lost = on_lost
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
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._outbox.put(text.encode() + b"\n")
                    await self._written.get()
        finally:
            self._outbox.put(None)

    def _read(self) -> None:
        lines = Lines()
        try:
            while piece := os.read(self._source, _PIECE):
                for line in lines.add(piece):
                    if line is None:
                        self._take(_complaint(_INVALID_REQUEST, f"a message of more than {LONGEST_LINE} bytes"))
                    elif line.strip():
                        self._take(read_message(line))
        except (OSError, RuntimeError, CancelledError):
            pass  # the descriptor or the loop is gone
        finally:
            self._call(self._arrivals.close)

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
