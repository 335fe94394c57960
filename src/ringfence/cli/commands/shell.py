"""`ringfence shell`: a person's own shell inside the wall, to try what an agent would see."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.exits import Finished
from ringfence.cli.say import note
from ringfence.cli.shadows import work_on
from ringfence.errors import InvalidConfig
from ringfence.manager.assemble import Judged
from ringfence.manager.sandbox import Sandbox
from ringfence.manager.workspaces import Shadow
from ringfence.values.request import Stream


def shell(
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", metavar="DIR", help="The directory to work in; default: here.")
    ] = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Work on a shadow: nothing reaches the files before you commit it.")
    ] = False,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="SHADOW", help="Work on this shadow: its id or name.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Use this configuration file.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Hide and grant by this policy.")] = None,
    role: Annotated[str | None, typer.Option(metavar="NAME", help="The role in the policy.")] = None,
) -> None:
    """Open a shell in a sandbox, on this terminal.

    What you see is what an agent would see. The commands that you type are yours: the wall holds them, the policy's
    rules about single commands do not ask.

    Example:

        ringfence shell --shadow
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidConfig("a shell needs a terminal", hint="use `ringfence run` for commands from elsewhere")
    judged = Judged(policy=policy, role=role)
    with work_on(workspace, judged, shadow=shadow, inside=inside) as (place, chosen):
        code = asyncio.run(_session(place, chosen, config, policy, role))
    raise Finished(code)


async def _session(
    workspace: Path | None, shadow: Shadow | None, config: Path | None, policy: Path | None, role: str | None
) -> int:
    async with Sandbox(workspace, shadow=shadow, config=config, policy=policy, role=role) as box:
        note("a shell inside the wall; `exit` ends it")
        rows, columns = _size()
        loop = asyncio.get_running_loop()
        with _raw_terminal():
            process = await box.start(["/bin/bash", "-i"], terminal=(rows, columns), on_output=_show)
            loop.add_signal_handler(signal.SIGWINCH, lambda: process.resize(*_size()))
            loop.add_signal_handler(signal.SIGINT, lambda: process.signal(signal.SIGINT))
            typing = asyncio.create_task(_pass_keys_on(process.write))
            try:
                result = await process.wait()
            finally:
                typing.cancel()
                loop.remove_signal_handler(signal.SIGWINCH)
                loop.remove_signal_handler(signal.SIGINT)
        return result.exit_code if result is not None else 1


def _show(_: Stream, data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def _pass_keys_on(write: Callable[[bytes], Awaitable[bool]]) -> None:
    loop = asyncio.get_running_loop()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    loop.add_reader(0, lambda: keys.put_nowait(os.read(0, 4096)))
    try:
        while data := await keys.get():
            await write(data)
    finally:
        loop.remove_reader(0)


def _size() -> tuple[int, int]:
    size = os.get_terminal_size(sys.stdout.fileno())
    return size.lines, size.columns


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the shell inside, Ctrl-C too; the terminal is as before afterwards."""
    before = termios.tcgetattr(0)
    tty.setraw(0, termios.TCSADRAIN)  # what was typed ahead stays
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
