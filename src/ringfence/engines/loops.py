"""Event loops that may be gone: a box is closed from another loop than the one that its calls were made on."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def forget_reader(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    """Stop listening there. A loop that is closed listens to nothing."""
    if not loop.is_closed():
        loop.remove_reader(descriptor)


def forget_writer(loop: asyncio.AbstractEventLoop, descriptor: int) -> None:
    if not loop.is_closed():
        loop.remove_writer(descriptor)


def runs_elsewhere(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether another thread runs this loop, so that only that thread may touch what lives on it."""
    return loop.is_running() and loop is not asyncio.get_running_loop()


async def run_there(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Have it done on a loop that another thread runs, and wait here for what comes of it."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
