"""The route table: every path of the service, once. Routes, the OpenAPI document and the tests are made of it."""

from __future__ import annotations

from ringfence.server.endpoint import Endpoint
from ringfence.server.routes import (
    executions,
    feeding,
    files,
    judging,
    operations,
    ports,
    questions,
    record,
    replaying,
    sessions,
    shadows,
    snapshots,
    sockets,
    states,
    system,
    tokens,
)

TABLE: tuple[Endpoint, ...] = (
    *system.ROUTES,
    *sessions.ROUTES,
    *states.ROUTES,
    *snapshots.ROUTES,
    *executions.ROUTES,
    *feeding.ROUTES,
    *sockets.ROUTES,
    *files.ROUTES,
    *shadows.ROUTES,
    *ports.ROUTES,
    *questions.ROUTES,
    *judging.ROUTES,
    *record.ROUTES,
    *replaying.ROUTES,
    *tokens.ROUTES,
    *operations.ROUTES,
)
