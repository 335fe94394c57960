"""One execution request in one sandbox: files in, run, files out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from ringfence.dataclass import replace
from ringfence.errors import InvalidArgument
from ringfence.manager import collecting
from ringfence.values.outcome import Refused, Result
from ringfence.values.sandbox_type import SandboxType

if TYPE_CHECKING:
    from ringfence.manager.pipeline import Collect, Prepare
    from ringfence.manager.sandbox import Sandbox
    from ringfence.values.execution import ExecutionRequest
    from ringfence.values.request import OnOutput, Overflow
    from ringfence.values.sizes import Duration, Size


async def run_in(sandbox: Sandbox, request: ExecutionRequest, *, is_fresh: bool) -> Result:
    """Run a request.

    Args:
        is_fresh: whether nobody has used the sandbox before, nor will after it: files that it made are collected then,
            unless the request says otherwise.

    Raises:
        RingfenceError: as `Sandbox.code` and `Sandbox.shell`.
    """
    written: dict[str, int] = {}
    wanted = is_fresh if request.collect is None else request.collect
    begin = collecting.now_ns() if wanted else 0

    async def prepare() -> None:
        nonlocal begin
        if request.files:
            written.update(await asyncio.to_thread(_write_files, sandbox, request.files))
        begin = collecting.now_ns() if wanted else 0

    async def collect(result: Result) -> Result:
        if isinstance(result.ending, Refused):
            return result
        if is_fresh and not written and collecting.is_untouched(sandbox.workspace, begin):
            return result
        files = await asyncio.to_thread(collecting.collect, sandbox.workspace, begin, written)
        return replace(result, files=files) if files else result

    joined: _Joined = {
        "stdin": request.stdin,
        "timeout": request.timeout,
        "cwd": request.cwd,
        "overflow": request.overflow,
        "output_limit": request.output_limit,
        "on_output": request.on_output,
        "prepare": prepare if request.files or wanted else None,
    }
    collects = collect if wanted else None
    if request.code is not None:
        if request.env or request.keep_background:
            raise InvalidArgument("code takes no variables of its own, and leaves nothing running", argument="env")
        return await sandbox.code(request.language, request.code, context=request.context, collect=collects, **joined)
    commanded: _Commanded = {"env": request.env, "keep_background": request.keep_background, "collect": collects}
    if request.argv is not None:
        if request.context is not None:
            raise InvalidArgument("a program runs in no shell that keeps its state", argument="context")
        return await sandbox.exec(request.argv, **commanded, **joined)
    return await sandbox.shell(request.command or "", context=request.context, **commanded, **joined)


class _Joined(TypedDict):
    """What all of them take."""

    stdin: str | bytes | AsyncIterable[bytes] | None
    timeout: Duration | None
    cwd: str | None
    overflow: Overflow
    output_limit: Size | None
    on_output: OnOutput | None
    prepare: Prepare | None


class _Commanded(TypedDict):
    """What commands take, with and without a shell."""

    env: Mapping[str, str]
    keep_background: bool
    collect: Collect | None


def type_of(sandbox: Sandbox) -> SandboxType:
    """Which kind of engine its box is of: the one that was asked for, or one that stands in for it."""
    return SandboxType.of(sandbox.wall.name if sandbox.wall is not None else sandbox.name)


def _write_files(sandbox: Sandbox, files: Mapping[str, bytes | str]) -> dict[str, int]:
    """Write them into the workspace; returns their times, by which a later change is known."""
    with sandbox.host_files() as workspace:
        for path, data in files.items():
            workspace.write(path, data)
    root = sandbox.workspace
    times: dict[str, int] = {}
    for path in files:
        if not os.path.isabs(path):
            with suppress(OSError):  # what runs beside it may have removed it already
                times[str(Path(path))] = os.lstat(root / path).st_ctime_ns
    return times
