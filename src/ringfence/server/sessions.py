"""A session as the service keeps it: one sandbox with a workspace, of one tenant, for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.errors import Busy, SessionLost
from ringfence.manager.parts import SandboxParts
from ringfence.manager.sandbox import Sandbox
from ringfence.server import wire

if TYPE_CHECKING:
    from ringfence.audit.violations import ViolationStore
    from ringfence.manager.options import SandboxOptions
    from ringfence.manager.workspaces import Shadow
    from ringfence.server.executions import Execution


class Session:
    """
    Args:
        sandbox: None for one that an earlier run of the server had: its box is gone.
    """

    def __init__(
        self,
        *,
        tenant: str,
        id: str,
        asked: wire.SessionCreate,
        agent_id: str,
        workspace: Path,
        created_at: float,
        expires_at: float,
        sandbox: Sandbox | None,
        shadow: Shadow | None = None,
        make: Callable[[], Sandbox] | None = None,
        askers: set[str] | None = None,
    ) -> None:
        self.tenant = tenant
        self.id = id
        self.asked = asked
        self.agent_id = agent_id
        self.workspace = workspace
        self.created_at = created_at
        self.expires_at = expires_at
        self._until = time.monotonic() + expires_at - time.time()
        """The same on a clock that nobody sets."""
        self.shadow = shadow
        self._sandbox = sandbox
        self._make = make
        self.askers = askers if askers is not None else set()
        """The ids of tokens that have run something in it."""
        self.at_rest = asyncio.Lock()
        """Held by whoever works on its files as a whole."""
        self._is_paused = False
        self.executions: dict[str, Execution] = {}
        self.is_ending = False

    @property
    def key(self) -> tuple[str, str]:
        return self.tenant, self.id

    @property
    def owns_workspace(self) -> bool:
        """Whether its directory was made for it, and goes with it."""
        return self.asked.workspace is None

    @property
    def sandbox(self) -> Sandbox:
        """
        Raises:
            SessionLost: the server was restarted since.
        """
        if self._is_paused:
            raise Busy("the session's changes are being committed", hint="try again in a moment")
        if self._sandbox is None:
            raise SessionLost(
                f"the box of the session {self.id!r} was lost when the server was restarted",
                session_id=self.id,
                hint="its files are still there: fork it, or end it and make a new one",
            )
        return self._sandbox

    def live_for(self, ttl_seconds: float) -> None:
        """From now on."""
        self.expires_at = time.time() + ttl_seconds
        self._until = time.monotonic() + ttl_seconds

    @property
    def is_over(self) -> bool:
        """Whether its time is; a clock that is set changes nothing about it."""
        return time.monotonic() >= self._until

    @property
    def is_lost(self) -> bool:
        return self._sandbox is None

    async def pause(self) -> None:
        """Close the box, so that nobody uses its files; `resume` makes a new one over them.

        Raises:
            Busy: something runs in it.
        """
        if any(execution.is_running for execution in self.executions.values()):
            raise Busy("something runs in the session", hint="wait for it, or end it")
        self._is_paused = True
        if self._sandbox is not None:
            await self._sandbox.close()

    async def resume(self) -> None:
        """
        Raises:
            InitializationFailed: the box could not be made again; the session is lost.
        """
        try:
            if self._sandbox is not None and self._make is not None:
                self._sandbox = None
                sandbox = await asyncio.to_thread(self._make)
                await sandbox.__aenter__()
                self._sandbox = sandbox
        finally:
            self._is_paused = False

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()

    def answer(self) -> wire.Session:
        sandbox, asked = self._sandbox, self.asked
        wall = sandbox.wall if sandbox is not None else None
        return wire.Session(
            id=self.id,
            state="lost" if sandbox is None else "open",
            created_at=self.created_at,
            expires_at=self.expires_at,
            metadata=asked.metadata,
            preset=asked.preset,
            role=asked.role,
            agent_id=self.agent_id,
            workspace=str(self.workspace),
            shadow=None if self.shadow is None else self.shadow.id,
            published={}
            if sandbox is None
            else {str(port): f"/v1/sessions/{self.id}/ports/{port}/http/" for port in sandbox.published},
            contexts=[] if sandbox is None else [list(pair) for pair in sandbox.contexts()],
            idle_seconds=0.0 if sandbox is None else sandbox.idle_seconds,
            wall=None
            if wall is None
            else {
                "name": wall.name,
                "guarantees": sorted(map(str, wall.guarantees)),
                "limits_by": list(wall.limits_by),
                "notes": list(wall.notes),
            },
            notes=[] if sandbox is None else list(sandbox.notes),
        )


def make_sandbox(
    options: SandboxOptions, session_id: str, violations: ViolationStore, *, once: bool = False
) -> Sandbox:
    """A sandbox whose records name the session, and whose violations are kept with its tenant's."""
    parts = SandboxParts.of(options, once=once)
    who = replace(parts.reporting.who, session_id=session_id)
    return Sandbox(replace(parts, reporting=replace(parts.reporting, who=who, violations=violations)))
