"""Boxes of a pool that are handed out: for one use, or bound to a session until that is released.

Nobody takes a box before it is decided that something may run in it: what is handed out here is a sandbox whose lease
is made at its first call that may run (`SingleUse.open`, `SessionTool.open`). Until then it is judged as if it were in
a workspace like any other of the pool.

A session has one workspace, that of its first box, which is the directory of `AgentWorkspace(session_id)`. Tools that
the policy treats alike share a box; a tool that it treats otherwise has one of its own over the same workspace.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass, field
from ringfence.errors import Internal, PoolExhausted, RingfenceError
from ringfence.manager.leases import Lease
from ringfence.manager.leftovers import LeftoverSearch
from ringfence.manager.routing import explaining
from ringfence.policy.isolation import isolated

if TYPE_CHECKING:
    from ringfence.engines.base import Box, Engine
    from ringfence.manager.sandbox import Sandbox
    from ringfence.manager.supply import BoxSupply, Warm
    from ringfence.pool.pool import Pool
    from ringfence.values.grant import Grant
    from ringfence.values.risk import RouteDecision, SecurityMode


class SingleUse:
    """The lease of a sandbox for one use.

    Args:
        reads_files: whether files come along, which nobody reads: harmless code may load one, so it gets a box for any.
    """

    def __init__(self, supply: BoxSupply, tool: str, mode: SecurityMode | None, *, reads_files: bool = False) -> None:
        self._supply = supply
        self._tool = tool
        self._mode = mode
        self._reads_files = reads_files
        self._leftovers: LeftoverSearch | None = None
        self.sandbox: Sandbox | None = None
        self.pool: Pool[Warm] | None = None
        self.warm: Warm | None = None
        """What was taken; None before anything might run."""

    async def open(self, routed: RouteDecision | None) -> Lease:
        if self.warm is None:
            if self._reads_files and routed is not None and not routed.is_isolated:
                routed = None
            why = self._supply.why_isolated(self._tool, self._mode, routed, once=True)
            self.pool = self._supply.pool(self._tool, isolated=bool(why))
            with explaining(why):
                warm = await self.pool.take()
            warm.sandbox, self.warm = self.sandbox, warm
            self._leftovers = LeftoverSearch(warm.grant)
            return Lease(warm.box, warm.grant, self._leftovers)
        assert self._leftovers is not None
        engine = self._supply.assembly(self._tool, self.warm.workspace).engine
        return Lease(await _open_again(self.warm, engine, self.warm.grant), self.warm.grant, self._leftovers)


@dataclass(slots=True, eq=False)
class Session:
    id: str
    isolated_why: str = ""
    """Why its boxes are isolated ones; empty if they are not. Chosen with its first box, for all of its tools."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever has a call in it that is more than one step."""
    first: Warm | None = None
    """The box that came with the workspace."""
    sandboxes: dict[tuple[str, SecurityMode | None], Sandbox] = field(default_factory=dict)
    """By tool, and by the mode that its calls are judged under, where that counts."""
    owners: dict[Pool[Warm], SessionTool] = field(default_factory=dict)
    """Who has the box of each kind of grant: tools that are treated alike share it."""
    waiting: int = 0
    """Callers who wait until it has a box."""
    after: asyncio.Task[None] | None = None
    """The end of the last session of this name, if that is still under way."""
    is_over: bool = False
    """Released: whoever still waits for it begins another one."""

    @property
    def idle_seconds(self) -> float:
        return min((sandbox.idle_seconds for sandbox in self.sandboxes.values()), default=0.0)

    @property
    def info(self) -> SessionInfo:
        return SessionInfo(
            self.id,
            self.first.workspace if self.first is not None else None,
            self.idle_seconds,
            tuple(context for owner in self.owners.values() for context in owner.contexts()),
        )


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as it is now."""

    id: str
    workspace: Path | None
    idle_seconds: float
    contexts: tuple[tuple[str, str], ...]


class SessionTool:
    """The lease of one tool's sandbox in a session."""

    def __init__(self, supply: BoxSupply, session: Session, tool: str, mode: SecurityMode | None) -> None:
        self._supply = supply
        self._session = session
        self._tool = tool
        self._mode = mode
        self._own: tuple[Engine, Grant, LeftoverSearch] | None = None
        """What its box is made with, if it has one of its own."""
        self.sandbox: Sandbox | None = None

    def contexts(self) -> tuple[tuple[str, str], ...]:
        return self.sandbox.contexts() if self.sandbox is not None else ()

    async def open(self, routed: RouteDecision | None) -> Lease:
        """Raises:
        PoolExhausted: the session was released meanwhile; otherwise as `Pool.take`.
        """
        session = self._session
        async with session.opening:
            if session.is_over:
                raise _released(session) if self._own is None else _ended()
            if self._own is not None:
                return await self._open_own(self._own)
            first = session.first
            # Under strict also where the session began with a tool that is not isolated.
            why = session.isolated_why or self._supply.why_isolated(
                self._tool, self._mode, routed if first is None else None, once=False
            )
            pool = self._supply.pool(self._tool, isolated=bool(why))
            if first is None:
                return await self._take_first(pool, why)
            owner = session.owners.get(pool)
            if owner is None:
                assembly = self._supply.assembly(self._tool, first.workspace)
                grant = assembly.grant
                if why and assembly.terms is not None:
                    grant = isolated(grant, assembly.terms.isolation_requires)
                lease = await self._open_own((assembly.engine, grant, LeftoverSearch(grant)))
                session.owners[pool] = self
                return lease
        assert owner.sandbox is not None
        return await owner.sandbox.lend()

    async def _take_first(self, pool: Pool[Warm], why: str) -> Lease:
        session = self._session
        terms = self._supply.nominal(self._tool).terms
        needs = terms.isolation_requires if why and terms is not None else frozenset()
        if session.after is not None:
            await asyncio.wait((session.after,))  # until the files of the last one lie where this one looks for them
        with explaining(why):
            warm = await pool.take()
            try:
                await self._supply.settle_in(session.id, self._tool, warm, needs)
            except BaseException:
                pool.discard(warm)
                raise
        session.first = warm
        session.isolated_why = why
        if why:
            warm.box.note(f"the session is {why}")
        session.owners[pool] = self
        leftovers = LeftoverSearch(warm.grant)
        self._own = (self._supply.assembly(self._tool, warm.workspace).engine, warm.grant, leftovers)
        warm.sandbox = self.sandbox
        if session.is_over:  # its box is closed with it
            raise _released(session)
        return Lease(warm.box, warm.grant, leftovers)

    async def _open_own(self, own: tuple[Engine, Grant, LeftoverSearch]) -> Lease:
        engine, grant, leftovers = own
        box = await _open_again(self._session, engine, grant)
        self._own = own
        return Lease(box, grant, leftovers)


async def _open_again(owner: Warm | Session, engine: Engine, grant: Grant) -> Box:
    """A new box in place of one that was lost; none if its owner ended meanwhile, for nobody would close it."""
    try:
        box = await engine.open(grant)
    except RingfenceError as fault:
        if owner.is_over:  # its workspace went away under it, which is no fault of the machine
            raise _ended() from fault
        raise
    if owner.is_over:
        await box.close()
        raise _ended()
    return box


def _ended() -> Internal:
    return Internal("the sandbox was closed while its box was being made", hint="acquire a new one")


def _released(session: Session) -> PoolExhausted:
    return PoolExhausted(
        f"the session {session.id!r} was released while it was being acquired", hint="acquire it again"
    )
