"""A session as the library shows it: its state, what would be decided in it, its box made ahead of time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.errors import InvalidArgument
from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint
from ringfence.server.tenants import Scope
from ringfence.values.carried import carried
from ringfence.values.request import Request

if TYPE_CHECKING:
    from ringfence.manager.sandbox import Sandbox


def _sandbox(call: Call) -> Sandbox:
    return call.service.session(call.caller, call["session"]).sandbox


async def state(call: Call) -> wire.SessionState:
    sandbox = _sandbox(call)
    return wire.SessionState(
        sandbox_id=sandbox.id,
        engine=sandbox.name,
        who=carried(sandbox.who),
        grant=carried(sandbox.grant),
        wall=carried(sandbox.wall),
        usage=carried(sandbox.current_usage()),
        published={str(port): url for port, url in sandbox.published.items()},
        notes=list(sandbox.notes),
        contexts=[list(pair) for pair in sandbox.contexts()],
        is_active=sandbox.is_active,
        idle_seconds=sandbox.idle_seconds,
    )


async def check(call: Call) -> wire.SessionChecked:
    asked: wire.SessionCheck = call.body
    sandbox = _sandbox(call)
    if (asked.path is None) == (asked.host is None):
        raise InvalidArgument("a check is about a path or a host", hint="set one of them")
    if asked.path is not None:
        return wire.SessionChecked(reason=carried(sandbox.check_path(asked.path, write=asked.write)))
    return wire.SessionChecked(reason=carried(sandbox.check_network(asked.host or "", asked.port)))


async def decide(call: Call) -> wire.Decided:
    asked: wire.SessionDecide = call.body
    sandbox = _sandbox(call)
    request = Request(
        command=asked.command,
        argv=None if asked.argv is None else tuple(asked.argv),
        code=asked.code,
        language=asked.language,
        context=asked.context,
        cwd=None if asked.cwd is None else Path(asked.cwd),
        env=tuple(asked.env.items()),
        live_input=asked.live_input,
    )
    return wire.Decided(
        decision=carried(sandbox.decide(request)),
        refused_inside=[carried(reason) for reason in sandbox.refused_inside(request)],
    )


async def open_box(call: Call) -> wire.Empty:
    await _sandbox(call).open()
    return wire.Empty()


async def warm(call: Call) -> wire.Empty:
    await _sandbox(call).warm()
    return wire.Empty()


async def processes(call: Call) -> wire.ExecutionPage:
    session = call.service.session(call.caller, call["session"])
    found = call.service.processes(call.caller, session)
    return wire.ExecutionPage(items=[each.answer(with_output=False) for each in found])


_TAG = "sessions"
_ONE = "/v1/sessions/{session}"
ROUTES = (
    Endpoint(
        method="GET",
        path=_ONE + "/state",
        name="get_session_state",
        does="What it is granted, what stands, what it has used.",
        handler=state,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.SessionState,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/check",
        name="check_in_session",
        does="What would be decided about a path or a host.",
        handler=check,
        scope=Scope.VIEW,
        tag=_TAG,
        body=wire.SessionCheck,
        kind=BodyKind.JSON,
        answer=wire.SessionChecked,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/decide",
        name="decide_in_session",
        does="What would be decided about something that would run, with every vote.",
        handler=decide,
        scope=Scope.VIEW,
        tag=_TAG,
        body=wire.SessionDecide,
        kind=BodyKind.JSON,
        answer=wire.Decided,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/open",
        name="open_box",
        does="Make its box now, instead of with the first call that may run.",
        handler=open_box,
        scope=Scope.RUN,
        tag=_TAG,
        answer=wire.Empty,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/warm",
        name="warm_box",
        does="The same, with a shell and an interpreter that wait.",
        handler=warm,
        scope=Scope.RUN,
        tag=_TAG,
        answer=wire.Empty,
    ),
    Endpoint(
        method="GET",
        path=_ONE + "/processes",
        name="list_processes",
        does="What goes on by itself in it, or did: what was started so, and what calls have left running.",
        handler=processes,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.ExecutionPage,
    ),
)
