"""MCP on the server: joins the service's tokens, tenants and sessions with the tools of `ringfence.mcp`.

The SDK takes seconds to load, and is loaded by the first request that needs it.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ringfence.errors import NotFound, NotInstalled, RingfenceError, SessionLost
from ringfence.manager.finishing import finish
from ringfence.manager.sandbox import Sandbox
from ringfence.mcp.asking import ClientConfirmation
from ringfence.mcp.boxes import FindRoot, OpenBox
from ringfence.mcp.catalog import MAIN, NEW
from ringfence.mcp.hints import UNKNOWN, Powers, powers_of
from ringfence.server import wire
from ringfence.server.auth import authenticate
from ringfence.server.calling import check_scope, problem
from ringfence.server.making import make_options
from ringfence.server.problems import HttpFault
from ringfence.server.tenants import Caller, Scope
from ringfence.values.remedy import Door

if TYPE_CHECKING:
    from starlette.types import Receive, Send
    from starlette.types import Scope as AsgiScope

    from ringfence.mcp.http import McpEndpoint
    from ringfence.server.service import Service
    from ringfence.server.sessions import Session

PATH: Final = "/mcp"
_HEAVY: Final = "ringfence.mcp.http"


class SessionBoxes:
    """The sessions of one token's tenant, as sandboxes of MCP: ids are those of the service.

    `main` is a session of the token's own, made at its first call; it lives as long as the service lets sessions live,
    and every call extends that.
    """

    has_shadow = False

    def __init__(self, service: Service, caller: Caller) -> None:
        self._service = service
        self._caller = caller
        self._making = asyncio.Lock()
        self._known: dict[str, OpenBox] = {}
        self._main = f"mcp-{hashlib.sha256(caller.token_id.encode()).hexdigest()[:16]}"

    @property
    def door(self) -> Door:
        return Door.POLICY if self._caller.tenant.policy is not None else Door.AGENT

    @property
    def may_answer(self) -> bool:
        return Scope.APPROVE in self._caller.scopes

    def report(self, fault: RingfenceError) -> None:
        importlib.import_module("logging").getLogger("ringfence.server").error("mcp: %s", fault)

    async def powers(self) -> Powers:
        return await asyncio.to_thread(self._powers)

    def _powers(self) -> Powers:
        directory = self._service.settings.state / "sessions"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            sandbox = Sandbox(make_options(wire.SessionCreate(), self._caller, directory, None, ()))
        except (RingfenceError, OSError):
            return UNKNOWN
        try:
            return powers_of(sandbox.grant, on_shadow=False)
        finally:
            asyncio.run(sandbox.close())

    async def find(self, asked: str | None, find_root: FindRoot) -> OpenBox:
        """
        Raises:
            NotFound: the tenant has no such session.
            SessionLost: its box went with an earlier run of the server.
            RingfenceError: it cannot be made.
        """
        wanted = asked or MAIN
        async with self._making:
            if wanted == NEW:
                return await self._made(None)
            ident = self._main if wanted == MAIN else wanted
            try:
                session = self._service.session(self._caller, ident)
            except NotFound:
                if wanted == MAIN:
                    return await self._made(ident)
                raise NotFound(
                    f"there is no sandbox {wanted[:40]!r}",
                    hint=f"it may have ended; '{NEW}' makes one, and a result says the id of its sandbox",
                ) from None
            if session.is_lost and wanted == MAIN:
                raise SessionLost(
                    "the sandbox was lost when the server was restarted",
                    session_id=ident,
                    hint=f"use the sandbox '{NEW}'; its files are still there for whoever runs the server",
                )
            session.askers.add(self._caller.token_id)  # who asks does not answer
            self._service.extend_session(session, session.asked.ttl_seconds)
            return self._box(session, ClientConfirmation())

    async def _made(self, ident: str | None) -> OpenBox:
        made: list[ClientConfirmation] = []

        def ask_by(own: Any) -> ClientConfirmation:
            made.append(ClientConfirmation(own))
            return made[0]

        async def make() -> None:
            session = await self._service.create_session(self._caller, wire.SessionCreate(id=ident), asks_by=ask_by)
            self._box(session, made[0])
            names.append(session.id)

        names: list[str] = []
        await finish(make())  # a caller who goes away meanwhile loses track of nothing
        return self._known[names[0]]

    def _box(self, session: Session, confirmation: ClientConfirmation) -> OpenBox:
        sandbox = session.sandbox
        known = self._known.get(session.id)
        if known is None or known.sandbox is not sandbox:
            known = OpenBox(session.id, sandbox.options, confirmation, None, sandbox)
            self._known[session.id] = known
        return known

    async def close(self) -> None:
        """Sessions live on: they are the tenant's."""
        self._known.clear()


class McpRoute:
    """What answers at `/mcp`."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._endpoint: McpEndpoint | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        signed = self._sign_in(Request(scope, receive))
        if isinstance(signed, Response):
            await signed(scope, receive, send)
            return
        async with self._loading:
            if self._endpoint is None:
                try:
                    module = await asyncio.to_thread(importlib.import_module, _HEAVY)
                except ImportError:
                    fault = NotInstalled("MCP needs packages", hint="pip install 'ringfence[mcp]' on the server")
                    await problem(fault, scope["ringfence.request_id"])(scope, receive, send)
                    return
                self._endpoint = module.McpEndpoint()
        assert self._endpoint is not None
        await self._endpoint.handle(signed, scope, receive, send)

    def _sign_in(self, request: Request) -> tuple[str, Any] | Response:
        """Who asks, by their token alone; a key for their desk, and how it is made."""
        try:
            caller = authenticate(self._service, request, Scope.RUN)
            check_scope(caller, Scope.RUN)
            self._service.meter(caller)
            self._service.refuse_if_stopping()
        except (RingfenceError, HttpFault) as fault:
            return problem(fault, request.scope["ringfence.request_id"])
        return f"{caller.tenant.name}/{caller.token_id}", lambda: SessionBoxes(self._service, caller)

    async def close(self) -> None:
        if self._endpoint is not None:
            await self._endpoint.close()


def mcp_routes(service: Service) -> list[BaseRoute]:
    """For `make_app`; ends with the service."""
    route = McpRoute(service)
    service.closers.append(route.close)
    return [Route(PATH, route, methods=["GET", "POST", "DELETE"])]
