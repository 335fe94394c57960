"""A server's sandboxes as an engine's boxes, so that the suite for boxes runs through HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import ringfence
from ringfence.client.sandbox import RemoteSandbox
from ringfence.dataclass import replace
from ringfence.engines.base import Box, Engine, Process
from ringfence.errors import Closed, Internal
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.outcome import Result, SandboxAudit, TimedOut, Usage
from ringfence.values.request import Request
from tests.support.serving import RunningServer, running_server


class RemoteBox:
    """What `Box` says, by the face of a sandbox. A box that is gone is a fault there, and a closed sandbox here."""

    held: frozenset[str] = frozenset()
    window = -1
    memory = -1
    network_name = ""
    published: tuple[tuple[int, int], ...] = ()
    interprets = frozenset({"python"})

    def __init__(self, server: ringfence.Server, sandbox: RemoteSandbox) -> None:
        self.server = server
        self.sandbox = sandbox

    @property
    def wall(self) -> Wall:
        wall = self.sandbox.wall
        assert wall is not None
        return wall

    @property
    def audit(self) -> SandboxAudit:
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        return self.sandbox.is_active

    def probe(self) -> bool:
        return self.alive

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Nobody is told: who asks next is."""

    def find_program(self, names: tuple[str, ...]) -> str | None:
        """By asking the shell inside, without leaving this call."""
        asked = {"command": "; ".join(f"command -v {name}" for name in names)}
        said: str = self.sandbox._at_once("POST", "/executions", asked)["result"]["stdout"]
        return next(iter(said.splitlines()), None)

    async def run(self, request: Request) -> Result:
        try:
            result = await self.sandbox._run(request)
        except Closed as fault:
            raise Internal(f"the box was closed: {fault}") from fault
        if isinstance(result.ending, TimedOut):  # who allows no more is known to sandboxes, not to boxes
            return replace(result, ending=replace(result.ending, capped_by=""))
        return result

    async def start(self, request: Request, *, terminal: tuple[int, int] | None = None) -> Process:
        command: Any = request.command if request.command is not None else request.argv
        process = await self.sandbox.start(
            command,
            cwd=request.cwd,
            env=dict(request.env),
            stdin=request.stdin,
            timeout=request.timeout,
            output_limit=request.output_limit,
            terminal=terminal,
            on_output=request.on_output,
        )
        return cast("Process", process)

    def processes(self) -> tuple[Process, ...]:
        return cast("tuple[Process, ...]", self.sandbox.processes())

    def contexts(self) -> tuple[tuple[str, str], ...]:
        return self.sandbox.contexts()

    def interrupt(self, name: str, language: str) -> bool:
        return self.sandbox.interrupt(name, language=language)

    async def restart(self, name: str, language: str) -> None:
        await self.sandbox.restart(name, language=language)

    async def warm(self) -> None:
        await self.sandbox.warm()

    def usage(self) -> Usage:
        return self.sandbox.current_usage()

    async def close(self) -> None:
        await self.sandbox.close()
        await self.server.close()


class RemoteEngine:
    """Makes sessions on a server that obey a grant."""

    name = "server"

    def __init__(self, server: RunningServer) -> None:
        self._server = server

    async def open(self, grant: Grant) -> Box:
        there = ringfence.connect(f"unix://{self._server.socket}")
        sandbox = there.Sandbox(
            workspace=grant.workspace,
            read_only=grant.read_only,
            read=grant.readable,
            write=grant.writable,
            deny=grant.denied,
            env=grant.env,
            limits=grant.limits,
            preload=grant.preload,
        )
        await sandbox.open()
        return cast("Box", RemoteBox(there, sandbox))


@contextmanager
def server_of_boxes(home: Path, secret: str) -> Iterator[Engine]:
    """One server for the boxes of a module's tests; `secret` is in its environment."""
    with running_server(home, environ={"TOKEN": secret}) as server:
        yield cast("Engine", RemoteEngine(server))
