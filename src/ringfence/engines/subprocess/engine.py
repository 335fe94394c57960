"""Runs a command bare, in a process group of its own, with its time and output bounded.

Reached in two ways, both of which somebody has to ask for: when the sandbox is switched off *and* declared not
required, and for code that static analysis finds SAFE under the PERMISSIVE mode, then with resource limits and an empty
environment (`Bare`). It guarantees nothing, and every result says so: what the command moves into another session
outlives it.
"""

import asyncio
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace

from ringfence.engines.base import Process
from ringfence.engines.streams import Capture, Reader, feed
from ringfence.errors import InitializationFailed, Internal, SpawnFailed
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limit
from ringfence.values.outcome import Ending, Exited, LimitHit, Result, SandboxAudit, Signalled, TimedOut, Usage
from ringfence.values.request import Request, Stream

_WALL = Wall("none", frozenset(), ("wall time and output only",), ("there is no wall: the command ran bare",))


_LIMITED_WALL = Wall("none", frozenset(), ("wall time, output, resource limits",), _WALL.notes)
_LIMITED = 'ulimit -c 0; ulimit -t "$1"; ulimit -v "$2"; ulimit -f "$3"; ulimit -n "$4"; shift 4; exec "$@"'


class BareBox:
    audit = SandboxAudit("none", ())
    window = -1
    memory = -1
    interprets: frozenset[str] = frozenset()

    def __init__(self, grant: Grant, environ: Mapping[str, str], *, limited: bool = False) -> None:
        self._grant = grant
        self._environ = environ
        self._limited = limited
        self.wall = _LIMITED_WALL if limited else _WALL
        self._turn = asyncio.Lock()
        self._running: _Running | None = None
        self._closed = False

    def note(self, text: str) -> None:
        self.wall = replace(self.wall, notes=(*self.wall.notes, text))

    @property
    def alive(self) -> bool:
        return not self._closed

    def find_program(self, names: tuple[str, ...]) -> str | None:
        path = self._environ.get("PATH", os.defpath)
        return next((found for name in names if (found := shutil.which(name, path=path)) is not None), None)

    async def run(self, request: Request) -> Result:
        async with self._turn:
            if self._closed:
                raise Internal("the box is gone", hint="open a new one")
            return await self._run(request)

    async def _run(self, request: Request) -> Result:
        limits = self._grant.limits
        timeout = min(request.timeout or limits.wall_seconds, limits.wall_seconds)
        begin = time.monotonic()
        env = {**self._environ, **dict(self._grant.env), **dict(request.env)}
        argv = request.argv or ("/bin/sh", "-c", request.command or "")
        running = self._running = _Running(self._held(argv), request, self._grant, env)
        try:
            ended = await running.wait(timeout)
        finally:
            running.end()
            self._running = None
        if running.faults:
            raise running.faults[0]
        if self._closed:
            raise Internal("the box was closed while the command ran")
        out, err = (reader.capture for reader in running.readers)
        return Result(
            ending=running.ending(limits.output_bytes) if ended else TimedOut(timeout),
            stdout_bytes=out.kept(),
            stderr_bytes=err.kept(),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            usage=Usage(wall_seconds=time.monotonic() - begin),
            wall=self.wall,
            audit=self.audit,
        )

    def _held(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """The same under resource limits, which hold for each process alone."""
        if not self._limited:
            return argv
        limits = self._grant.limits
        units = (limits.cpu_seconds, limits.memory_bytes / 1024, limits.file_bytes / 512, limits.open_files)
        return ("/bin/sh", "-c", _LIMITED, "sh", *(str(math.ceil(unit)) for unit in units), *argv)

    async def start(self, request: Request, *, terminal: tuple[int, int] | None = None) -> Process:
        raise SpawnFailed(request.shown, "nothing goes on beside others without a wall", hint="switch the sandbox on")

    def processes(self) -> tuple[Process, ...]:
        return ()

    def contexts(self) -> tuple[tuple[str, str], ...]:
        return ()

    def interrupt(self, name: str, language: str) -> bool:
        return False

    async def restart(self, name: str, language: str) -> None:
        """There is no interpreter that keeps a state."""

    async def warm(self) -> None:
        """There is nothing to start ahead of time."""

    def probe(self) -> bool:
        return self.alive

    def when_lost(self, tell: Callable[[], None]) -> None:
        """It cannot be lost: there is no box."""

    def usage(self) -> Usage:
        return Usage()

    async def close(self) -> None:
        self._closed = True
        if self._running is not None:
            self._running.kill()
        async with self._turn:
            pass  # whoever ran has ended


class _Running:
    """One command with its pipes, from its start to `end`, which has to be called."""

    def __init__(self, argv: tuple[str, ...], request: Request, grant: Grant, env: dict[str, str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._over = False
        self.faults: list[Exception] = []
        self.readers: list[Reader] = []
        with ExitStack() as theirs, ExitStack() as ours:
            inputs = stdin = -1
            if request.stdin is not None:
                inputs, stdin = os.pipe()
                theirs.callback(os.close, inputs)
                ours.callback(os.close, stdin)
            ends: list[int] = []
            for stream in Stream:
                mine, end = os.pipe()
                theirs.callback(os.close, end)
                ends.append(end)
                capture = Capture(grant.limits.output_bytes, request.overflow)
                self.readers.append(Reader(mine, stream, capture, request.on_output, self._stop, self._fail))
                ours.callback(self.readers[-1].close)
            try:
                self._process = subprocess.Popen(
                    argv,
                    stdin=inputs if inputs >= 0 else subprocess.DEVNULL,
                    stdout=ends[0],
                    stderr=ends[1],
                    cwd=request.cwd or grant.workspace,
                    env=env,
                    start_new_session=True,
                )
            except OSError as fault:
                raise SpawnFailed(argv[0], fault.strerror or "unknown") from fault
            ours.pop_all()
        for reader in self.readers:
            reader.listen()
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._settle)
        self._feeder = self._loop.create_task(feed(stdin, request.stdin)) if request.stdin is not None else None

    async def wait(self, timeout: float) -> bool:
        """Whether it ended, by itself or because it said too much, before the time was up."""
        await asyncio.wait((self._ended,), timeout=timeout)
        return self._ended.done()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill what is left of the group, take the rest of its output, let everything go."""
        self.kill()
        self._process.wait()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self._feeder is not None:
            self._feeder.cancel()
        for reader in self.readers:
            reader.drain()
            reader.close()

    def ending(self, output_bytes: int) -> Ending:
        code = self._process.returncode
        if self._over:
            return LimitHit(Limit.OUTPUT, output_bytes)
        return Exited(code) if code >= 0 else Signalled(-code)

    def _stop(self) -> None:
        self._over = True
        self._settle()

    def _fail(self, fault: Exception) -> None:
        self.faults.append(fault)
        self._settle()

    def _settle(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)


class BareEngine:
    name = "subprocess"

    def __init__(self, environ: Mapping[str, str], *, limited: bool = False) -> None:
        self._environ = environ
        self._limited = limited

    async def open(self, grant: Grant) -> BareBox:
        if grant.strict or grant.shadow is not None:
            raise InitializationFailed(
                "without a wall nothing is strict, and a shadow cannot stand in for the workspace",
                hint="switch the sandbox on again",
            )
        return BareBox(grant, self._environ, limited=self._limited)
