"""Waits for descriptors, children and what must not be left half done, on the event loop and without threads."""

import asyncio
import os
from typing import Any, Final, Protocol

_LOOK_SECONDS: Final = 0.01
"""Between two looks at a child, where nobody tells us of its end."""


class Child(Protocol):
    """A process of ours, as `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self) -> int: ...


async def wait_readable(descriptor: int, seconds: float | None = None) -> bool:
    """Wait until something can be read there, or a pidfd's process has ended; false if that took too long."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        async with asyncio.timeout(seconds):
            await readable.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True


async def wait_child(child: Child) -> None:
    """Wait until it has ended, and reap it."""
    try:
        descriptor = os.pidfd_open(child.pid)
    except OSError:  # it was never there; or no descriptor is left, and it is waited for all the same
        while child.poll() is None:
            await asyncio.sleep(_LOOK_SECONDS)
        return
    try:
        await wait_readable(descriptor)
    finally:
        os.close(descriptor)
    child.wait()


async def wait_through_cancel(future: asyncio.Future[Any]) -> bool:
    """Wait for what must not be left half done; returns whether somebody asked us to stop meanwhile."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            cancelled = True
    return cancelled
