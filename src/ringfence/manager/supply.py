"""Where a pool's boxes come from: made ahead of time, by the tools that they are for, each with a workspace of its own.

A box that waits has a definite grant. Tools that the policy treats alike share boxes; a tool that it treats otherwise
has boxes of its own. Where the policy isolates risky code, there is a second set of boxes for it, with a wall of its
own. None of them is made before the first such code comes: it may never come, and a kernel for each box is expensive.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.audit.events import BoxMade
from ringfence.dataclass import dataclass, replace
from ringfence.engines.room import OF_A_BOX, TO_MAKE_A_BOX, Hold, descriptor_room
from ringfence.errors import Closed, Internal, InvalidArgument
from ringfence.manager.allowed import Allowed
from ringfence.manager.assemble import Assembly, Blueprint, make_blueprint, make_zygotes, warn_of
from ringfence.manager.configuring import home_directory, open_journal
from ringfence.manager.reporting import tell
from ringfence.manager.scratch import Scratch, scratch_directory
from ringfence.manager.session_places import SessionPlaces
from ringfence.policy.isolation import Isolation, isolated, isolation_of
from ringfence.pool.pool import Pool
from ringfence.values.guarantee import Guarantee

if TYPE_CHECKING:
    from ringfence.audit.journal import Journal
    from ringfence.engines.base import Box
    from ringfence.manager.options import SandboxOptions
    from ringfence.manager.sandbox import Sandbox
    from ringfence.pool.plan import PoolConfig
    from ringfence.pool.state import PoolState
    from ringfence.values.grant import Grant
    from ringfence.values.risk import RouteDecision, SecurityMode

ISOLATED = "isolated"
"""Before the tools, in the state: the boxes for code of theirs that is isolated."""


@dataclass(slots=True, eq=False)
class Warm:
    """A box that waits, with the workspace that goes with it."""

    box: Box
    grant: Grant
    workspace: Path
    scratch: Scratch
    hold: Hold
    is_kept: bool = False
    """Whether the workspace stays when the box goes."""
    sandbox: Sandbox | None = None
    """Whom it was handed to."""
    is_over: bool = False
    """It is being closed, or was."""

    @property
    def alive(self) -> bool:
        return self.box.alive

    def probe(self) -> bool:
        return self.box.probe()

    def when_lost(self, tell: Callable[[], None]) -> None:
        self.box.when_lost(tell)

    async def close(self) -> None:
        self.is_over = True
        try:
            if self.sandbox is not None:
                await self.sandbox.close()
            await self.box.close()
        finally:
            if not self.is_kept and not self.scratch.remove_empty(self.workspace):
                await asyncio.to_thread(self.scratch.remove, self.workspace)
            self.hold.give_back()


class BoxSupply:
    """The boxes of one pool.

    Args:
        options: what is asked of every box.
        size: how many are kept in all (of each kind one at least), how many there are of each kind at most, and how
            fast they are made.
        tools: the policy's tools that boxes are kept ready for.
        directories: what is in each new workspace.
    """

    def __init__(
        self, options: SandboxOptions, size: PoolConfig, tools: Iterable[str], directories: Iterable[str] = ()
    ) -> None:
        self._options = options
        self._directories = tuple(directories)
        self._size = size
        self._tools = tuple(tools)
        self._journal: Journal | None = None
        self._scratch: Scratch | None = None
        self._blueprints: dict[str, Blueprint] = {}
        self._nominal: dict[str, Assembly] = {}
        self._allowed: dict[str, Allowed] = {}
        self._pools: dict[str, Pool[Warm]] = {}
        self._isolated: dict[str, Pool[Warm]] = {}
        """For isolated code, by tool; the tool's other pool, where its wall gives as much."""

    @property
    def is_open(self) -> bool:
        return bool(self._pools)

    @property
    def pools(self) -> tuple[Pool[Warm], ...]:
        return tuple(dict.fromkeys((*self._pools.values(), *self._isolated.values())))

    @property
    def ordinary(self) -> tuple[Pool[Warm], ...]:
        """Those for code that is not isolated."""
        return tuple(dict.fromkeys(self._pools.values()))

    async def start(self) -> None:
        """Make the first boxes; returns when they are ready. Close it also if this fails.

        Raises:
            InvalidConfig, PathAccessDenied, InitializationFailed: as `SandboxPool.start`.
        """
        home = home_directory(os.environ)
        journal = self._journal = open_journal(os.environ, home)
        journal.recover()
        warn_of(journal.take_notes())
        journal.prepare()
        directory = scratch_directory(os.environ, home)
        scratch = self._scratch = Scratch(directory, self._directories)
        self._places = SessionPlaces(directory)
        sample = scratch.make()
        networks, zygotes = None, make_zygotes()
        for tool in self._tools:
            made = make_blueprint(self._options, tool=tool, journal=journal, networks=networks, zygotes=zygotes)
            self._blueprints[tool], networks = made, made.networks
            nominal = self._nominal[tool] = made.assembly(sample)
            self._allowed[tool] = Allowed(nominal.grant, nominal.terms, asks=self._options.confirmation is not None)
        size = self._size_of_each(len({assembly.grant for assembly in self._nominal.values()}))
        by_grant: dict[Grant, Pool[Warm]] = {}
        for tool, blueprint in self._blueprints.items():
            needs = blueprint.terms.isolation_requires if blueprint.terms is not None else frozenset()
            for pools, more in ((self._pools, frozenset[Guarantee]()), (self._isolated, needs)):
                wanted = isolated(self._nominal[tool].grant, more)
                if wanted not in by_grant:
                    by_grant[wanted] = Pool(partial(self._make, blueprint, more), size)
                pools[tool] = by_grant[wanted]
        scratch.remove(sample)
        outcomes = await asyncio.gather(*(pool.start() for pool in self.ordinary), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _size_of_each(self, kinds: int) -> PoolConfig:
        """How many are kept of each of so many kinds: their share, and if any are kept, one."""
        wanted = self._size.min_instances
        return replace(self._size, min_instances=min(wanted, max(1, wanted // kinds)))

    def close(self) -> None:
        """All boxes are gone: let go of the rest."""
        for blueprint in self._blueprints.values():
            if blueprint.zygotes is not None:
                blueprint.zygotes.close()
        if self._scratch is not None:
            self._scratch.close()
        if self._journal is not None:
            self._journal.close()
        self._pools, self._isolated, self._blueprints, self._nominal, self._allowed = {}, {}, {}, {}, {}
        self._scratch = self._journal = None

    def pool(self, tool: str, *, isolated: bool = False) -> Pool[Warm]:
        """The boxes that wait for a tool.

        Raises:
            Closed: the pool is not running.
            InvalidArgument: it keeps none for that tool.
        """
        pool = (self._isolated if isolated else self._pools).get(tool)
        if pool is not None:
            if isolated:
                pool.open()  # nobody needed it before; if somebody did, it is open
            return pool
        if not self._pools:
            raise Closed("the pool is not running", hint="await pool.start() first, or use `async with`")
        raise InvalidArgument(f"the pool keeps no boxes for {tool!r}", hint=f"one of {', '.join(self._pools)}")

    def nominal(self, tool: str) -> Assembly:
        """The parts over a workspace that is none: what is judged before a box is taken is judged by this."""
        return self._nominal[tool]

    def allowed(self, tool: str) -> Allowed:
        """What was allowed by `nominal`, so that boxes for one call each do not judge the same line anew."""
        return self._allowed[tool]

    def assembly(self, tool: str, workspace: Path) -> Assembly:
        """The parts of a box for a tool, over a workspace.

        Raises:
            Internal: the pool was stopped.
        """
        if tool not in self._blueprints:
            raise Internal("the pool was stopped meanwhile", hint="start it again")
        return self._blueprints[tool].assembly(workspace)

    def isolation(self, tool: str, mode: SecurityMode | None) -> Isolation | None:
        """What the policy says about isolating under a caller's mode."""
        terms = self._blueprints[tool].terms if tool in self._blueprints else None
        return isolation_of(terms.under(mode)) if terms is not None and terms.isolation_requires else None

    def why_isolated(self, tool: str, mode: SecurityMode | None, routed: RouteDecision | None, *, once: bool) -> str:
        """Why a box of the second kind is wanted; empty if it is one of the first."""
        isolation = self.isolation(tool, mode)
        return isolation.why_from_the_start(routed, once=once) if isolation is not None else ""

    def state(self) -> dict[str, PoolState]:
        """Where the boxes are, by the tools that they are for."""
        named: dict[Pool[Warm], list[str]] = {}
        for tool, pool in self._pools.items():
            named.setdefault(pool, []).append(tool)
        apart = {tool: pool for tool, pool in self._isolated.items() if pool not in named}
        for tool, pool in apart.items():
            named.setdefault(pool, [ISOLATED]).append(tool)
        return {" ".join(names): pool.state() for pool, names in named.items()}

    # --- the workspaces of sessions -----------------------------------------------------------------------------------

    async def settle_in(self, session_id: str, tool: str, warm: Warm, needs: frozenset[Guarantee]) -> None:
        """Make the session's directory the workspace of its first box.

        Raises:
            Busy: another process runs the session; otherwise as `Engine.open`.
        """
        while True:
            place = self._places.existing(session_id)
            if place is not None:
                await self._move(warm, tool, place, needs)
                return
            with suppress(FileExistsError):  # somebody was faster: it is there now
                self._places.lead(session_id, warm.workspace)
                return

    async def _move(self, warm: Warm, tool: str, place: Path, needs: frozenset[Guarantee]) -> None:
        """Give a member another box, over a directory with files of its own; a box cannot change what it stands on."""
        assembly = self.assembly(tool, place)
        grant = isolated(assembly.grant, needs)
        box = await assembly.engine.open(grant)
        old, empty = warm.box, warm.workspace
        warm.box, warm.grant, warm.workspace, warm.is_kept = box, grant, place, True
        await old.close()
        warm.scratch.remove_empty(empty)

    async def settle(self, session_id: str, warm: Warm, *, remove: bool) -> None:
        """The session is over, and nothing of it runs: its files stay under its name, or are removed."""
        if remove:
            self._places.forget(session_id, warm.workspace)
            await asyncio.to_thread(warm.scratch.remove, warm.workspace)
        elif warm.is_kept:
            return
        elif warm.scratch.remove_empty(warm.workspace):
            self._places.forget(session_id, warm.workspace)
        else:
            warm.is_kept = self._places.settle(session_id, warm.workspace)

    async def _make(self, blueprint: Blueprint, needs: frozenset[Guarantee]) -> Warm:
        scratch = self._scratch
        assert scratch is not None
        hold = await descriptor_room().take(TO_MAKE_A_BOX, "another box")
        began = time.monotonic()
        workspace = scratch.make()
        try:
            grant = isolated(blueprint.assembly(workspace).grant, needs)
            box = await blueprint.engine.open(grant)
        except BaseException:
            hold.give_back()
            scratch.remove(workspace)
            raise
        warm = Warm(box, grant, workspace, scratch, hold)
        try:
            await box.warm()
        except BaseException:
            await warm.close()
            raise
        hold.shrink(OF_A_BOX)
        if self._options.observers:
            tell(tuple(self._options.observers), BoxMade(seconds=time.monotonic() - began))
        return warm
