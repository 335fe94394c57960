"""The server itself: whether it lives, whether it is ready, who asks, and the document that describes it."""

from __future__ import annotations

from starlette.responses import Response

from ringfence.server import wire
from ringfence.server.endpoint import Call, Endpoint
from ringfence.server.tenants import Scope
from ringfence.version import VERSION


async def healthz(call: Call) -> wire.Health:
    return wire.Health(status="ok", version=VERSION)


async def readyz(call: Call) -> wire.Health:
    call.service.refuse_if_stopping()
    call.service.store.one("SELECT 1")
    return wire.Health(status="ok", version=VERSION)


async def me(call: Call) -> wire.Me:
    caller = call.caller
    return wire.Me(
        tenant=caller.tenant.name,
        token=caller.name,
        scopes=sorted(caller.scopes),
        expires_at=caller.expires_at,
        csrf_token=caller.csrf_token,
    )


async def openapi(call: Call) -> Response:
    return Response(call.request.app.state.openapi, media_type="application/json")


_TAG = "server"
ROUTES = (
    Endpoint(
        method="GET",
        path="/healthz",
        name="healthz",
        does="Whether the server lives.",
        handler=healthz,
        scope=None,
        tag=_TAG,
        answer=wire.Health,
    ),
    Endpoint(
        method="GET",
        path="/readyz",
        name="readyz",
        does="Whether it takes work; 503 while it stops.",
        handler=readyz,
        scope=None,
        tag=_TAG,
        answer=wire.Health,
    ),
    Endpoint(
        method="GET",
        path="/openapi.json",
        name="openapi",
        does="This document.",
        handler=openapi,
        scope=None,
        tag=_TAG,
    ),
    Endpoint(
        method="GET",
        path="/v1/me",
        name="me",
        does="Who the server takes the caller for.",
        handler=me,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.Me,
    ),
)
