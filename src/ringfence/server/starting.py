"""What a caller asks to run, checked and made into what the library runs."""

from __future__ import annotations

import asyncio
import base64
import binascii
import signal
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING

from ringfence.errors import InvalidArgument
from ringfence.server import wire
from ringfence.values.execution import ExecutionRequest
from ringfence.values.request import Overflow

if TYPE_CHECKING:
    from ringfence.manager.sandbox import Process, Sandbox
    from ringfence.server.executions import Execution
    from ringfence.server.sessions import Session
    from ringfence.values.outcome import Result


def goes_on(asked: wire.ExecutionCreate) -> bool:
    """Whether it is a process with a handle: input, signals, a terminal."""
    if asked.code is not None:
        return False
    plain = asked.context is None and not asked.files and not asked.collect and not asked.keep_background
    return asked.interactive or asked.terminal is not None or (asked.background and plain)


def check_execution(asked: wire.ExecutionCreate, session: Session | None) -> None:
    """
    Raises:
        InvalidArgument: it makes no sense.
    """
    if sum(given is not None for given in (asked.command, asked.argv, asked.code)) != 1:
        raise InvalidArgument("an execution has code, a command, or argv", hint="set one of them")
    if asked.argv is not None and not asked.argv:
        raise InvalidArgument("argv is empty", argument="argv", hint="give a program")
    if asked.stdin is not None and asked.stdin_base64 is not None:
        raise InvalidArgument("stdin is given twice", argument="stdin", hint="give stdin or stdin_base64")
    live = asked.interactive or asked.terminal is not None
    if live and (asked.code is not None or session is None):
        raise InvalidArgument("only a command in a session can be interactive", argument="interactive")
    if live and (asked.context or asked.files or asked.collect or asked.keep_background):
        raise InvalidArgument(
            "what is interactive takes no context, files, collect or keep_background", argument="interactive"
        )
    if live and (asked.stdin is not None or asked.stdin_base64 is not None):
        raise InvalidArgument("what is interactive gets its input later", argument="stdin", hint="leave out stdin")
    if session is None and (asked.cwd is not None or asked.context is not None):
        raise InvalidArgument("without a session there is no directory and no context", hint="make a session")


def _stdin(asked: wire.ExecutionCreate) -> str | bytes | None:
    return asked.stdin if asked.stdin_base64 is None else _decoded("stdin_base64", asked.stdin_base64)


def _decoded(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidArgument(f"{name} is no base64", argument=name) from None


def _content(name: str, given: wire.FileContent) -> bytes | str:
    if (given.text is None) == (given.base64 is None):
        raise InvalidArgument(f"files: {name!r} has either text or base64", argument="files")
    return given.text if given.text is not None else _decoded(f"files[{name!r}]", given.base64 or "")


def library_request(
    asked: wire.ExecutionCreate, execution: Execution, stdin: AsyncIterable[bytes] | None = None
) -> ExecutionRequest:
    """What the library runs to its end, with its output told as it comes."""
    return ExecutionRequest(
        code=asked.code,
        language=asked.language,
        command=asked.command,
        argv=asked.argv,
        cwd=asked.cwd,
        env=asked.env,
        timeout=asked.timeout_seconds,
        files={name: _content(name, given) for name, given in asked.files.items()},
        context=asked.context,
        stdin=_stdin(asked) if stdin is None else stdin,
        collect=asked.collect,
        overflow=Overflow(asked.overflow),
        output_limit=asked.output_limit_bytes,
        keep_background=asked.keep_background,
        on_output=execution.hear,
    )


async def start_process(sandbox: Sandbox, asked: wire.ExecutionCreate, execution: Execution) -> Process:
    """What goes on beside others; raises as `Sandbox.start`."""
    size = asked.terminal
    is_live = asked.interactive or size is not None
    return await sandbox.start(
        asked.command if asked.command is not None else asked.argv or (),
        cwd=asked.cwd,
        env=asked.env,
        stdin=None if is_live else _stdin(asked) or b"",
        timeout=asked.timeout_seconds,
        output_limit=asked.output_limit_bytes,
        terminal=None if size is None else (size.rows, size.columns),
        on_output=execution.hear,
        typed_by_person=asked.typed_by_person,
    )


async def end_of(process: Process) -> Result:
    """Wait for it; whoever is cancelled ends it."""
    try:
        result = await process.wait()
    except asyncio.CancelledError:
        process.kill()
        await process.wait_end()
        raise
    assert result is not None, "it was waited for without a limit"
    return result


def signal_number(given: int | str) -> int:
    """
    Raises:
        InvalidArgument: there is no such signal.
    """
    try:
        return int(signal.Signals[given] if isinstance(given, str) else signal.Signals(given))
    except (KeyError, ValueError):
        raise InvalidArgument(f"there is no signal {given!r}", argument="signal", hint="such as SIGINT") from None
