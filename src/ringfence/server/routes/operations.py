"""For whoever operates the server: the pool, and metrics for Prometheus."""

from __future__ import annotations

from dataclasses import asdict

from starlette.responses import Response

from ringfence.errors import NotInstalled
from ringfence.server import wire
from ringfence.server.endpoint import Call, Endpoint, Media
from ringfence.server.tenants import Scope


async def pool(call: Call) -> wire.Pools:
    return wire.Pools(
        tenants={
            tenant: {tools: asdict(state) for tools, state in manager.pool.state().items()}
            for tenant, manager in call.service.pools().items()
        },
        sessions=call.service.count_sessions(),
        executions=call.service.count_running(),
    )


async def metrics(call: Call) -> Response:
    registry = call.service.registry
    if registry is None:
        raise NotInstalled("metrics need prometheus-client", hint="pip install 'ringfence[metrics]'")
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


_TAG = "operations"
ROUTES = (
    Endpoint(
        method="GET",
        path="/v1/pool",
        name="get_pool",
        does="Boxes that wait and work, by tenant; sessions and executions of the whole server.",
        handler=pool,
        scope=Scope.OPERATE,
        tag=_TAG,
        answer=wire.Pools,
    ),
    Endpoint(
        method="GET",
        path="/metrics",
        name="metrics",
        does="Metrics in the text format of Prometheus.",
        handler=metrics,
        scope=Scope.OPERATE,
        tag=_TAG,
        media=(Media.TEXT,),
    ),
)
