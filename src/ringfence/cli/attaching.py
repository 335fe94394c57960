"""Connects the caller's terminal with one inside a box: `ringfence run -t`, `ringfence shell`.

The caller's terminal goes into raw mode, so that every key reaches the program inside: Ctrl-C, Ctrl-Z and Ctrl-\\ are
bytes here, and signals only inside, where the box's own terminal makes them. The size follows the window. Whatever
happens, the terminal is put back as it was: also if we are told to end (SIGTERM, SIGHUP).

What this does not protect against: escape sequences. A full-screen program needs them, so all that is written inside
reaches the terminal, as with `ssh` and `docker run -t`.
"""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

from ringfence.cli.say import print_line
from ringfence.errors import InvalidArgument
from ringfence.manager.sandbox import Sandbox
from ringfence.values.outcome import SIGNAL_BASE, TIMEOUT_CODE
from ringfence.values.request import Stream

_ENDS = (signal.SIGTERM, signal.SIGHUP)


def require_terminal(what: str) -> None:
    """
    Raises:
        InvalidArgument: input or output is no terminal.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidArgument(f"{what} needs a terminal", hint="use `ringfence run` without -t for pipes and scripts")


async def attach(
    box: Sandbox,
    command: str | Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    seconds: float | None = None,
    asks: bool = False,
    typed_by_person: bool,
) -> int:
    """Run a command on this terminal until it ends; its exit code.

    Args:
        seconds: end it after this long.
        asks: whether a person may be asked before it starts, who needs the terminal as it is.
        typed_by_person: whether only a person writes to it, so that a shell needs no approval (`Sandbox.start`).
    """
    loop = asyncio.get_running_loop()
    told: list[int] = []
    with ExitStack() as undo:
        if not asks:
            undo.enter_context(_raw_terminal())  # first, so that what is typed ahead is not shown twice
        process = await box.start(command, env=env, terminal=_size(), on_output=_show, typed_by_person=typed_by_person)
        if asks:
            undo.enter_context(_raw_terminal())

        def end(number: int) -> None:
            told.append(number)
            process.kill()

        loop.add_signal_handler(signal.SIGWINCH, lambda: process.resize(*_size()))
        for number in _ENDS:
            loop.add_signal_handler(number, end, number)
        typing = asyncio.create_task(_pass_keys_on(process.write, lambda: end(signal.SIGHUP)))
        try:
            result = await process.wait(seconds)
            is_late = result is None
            if result is None:
                process.kill()
                result = await process.wait()
        finally:
            typing.cancel()
            for number in (signal.SIGWINCH, *_ENDS):
                loop.remove_signal_handler(number)
    if is_late:
        print_line(f"timed out after {seconds:g} s")
        return TIMEOUT_CODE
    if told:
        return SIGNAL_BASE + told[0]
    return result.exit_code if result is not None else 1


def _show(_: Stream, data: bytes) -> None:
    with suppress(OSError):  # the terminal is gone; SIGHUP says so too
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


async def _pass_keys_on(write: Callable[[bytes], Awaitable[bool]], on_end: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    loop.add_reader(0, lambda: keys.put_nowait(_read()))
    try:
        while data := await keys.get():
            await write(data)
        on_end()
    finally:
        loop.remove_reader(0)


def _read() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:  # the terminal is gone
        return b""


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.lines, size.columns


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the program inside; the terminal is as before afterwards."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead stays
    try:
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)
