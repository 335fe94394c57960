"""Stand-ins for the ports, and builders of values: tests say only what matters to them."""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ringfence.confinement.base import Descriptors, Launch, Probe, StandIn, View
from ringfence.engines.base import Agree, Process
from ringfence.errors import InitializationFailed, Internal, SpawnFailed
from ringfence.limits.base import UsageReading
from ringfence.values.files import FileOperation, Performed
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limit
from ringfence.values.outcome import (
    Ending,
    Exited,
    LimitHit,
    Observed,
    Result,
    SandboxAudit,
    Signalled,
    TimedOut,
    Usage,
)
from ringfence.values.request import Overflow, Request, Stream
from ringfence.values.violation import Violation

FAKE_WALL = Wall("fake", frozenset(), ("nothing",), ("nothing runs",))


def a_view(**changes: Any) -> View:
    """A small view; whatever is given replaces its part."""
    parts: dict[str, Any] = {
        "uid": 1000,
        "gid": 1000,
        "home": "/home/agent",
        "system": ("/usr",),
        "links": (("/bin", "usr/bin"),),
        "texts": (("hostname", "sandbox\n"),),
        "writable": ("/srv/work",),
        "tmp_bytes": 1 << 20,
    }
    return View(**(parts | changes))


def a_grant(workspace: Path, **changes: Any) -> Grant:
    return Grant(workspace=workspace, **changes)


@dataclass(slots=True)
class FakeHolder:
    """A holder whose readings are written down beforehand; the last one stays."""

    readings: list[UsageReading] = field(default_factory=lambda: [UsageReading()])
    name: str = "fake"
    enforces: frozenset[Limit] = frozenset()
    joins: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    kills: int = 0
    looks: int = 0
    closed: bool = False

    def read(self, first_pid: int) -> UsageReading:
        self.looks += 1
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]

    def memory_kills(self) -> int:
        return self.kills

    def peak_memory_bytes(self) -> int:
        return max(reading.memory_bytes for reading in self.readings)

    def start_command(self) -> None:
        """There is no peak to forget."""

    def close(self) -> None:
        self.closed = True


@dataclass(slots=True)
class FakeConfiner:
    """A confiner that can be as weak as a test wants it."""

    name: str
    guarantees: frozenset[Guarantee] = frozenset(Guarantee)
    missing: str = ""
    hint: str = ""

    def probe(self) -> Probe:
        return Probe(frozenset() if self.missing else self.guarantees, self.missing, self.hint)

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        raise InitializationFailed("a fake wall holds nothing")


class FakeBox:
    """Understands enough of a shell to pass for a box: what it runs never leaves this process.

    `echo WORDS` (also with `>&2`), `cat`, `pwd`, `exit N`, `sleep SECONDS`, `kill -N $$`, `printenv NAME` and `yes`,
    with `;` between them.
    """

    wall = FAKE_WALL
    audit = SandboxAudit("fake", ())
    window = -1
    memory = -1
    interprets: frozenset[str] = frozenset()
    held: frozenset[str] = frozenset()

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._jobs: set[asyncio.Task[Ending]] = set()
        self._closed = False
        self.ran: list[Request] = []
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    @property
    def alive(self) -> bool:
        return not self._closed

    def last_seen(self, request: Request) -> tuple[tuple[Violation, ...], Observed | None]:
        return (), None

    def find_program(self, names: tuple[str, ...]) -> str | None:
        return names[0]

    async def run(self, request: Request) -> Result:
        if self._closed:
            raise Internal("the box is gone")
        self.ran.append(request)
        limits = self._grant.limits
        if request.output_limit is not None:
            limits = replace(limits, output_bytes=min(request.output_limit, limits.output_bytes))
        timeout = min(request.timeout or limits.wall_seconds, limits.wall_seconds)
        shell = _Shell(request, dict(self._grant.env) | dict(request.env), replace(self._grant, limits=limits))
        job = asyncio.create_task(shell.run())
        self._jobs.add(job)
        try:
            await asyncio.wait((job,), timeout=timeout)
        finally:
            finished = job.done()
            job.cancel()
            self._jobs.discard(job)
        if self._closed:
            raise Internal("the box was closed while the command ran")
        ending = job.result() if finished else TimedOut(timeout)
        return Result(
            ending=ending,
            stdout_bytes=bytes(shell.said[Stream.STDOUT]),
            stderr_bytes=bytes(shell.said[Stream.STDERR]),
            usage=Usage(measured_by="imagination"),
            wall=self.wall,
            audit=self.audit,
        )

    async def start(
        self, request: Request, *, terminal: tuple[int, int] | None = None, channel: int | None = None
    ) -> Process:
        raise SpawnFailed(request.shown, "a fake box has one process, ours")

    async def perform(
        self, operation: FileOperation, agree: Agree, data: AsyncIterator[bytes] | None = None
    ) -> Performed:
        """`read` and `write`, on the host's files; it has none of its own."""
        path = Path(operation.path)
        if operation.name not in ("read", "write"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), operation.path)
        agree(os.path.realpath(path))
        if operation.name == "read":
            return Performed((os.path.realpath(path),), path.read_bytes())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join([piece async for piece in data] if data else ()))
        return Performed((os.path.realpath(path),))

    def processes(self) -> tuple[Process, ...]:
        return ()

    def contexts(self) -> tuple[tuple[str, str], ...]:
        return ()

    def interrupt(self, name: str, language: str) -> bool:
        return False

    async def restart(self, name: str, language: str) -> None:
        """There is no interpreter."""

    async def warm(self) -> None:
        """There is nothing to start."""

    def probe(self) -> bool:
        return self.alive

    def when_lost(self, tell: Callable[[], None]) -> None:
        self.tell = tell

    def usage(self) -> Usage:
        return Usage(measured_by="imagination")

    async def close(self) -> None:
        self._closed = True
        jobs = tuple(self._jobs)
        for job in jobs:
            job.cancel()
        if jobs:
            await asyncio.wait(jobs)


