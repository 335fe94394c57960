"""A command that goes on while others run, on a server: the face of `ringfence.Process`.

Its output is followed from the start and kept for `read`, up to a limit. If the connection breaks, following goes on
where it stopped; what the server no longer has of it by then is missing in `read`, and is in the result.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from ringfence.client.calls import Calls, Query, part
from ringfence.client.executions import STREAMS, Executions, Told
from ringfence.client.frames import MEDIA, Frame, frames
from ringfence.errors import InvalidArgument, NotFound, Unreachable
from ringfence.values.outcome import Ending, Result
from ringfence.values.request import OnOutput, Stream
from ringfence.values.sizes import Duration, seconds_of

_UNREAD_BYTES: Final = 16 * 1024 * 1024
"""Of each stream that nobody has read; the oldest goes."""
_PAUSES: Final = (0.1, 0.5, 1.0, 2.0, 4.0)


class RemoteProcess:
    """A command that goes on while others run in the same sandbox; from `Sandbox.start`."""

    def __init__(self, calls: Calls, started: Mapping[str, Any], *, on_output: OnOutput | None, heard: Told) -> None:
        self.execution_id = str(started["id"])
        self._calls = calls
        self._started = dict(started)
        self._on_output = on_output
        self._executions = Executions(calls, heard)
        self._unread = {stream: bytearray() for stream in Stream}
        self._heard_bytes = 0
        self._result: Result | None = None
        self._fault: BaseException | None = None
        self.was_waited_for = False
        self._path = f"/v1/executions/{part(self.execution_id)}"
        self._following: asyncio.Task[None] | None = None
        self._begin()

    def _begin(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # found by `processes()` outside a loop: followed when somebody waits for it
        if self._following is None:
            self._following = loop.create_task(self._follow())

    @property
    def id(self) -> int:
        return int(self._started.get("process_id") or 0)

    @property
    def command(self) -> str:
        return str(self._started["shown"])

    @property
    def alive(self) -> bool:
        return self._result is None and self._fault is None and self._now()["state"] == "running"

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it runs."""
        if self._result is not None:
            return self._result.ending
        result = self._now()["result"]
        return None if result is None else Result.from_dict(result).ending

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""
        if self._result is not None:
            return self._result.usage.wall_seconds
        now = self._now()
        return float((now["ended_at"] or time.time()) - now["started_at"])

    def read(self) -> tuple[bytes, bytes]:
        """What it has said on stdout and stderr since the last time, as far as it has come here."""
        out = tuple(bytes(self._unread[stream]) for stream in (Stream.STDOUT, Stream.STDERR))
        for held in self._unread.values():
            held.clear()
        return out[0], out[1]

    async def write(self, data: bytes) -> bool:
        """Give it input, as it takes it; false if it does not listen any more."""
        try:
            await self._calls.send("POST", f"{self._path}/stdin", data)
        except InvalidArgument:
            return False
        return True

    def close_input(self) -> None:
        self._told_at_once("POST", "/stdin", query={"close": True})

    def resize(self, rows: int, columns: int) -> None:
        """Tell it the size of its terminal, if it has one."""
        self._told_at_once("POST", "/resize", {"rows": rows, "columns": columns})

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""
        self._told_at_once("POST", "/signal", {"signal": number})

    def kill(self) -> None:
        """End it and all that it started."""
        self._told_at_once("DELETE", "")

    async def wait(self, timeout: Duration | None = None) -> Result | None:
        """Its result; None if it still runs after that time. Raises as `ringfence.Process.wait`."""
        self._begin()
        assert self._following is not None
        await asyncio.wait((self._following,), timeout=None if timeout is None else seconds_of("timeout", timeout))
        if not self._following.done():
            return None
        self.was_waited_for = True
        if self._fault is not None:
            raise self._fault
        return self._result

    async def wait_end(self) -> Result:
        """The same, for whoever keeps records."""
        result = await self.wait()
        assert result is not None
        return result

    def forget(self) -> None:
        """Follow it no more: its sandbox is closed."""
        if self._following is not None and not self._following.done():
            self._following.get_loop().call_soon_threadsafe(self._following.cancel)

    # --- following ----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        pauses = list(_PAUSES)
        while self._result is None and self._fault is None:
            try:
                await self._listen()
            except Unreachable as fault:
                if not pauses:
                    self._fault = fault
                    return
                await asyncio.sleep(pauses.pop(0))
            except Exception as fault:  # whoever waits for it is told
                self._fault = fault

    async def _listen(self) -> None:
        async with self._calls.stream("GET", f"{self._path}/events", accept=MEDIA, after=self._heard_bytes) as pieces:
            async for kind, data in frames(pieces):
                if kind in STREAMS:
                    self._hear(STREAMS[Frame(kind)], data)
                elif kind == Frame.GAP:
                    self._heard_bytes += int(json.loads(data)["dropped_bytes"])
                elif kind == Frame.EXECUTION:
                    self._result = self._executions.ended(json.loads(data))
                    return
        raise Unreachable("the server's output was cut off")

    def _hear(self, stream: Stream, data: bytes) -> None:
        self._heard_bytes += len(data)
        held = self._unread[stream]
        held += data
        if len(held) > _UNREAD_BYTES:
            del held[: len(held) - _UNREAD_BYTES]
        if self._on_output is not None:
            self._on_output(stream, data)

    def _now(self) -> dict[str, Any]:
        found: dict[str, Any] = self._calls.ask_at_once("GET", self._path)
        return found

    def _told_at_once(self, method: str, path: str, body: Any = None, *, query: Query | None = None) -> None:
        """Tell it something; nothing if it has ended meanwhile."""
        with suppress(InvalidArgument, NotFound):
            self._calls.ask_at_once(method, self._path + path, body, query=query)

    def __repr__(self) -> str:
        return f"<Process {self.execution_id} {self.command!r}>"
