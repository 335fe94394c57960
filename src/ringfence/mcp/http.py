"""MCP over streamable HTTP: one application for both eras of the protocol, beside a server's own routes.

Whoever has a token has a desk of their own: sessions of the handshake era and open questions that one token began are
unknown to every other. The server says who asks and whose sandboxes there are; Host and Origin are looked
at by its guard, before anything comes here. A desk that nobody has used for a while is closed.

A call ends when its client goes away: in the newer era the end of the request is the cancellation, in the older one the
client says so.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ringfence.mcp.boxes import BoxSource
from ringfence.mcp.server import Desk

IDLE_SECONDS: Final = 1800.0
MOST_DESKS: Final = 256
MOST_SESSIONS: Final = 64
"""Connections of the handshake era, of one token."""
BODY_BYTES: Final = 16 * 1024 * 1024


@dataclass(slots=True, eq=False)
class _Open:
    """The desk of one token."""

    desk: Desk
    manager: StreamableHTTPSessionManager
    boxes: BoxSource
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None
    last: float = field(default_factory=time.monotonic)
    busy: int = 0

    async def run(self) -> None:
        """Its life, in one task: the SDK wants its end where it began."""
        try:
            async with self.manager.run():
                self.ready.set()
                await self.over.wait()
        finally:
            self.ready.set()
            await self.desk.close()
            await self.boxes.close()

    async def close(self) -> None:
        self.over.set()
        if self.task is not None:
            await asyncio.wait({self.task})


class McpEndpoint:
    """Serves requests of those who have signed in; close it with the server."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    async def handle(
        self, who: tuple[str, Callable[[], BoxSource]], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """
        Args:
            who: a key that is the same for the same token, and for no other; and how their sandboxes are found.
        """
        key, make_boxes = who
        self._close_idle()
        mine = self._open.get(key)
        if mine is None:
            if len(self._open) >= MOST_DESKS:
                await Response("too many tokens speak MCP at once", 503)(scope, receive, send)
                return
            mine = self._open[key] = self._begin(make_boxes())
        mine.busy += 1
        try:
            await mine.ready.wait()
            await mine.manager.handle_request(scope, receive, send)
        finally:
            mine.busy -= 1
            mine.last = time.monotonic()

    def _begin(self, boxes: BoxSource) -> _Open:
        desk = Desk(boxes)
        manager = StreamableHTTPSessionManager(
            desk.server(),
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=BODY_BYTES,
            max_sessions=MOST_SESSIONS,
        )
        made = _Open(desk, manager, boxes)
        made.task = asyncio.get_running_loop().create_task(made.run())
        return made

    def _close_idle(self) -> None:
        before = time.monotonic() - IDLE_SECONDS
        for key, each in tuple(self._open.items()):
            if not each.busy and each.last < before:
                del self._open[key]
                each.over.set()

    async def close(self) -> None:
        """End every call and every desk."""
        desks, self._open = tuple(self._open.values()), {}
        await asyncio.gather(*(each.close() for each in desks))