class FakeEngine:
    name = "fake"

    def __init__(self) -> None:
        self.boxes: list[FakeBox] = []

    async def open(self, grant: Grant) -> FakeBox:
        self.boxes.append(FakeBox(grant))
        return self.boxes[-1]


class _Shell:
    def __init__(self, request: Request, env: dict[str, str], grant: Grant) -> None:
        self._request = request
        self._env = env
        self._cwd = os.fspath(request.cwd or grant.workspace)
        self._most = grant.limits.output_bytes
        self.said = {stream: bytearray() for stream in Stream}

    async def run(self) -> Ending:
        if self._request.argv is not None:
            return await self._one(self._request.argv) or Exited(0)
        ending: Ending | None = None
        for line in (self._request.command or "").split(";"):
            ending = await self._one(shlex.split(line))
            if ending is not None and ending != Exited(1):
                return ending
        return ending or Exited(0)

    async def _one(self, words: Sequence[str]) -> Ending | None:
        match list(words):
            case ["echo", *rest, ">&2"]:
                return self._say(Stream.STDERR, " ".join(rest).encode() + b"\n")
            case ["echo", *rest]:
                return self._say(Stream.STDOUT, " ".join(rest).encode() + b"\n")
            case ["pwd"]:
                return self._say(Stream.STDOUT, self._cwd.encode() + b"\n")
            case ["printenv", name]:
                value = self._env.get(name)
                return Exited(1) if value is None else self._say(Stream.STDOUT, value.encode() + b"\n")
            case ["cat"]:
                return self._say(Stream.STDOUT, await self._input())
            case ["exit", code]:
                return Exited(int(code))
            case ["kill", number, "$$"]:
                return Signalled(-int(number))
            case ["sleep", seconds]:
                await asyncio.sleep(float(seconds))
                return None
            case ["yes"]:
                return self._say(Stream.STDOUT, b"y\n" * self._most)
            case [program, *_]:
                raise SpawnFailed(program, "No such file or directory")
            case _:
                return None

    async def _input(self) -> bytes:
        given = self._request.stdin
        if given is None or isinstance(given, bytes):
            return given or b""
        return b"".join([piece async for piece in given])

    def _say(self, stream: Stream, data: bytes) -> Ending | None:
        said = self.said[stream]
        room = self._most - len(said)
        said += data[:room]
        if self._request.on_output is not None and data[:room]:
            self._request.on_output(stream, data[:room])
        over = len(data) > room and self._request.overflow is Overflow.STOP
        return LimitHit(Limit.OUTPUT, self._most) if over else None
