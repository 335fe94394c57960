"""`SandboxManager`: one entry for all executions, with sessions, routing by risk, and boxes from a pool.

With a session, calls share a workspace and an interpreter, one after the other in the order in which they came. Without
one, each call has a box that nobody has used before, and that nobody uses after it. Sessions run side by side.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ringfence.approvals.base import ConfirmationService
from ringfence.audit.events import Observer
from ringfence.audit.violations import ViolationStore
from ringfence.errors import InvalidConfig
from ringfence.languages.registry import find as find_language
from ringfence.manager.executing import run_in, type_of
from ringfence.manager.executor import SubprocessExecutor
from ringfence.manager.pipeline import without_blocking
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL, PolicyEngine
from ringfence.manager.pooling import SandboxPool, SessionInfo
from ringfence.manager.sandbox import Sandbox, StrPath
from ringfence.policy.risk.assess import assess
from ringfence.policy.risk.route import route
from ringfence.pool.plan import PoolConfig
from ringfence.values.execution import ExecutionRequest, ExecutionResult
from ringfence.values.grant import Explain
from ringfence.values.request import OnOutput
from ringfence.values.risk import Route, Routed, SecurityMode
from ringfence.values.who import Who
from ringfence.workspace.snapshots.manifest import Snapshot
from ringfence.workspace.snapshots.store import SnapshotStore


class SandboxManager:
    """Runs code and commands.

        async with SandboxManager(policy_file="sandbox_policy.yaml", pool_size=5) as manager:
            done = await manager.execute_code("python", "print(6 * 7)")
            await manager.execute_shell("python analyze.py", files={"analyze.py": b"..."})

    Args:
        session_id: the session of all calls that name none; without it, calls that name none share nothing.
        security_mode: without a policy, STRICT: everything runs behind the wall; PERMISSIVE: Python that static
            analysis finds harmless runs as a bare process with limits, unless a session keeps state. Under a policy
            that isolates (docs/policy.md), which code is isolated: of this and the policy's own mode the stricter
            counts. Not given, it is the policy's; STRICT, if that has none.
        confirmation_service: who is asked where the policy says so; without one, what would be asked is refused.
        pool: boxes to use, instead of a pool of the manager's own; `aio_pool` is another name for it.
        pool_size: how many boxes a pool of our own keeps ready.
        policy_file: the policy, for a pool of our own.
        role: the role that the agent has in it.
        docker_url: boxes of a pool of our own are containers of this daemon (docs/docker.md): unix:///path, tcp://host.
        observers: who is told what happens, for a pool of our own (docs/metrics.md).
        session_ttl_seconds, python, preload, explain: as in `SandboxPool`, for a pool of our own.
        agent_id, org_id: who the journal says asks for what runs.
    """

    def __init__(
        self,
        session_id: str | None = None,
        security_mode: SecurityMode | None = None,
        confirmation_service: ConfirmationService | None = None,
        aio_pool: SandboxPool | None = None,
        *,
        pool: SandboxPool | None = None,
        pool_size: int = 2,
        max_instances: int | None = None,
        policy_file: PolicyEngine | StrPath | None = None,
        role: str | None = None,
        docker_url: str | None = None,
        session_ttl_seconds: float = 900.0,
        python: StrPath | None = None,
        preload: tuple[str, ...] = (),
        explain: Explain = Explain.CHANGES,
        observers: Sequence[Observer] = (),
        agent_id: str | None = None,
        org_id: str | None = None,
    ) -> None:
        given = pool or aio_pool
        if given is not None and (policy_file is not None or role is not None):
            raise InvalidConfig("a pool has its own policy", hint="give policy and role to the pool")
        if given is not None and docker_url is not None:
            raise InvalidConfig("a pool has its own engine", hint="give docker_url to the pool")
        if given is not None and observers:
            raise InvalidConfig("a pool has its own observers", hint="give observers to the pool")
        self.session_id = session_id
        self._asked_mode = SecurityMode(security_mode) if security_mode is not None else None
        self.security_mode = self._asked_mode or SecurityMode.STRICT
        """The caller's, which counts alone where no policy is in force."""
        self._confirmation = confirmation_service
        self._who = Who(agent_id=agent_id, org_id=org_id) if agent_id is not None or org_id is not None else None
        self._owns_pool = given is None
        self._pool = given or SandboxPool(
            PoolConfig(min_instances=pool_size, max_instances=max_instances or max(10, 2 * pool_size)),
            policy=policy_file,
            role=role,
            session_ttl_seconds=session_ttl_seconds,
            python=python,
            preload=preload,
            explain=explain,
            observers=observers,
            docker_url=docker_url,
        )
        self._has_policy = self._pool.has_policy
        self._bare: SubprocessExecutor | None = None
        self._started = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cleanup()

    async def start(self) -> None:
        """Make the first boxes ready; the first execution does so otherwise.

        Raises:
            InvalidConfig, PathAccessDenied, InitializationFailed: as `SandboxPool.start`.
        """
        if not self._started:
            await self._pool.start()
            self._started = True

    async def cleanup(self, session_id: str | None = None) -> None:
        """End one session; or, without a name, the manager's own and, if the pool is its own, everything."""
        if session_id is not None:
            await self._pool.release(session_id)
            return
        self._started = False
        if self._bare is not None:
            self._bare.close()
            self._bare = None
        if self._owns_pool:
            await self._pool.stop()
        elif self.session_id is not None:
            await self._pool.release(self.session_id)

    @property
    def pool(self) -> SandboxPool:
        return self._pool

    @property
    def violations(self) -> ViolationStore:
        """What was refused, in all sessions."""
        return self._pool.violations

    def sessions(self) -> tuple[SessionInfo, ...]:
        return self._pool.sessions()

    # --- executions ---------------------------------------------------------------------------------------------------

    async def execute_code(
        self,
        language: str,
        code: str,
        timeout: float | None = None,
        *,
        session_id: str | None = None,
        context: str | None = None,
        files: Mapping[str, bytes | str] | None = None,
        collect: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecutionResult:
        """Run a piece of code; see `execute`."""
        return await self.execute(
            ExecutionRequest(
                code=code,
                language=language,
                timeout=timeout,
                session_id=session_id,
                context=context,
                files=files or {},
                collect=collect,
                on_output=on_output,
            )
        )

    async def execute_shell(
        self,
        command: str,
        files: Mapping[str, bytes | str] | None = None,
        timeout: float | None = None,
        *,
        session_id: str | None = None,
        context: str | None = None,
        stdin: bytes | None = None,
        collect: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> ExecutionResult:
        """Run a command line; see `execute`."""
        return await self.execute(
            ExecutionRequest(
                command=command,
                timeout=timeout,
                session_id=session_id,
                context=context,
                files=files or {},
                stdin=stdin,
                collect=collect,
                on_output=on_output,
            )
        )

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run one request.

        What the code did, and a refusal by the policy, is in the result.

        Raises:
            InvalidConfig, CommandNotAllowed, PathAccessDenied: the request makes no sense.
            PoolExhausted: all boxes are taken, and waiting did not help.
            InitializationFailed, SpawnFailed, Internal, PermissionDenied: as `Sandbox.shell`.
        """
        if (request.code is None) == (request.command is None):
            raise InvalidConfig("a request has either code or a command", hint="set one of them")
        if not self._started:
            await self.start()
        session_id = request.session_id or self.session_id
        if session_id is None and self._may_run_bare(request):
            return await self._run_bare(request)
        tool = CODE_TOOL if request.code is not None else SHELL_TOOL
        routed = await self._routed(tool, request)
        if session_id is not None:
            sandbox = await self._acquire(session_id, tool, routed)
            async with self._pool.turn(session_id):  # files in, run, files out: one call after the other
                result = await run_in(sandbox, request, is_fresh=False)
            return ExecutionResult(result, type_of(sandbox), session_id)
        sandbox = await self._pool.take(
            tool, confirmation=self._confirmation, who=self._who, routed=routed, security_mode=self._asked_mode
        )
        try:
            result = await run_in(sandbox, request, is_fresh=True)
        finally:
            self._pool.discard(sandbox, tool)
        return ExecutionResult(result, type_of(sandbox))

    async def _routed(self, tool: str, request: ExecutionRequest) -> Routed | None:
        """Where a request goes, so that it gets a box that gives enough; the sandbox judges it again by itself."""
        if not self._has_policy:
            return None
        text = request.code if request.code is not None else request.command or ""
        language = find_language(request.language).name if request.code is not None else None
        routed = await without_blocking(text, lambda: self._pool.routed(tool, language, text, self._asked_mode))
        # Harmless code may load a file that comes along, and nobody has read that: it gets a box for any code.
        return None if request.files and routed is not None and not routed.is_isolated else routed

    async def _acquire(self, session_id: str, tool: str, routed: Routed | None = None) -> Sandbox:
        return await self._pool.acquire(
            session_id,
            tool,
            confirmation=self._confirmation,
            who=self._who,
            routed=routed,
            security_mode=self._asked_mode,
        )

    # --- snapshots ----------------------------------------------------------------------------------------------------

    async def save_snapshot(self, name: str, *, session_id: str | None = None) -> Snapshot:
        """Save the workspace of a session, which goes on.

        Raises:
            InvalidConfig: there is no session, or the name is taken.
            PermissionDenied: it cannot be written.
        """
        async with self._workspace_of(session_id) as workspace:
            return await asyncio.to_thread(SnapshotStore().save, workspace, name)

    async def restore_snapshot(self, name: str, *, session_id: str | None = None) -> None:
        """Make the workspace of a session what it was; interpreters keep their state, and files that they have open.

        Raises:
            InvalidConfig: there is no such session or snapshot.
            PermissionDenied: it cannot be written.
        """
        async with self._workspace_of(session_id) as workspace:
            await asyncio.to_thread(SnapshotStore().restore, name, workspace, in_place=True)

    async def fork_session(self, name: str, session_id: str) -> None:
        """Begin a session with the files of a snapshot; raises as `restore_snapshot`, and if the session is there."""
        if session_id in {session.id for session in self.sessions()}:
            raise InvalidConfig(f"the session {session_id!r} is there already", hint="restore the snapshot into it")
        await self.restore_snapshot(name, session_id=session_id)

    @asynccontextmanager
    async def _workspace_of(self, session_id: str | None) -> AsyncIterator[Path]:
        """The workspace of a session, while nothing of it runs."""
        chosen = session_id or self.session_id
        if chosen is None:
            raise InvalidConfig("there is no session whose files could be meant", hint="give session_id=")
        if not self._started:
            await self.start()
        sandbox = await self._acquire(chosen, SHELL_TOOL)
        async with self._pool.turn(chosen):
            yield sandbox.workspace

    # --- without a wall -----------------------------------------------------------------------------------------------

    def _may_run_bare(self, request: ExecutionRequest) -> bool:
        """Whether PERMISSIVE lets it run as a bare process: Python, found harmless, and no policy to ask for more."""
        if self.security_mode is not SecurityMode.PERMISSIVE or self._has_policy or request.code is None:
            return False
        if request.files or request.collect or find_language(request.language).name != "python":
            return False
        return route(assess("python", request.code), self.security_mode, bare_when_safe=True) is Route.DIRECT

    async def _run_bare(self, request: ExecutionRequest) -> ExecutionResult:
        if self._bare is None:
            who = replace(self._who or Who(), tool=CODE_TOOL)
            self._bare = SubprocessExecutor(who=who, observers=self._pool.observers, violations=self._pool.violations)
        return await self._bare.execute(request)

    def __repr__(self) -> str:
        mode = self._asked_mode or ("mode of the policy" if self._has_policy else self.security_mode)
        return f"<SandboxManager {self.session_id or 'no session'} {mode} {self._pool!r}>"
