"""Sessions: made, listed, extended, ended."""

from __future__ import annotations

from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint
from ringfence.server.pages import page
from ringfence.server.tenants import Scope


async def create(call: Call) -> wire.Session:
    session = await call.service.create_session(call.caller, call.body)
    return session.answer()


async def list_sessions(call: Call) -> wire.SessionPage:
    found, cursor = page(call.service.sessions(call.caller), call.query, lambda each: (each.created_at, each.id))
    return wire.SessionPage(items=[session.answer() for session in found], next_cursor=cursor)


async def get(call: Call) -> wire.Session:
    return call.service.session(call.caller, call["session"]).answer()


async def extend(call: Call) -> wire.Session:
    session = call.service.session(call.caller, call["session"])
    call.service.extend_session(session, call.body.ttl_seconds)
    return session.answer()


async def end(call: Call) -> None:
    session = call.service.session(call.caller, call["session"])
    await call.service.end_session(session, keep_files=call.query.keep_files)


async def interrupt(call: Call) -> wire.Interrupted:
    session = call.service.session(call.caller, call["session"])
    return wire.Interrupted(was_running=session.sandbox.interrupt(call.body.context, language=call.body.language))


async def restart(call: Call) -> wire.Empty:
    session = call.service.session(call.caller, call["session"])
    await session.sandbox.restart(call.body.context, language=call.body.language)
    return wire.Empty()


_TAG = "sessions"
_ONE = "/v1/sessions/{session}"
ROUTES = (
    Endpoint(
        method="POST",
        path="/v1/sessions",
        name="create_session",
        does="Make a session: a sandbox with a workspace of its own.",
        handler=create,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.SessionCreate,
        kind=BodyKind.JSON,
        optional_body=True,
        answer=wire.Session,
        status=201,
        starts=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/sessions",
        name="list_sessions",
        does="The tenant's sessions, the oldest first.",
        handler=list_sessions,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.PageQuery,
        answer=wire.SessionPage,
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        name="get_session",
        does="One session as it is now.",
        handler=get,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.Session,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/extend",
        name="extend_session",
        does="Let it live for so long from now.",
        handler=extend,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.SessionExtend,
        kind=BodyKind.JSON,
        answer=wire.Session,
    ),
    Endpoint(
        method="DELETE",
        path=_ONE,
        name="end_session",
        does="End what runs in it, and it; its files go with it.",
        handler=end,
        scope=Scope.RUN,
        tag=_TAG,
        query=wire.EndQuery,
        status=204,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/interrupt",
        name="interrupt_context",
        does="Interrupt what runs in an interpreter; its state lives on.",
        handler=interrupt,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.ContextRef,
        kind=BodyKind.JSON,
        optional_body=True,
        answer=wire.Interrupted,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/restart",
        name="restart_context",
        does="End an interpreter with its state; the next call starts a new one.",
        handler=restart,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.ContextRef,
        kind=BodyKind.JSON,
        optional_body=True,
        answer=wire.Empty,
    ),
)
