"""`SandboxManager`: one entry for all executions, with sessions, routing by risk, and boxes from a pool.

With a session, calls share a workspace and an interpreter, one after the other in the order in which they came. Without
one, each call has a box that nobody has used before, and that nobody uses after it. Sessions run side by side.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from ringfence.dataclass import replace
from ringfence.deferred import deferred
from ringfence.errors import AlreadyExists, InvalidArgument
from ringfence.languages.registry import find as find_language
from ringfence.manager.executing import run_in, type_of
from ringfence.manager.executor import SubprocessExecutor
from ringfence.manager.options import Docker, OptionFieldsButMode, SandboxOptions, StrPath, make_options
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL, PolicyEngine
from ringfence.manager.pooling import SandboxPool
from ringfence.policy.bounds import pool_size as usual_pool_size
from ringfence.policy.risk.assess import assess
from ringfence.policy.risk.route import route
from ringfence.pool.plan import PoolConfig
from ringfence.values.execution import ExecutionRequest
from ringfence.values.principal import Principal
from ringfence.values.risk import Route, SecurityMode
from ringfence.workspace.snapshots.store import SnapshotStore

if TYPE_CHECKING:
    from ringfence.approvals.base import ConfirmationService
    from ringfence.audit.violations import ViolationStore
    from ringfence.manager.browser_router import BrowserRouter
    from ringfence.manager.sandbox import Sandbox
    from ringfence.manager.sessions import SessionInfo
    from ringfence.values.outcome import Result
    from ringfence.values.request import OnOutput
    from ringfence.values.sizes import Duration
    from ringfence.workspace.agent import AgentWorkspace
    from ringfence.workspace.snapshots.manifest import Snapshot
else:
    BrowserRouter = deferred("ringfence.manager.browser_router", "BrowserRouter")


class _Caller(TypedDict):
    """On whose behalf a sandbox is taken from the pool."""

    confirmation: ConfirmationService | None
    who: Principal | None
    security_mode: SecurityMode | None


class SandboxManager:
    """Runs code and commands.

        async with SandboxManager(policy_file="sandbox_policy.yaml", pool_size=5) as manager:
            done = await manager.execute_code("python", "print(6 * 7)")
            await manager.execute_shell("python analyze.py", files={"analyze.py": b"..."})

    Args:
        session_id: the session of all calls that name none; without it, calls that name none share nothing.
        security_mode: without a policy, STRICT: everything runs behind the whole wall; PERMISSIVE: Python that static
            analysis finds harmless runs behind the lightest one (`SubprocessExecutor`), unless a session keeps state.
            Under a policy that isolates (docs/policy.md), which code is isolated: of this and the policy's own mode
            the stricter counts. Not given, it is the policy's; STRICT, if that has none.
        confirmation_service: who is asked where the policy says so; without one, what would be asked is refused.
            Without a policy they are asked about code and commands that look critical.
        pool: boxes to use, instead of a pool of the manager's own; `aio_pool` is another name for it.
        options: what is asked of the boxes of a pool of our own: limits, variables, policy and role, the engine, who is
            told what happens.
        pool_size: how many boxes a pool of our own keeps ready; RINGFENCE_POOL_SIZE, else 2, if not given.
        max_instances: how many boxes it has at most.
        size: both, and how long callers wait, instead of those two.
        tools, directories, session_ttl_seconds: as in `SandboxPool`, for a pool of our own.
        policy_file, docker_url: other names for the options `policy` and `engine=Docker(url=...)`.
        fields: single fields of `SandboxOptions`.
    """

    def __init__(
        self,
        session_id: str | None = None,
        security_mode: SecurityMode | None = None,
        confirmation_service: ConfirmationService | None = None,
        aio_pool: SandboxPool | None = None,
        *,
        pool: SandboxPool | None = None,
        options: SandboxOptions | None = None,
        pool_size: int | None = None,
        max_instances: int | None = None,
        size: PoolConfig | None = None,
        tools: Sequence[str] = (CODE_TOOL, SHELL_TOOL),
        directories: Sequence[str] = (),
        session_ttl_seconds: float = 900.0,
        policy_file: PolicyEngine | StrPath | None = None,
        docker_url: str | None = None,
        **fields: Unpack[OptionFieldsButMode],
    ) -> None:
        if policy_file is not None:
            fields["policy"] = policy_file
        if docker_url is not None:
            fields["engine"] = Docker(url=docker_url)
        chosen = make_options(options, fields)
        given = pool or aio_pool
        if given is not None:
            _refuse_second_opinion(chosen)
            if size is not None:
                raise InvalidArgument("a pool has its own size", hint="give size to the pool")
        self.session_id = session_id
        self._asked_mode = SecurityMode(security_mode) if security_mode is not None else chosen.mode
        self.security_mode = self._asked_mode or SecurityMode.STRICT
        """The caller's, which counts alone where no policy is in force."""
        self._confirmation = confirmation_service or chosen.confirmation
        named = chosen.agent_id is not None or chosen.org_id is not None
        self._who = Principal(agent_id=chosen.agent_id, org_id=chosen.org_id) if named else None
        self._owns_pool = given is None
        self._pool = given or SandboxPool(
            replace(chosen, confirmation=self._confirmation),
            size=_pool_config(pool_size, max_instances, size),
            tools=tools,
            directories=directories,
            session_ttl_seconds=session_ttl_seconds,
        )
        self._caller: _Caller = {
            "confirmation": self._confirmation,
            "who": self._who,
            "security_mode": self._asked_mode,
        }
        self._has_policy = self._pool.has_policy
        self._light: SubprocessExecutor | None = None
        if self.security_mode is SecurityMode.PERMISSIVE and not self._has_policy and self._pool.may_be_native:
            self._light = SubprocessExecutor(
                chosen,
                observers=self._pool.observers,
                who=replace(self._who or Principal(), tool=CODE_TOOL),
                violations=self._pool.violations,
            )
        self._browsers: dict[str, BrowserRouter] = {}
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
            InvalidArgument, PathAccessDenied, InitializationFailed: as `SandboxPool.start`.
        """
        if not self._started:
            await self._pool.start()
            self._started = True

    async def cleanup(self, session_id: str | None = None) -> None:
        """End one session; or, without a name, the manager's own and, if the pool is its own, everything."""
        for name in tuple(self._browsers) if session_id is None else (session_id,):
            if (browser := self._browsers.pop(name, None)) is not None:
                await browser.close()
        if session_id is not None:
            await self._pool.release(session_id)
            return
        self._started = False
        if self._light is not None:
            await self._light.close()
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

    @property
    def confirmation(self) -> ConfirmationService | None:
        """Who is asked where the policy says so."""
        return self._confirmation

    @property
    def options(self) -> SandboxOptions:
        """What is asked of every box."""
        return self._pool.options

    def sessions(self) -> tuple[SessionInfo, ...]:
        return self._pool.sessions()

    @asynccontextmanager
    async def in_session(self, tool: str = SHELL_TOOL, *, session_id: str | None = None) -> AsyncIterator[Sandbox]:
        """A session as a sandbox, judged as one of the policy's tools, for one call after the other.

        Raises:
            InvalidArgument: no session is named. Otherwise as `execute`.
        """
        chosen = session_id or self.session_id
        if chosen is None:
            raise InvalidArgument("there is no session that could be meant", hint="give session_id=")
        if not self._started:
            await self.start()
        async with self._pool.turn(chosen):
            yield self._pool.in_session(chosen, tool, **self._caller)

    def browser_of(self, session_id: str | None = None) -> BrowserRouter:
        """The browser of a session, in a box beside its own; started with the first action, gone with `cleanup`.

        Raises:
            InvalidArgument: no session is named.
        """
        chosen = session_id or self.session_id
        if chosen is None:
            raise InvalidArgument("there is no session that could be meant", hint="give session_id=")
        if chosen not in self._browsers:
            self._browsers[chosen] = BrowserRouter(chosen, session=self)
        return self._browsers[chosen]

    # --- executions ---------------------------------------------------------------------------------------------------

    async def execute_code(
        self,
        language: str,
        code: str,
        timeout: Duration | None = None,
        *,
        session_id: str | None = None,
        context: str | None = None,
        files: Mapping[str, bytes | str] | None = None,
        collect: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> Result:
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
        timeout: Duration | None = None,
        *,
        session_id: str | None = None,
        context: str | None = None,
        stdin: str | bytes | None = None,
        collect: bool | None = None,
        on_output: OnOutput | None = None,
    ) -> Result:
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

    async def execute(self, request: ExecutionRequest) -> Result:
        """Run one request.

        What the code did, and a refusal by the policy, is in the result.

        Raises:
            InvalidArgument, CommandNotAllowed, PathAccessDenied: the request makes no sense.
            PoolExhausted: all boxes are taken, and waiting did not help.
            InitializationFailed, SpawnFailed, Internal, PermissionDenied: as `Sandbox.shell`.
        """
        if not request.is_one_thing:
            raise InvalidArgument("a request has code, a command, or argv", hint="set one of them")
        if not self._started:
            await self.start()
        session_id = request.session_id or self.session_id
        if session_id is None and self._light is not None and _may_be_light(request):
            assessment = assess("python", request.code or "")
            if route(assessment, SecurityMode.PERMISSIVE, light_when_safe=True) is Route.DIRECT:
                return await self._light.execute(request, assessment)
        tool = CODE_TOOL if request.code is not None else SHELL_TOOL
        if session_id is not None:
            sandbox = self._pool.in_session(session_id, tool, **self._caller)
            async with self._pool.turn(session_id):  # files in, run, files out: one call after the other
                result = await run_in(sandbox, request, is_fresh=False)
            return replace(result, sandbox_type=type_of(sandbox), session_id=session_id)
        sandbox = self._pool.for_one_call(tool, reads_files=bool(request.files), **self._caller)
        try:
            result = await run_in(sandbox, request, is_fresh=True)
        finally:
            self._pool.discard(sandbox)
        return replace(result, sandbox_type=type_of(sandbox))

    # --- files --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def files(self, session_id: str | None = None) -> AsyncIterator[AgentWorkspace]:
        """The files of a session, by the paths that its commands see, while nothing of it runs.

            async with manager.files("session_123") as workspace:
                workspace.write_file("data/in.csv", "a,b")

        Raises:
            InvalidArgument: no session is named. Otherwise as `execute`.
        """
        async with self._sandbox_at_rest(session_id) as sandbox:
            with sandbox.host_files() as workspace:
                yield workspace

    # --- snapshots ----------------------------------------------------------------------------------------------------

    async def save_snapshot(self, name: str, *, session_id: str | None = None) -> Snapshot:
        """Save the workspace of a session, which goes on.

        Raises:
            InvalidArgument: no session is named.
            AlreadyExists: the snapshot's name is taken.
            PermissionDenied: it cannot be written.
        """
        async with self._workspace_of(session_id) as workspace:
            return await asyncio.to_thread(SnapshotStore().save, workspace, name)

    async def restore_snapshot(self, name: str, *, session_id: str | None = None) -> None:
        """Make the workspace of a session what it was; interpreters keep their state, and files that they have open.

        Raises:
            InvalidArgument: no session is named.
            NotFound: there is no such snapshot.
            PermissionDenied: it cannot be written.
        """
        async with self._workspace_of(session_id) as workspace:
            await asyncio.to_thread(SnapshotStore().restore, name, workspace, in_place=True)

    async def fork_session(self, name: str, session_id: str) -> None:
        """Begin a session with the files of a snapshot; raises as `restore_snapshot`, and if the session is there."""
        if session_id in {session.id for session in self.sessions()}:
            raise AlreadyExists(f"the session {session_id!r} exists already", hint="restore the snapshot into it")
        await self.restore_snapshot(name, session_id=session_id)

    @asynccontextmanager
    async def _workspace_of(self, session_id: str | None) -> AsyncIterator[Path]:
        """The workspace of a session, while nothing of it runs."""
        async with self._sandbox_at_rest(session_id) as sandbox:
            yield sandbox.workspace

    @asynccontextmanager
    async def _sandbox_at_rest(self, session_id: str | None) -> AsyncIterator[Sandbox]:
        chosen = session_id or self.session_id
        if chosen is None:
            raise InvalidArgument("there is no session whose files could be meant", hint="give session_id=")
        if not self._started:
            await self.start()
        sandbox = await self._pool.acquire(chosen, SHELL_TOOL, **self._caller)
        async with self._pool.turn(chosen):
            yield sandbox

    def __repr__(self) -> str:
        mode = self._asked_mode or ("mode of the policy" if self._has_policy else self.security_mode)
        return f"<SandboxManager {self.session_id or 'no session'} {mode} {self._pool!r}>"


