"""The service as an ASGI application: the route table, the guard in front of it, and its beginning and end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from ringfence.server.calling import problem, respond
from ringfence.server.guard import Guard
from ringfence.server.openapi import document
from ringfence.server.port_origins import PortMiddleware
from ringfence.server.problems import http_fault
from ringfence.server.table import TABLE
from ringfence.server.talking import talk

if TYPE_CHECKING:
    from ringfence.server.endpoint import Endpoint
    from ringfence.server.service import Service

_CODES = {404: "no_such_route", 405: "method_not_allowed"}


def make_app(service: Service, *, more: Sequence[Endpoint] = (), routes: Sequence[BaseRoute] = ()) -> Starlette:
    """
    Args:
        more: further rows, of front doors that are served beside ours.
        routes: what is served as it is, such as files of a console; after the table.
    """
    table = (*TABLE, *more)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = Starlette(
        routes=[*map(_route, table), *routes],
        lifespan=lifespan,
        middleware=[Middleware(Guard, service=service), Middleware(PortMiddleware, service=service)],
        exception_handlers={HTTPException: _unrouted},
    )
    app.state.service = service
    app.state.openapi = document(table)
    return app


def _route(endpoint: Endpoint) -> BaseRoute:
    if endpoint.method == "WEBSOCKET":
        return WebSocketRoute(endpoint.path, talk(endpoint), name=endpoint.name)
    return Route(endpoint.path, respond(endpoint), methods=[endpoint.method], name=endpoint.name)


async def _unrouted(request: Request, fault: Exception) -> Response:
    status = fault.status_code if isinstance(fault, HTTPException) else 500
    code = _CODES.get(status, "malformed_request")
    told = problem(
        http_fault(code, f"{request.method} {request.url.path}: {'no such route' if status == 404 else 'not here'}"),
        request.scope.get("ringfence.request_id", ""),
    )
    if isinstance(fault, HTTPException) and fault.headers:
        told.headers.update(fault.headers)
    return told
