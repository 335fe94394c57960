"""`SandboxPool`: boxes made ahead of time, each with a workspace of its own, handed out once, bound to sessions.

A box that waits has a definite grant. Tools that the policy treats alike share boxes; a tool that it treats otherwise
has boxes of its own, also within one session, over the session's one workspace.

Where the policy isolates risky code, there is a second set of boxes for it, with a wall of its own. None of them is
made before the first such code comes: it may never come, and a kernel for each box is dear. From then on as many are
kept ready as of the others. A session takes from one of the two, for good.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from ringfence.audit.events import PoolSeen
from ringfence.audit.violations import ViolationStore
from ringfence.dataclass import replace
from ringfence.errors import InvalidArgument
from ringfence.manager.assemble import Assembly, has_policy, policy_in_force
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.manager.finishing import finish
from ringfence.manager.options import Docker, OptionFields, SandboxOptions, make_options
from ringfence.manager.parts import SandboxParts
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL, PolicyEngine
from ringfence.manager.pool_notice import PoolNotice
from ringfence.manager.reporting import Reporting, tell
from ringfence.manager.sandbox import Sandbox
from ringfence.manager.sessions import Session, SessionInfo, SessionTool, SingleUse
from ringfence.manager.supply import BoxSupply
from ringfence.pool.plan import PoolConfig
from ringfence.pool.state import PoolState, SessionState
from ringfence.values.principal import Principal

if TYPE_CHECKING:
    from ringfence.approvals.base import ConfirmationService
    from ringfence.policy.terms import Terms
    from ringfence.values.risk import SecurityMode

_SWEEP_SECONDS = 5.0
_TELL_SECONDS = 1.0
"""Between two times that observers are told how the pool is; monitoring looks less often than that."""


class SandboxPool:
    """Keeps boxes ready, hands each out once, and keeps the boxes of sessions until they are released.

        async with SandboxPool(size=PoolConfig(min_instances=2, max_instances=10)) as pool:
            sandbox = await pool.acquire("session_123")
            await sandbox.python("x = 1")
            await pool.release("session_123")

    Args:
        options: what is asked of every box. Each has a workspace of its own, and neither a shadow nor a tool.
        size: how many boxes are kept, and how fast they are made.
        tools: the policy's tools that boxes are kept ready for.
        directories: what is in each new workspace.
        session_ttl_seconds: a session that nobody used for so long is released.
        fields: single fields of `SandboxOptions`.

    Raises:
        InvalidArgument: an option makes no sense for a pool.
    """

    def __init__(
        self,
        options: SandboxOptions | None = None,
        *,
        size: PoolConfig | None = None,
        tools: Sequence[str] = (CODE_TOOL, SHELL_TOOL),
        directories: Sequence[str] = (),
        session_ttl_seconds: float = 900.0,
        **fields: Unpack[OptionFields],
    ) -> None:
        if not session_ttl_seconds > 0:
            raise InvalidArgument(f"a session cannot live for {session_ttl_seconds!r} s", hint="give a time above zero")
        self._options = make_options(options, fields)
        for name in ("workspace", "shadow", "tool"):
            if getattr(self._options, name) is not None:
                raise InvalidArgument(
                    f"a pool takes no {name}", hint="every box has a workspace of its own; see tools="
                )
        self.size = size or PoolConfig()
        self._ttl = session_ttl_seconds
        self._who = Principal(agent_id=self._options.agent_id, org_id=self._options.org_id)
        self._id = os.urandom(8).hex()
        self.observers = tuple(self._options.observers)
        self.violations = ViolationStore()
        """What was refused in any of its sandboxes."""
        self._supply = BoxSupply(self._options, self.size, dict.fromkeys(tools), directories)
        self._policy: PolicyEngine | None = None
        self._sessions: dict[str, Session] = {}
        self._starting = asyncio.Lock()
        self._sweeper: asyncio.TimerHandle | None = None
        self._releasing: set[asyncio.Task[None]] = set()
        self._ending: dict[str, asyncio.Task[None]] = {}
        """The same, the last one by the session that it ends."""
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
            InvalidArgument, PathAccessDenied: what was asked for makes no sense.
            InitializationFailed: this machine cannot build the wall.
        """
        async with self._starting:
            if self._supply.is_open:
                return
            try:
                await self._supply.start()
            except BaseException:
                await finish(self._end())
                raise
            self._notice = PoolNotice(state_directory(os.environ, home_directory(os.environ)), self.state)
            self._sweep()
            if self.observers:
                self._tell_again_and_again()

    async def stop(self) -> None:
        """End all boxes and sessions; returns when nothing is left."""
        async with self._starting:
            await finish(self._end())

    async def drain(self) -> None:
        """Hand out no more; sessions that are there may go on."""
        await asyncio.gather(*(pool.drain() for pool in self._supply.pools))

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
            await asyncio.gather(*(pool.stop() for pool in self._supply.pools))
        finally:
            self._tell_state()
            if self.observers:
                tell(self.observers, PoolSeen(pool_id=self._id, counts=()))
            self._supply.close()

    @property
    def options(self) -> SandboxOptions:
        """What is asked of every box."""
        return self._options

    @property
    def has_policy(self) -> bool:
        """Whether a policy is in force: the one that was named, or the organisation's."""
        return has_policy(self._options, os.environ)

    def terms(self, tool: str) -> Terms | None:
        """What the policy says about a tool, also one that no boxes wait for; None without a policy.

        Raises:
            InvalidConfig: a policy is wrong or not there, or does not know the tool.
        """
        if not self.has_policy:
            return None
        if self._policy is None:
            self._policy = policy_in_force(self._options, os.environ)
        return self._policy.terms(tool, self._options.role) if self._policy is not None else None

    @property
    def may_be_native(self) -> bool:
        """Whether nobody asked for containers in so many words."""
        return not isinstance(self._options.engine, Docker)

    # --- handing out --------------------------------------------------------------------------------------------------

    async def take(
        self,
        tool: str = CODE_TOOL,
        *,
        confirmation: ConfirmationService | None = None,
        who: Principal | None = None,
        security_mode: SecurityMode | None = None,
    ) -> Sandbox:
        """A sandbox for one use, never seen by anybody before, with its box; give it back with `discard`.

        Args:
            security_mode: the caller's own; of it and the policy's the stricter counts.

        Raises:
            PoolExhausted: all boxes are taken, and waiting did not help.
            InvalidArgument: the pool keeps no boxes for that tool.
            InitializationFailed: it is to be isolated, and no wall gives what the policy wants for that.
        """
        sandbox = self.for_one_call(tool, confirmation=confirmation, who=who, security_mode=security_mode)
        await sandbox.open()
        return sandbox

    def for_one_call(
        self,
        tool: str = CODE_TOOL,
        *,
        confirmation: ConfirmationService | None = None,
        who: Principal | None = None,
        security_mode: SecurityMode | None = None,
        reads_files: bool = False,
    ) -> Sandbox:
        """The same, but its box is taken when a call of it may run. What that call is decides which box it is.

        Args:
            reads_files: whether files come along that nobody reads.
        """
        self._supply.pool(tool)
        use = SingleUse(self._supply, tool, security_mode, reads_files=reads_files)
        whose = replace(who or self._who, session_id=os.urandom(8).hex())
        use.sandbox = self._sandbox(use, self._supply.nominal(tool), tool, confirmation, whose, security_mode)
        return use.sandbox

    def discard(self, sandbox: Sandbox) -> None:
        """End a sandbox that was taken, in the background."""
        use = sandbox.origin
        if isinstance(use, SingleUse) and use.pool is not None and use.warm is not None:
            use.pool.discard(use.warm)

    async def acquire(
        self,
        session_id: str,
        tool: str = CODE_TOOL,
        *,
        confirmation: ConfirmationService | None = None,
        who: Principal | None = None,
        security_mode: SecurityMode | None = None,
    ) -> Sandbox:
        """The sandbox of a session, with its box: the same one to everybody who asks, until it is released.

        The first call of a session chooses its wall, where the mode leaves a choice; if none came before, it is the
        ordinary one. Code that needs more than it gives is refused.

        Args:
            security_mode: as in `take`.

        Raises:
            PoolExhausted, InvalidArgument, InitializationFailed: as `take`.
        """
        sandbox = self.in_session(session_id, tool, confirmation=confirmation, who=who, security_mode=security_mode)
        session = self._sessions[session_id]
        session.waiting += 1
        try:
            await sandbox.open()
        except BaseException:
            if session.first is None and session.waiting == 1 and self._sessions.get(session_id) is session:
                del self._sessions[session_id]
            raise
        finally:
            session.waiting -= 1
        return sandbox

    def in_session(
        self,
        session_id: str,
        tool: str = CODE_TOOL,
        *,
        confirmation: ConfirmationService | None = None,
        who: Principal | None = None,
        security_mode: SecurityMode | None = None,
    ) -> Sandbox:
        """The same, but a box is taken when a call may run."""
        self._supply.pool(tool)
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = Session(session_id, after=self._ending.get(session_id))
        kind = self._kind(tool, security_mode)
        sandbox = session.sandboxes.get(kind)
        if sandbox is None:
            lease = SessionTool(self._supply, session, tool, security_mode)
            first = session.first
            assembly = self._supply.nominal(tool) if first is None else self._supply.assembly(tool, first.workspace)
            whose = replace(who or self._who, session_id=session.id)
            sandbox = self._sandbox(lease, assembly, tool, confirmation, whose, security_mode)
            session.sandboxes[kind] = lease.sandbox = sandbox
        return sandbox

    def session_state(self, session_id: str) -> SessionState:
        """Whether a session has a box."""
        session = self._sessions.get(session_id)
        if session is None or (session.first is None and not session.opening.locked()):
            return SessionState.IDLE
        return SessionState.ACQUIRING if session.first is None else SessionState.BUSY

    async def release(self, session_id: str, *, remove_files: bool = False) -> None:
        """End a session with its boxes; a caller who is cancelled leaves it to end by itself.

        Args:
            remove_files: whether its files go with it; else they stay in `AgentWorkspace(session_id)`, and whoever
                begins a session of this name finds them.
        """
        task = self._begin_release(session_id, remove_files=remove_files)
        if task is not None:
            await asyncio.shield(task)

    def _begin_release(self, session_id: str, *, remove_files: bool = False) -> asyncio.Task[None] | None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return None
        session.is_over = True
        task = asyncio.get_running_loop().create_task(self._end_session(session, remove_files=remove_files))
        self._releasing.add(task)
        self._ending[session_id] = task
        task.add_done_callback(self._is_released)
        return task

    def _is_released(self, task: asyncio.Task[None]) -> None:
        self._releasing.discard(task)
        self._ending = {name: each for name, each in self._ending.items() if each is not task}
        if not task.cancelled():
            task.exception()  # looked at: whoever waits for the release is told, and if nobody does, nobody is

    async def _end_session(self, session: Session, *, remove_files: bool) -> None:
        async with session.opening:
            closing = (sandbox.close() for sandbox in session.sandboxes.values())
            outcomes = await asyncio.gather(*closing, return_exceptions=True)
            if session.first is not None:
                await self._supply.settle(session.id, session.first, remove=remove_files)
                for pool in self._supply.pools:
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
        return tuple(session.info for session in self._sessions.values() if session.first is not None)

    async def wait_ready(self) -> None:
        """Wait until as many boxes are ready as are to be kept."""
        await asyncio.gather(*(pool.wait_ready() for pool in self._supply.ordinary))

    def state(self) -> dict[str, PoolState]:
        """Where the boxes are, by the tools that they are for."""
        return self._supply.state()

    def __repr__(self) -> str:
        states = "; ".join(f"{tools}: {state}" for tools, state in self.state().items()) or "not started"
        return f"<SandboxPool {states}; {len(self._sessions)} sessions>"

    def _kind(self, tool: str, security_mode: SecurityMode | None) -> tuple[str, SecurityMode | None]:
        """What one sandbox of a session is for: callers of different modes are not judged by each other's."""
        isolation = self._supply.isolation(tool, security_mode)
        return tool, isolation.mode if isolation is not None else None

    def _sandbox(
        self,
        source: SingleUse | SessionTool,
        assembly: Assembly,
        tool: str,
        confirmation: ConfirmationService | None,
        who: Principal,
        security_mode: SecurityMode | None,
    ) -> Sandbox:
        whose = replace(who, sandbox_id=os.urandom(8).hex(), tool=tool)
        return Sandbox(
            SandboxParts(
                assembly=assembly.under(security_mode),
                reporting=Reporting(who=whose, violations=self.violations, observers=self.observers),
                confirmation=confirmation or self._options.confirmation,
                is_pooled=True,
                open=source.open,
                origin=source,
                allowed=self._supply.allowed(tool),
            )
        )

    def _tell_state(self) -> None:
        if self.observers and self._supply.is_open:
            counts = tuple(pool.state() for pool in self._supply.pools)
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
