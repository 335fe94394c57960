"""What `run`, `shell` and `check` do where RINGFENCE_URL names a server.

On a Unix socket the server is on this machine, and works in the directory that one is in. Elsewhere it is another
machine: without --workspace, which is a path there, it works in an empty directory of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from ringfence.cli.attaching import attach
from ringfence.cli.say import print_line, print_note
from ringfence.client.connecting import Server, connect
from ringfence.dataclass import replace
from ringfence.errors import CommandNotAllowed
from ringfence.manager.blocking import run_in, wait_for
from ringfence.manager.granting import current_directory
from ringfence.manager.options import SandboxOptions
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.values.outcome import REFUSED_CODE, Result
from ringfence.values.verdict import Decision, Reason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ringfence.client.sandbox import RemoteSandbox
    from ringfence.manager.sandbox import Sandbox
    from ringfence.values.request import OnOutput, Request


def run_there(
    command: Sequence[str],
    options: SandboxOptions,
    *,
    terminal: bool,
    stdin: bytes | None,
    timeout: float | None,
    language: str | None,
    on_output: OnOutput | None,
) -> int | Result:
    """Run a command, as `ringfence run` has read it; its exit code if it had the terminal."""
    words = command[0] if len(command) == 1 else command

    async def whole() -> int | Result:
        async with _box(options, once=True) as box:
            if terminal:
                return await _attached(box, words, timeout=timeout)
            call: dict[str, Any] = {"stdin": stdin, "timeout": timeout, "on_output": on_output}
            return await run_in(cast("Sandbox", box), words, language=language, **call)

    return asyncio.run(whole()) if terminal else wait_for(whole())


def shell_there(options: SandboxOptions, command: Sequence[str], *, env: Mapping[str, str], verbose: bool) -> int:
    """A shell, or a program, on this terminal."""

    async def whole() -> int:
        async with _box(options, once=False) as box:
            if verbose:
                await box.open()
                if (wall := box.wall) is not None:
                    print_note(f"wall: {wall.name}; guarantees: {', '.join(sorted(wall.guarantees))}")
            return await _attached(box, command, env=env)

    return asyncio.run(whole())


def decided_there(options: SandboxOptions, request: Request) -> tuple[Decision, tuple[Reason, ...], tuple[str, ...]]:
    """What the server would decide, what its wall would refuse inside, and who says so."""

    async def whole() -> tuple[Decision, tuple[Reason, ...], tuple[str, ...]]:
        async with _box(options, once=True) as box:
            return box.decide(request), box.refused_inside(request), (f"decided by {box.server}",)

    return wait_for(whole())


@asynccontextmanager
async def _box(options: SandboxOptions, *, once: bool) -> AsyncIterator[RemoteSandbox]:
    async with connect() as server:
        chosen = _placed(options, server)
        async with server.for_one_call(chosen) if once else server.Sandbox(chosen) as box:
            yield box


def _placed(options: SandboxOptions, server: Server) -> SandboxOptions:
    if options.tool in (SHELL_TOOL, CODE_TOOL):
        options = replace(options, tool=None)  # as which commands and code are judged anyway
    if options.workspace is not None or not server.is_local:
        return options
    return replace(options, workspace=current_directory())


async def _attached(
    box: RemoteSandbox,
    command: str | Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> int:
    try:
        return await attach(cast("Sandbox", box), command, env=env, seconds=timeout, typed_by_person=True)
    except CommandNotAllowed as refusal:
        if not refusal.rule:
            raise
        print_line(f"refused: {refusal}")
        return REFUSED_CODE
