"""The life of `ringfence mcp`: serves one connection over stdio, and leaves nothing behind, however it ends.

It ends with the client's end of input, when nobody reads our output, or by a signal. Then calls are cancelled, boxes
are closed, and shadows are left as `ringfence workspace` finds them. If the process is killed, the launcher's guardian
ends the boxes (native/launch.c).
"""

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ringfence.mcp.boxes import Boxes, Settings
from ringfence.mcp.early import Backlog
from ringfence.mcp.server import Desk
from ringfence.mcp.wire import Wire

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LAST_WORDS_SECONDS: Final = 1.0


async def serve(
    settings: Settings, source: int, target: int, say: Callable[[str], None], backlog: Backlog | None = None
) -> int:
    """Serve until the client is gone; the signal that ended it, or 0.

    Args:
        backlog: what was read already (`early.py`).
    """
    loop = asyncio.get_running_loop()
    over: asyncio.Future[int] = loop.create_future()

    def end(by: int = 0) -> None:
        if not over.done():
            over.set_result(by)

    for number in _SIGNALS:
        loop.add_signal_handler(number, end, number)
    boxes = Boxes(settings, say)
    desk = Desk(boxes)
    wire = Wire(source, target, end, backlog or Backlog())
    carrying = loop.create_task(wire.carry())
    server = desk.server()
    serving: asyncio.Task[None] = loop.create_task(
        server.run(wire.incoming, wire.outgoing, server.create_initialization_options())
    )
    try:
        waiting: set[asyncio.Future[Any]] = {over, serving}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({serving})
        await desk.close()
        await boxes.close()
        await wire.finish(carrying, _LAST_WORDS_SECONDS)
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    if serving.done() and not serving.cancelled() and (fault := serving.exception()) is not None:
        raise fault
    return over.result() if over.done() else 0