def _pool_config(pool_size: int | None, max_instances: int | None, size: PoolConfig | None) -> PoolConfig:
    if size is not None:
        if pool_size is not None or max_instances is not None:
            raise InvalidArgument(
                "size says how many boxes there are already", hint="give size, or pool_size and max_instances"
            )
        return size
    ready = usual_pool_size(os.environ) if pool_size is None else pool_size
    return PoolConfig(min_instances=ready, max_instances=max_instances or max(10, 2 * ready))


def _refuse_second_opinion(options: SandboxOptions) -> None:
    """A pool that is given has its options already; who asks and who is asked may differ from manager to manager."""
    own = SandboxOptions(
        confirmation=options.confirmation,
        agent_id=options.agent_id,
        org_id=options.org_id,
        security_mode=options.security_mode,
    )
    for name in (field.name for field in dataclasses.fields(options)):
        if getattr(options, name) != getattr(own, name):
            raise InvalidArgument(f"a pool has its own {name}", hint=f"give {name} to the pool")


def _may_be_light(request: ExecutionRequest) -> bool:
    """Whether PERMISSIVE lets it have the lightest wall if it is found harmless: Python without files."""
    if request.code is None or request.files or request.collect or request.context is not None or request.cwd:
        return False
    return find_language(request.language).name == "python"
