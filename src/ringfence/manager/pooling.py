"""`SandboxPool`: boxes made ahead of time, each with a workspace of its own, handed out once, bound to sessions.

A box that waits has a definite grant. Tools that the policy treats alike share boxes; a tool that it treats otherwise
has boxes of its own, also within one session, over the session's one workspace.

Where the policy isolates risky code, there is a second set of boxes for it, with a wall of its own. None of them is
made before the first such code comes: it may never come, and a kernel for each box is dear. From then on as many are
kept ready as of the others. A session takes from one of the two, for good.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ringfence.approvals.base import ConfirmationService
from ringfence.audit.events import BoxMade, Observer, PoolSeen
from ringfence.audit.journal import Journal
from ringfence.audit.violations import ViolationStore
from ringfence.engines.base import Box, Engine
from ringfence.errors import Internal, InvalidConfig, PoolExhausted, RingfenceError
from ringfence.manager.assemble import Assembly, Blueprint, Docker, Judged, draw, warn_of
from ringfence.manager.configuring import home_directory, open_journal, state_directory
from ringfence.manager.granting import REQUIRED, Wish
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL, PolicyEngine
from ringfence.manager.pool_notice import PoolNotice
from ringfence.manager.reporting import Reporting, tell
from ringfence.manager.routing import explaining
from ringfence.manager.sandbox import Sandbox, StrPath
from ringfence.manager.scratch import Scratch, scratch_directory
from ringfence.policy.isolation import Isolation, isolated, isolation_of
from ringfence.pool.plan import PoolConfig
from ringfence.pool.pool import Pool
from ringfence.pool.state import PoolState
from ringfence.values.grant import Explain, Grant
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.risk import Routed, SecurityMode
from ringfence.values.who import Who

ISOLATED = "isolated"
"""Before the tools, in the state: the boxes for code of theirs that is isolated."""
_SWEEP_SECONDS = 5.0
_TELL_SECONDS = 1.0
"""Between two times that observers are told how the pool is; monitoring looks less often than that."""


@dataclass(slots=True, eq=False)
class Warm:
    """A box that waits, with the workspace that goes with it."""

    box: Box
    grant: Grant
    workspace: Path
    scratch: Scratch
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    """What the journal calls it."""
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
            if not self.scratch.remove_empty(self.workspace):
                await asyncio.to_thread(self.scratch.remove, self.workspace)


@dataclass(slots=True, eq=False)
class _Session:
    id: str
    isolated_why: str = ""
    """Why its boxes are isolated ones; empty if they are not. Chosen when it begins, for all of its tools."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever has a call in it that is more than one step."""
    first: Warm | None = None
    """The box that came with the workspace."""
    sandboxes: dict[tuple[str, SecurityMode | None], Sandbox] = field(default_factory=dict)
    """By tool, and by the mode that its calls are judged under, where that counts."""
    boxes: "dict[Pool[Warm], Sandbox]" = field(default_factory=dict)
    """By kind of grant: tools that are treated alike share one box."""
    is_over: bool = False
    """Released, or given up by who began it: whoever still waits for it begins another one."""

    @property
    def idle_seconds(self) -> float:
        return min((sandbox.idle_seconds for sandbox in self.sandboxes.values()), default=0.0)


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session as it is now."""

    id: str
    workspace: Path | None
    idle_seconds: float
    contexts: tuple[tuple[str, str], ...]


class SandboxPool:
    """Keeps boxes ready, hands each out once, and keeps the boxes of sessions until they are released.

        async with SandboxPool(PoolConfig(min_instances=2, max_instances=10)) as pool:
            sandbox = await pool.acquire("session_123")
            await sandbox.python("x = 1")
            await pool.release("session_123")

    Args:
        config: how many boxes are kept, and how fast they are made.
        tools: the policy's tools that boxes are kept ready for.
        session_ttl_seconds: a session that nobody used for so long is released.
        observers: who is told what happens in the pool and its boxes: metrics, traces (docs/metrics.md).
        agent_id, org_id: who the journal says asks, unless whoever takes a sandbox says otherwise.
        docker_url: boxes are containers of this daemon (docs/docker.md).
        The others are those of `Sandbox`, for every box of the pool.
    """

    def __init__(
        self,
        config: PoolConfig | None = None,
        *,
        policy: PolicyEngine | StrPath | None = None,
        role: str | None = None,
        tools: Sequence[str] = (CODE_TOOL, SHELL_TOOL),
        read: Sequence[StrPath] = (),
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        sandbox_config: StrPath | None = None,
        requires: frozenset[Guarantee] = REQUIRED,
        python: StrPath | None = None,
        preload: Sequence[str] = (),
        explain: Explain = Explain.CHANGES,
        session_ttl_seconds: float = 900.0,
        observers: Sequence[Observer] = (),
        agent_id: str | None = None,
        org_id: str | None = None,
        docker_url: str | None = None,
    ) -> None:
        if not session_ttl_seconds > 0:
            raise InvalidConfig(f"a session cannot live for {session_ttl_seconds!r} s", hint="give a time above zero")
        self.config = config or PoolConfig()
        self._tools = tuple(dict.fromkeys(tools))
        self._wish = Wish(
            read=tuple(read),
            env=tuple((env or {}).items()),
            limits=limits,
            requires=requires,
            python=python,
            preload=tuple(preload),
            explain=explain,
        )
        self._judged = partial(Judged, policy=policy, role=role)
        self._sandbox_config = sandbox_config
        self._docker = Docker(url=docker_url) if docker_url is not None else None
        self._ttl = session_ttl_seconds
        self._who = Who(agent_id=agent_id, org_id=org_id)
        self._id = os.urandom(8).hex()
        self.observers = tuple(observers)
        self.violations = ViolationStore()
        """What was refused in any of its sandboxes."""
        self._journal: Journal | None = None
        self._scratch: Scratch | None = None
        self._blueprints: dict[str, Blueprint] = {}
        self._pools: dict[str, Pool[Warm]] = {}
        self._isolated: dict[str, Pool[Warm]] = {}
        """For isolated code, by tool; the tool's other pool, where its wall gives as much."""
        self._sessions: dict[str, _Session] = {}
        self._starting = asyncio.Lock()
        self._sweeper: asyncio.TimerHandle | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._notice: PoolNotice | None = None
        self._teller: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make the first boxes; returns when they are ready.

        Raises:
            InvalidConfig, PathAccessDenied: what was asked for makes no sense.
            InitializationFailed: this machine cannot build the wall.
        """
        async with self._starting:
            if self._pools:
                return
            home = home_directory(os.environ)
            self._journal = open_journal(os.environ, home)
            self._journal.recover()
            warn_of(self._journal.take_notes())
            self._journal.prepare()
            try:
                self._scratch = Scratch(scratch_directory(os.environ, home))
                await self._start_pools(self._scratch, self._journal)
            except BaseException:
                await _finish(self._end())
                raise
            self._notice = PoolNotice(state_directory(os.environ, home), self.state)
            self._sweep()
            if self.observers:
                self._tell_again_and_again()

    async def _start_pools(self, scratch: Scratch, journal: Journal) -> None:
        sample = scratch.make()
        by_grant: dict[Grant, Pool[Warm]] = {}
        for tool in self._tools:
            judged = self._judged(tool=tool)
            blueprint = draw(
                self._wish, config_path=self._sandbox_config, judged=judged, journal=journal, docker=self._docker
            )
            self._blueprints[tool] = blueprint
            grant = blueprint.assembly(sample).grant
            needs = blueprint.terms.isolated if blueprint.terms is not None else frozenset()
            for pools, more in ((self._pools, frozenset[Guarantee]()), (self._isolated, needs)):
                wanted = isolated(grant, more)
                if wanted not in by_grant:
                    by_grant[wanted] = Pool(partial(self._make, blueprint, more), self.config)
                pools[tool] = by_grant[wanted]
        scratch.remove(sample)
        outcomes = await asyncio.gather(*(pool.start() for pool in set(self._pools.values())), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def stop(self) -> None:
        """End all boxes and sessions; returns when nothing is left."""
        async with self._starting:
            await _finish(self._end())

    async def drain(self) -> None:
        """Hand out no more; sessions that are there may go on."""
        await asyncio.gather(*(pool.drain() for pool in self._all_pools()))

    async def _end(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._teller is not None:
            self._teller.cancel()
        if self._notice is not None:
            self._notice.close()
            self._notice = None
        try:
            for session_id in tuple(self._sessions):
                self._begin_release(session_id)
            if self._releasing:
                await asyncio.wait(self._releasing)
            await asyncio.gather(*(pool.stop() for pool in self._all_pools()))
        finally:
            self._tell_state()
            if self.observers:
                tell(self.observers, PoolSeen(pool_id=self._id, counts=()))
            if self._scratch is not None:
                self._scratch.close()
            if self._journal is not None:
                self._journal.close()
            self._pools, self._isolated, self._blueprints = {}, {}, {}
            self._scratch = self._journal = None

    @property
    def has_policy(self) -> bool:
        """Whether a policy is in force: the one that was named, or the organisation's."""
        return self._judged.keywords["policy"] is not None or bool(os.environ.get("RINGFENCE_POLICY", "").strip())

    # --- handing out --------------------------------------------------------------------------------------------------

    def routed(
        self, tool: str, language: str | None, text: str, security_mode: SecurityMode | None = None
    ) -> Routed | None:
        """Where a piece of code, or without a language a command line, goes; None where the policy isolates nothing."""
        isolation = self._isolation(tool, security_mode)
        return isolation.routed(language, text) if isolation is not None else None

    async def take(
        self,
        tool: str = CODE_TOOL,
        *,
        confirmation: ConfirmationService | None = None,
        who: Who | None = None,
        routed: Routed | None = None,
        security_mode: SecurityMode | None = None,
    ) -> Sandbox:
        """A sandbox for one use, never seen by anybody before; give it back with `discard`.

        Args:
            routed: where the code goes that it is for; if it is not known, under strict a box for any.
            security_mode: the caller's own; of it and the policy's the stricter counts.

        Raises:
            PoolExhausted: all boxes are taken, and waiting did not help.
            InvalidConfig: the pool keeps no boxes for that tool.
            InitializationFailed: it is to be isolated, and no wall gives what the policy wants for that.
        """
        why = self._why_isolated(tool, security_mode, routed, once=True)
        pool = self._pool(tool, isolated=bool(why))
        with explaining(why):
            warm = await pool.take()
        whose = replace(who or self._who, session_id=os.urandom(8).hex())
        return self._hand_out(warm, tool, confirmation, whose, security_mode)

    def discard(self, sandbox: Sandbox, tool: str = CODE_TOOL) -> None:
        """End a sandbox that was taken, in the background."""
        warm = sandbox.origin
        for pool in {self._pools.get(tool), self._isolated.get(tool)}:
            if isinstance(warm, Warm) and pool is not None:  # else it was stopped, and all boxes with it
                pool.discard(warm)

    async def acquire(
        self,
        session_id: str,
        tool: str = CODE_TOOL,
        *,
        confirmation: ConfirmationService | None = None,
        who: Who | None = None,
        routed: Routed | None = None,
        security_mode: SecurityMode | None = None,
    ) -> Sandbox:
        """The sandbox of a session: the same one to everybody who asks, until it is released.

        Args:
            routed: where the code goes that it is for. The first to ask chooses the wall of the session, where the
                mode leaves a choice; code that needs more than it gives is refused.
            security_mode: as in `take`.

        Raises:
            PoolExhausted, InvalidConfig, InitializationFailed: as `take`.
        """
        while True:
            self._pool(tool)
            session = self._sessions.get(session_id)
            if session is None:
                why = self._why_isolated(tool, security_mode, routed, once=False)
                session = self._sessions[session_id] = _Session(session_id, why)
            elif (known := session.sandboxes.get(self._kind(tool, security_mode))) is not None:
                return known
            async with session.opening:
                if not session.is_over:
                    whose = replace(who or self._who, session_id=session.id)
                    return await self._sandbox_of(session, tool, confirmation, whose, security_mode)

    async def _sandbox_of(
        self,
        session: _Session,
        tool: str,
        confirmation: ConfirmationService | None,
        who: Who,
        security_mode: SecurityMode | None,
    ) -> Sandbox:
        kind = self._kind(tool, security_mode)
        sandbox = session.sandboxes.get(kind)
        if sandbox is not None:
            return sandbox
        try:
            sandbox = await self._open_in(session, tool, confirmation, who, security_mode)
        except BaseException:
            if not session.sandboxes and self._sessions.get(session.id) is session:
                del self._sessions[session.id]
                session.is_over = True
            raise
        session.sandboxes[kind] = sandbox  # also if it was released meanwhile: then it is closed with the session
        if session.is_over:
            raise PoolExhausted(
                f"the session {session.id!r} was released while it was being acquired", hint="acquire it again"
            )
        return sandbox

    async def _open_in(
        self,
        session: _Session,
        tool: str,
        confirmation: ConfirmationService | None,
        who: Who,
        security_mode: SecurityMode | None,
    ) -> Sandbox:
        # Under strict also where the session began with a tool that is not isolated.
        why = session.isolated_why or self._why_isolated(tool, security_mode, None, once=False)
        pool = self._pool(tool, isolated=bool(why))
        if session.first is None:
            with explaining(why):
                session.first = await pool.take()
            if why:
                session.first.box.note(f"the session is {why}")
            session.boxes[pool] = self._hand_out(session.first, tool, confirmation, who, security_mode)
            return session.boxes[pool]
        shared = session.boxes.get(pool)
        assembly = self._blueprints[tool].assembly(session.first.workspace).under(security_mode)
        if why and assembly.terms is not None:
            assembly = replace(assembly, grant=isolated(assembly.grant, assembly.terms.isolated))
        open_box = partial(_open_for, session, assembly.engine, assembly.grant)
        if shared is not None:  # the policy treats this tool alike, but may judge its requests otherwise
            reporting = self._reporting(replace(who, sandbox_id=shared.who.sandbox_id, tool=tool))
            return Sandbox.over(assembly, None, open=shared.lend, reporting=reporting, confirmation=confirmation)
        reporting = self._reporting(replace(who, sandbox_id=os.urandom(8).hex(), tool=tool))
        sandbox = Sandbox.over(assembly, None, open=open_box, reporting=reporting, confirmation=confirmation)
        session.boxes[pool] = sandbox
        return sandbox

    async def release(self, session_id: str) -> None:
        """End a session with its boxes and its workspace; a caller who is cancelled leaves it to end by itself."""
        task = self._begin_release(session_id)
        if task is not None:
            await asyncio.shield(task)

    def _begin_release(self, session_id: str) -> asyncio.Task[None] | None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return None
        session.is_over = True
        task = asyncio.get_running_loop().create_task(self._end_session(session))
        self._releasing.add(task)
        task.add_done_callback(self._is_released)
        return task

    def _is_released(self, task: asyncio.Task[None]) -> None:
        self._releasing.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: whoever waits for the release is told, and if nobody does, nobody is

    async def _end_session(self, session: _Session) -> None:
        async with session.opening:
            closing = (sandbox.close() for sandbox in session.sandboxes.values())
            outcomes = await asyncio.gather(*closing, return_exceptions=True)
            if session.first is not None:
                for pool in self._all_pools():
                    pool.discard(session.first)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def turn(self, session_id: str) -> asyncio.Lock:
        """Held while somebody does in a session what must not mix with others: files in, run, files out."""
        session = self._sessions.get(session_id)
        return session.turn if session is not None else asyncio.Lock()

    def sessions(self) -> tuple[SessionInfo, ...]:
        """The sessions that have a box."""
        return tuple(
            SessionInfo(
                session.id,
                session.first.workspace if session.first is not None else None,
                session.idle_seconds,
                tuple(context for sandbox in session.boxes.values() for context in sandbox.contexts()),
            )
            for session in self._sessions.values()
        )

    async def wait_ready(self) -> None:
        """Wait until as many boxes are ready as are to be kept."""
        await asyncio.gather(*(pool.wait_ready() for pool in set(self._pools.values())))

    def state(self) -> dict[str, PoolState]:
        """Where the boxes are, by the tools that they are for."""
        named: dict[Pool[Warm], list[str]] = {}
        for tool, pool in self._pools.items():
            named.setdefault(pool, []).append(tool)
        apart = {tool: pool for tool, pool in self._isolated.items() if pool not in named}
        for tool, pool in apart.items():
            named.setdefault(pool, [ISOLATED]).append(tool)
        return {" ".join(names): pool.state() for pool, names in named.items()}

    def __repr__(self) -> str:
        states = "; ".join(f"{tools}: {state}" for tools, state in self.state().items()) or "not started"
        return f"<SandboxPool {states}; {len(self._sessions)} sessions>"

    # --- inside -------------------------------------------------------------------------------------------------------

    def _all_pools(self) -> set[Pool[Warm]]:
        return {*self._pools.values(), *self._isolated.values()}

    def _isolation(self, tool: str, security_mode: SecurityMode | None) -> Isolation | None:
        terms = self._blueprints[tool].terms if tool in self._blueprints else None
        return isolation_of(terms.under(security_mode)) if terms is not None and terms.isolated else None

    def _kind(self, tool: str, security_mode: SecurityMode | None) -> tuple[str, SecurityMode | None]:
        """What one sandbox of a session is for: callers of different modes are not judged by each other's."""
        isolation = self._isolation(tool, security_mode)
        return tool, isolation.mode if isolation is not None else None

    def _why_isolated(self, tool: str, security_mode: SecurityMode | None, routed: Routed | None, *, once: bool) -> str:
        """Why a box of the second kind is wanted; empty if it is one of the first."""
        isolation = self._isolation(tool, security_mode)
        return isolation.why_from_the_start(routed, once=once) if isolation is not None else ""

    def _pool(self, tool: str, *, isolated: bool = False) -> Pool[Warm]:
        pool = (self._isolated if isolated else self._pools).get(tool)
        if pool is not None:
            if isolated:
                pool.open()  # nobody needed it before; if somebody did, it is open
            return pool
        if not self._pools:
            raise InvalidConfig("the pool is not running", hint="await pool.start() first, or use `async with`")
        raise InvalidConfig(f"the pool keeps no boxes for {tool!r}", hint=f"one of {', '.join(self._pools)}")

    def _hand_out(
        self,
        warm: Warm,
        tool: str,
        confirmation: ConfirmationService | None,
        who: Who,
        security_mode: SecurityMode | None,
    ) -> Sandbox:
        blueprint = self._blueprints[tool]
        assembly = Assembly(blueprint.engine, blueprint.journal, warm.grant, blueprint.config, (), blueprint.terms)
        sandbox = Sandbox.over(
            assembly.under(security_mode),
            warm.box,
            open=partial(_open_for, warm, blueprint.engine, warm.grant),
            reporting=self._reporting(replace(who, sandbox_id=warm.id, tool=tool)),
            confirmation=confirmation,
            origin=warm,
        )
        warm.sandbox = sandbox
        return sandbox

    async def _make(self, blueprint: Blueprint, needs: frozenset[Guarantee]) -> Warm:
        scratch = self._scratch
        assert scratch is not None
        began = time.monotonic()
        workspace = scratch.make()
        try:
            grant = isolated(blueprint.assembly(workspace).grant, needs)
            box = await blueprint.engine.open(grant)
        except BaseException:
            scratch.remove(workspace)
            raise
        warm = Warm(box, grant, workspace, scratch)
        try:
            await box.warm()
        except BaseException:
            await warm.close()
            raise
        if self.observers:
            tell(self.observers, BoxMade(seconds=time.monotonic() - began))
        return warm

    def _reporting(self, who: Who) -> Reporting:
        return Reporting(who=who, violations=self.violations, observers=self.observers)

    def _tell_state(self) -> None:
        if self.observers and self._pools:
            counts = tuple(pool.state() for pool in dict.fromkeys((*self._pools.values(), *self._isolated.values())))
            tell(self.observers, PoolSeen(pool_id=self._id, counts=counts))

    def _tell_again_and_again(self) -> None:
        self._tell_state()
        self._teller = asyncio.get_running_loop().call_later(_TELL_SECONDS, self._tell_again_and_again)

    def _sweep(self) -> None:
        """Release the sessions that nobody has used for long; again and again."""
        for session in tuple(self._sessions.values()):
            if session.sandboxes and session.idle_seconds > self._ttl and not session.opening.locked():
                self._begin_release(session.id)
        pause = min(_SWEEP_SECONDS, self._ttl / 2)
        self._sweeper = asyncio.get_running_loop().call_later(pause, self._sweep)


async def _open_for(owner: Warm | _Session, engine: Engine, grant: Grant) -> Box:
    """A new box in place of one that was lost; none if its owner ended meanwhile, for nobody would close it."""
    over = Internal("the sandbox was closed while its box was being made", hint="acquire a new one")
    try:
        box = await engine.open(grant)
    except RingfenceError as fault:
        if owner.is_over:  # its workspace went away under it, which is no fault of the machine
            raise over from fault
        raise
    if owner.is_over:
        await box.close()
        raise over
    return box


async def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Do what must not be left half done; a cancellation is passed on afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as asked:
            cancelled = asked
    task.result()
    if cancelled is not None:
        raise cancelled
