"""Runs a command bare, in a process group of its own, with its time and output bounded.

Reached only when the sandbox is switched off *and* declared not required. It guarantees nothing, and every result
says so.
"""

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress

from ringfence.errors import SpawnFailed
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limit
from ringfence.values.outcome import Exited, LimitHit, Result, SandboxAudit, Signalled, TimedOut, Usage
from ringfence.values.request import Request, Stream

_WALL = Wall("none", frozenset(), ("wall time and output only",), ("there is no wall: the command ran bare",))


class BareBox:
    wall = _WALL
    audit = SandboxAudit("none", ())
    alive = True

    def __init__(self, grant: Grant, environ: Mapping[str, str]) -> None:
        self._grant = grant
        self._environ = environ

    async def run(self, request: Request) -> Result:
        argv = request.argv or ("/bin/sh", "-c", request.command or "")
        begin = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE if request.stdin is not None else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=request.cwd or self._grant.workspace,
                env={**self._environ, **dict(self._grant.env), **dict(request.env)},
                start_new_session=True,
            )
        except OSError as fault:
            raise SpawnFailed(argv[0], fault.strerror or "unknown") from fault
        limits = self._grant.limits
        timeout = min(request.timeout or limits.wall_seconds, limits.wall_seconds)
        over = False
        try:
            async with asyncio.timeout(timeout):
                data = request.stdin if isinstance(request.stdin, bytes) else None
                out, err = await process.communicate(data)
            over = max(len(out), len(err)) > limits.output_bytes
            ending = Exited(process.returncode) if (process.returncode or 0) >= 0 else Signalled(-process.returncode)  # type: ignore[operator, arg-type]  # None is excluded: it has ended
        except TimeoutError:
            out = err = b""
            return Result(ending=TimedOut(timeout), wall=_WALL, audit=self.audit)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        for stream, piece in ((Stream.STDOUT, out), (Stream.STDERR, err)):
            if piece and request.on_output:
                request.on_output(stream, piece)
        return Result(
            ending=LimitHit(Limit.OUTPUT, limits.output_bytes) if over else ending,
            stdout_bytes=out[: limits.output_bytes],
            stderr_bytes=err[: limits.output_bytes],
            usage=Usage(wall_seconds=time.monotonic() - begin),
            wall=_WALL,
            audit=self.audit,
        )

    def usage(self) -> Usage:
        return Usage()

    async def close(self) -> None:
        """Nothing was made."""


class BareEngine:
    name = "subprocess"

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    async def open(self, grant: Grant) -> BareBox:
        return BareBox(grant, self._environ)
