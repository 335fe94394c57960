"""Connects standard input and output, where they are no terminal, with a command in a box, as it goes on.

What comes on standard input is passed on as it comes, and its end too; a signal that would end us ends the command.
"""

import asyncio
import os
import signal
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from ringfence.manager.sandbox import Sandbox
from ringfence.values.outcome import SIGNAL_BASE, Result
from ringfence.values.request import Stream

_ENDS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_PIECE: Final = 65536


def brings_input() -> bool:
    """Whether standard input may hold something: it is a pipe, a socket or a file, and no terminal or /dev/null."""
    try:
        return not stat.S_ISCHR(os.fstat(0).st_mode)
    except OSError:
        return False


async def pipe(
    box: Sandbox,
    command: str | Sequence[str],
    *,
    cwd: str | None = None,
    typed_by_person: bool = False,
) -> tuple[int, Result | None]:
    """Run a command until it ends; its exit code, and its result unless a signal ended it.

    Args:
        typed_by_person: whether only a person writes to it, so that a shell needs no approval (`Sandbox.start`).
    """
    loop = asyncio.get_running_loop()
    told: list[int] = []
    process = await box.start(command, cwd=cwd, on_output=_show, typed_by_person=typed_by_person)

    def end(number: int) -> None:
        told.append(number)
        process.kill()

    for number in _ENDS:
        loop.add_signal_handler(number, end, number)
    feeding = loop.create_task(_pass_on(process.write)) if brings_input() else None
    if feeding is None:
        process.close_input()
    else:
        feeding.add_done_callback(lambda _: process.close_input())
    try:
        result = await process.wait()
    finally:
        if feeding is not None:
            feeding.cancel()
        for number in _ENDS:
            loop.remove_signal_handler(number)
    if told:
        return SIGNAL_BASE + told[0], None
    return (result.exit_code if result is not None else 1), result


def _show(stream: Stream, data: bytes) -> None:
    target = sys.stdout.buffer if stream is Stream.STDOUT else sys.stderr.buffer
    with suppress(OSError):  # nobody reads any longer
        target.write(data)
        target.flush()


async def _pass_on(write: Callable[[bytes], Awaitable[bool]]) -> None:
    """By a thread of its own: a file cannot be waited for, and other processes may share what the descriptor is."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue(8)

    def read() -> None:
        while True:
            try:
                data = os.read(0, _PIECE)
            except OSError:
                data = b""
            try:
                asyncio.run_coroutine_threadsafe(pieces.put(data), loop).result()
            except (RuntimeError, asyncio.CancelledError):
                return
            if not data:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    while data := await pieces.get():
        if not await write(data):
            return
