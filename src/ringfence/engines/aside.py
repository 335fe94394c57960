"""Takes a step that may be long away from the event loop: a walk over a workspace, a first look at the machine.

Whoever waits for one box must not make all others wait. A step that leaves a process running stays on the loop: some of
what we start ends with the thread that started it.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def aside(step: Callable[[], _T], undo: Callable[[_T], None] | None = None) -> _T:
    """Run a step in a thread. If we are cancelled meanwhile it goes on by itself, and what it has made is undone."""
    running = asyncio.get_running_loop().run_in_executor(None, step)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        running.add_done_callback(lambda done: _settle(done, undo))
        raise


def _settle(done: asyncio.Future[_T], undo: Callable[[_T], None] | None) -> None:
    if not done.cancelled() and done.exception() is None and undo is not None:
        undo(done.result())
