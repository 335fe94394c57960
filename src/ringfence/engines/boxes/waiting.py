"""Waits for descriptors and children on the event loop, without threads."""

import asyncio
import os
import subprocess


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


async def wait_child(child: subprocess.Popen[bytes]) -> None:
    """Wait until it has ended, and reap it."""
    descriptor = os.pidfd_open(child.pid)
    try:
        await wait_readable(descriptor)
    finally:
        os.close(descriptor)
    child.wait()
