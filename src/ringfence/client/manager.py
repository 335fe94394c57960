"""`SandboxManager` on a server: the face of `ringfence.SandboxManager`, whose boxes and pool are elsewhere.

Sessions are this manager's own: two managers that use the same name do not meet, as two with pools of their own do not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, Unpack

from ringfence.audit.violations import ViolationStore
from ringfence.client.calls import Calls
from ringfence.client.executions import Executions
from ringfence.client.options import session_body
from ringfence.client.sandbox import RemoteSandbox
from ringfence.dataclass import replace
from ringfence.errors import AlreadyExists, InvalidArgument, RingfenceError
from ringfence.manager.options import Docker, OptionFieldsButMode, SandboxOptions, make_options
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.manager.sessions import SessionInfo
from ringfence.values.execution import ExecutionRequest
from ringfence.values.outcome import Result
from ringfence.values.risk import SecurityMode

if TYPE_CHECKING:
    from ringfence.approvals.base import ConfirmationService
    from ringfence.manager.options import StrPath
    from ringfence.manager.policing import PolicyEngine
    from ringfence.manager.pooling import SandboxPool
    from ringfence.pool.plan import PoolConfig
    from ringfence.values.request import OnOutput
    from ringfence.values.sizes import Duration

_ELSEWHERE: Final = "its boxes wait on the server: `pool` in the server's configuration"


class RemoteManager:
    """Runs code and commands on a server. From `Server.SandboxManager`; see `ringfence.SandboxManager`.

    The server has its own pool: `pool_size`, `max_instances` and `size` say nothing there.
    """

    def __init__(
        self,
        calls: Calls,
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
        if pool is not None or aio_pool is not None or directories or set(tools) != {CODE_TOOL, SHELL_TOOL}:
            raise InvalidArgument("a pool, and what is in it, cannot be given to a server", hint=_ELSEWHERE)
        if policy_file is not None:
            fields["policy"] = policy_file
        if docker_url is not None:
            fields["engine"] = Docker(url=docker_url)
        if confirmation_service is not None:
            fields["confirmation"] = confirmation_service
        chosen = make_options(options, fields)
        if security_mode is not None:
            chosen = replace(chosen, security_mode=security_mode)
        if chosen.workspace is not None:
            raise InvalidArgument("a manager gives each session a workspace", argument="workspace", hint="use Sandbox")
        self.session_id = session_id
        self.security_mode = chosen.mode or SecurityMode.STRICT
        self.violations = ViolationStore()
        """What was refused in all sessions, as far as this client was told."""
        self._calls = calls
        self._options = chosen
        self._is_usual = not session_body(chosen)
        self._ttl_seconds = session_ttl_seconds
        self._sessions: dict[str, RemoteSandbox] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._executions = Executions(calls, self._heard)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.cleanup()

    async def start(self) -> None:
        """See that the server answers.

        Raises:
            Unreachable, Unauthenticated: it does not, or does not know us.
        """
        await self._calls.ask("GET", "/v1/me")

    async def cleanup(self, session_id: str | None = None) -> None:
        """End one session; or, without a name, all of this manager's."""
        names = [session_id] if session_id is not None else list(self._sessions)
        ending = [self._sessions.pop(name) for name in names if name in self._sessions]
        await asyncio.gather(*(sandbox.close() for sandbox in ending))

    def browser_of(self, session_id: str | None = None) -> NoReturn:
        """
        Raises:
            InvalidArgument: always: the server hands out no browser yet.
        """
        raise InvalidArgument("a server hands out no browser yet", hint=_ELSEWHERE)

    @property
    def pool(self) -> NoReturn:
        """
        Raises:
            InvalidArgument: always: it is the server's.
        """
        raise InvalidArgument("a server's pool is not handed out", hint=_ELSEWHERE)

    @property
    def confirmation(self) -> None:
        """Nobody of this process: the server asks those who may answer there."""
        return None

    @property
    def options(self) -> SandboxOptions:
        """What is asked of every box."""
        return self._options

    def sessions(self) -> tuple[SessionInfo, ...]:
        """Those of this manager that have begun."""
        return tuple(
            SessionInfo(name, Path(sandbox.workspace), sandbox.idle_seconds, sandbox.contexts())
            for name, sandbox in self._sessions.items()
        )

    @asynccontextmanager
    async def in_session(
        self, tool: str = SHELL_TOOL, *, session_id: str | None = None
    ) -> AsyncIterator[RemoteSandbox]:
        """A session as a sandbox, for one call after the other.

        Raises:
            InvalidArgument: no session is named, or another of the policy's tools. Otherwise as `execute`.
        """
        if tool not in (SHELL_TOOL, CODE_TOOL):
            raise InvalidArgument(f"a session on a server is not judged as {tool!r}", argument="tool")
        chosen = self._chosen(session_id)
        async with self._turn(chosen):
            yield self._session(chosen)

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
        """Run one request: in a session if one is named, else in a box that nobody has used before nor will after it.

        Raises:
            RingfenceError: as `ringfence.SandboxManager.execute`.
        """
        session_id = request.session_id or self.session_id
        if session_id is not None:
            async with self._turn(session_id):
                result = await self._session(session_id).execute(request)
            return replace(result, session_id=session_id)
        if self._is_usual and request.context is None:
            return await self._executions.execute(request, "/v1/executions")
        async with RemoteSandbox(self._calls, self._options, once=True, violations=self.violations) as sandbox:
            wanted = True if request.collect is None else request.collect
            result = await sandbox.execute(replace(request, collect=wanted))
        return replace(result, session_id=None)

    # --- files and snapshots ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def files(self, session_id: str | None = None) -> AsyncIterator[Any]:
        """
        Raises:
            InvalidArgument: always: the workspace's files are on the server's machine.
        """
        raise InvalidArgument(
            "the workspace is on the server's machine", hint="use `in_session`, and its `files`, which goes through it"
        )
        yield

    async def save_snapshot(self, name: str, *, session_id: str | None = None) -> dict[str, Any]:
        """Save the workspace of a session, which goes on; raises as `ringfence.SandboxManager.save_snapshot`."""
        async with self.in_session(session_id=session_id) as sandbox:
            return await sandbox.save_snapshot(name)

    async def restore_snapshot(self, name: str, *, session_id: str | None = None) -> None:
        """Make the workspace of a session what it was; raises as `ringfence.SandboxManager.restore_snapshot`."""
        async with self.in_session(session_id=session_id) as sandbox:
            await sandbox.restore_snapshot(name)

    async def fork_session(self, name: str, session_id: str) -> None:
        """Begin a session with the files of a snapshot; raises as `restore_snapshot`, and if the session is there."""
        if session_id in self._sessions:
            raise AlreadyExists(f"the session {session_id!r} exists already", hint="restore the snapshot into it")
        await self.restore_snapshot(name, session_id=session_id)

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _chosen(self, session_id: str | None) -> str:
        chosen = session_id or self.session_id
        if chosen is None:
            raise InvalidArgument("there is no session that could be meant", hint="give session_id=")
        return chosen

    def _session(self, name: str) -> RemoteSandbox:
        if name not in self._sessions:
            self._sessions[name] = RemoteSandbox(
                self._calls,
                self._options,
                violations=self.violations,
                ttl_seconds=self._ttl_seconds,
                metadata={"session": name, "client": f"{os.getpid()}"},
            )
        return self._sessions[name]

    def _turn(self, name: str) -> asyncio.Lock:
        """Calls of a session come one after the other, in the order in which they were made."""
        return self._turns.setdefault(name, asyncio.Lock())

    def _heard(self, told: Result | RingfenceError) -> None:
        if told.violations:
            self.violations.record(told.violations, run_id=told.run_id if isinstance(told, Result) else "")

    def __repr__(self) -> str:
        return f"<SandboxManager {self.session_id or 'no session'} at {self._calls.address}>"
