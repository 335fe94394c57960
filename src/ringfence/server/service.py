"""The service itself, without HTTP: tenants, sessions and executions, who may have how many, and their end."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ringfence.audit.violations import ViolationStore
from ringfence.dataclass import replace
from ringfence.errors import AlreadyExists, NotFound, NotPermitted, PathAccessDenied, QuotaExceeded
from ringfence.manager.manager import SandboxManager
from ringfence.server import keys, wire
from ringfence.server.attempts import Attempts
from ringfence.server.bus import Bus
from ringfence.server.executions import Execution, finish_all
from ringfence.server.logins import Logins
from ringfence.server.making import check_workspace, make_options, with_preset
from ringfence.server.meters import Meters
from ringfence.server.port_origins import Door, PortOrigins
from ringfence.server.problems import http_fault
from ringfence.server.questions import Questions
from ringfence.server.sessions import Session, make_sandbox
from ringfence.server.shadowing import discard_shadow, find_shadow, new_shadow
from ringfence.server.starting import check_execution, end_of, goes_on, library_request, start_process
from ringfence.server.store import Store
from ringfence.server.tenants import Caller, Scope, Tenant
from ringfence.server.tokens import Tokens
from ringfence.server.webhooks import Webhooks

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ringfence.approvals.base import ConfirmationService
    from ringfence.audit.events import Observer
    from ringfence.manager.workspaces import Shadow
    from ringfence.server.settings import Settings

AsksBy = Callable[["ConfirmationService"], "ConfirmationService"]
_SWEEP_SECONDS = 1.0
_MOST_BOXES = 32
"""Of a tenant, for executions without a session."""
_KEPT_EXECUTIONS = 1000
"""Of each tenant, that have ended: for whoever asks again. The record has all of them."""


class Service:
    """All that the routes work on. Start it, and stop it, in the loop that serves.

    Args:
        observers: who is told what happens in boxes: metrics, traces.
        registry: what `/metrics` shows; None if nothing counts.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        observers: tuple[Observer, ...] = (),
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.tokens = Tokens(store)
        self.observers = observers
        self.registry = registry
        self.makes_spans = any(type(each).__name__ == "OpenTelemetryObserver" for each in observers)
        self.attempts = Attempts()
        self.logins = Logins()
        self.bus = Bus()
        self.port_origins = PortOrigins()
        self.webhooks = Webhooks(settings.webhooks)
        self.questions = Questions(store, self.bus, self.webhooks)
        self.running_keys: dict[tuple[str, str], asyncio.Future[None]] = {}
        """Idempotency keys of requests that are under way, by tenant."""
        self.trusts_socket = True
        """Whether who comes by the Unix socket is its owner; else everybody needs a token."""
        self.run_id = os.urandom(8).hex()
        """Of this run of the server."""
        self.is_stopping = False
        self.started_at = time.time()
        self._sessions: dict[tuple[str, str], Session] = {}
        self._reserved: dict[str, int] = {}
        """Sessions that are being made, by tenant."""
        self._executions: dict[str, dict[str, Execution]] = {}
        """By tenant and id, in the order in which they began."""
        self._pools: dict[str, SandboxManager] = {}
        """By tenant."""
        self._violations: dict[str, ViolationStore] = {}
        self._meters = Meters()
        self._sweeper: asyncio.Task[None] | None = None
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """What other front doors end first, when the service ends."""

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self.questions.start()
        keys.forget_old(self.store)
        self._load_sessions()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """Take no more work, give what runs its time, end the rest. A second call does nothing."""
        if self.is_stopping:
            return
        self.is_stopping = True
        self.bus.close()
        await asyncio.gather(*(close() for close in self.closers), return_exceptions=True)
        running = [execution for execution in self._all_executions() if execution.is_running]
        if running:
            waits = [asyncio.ensure_future(execution.wait()) for execution in running]
            await asyncio.wait(waits, timeout=self.settings.grace_seconds)
            for wait in waits:
                wait.cancel()
            await finish_all([execution for execution in running if execution.is_running])
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait((self._sweeper,))
        await asyncio.gather(*(session.close() for session in self._sessions.values()), return_exceptions=True)
        await self.webhooks.close()
        await asyncio.gather(*(manager.cleanup() for manager in self._pools.values()), return_exceptions=True)

    def _load_sessions(self) -> None:
        """Those that an earlier run had: their boxes are gone, which whoever uses them is told."""
        for row in self.store.all("SELECT * FROM sessions WHERE state = 'open'"):
            session = Session(
                tenant=row["tenant"],
                id=row["id"],
                asked=msgspec.json.decode(row["asked"], type=wire.SessionCreate),
                agent_id=row["agent_id"],
                workspace=Path(row["workspace"]),
                created_at=row["created_at"],
                expires_at=row["expires_at"],
                sandbox=None,
                shadow=None if row["shadow"] is None else find_shadow(row["shadow"]),
            )
            self._sessions[session.key] = session

    async def _sweep(self) -> None:
        """End the sessions whose time is over; again and again."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            for session in tuple(self._sessions.values()):
                if session.is_over and not session.is_ending:
                    with suppress(Exception):
                        await self.end_session(session)

    def refuse_if_stopping(self) -> None:
        if self.is_stopping:
            raise http_fault("shutting_down", "the server is stopping", hint="try again in a moment")

    # --- tenants ------------------------------------------------------------------------------------------------------

    def tenant(self, name: str) -> Tenant | None:
        return self.settings.tenants.get(name)

    def is_good(self, caller: Caller) -> bool:
        """Whether a caller who has come in would still be let in."""
        token = self.tokens.get(caller.token_id)
        return caller.is_owner or (token is not None and token.is_good(time.time()))

    def meter(self, caller: Caller) -> None:
        """Count one request.

        Raises:
            QuotaExceeded: the tenant asks for more a second than it may.
        """
        self._meters.take(caller.tenant)

    def violations(self, tenant: str) -> ViolationStore:
        return self._violations.setdefault(tenant, ViolationStore())

    async def manager(self, caller: Caller) -> SandboxManager:
        """Runs what has no session, in boxes of the tenant's own pool, which is made with the first of them.

        The manager is the caller's own, so that its records and questions are; the boxes are the tenant's."""
        name = caller.tenant.name
        pool = self._pools.get(name)
        if pool is None:
            options = make_options(wire.SessionCreate(), caller, Path(), None, self.observers)
            pool = self._pools[name] = SandboxManager(
                options=replace(options, workspace=None, agent_id=None),
                pool_size=self.settings.pool_size,
                max_instances=max(_MOST_BOXES, self.settings.pool_size),
            )
        await pool.start()
        return SandboxManager(
            pool=pool.pool,
            confirmation_service=self.questions.asker(name, {caller.token_id}),
            agent_id=caller.name,
            org_id=name,
        )

    def pools(self) -> dict[str, SandboxManager]:
        """Of tenants that have run something without a session."""
        return dict(self._pools)

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def create_session(
        self,
        caller: Caller,
        asked: wire.SessionCreate,
        fill: Callable[[Path], Awaitable[None]] | None = None,
        asks_by: AsksBy | None = None,
    ) -> Session:
        """
        Args:
            fill: puts the first files into the workspace.
            asks_by: another way to ask a person, made from the service's own.

        Raises:
            AlreadyExists: the tenant has a session of that name.
            QuotaExceeded: it has as many as it may.
            NotPermitted, InvalidArgument, InvalidConfig, InitializationFailed: it cannot be made.
        """
        self.refuse_if_stopping()
        asked = with_preset(asked, self.settings.presets)
        tenant = caller.tenant
        ident = asked.id or f"s-{os.urandom(12).hex()}"
        if (tenant.name, ident) in self._sessions:
            raise AlreadyExists(f"the session {ident!r} exists already", hint="use it, end it, or choose another id")
        mine = sum(session.tenant == tenant.name for session in self._sessions.values())
        making = self._reserved.get(tenant.name, 0)
        if tenant.quotas.sessions is not None and mine + making >= tenant.quotas.sessions:
            raise QuotaExceeded(
                f"the tenant {tenant.name!r} has {mine} sessions, as many as it may",
                quota="sessions",
                limit=tenant.quotas.sessions,
                hint="end one",
            )
        self._reserved[tenant.name] = making + 1
        try:
            return await self._create(caller, ident, asked, fill, asks_by)
        finally:
            self._reserved[tenant.name] -= 1

    async def _create(
        self,
        caller: Caller,
        ident: str,
        asked: wire.SessionCreate,
        fill: Callable[[Path], Awaitable[None]] | None,
        asks_by: AsksBy | None,
    ) -> Session:
        tenant = caller.tenant.name
        if asked.workspace is not None:
            workspace = check_workspace(asked.workspace, caller)
            self._refuse_nested(workspace, caller)
        else:
            workspace = self.settings.state / "sessions" / tenant / ident
            try:
                workspace.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                workspace.mkdir(mode=0o700)
            except FileExistsError:
                raise AlreadyExists(
                    f"files of an earlier session {ident!r} are still there", hint="choose another id"
                ) from None
        askers = {caller.token_id}
        shadow: Shadow | None = None
        try:
            if fill is not None:
                await fill(workspace)
            confirmation: ConfirmationService = self.questions.asker(tenant, askers)
            if asks_by is not None:
                confirmation = asks_by(confirmation)
            options = make_options(asked, caller, workspace, confirmation, self.observers)
            if asked.shadow:
                shadow = await asyncio.to_thread(new_shadow, options)
                options = replace(options, shadow=shadow)
            make = partial(make_sandbox, options, ident, self.violations(tenant), once=asked.once)
            sandbox = await asyncio.to_thread(make)
            await sandbox.__aenter__()
        except BaseException:
            if shadow is not None:
                await asyncio.to_thread(discard_shadow, shadow)
            if asked.workspace is None:
                await asyncio.to_thread(shutil.rmtree, workspace, ignore_errors=True)
            raise
        session = Session(
            tenant=tenant,
            id=ident,
            asked=msgspec.structs.replace(asked, id=ident),
            agent_id=caller.name,
            workspace=workspace,
            created_at=time.time(),
            expires_at=time.time() + asked.ttl_seconds,
            sandbox=sandbox,
            shadow=shadow,
            make=make,
            askers=askers,
        )
        try:
            self.store.do(
                "INSERT INTO sessions"
                " (tenant, id, created_at, expires_at, state, agent_id, asked, workspace, shadow, run)"
                " VALUES (?, ?, ?, ?, 'open', ?, ?, ?, ?, ?)",
                tenant,
                ident,
                session.created_at,
                session.expires_at,
                caller.name,
                msgspec.json.encode(session.asked).decode(),
                str(workspace),
                None if shadow is None else shadow.id,
                self.run_id,
            )
        except BaseException:
            await sandbox.close()
            if shadow is not None:
                await asyncio.to_thread(discard_shadow, shadow)
            if session.owns_workspace:
                await asyncio.to_thread(shutil.rmtree, workspace, ignore_errors=True)
            raise
        self._sessions[session.key] = session
        self.bus.tell(tenant, "session.created", session.answer)
        return session

    def _refuse_nested(self, workspace: Path, caller: Caller) -> None:
        """A box that writes around another's workspace could put a link in its place, to anywhere on the machine.

        Raises:
            PathAccessDenied: it lies in or around the workspace of a session that is open.
        """
        for session in self._sessions.values():
            if session.workspace != workspace and not caller.is_owner and _overlap(session.workspace, workspace):
                raise PathAccessDenied(
                    str(workspace),
                    "it lies in or around the workspace of another session",
                    rule="server workspaces",
                    hint="end that one, use the same directory, or one beside it",
                )

    def session(self, caller: Caller, ident: str) -> Session:
        """
        Raises:
            NotFound: the tenant has none of that name; another tenant's is not told from none.
        """
        session = self._sessions.get((caller.tenant.name, ident))
        if session is None or session.is_ending:
            raise NotFound(f"there is no session {ident!r}", hint="it may have ended, or its time was over")
        return session

    def sessions(self, caller: Caller) -> list[Session]:
        """Of the tenant, the oldest first."""
        mine = (session for session in self._sessions.values() if session.tenant == caller.tenant.name)
        return sorted(mine, key=lambda session: (session.created_at, session.id))

    def published_port(self, door: Door) -> int:
        """Where this machine reaches a server inside.

        Raises:
            NotFound: the session has ended, or does not publish that port.
        """
        session = self._sessions.get((door.tenant, door.session_id))
        address = None if session is None or session.is_ending else session.sandbox.published.get(door.port)
        if address is None:
            raise NotFound(
                f"the session publishes no port {door.port}",
                hint="make it with network: {publish: [PORT]}, and run something",
            )
        return int(address.rpartition(":")[2])

    def extend_session(self, session: Session, ttl_seconds: float) -> None:
        session.live_for(ttl_seconds)
        self.store.do(
            "UPDATE sessions SET expires_at = ? WHERE tenant = ? AND id = ?", session.expires_at, *session.key
        )

    async def end_session(self, session: Session, *, keep_files: bool = False) -> None:
        """End what runs in it, and it; returns when nothing of it is left."""
        if session.is_ending:
            return
        session.is_ending = True
        try:
            await finish_all(list(session.executions.values()))
            await session.close()
        finally:
            self._sessions.pop(session.key, None)
            self.port_origins.forget(*session.key)
            self.bus.tell(session.tenant, "session.ended", lambda: {"id": session.id})
            self.store.do("DELETE FROM sessions WHERE tenant = ? AND id = ?", *session.key)
            if session.shadow is not None and not keep_files:
                await asyncio.to_thread(discard_shadow, session.shadow)
            if session.owns_workspace and not keep_files:
                await asyncio.to_thread(shutil.rmtree, session.workspace, ignore_errors=True)

    # --- executions ---------------------------------------------------------------------------------------------------

    def count_sessions(self) -> int:
        return len(self._sessions)

    def count_running(self) -> int:
        return sum(execution.is_running for execution in self._all_executions())

    def execution(self, caller: Caller, ident: str) -> Execution:
        """
        Raises:
            NotFound: the tenant has none of that id that is still known.
        """
        found = self._executions.get(caller.tenant.name, {}).get(ident)
        if found is None:
            raise NotFound(f"there is no execution {ident!r}", hint="the record has those that ended long ago")
        return found

    def note_writer(self, caller: Caller, execution: Execution) -> None:
        """Somebody writes to it: from then on they are one of those who ask in its session.

        Raises:
            NotPermitted: only a person writes to it, for whom the caller cannot speak.
        """
        if execution.is_typed_by_person and Scope.APPROVE not in caller.scopes:
            raise NotPermitted("a person types there, whose words nobody judges", scope=Scope.APPROVE)
        session = self._sessions.get((execution.tenant, execution.session_id or ""))
        if session is not None:
            session.askers.add(caller.token_id)

    def executions(self, caller: Caller, session_id: str | None = None) -> list[Execution]:
        """Of the tenant, or of one of its sessions, the oldest first."""
        mine = self._executions.get(caller.tenant.name, {}).values()
        return [each for each in mine if session_id is None or each.session_id == session_id]

    def processes(self, caller: Caller, session: Session) -> list[Execution]:
        """What goes on by itself in a session, or did: what was started so, and what calls have left running."""
        mine = self._executions.setdefault(caller.tenant.name, {})
        known = [each.process for each in session.executions.values()]
        for process in session.sandbox.processes():
            if process not in known:
                execution = Execution(
                    tenant=caller.tenant.name,
                    session_id=session.id,
                    kind="command",
                    shown=process.command,
                    is_background=True,
                )
                execution.process = process
                execution.run(partial(end_of, process))
                mine[execution.id] = session.executions[execution.id] = execution
        return [each for each in session.executions.values() if each.process is not None]

    def _all_executions(self) -> list[Execution]:
        return [execution for mine in self._executions.values() for execution in mine.values()]

    async def start_execution(
        self,
        caller: Caller,
        asked: wire.ExecutionCreate,
        session: Session | None,
        stdin: AsyncIterable[bytes] | None = None,
    ) -> Execution:
        """Begin an execution; it runs on when this returns.

        Args:
            stdin: input as it comes, instead of what was asked with.

        Raises:
            InvalidArgument: it makes no sense.
            QuotaExceeded: the tenant runs as many as it may.
            SessionLost, CommandNotAllowed, SpawnFailed: as the library, for what goes on.
        """
        self.refuse_if_stopping()
        check_execution(asked, session)
        if asked.typed_by_person and Scope.APPROVE not in caller.scopes:
            raise NotPermitted("only who may approve can say that a person types", scope=Scope.APPROVE)
        mine = self._executions.setdefault(caller.tenant.name, {})
        most = caller.tenant.quotas.executions
        if most is not None and sum(each.is_running for each in mine.values()) >= most:
            raise QuotaExceeded(
                f"{most} executions run already, as many as the tenant may have",
                quota="executions",
                limit=most,
                hint="wait for one, or end one",
            )
        execution = Execution(
            tenant=caller.tenant.name,
            session_id=None if session is None else session.id,
            kind="command" if asked.command is not None else "argv" if asked.argv is not None else "code",
            shown=asked.command or asked.code or " ".join(asked.argv or ()),
            is_background=asked.background,
        )
        execution.on_piece = lambda piece: self.bus.tell_output(execution.tenant, execution.id, piece)
        if session is not None:
            session.askers.add(caller.token_id)
        mine[execution.id] = execution  # before anything is waited for: it counts while it is being started
        try:
            await self._begin(caller, asked, session, execution, stdin)
        except BaseException:
            del mine[execution.id]
            raise
        self.bus.tell(execution.tenant, "execution.started", partial(execution.answer, with_output=False))
        execution.when_ended(partial(self._tell_end, execution))
        if session is not None:
            session.executions[execution.id] = execution
            _forget_old(session.executions)
        _forget_old(mine)
        return execution

    async def _begin(
        self,
        caller: Caller,
        asked: wire.ExecutionCreate,
        session: Session | None,
        execution: Execution,
        stdin: AsyncIterable[bytes] | None,
    ) -> None:
        if session is not None and goes_on(asked):
            execution.is_typed_by_person = asked.typed_by_person
            execution.has_terminal = asked.terminal is not None
            process = execution.process = await start_process(session.sandbox, asked, execution)
            execution.run(lambda: end_of(process))
        elif session is not None:
            sandbox, request = session.sandbox, library_request(asked, execution, stdin)
            execution.run(lambda: sandbox.execute(request))
        else:
            manager, request = await self.manager(caller), library_request(asked, execution, stdin)
            execution.run(lambda: manager.execute(request))

    def _tell_end(self, execution: Execution) -> None:
        if not self.bus.listeners(execution.tenant):
            return
        answer = execution.answer(with_output=False)
        self.bus.tell(execution.tenant, "execution.ended", lambda: answer)
        for violation in (answer.result or {}).get("violations", ()):
            found = {"at": execution.ended_at, "session_id": execution.session_id, "execution_id": execution.id}
            self.bus.tell(execution.tenant, "violation", partial(dict, found, **violation))


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


def _forget_old(known: dict[str, Execution]) -> None:
    if len(known) <= _KEPT_EXECUTIONS:
        return
    for ident in [ident for ident, each in known.items() if not each.is_running][
        : max(0, len(known) - _KEPT_EXECUTIONS)
    ]:
        del known[ident]
