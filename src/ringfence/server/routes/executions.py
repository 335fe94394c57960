"""Executions: begun, waited for, streamed, fed, signalled, ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from ringfence.errors import InvalidArgument
from ringfence.server import wire
from ringfence.server.calling import read_body
from ringfence.server.endpoint import BodyKind, Call, Endpoint, Media
from ringfence.server.pages import page
from ringfence.server.problems import http_fault
from ringfence.server.starting import signal_number
from ringfence.server.streaming import stream_response
from ringfence.server.tenants import Scope

if TYPE_CHECKING:
    from ringfence.server.sessions import Session

_STDIN_BYTES = 8 * 1024 * 1024


async def run(call: Call) -> Response | wire.Execution:
    return await _run(call, None)


async def run_in_session(call: Call) -> Response | wire.Execution:
    return await _run(call, call.service.session(call.caller, call["session"]))


async def _run(call: Call, session: Session | None) -> Response | wire.Execution:
    """Wait for it, or stream it, or, in the background, say that it has begun."""
    media = _wanted(call)
    asked: wire.ExecutionCreate = call.body
    execution = await call.service.start_execution(call.caller, asked, session)
    if media is not Media.JSON:
        return stream_response(execution, media, owns=not asked.background)
    if asked.background:
        return _accepted(execution.answer())
    try:
        await execution.wait()
    finally:
        if execution.is_running:  # its caller is gone, or its deadline has passed
            await execution.cancel()
    if isinstance(execution.fault, Exception):
        raise execution.fault
    return execution.answer()


def _accepted(answer: wire.Execution) -> Response:
    return Response(msgspec.json.encode(answer), 202, media_type="application/json")


def _wanted(call: Call) -> Media:
    accept = call.request.headers.get("accept", "*/*")
    kinds = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for kind in kinds:
        if kind == Media.EVENTS.value:
            return Media.EVENTS
        if kind == Media.FRAMES.value:
            return Media.FRAMES
        if kind in ("application/json", "application/*", "*/*", ""):
            return Media.JSON
    raise http_fault("not_acceptable", f"no answer is {accept!r}", hint="application/json or text/event-stream")


async def list_all(call: Call) -> wire.ExecutionPage:
    return _page(call, None)


async def list_of_session(call: Call) -> wire.ExecutionPage:
    return _page(call, call.service.session(call.caller, call["session"]).id)


def _page(call: Call, session_id: str | None) -> wire.ExecutionPage:
    all_of_them = call.service.executions(call.caller, session_id)
    found, cursor = page(all_of_them, call.query, lambda each: (each.started_at, each.id))
    return wire.ExecutionPage(items=[each.answer(with_output=False) for each in found], next_cursor=cursor)


async def get(call: Call) -> wire.Execution:
    return call.service.execution(call.caller, call["execution"]).answer()


async def wait(call: Call) -> wire.Execution:
    execution = call.service.execution(call.caller, call["execution"])
    await execution.wait()
    return execution.answer()


async def events(call: Call) -> Response:
    execution = call.service.execution(call.caller, call["execution"])
    media = _wanted(call)
    last = call.request.headers.get("last-event-id", "0")
    if not (last.isascii() and last.isdigit() and len(last) < 20):
        raise http_fault("malformed_request", "Last-Event-ID is not a number")
    return stream_response(execution, Media.EVENTS if media is Media.JSON else media, after=int(last))


async def stdin(call: Call) -> wire.Empty:
    execution = call.service.execution(call.caller, call["execution"])
    process = execution.running_process()
    call.service.note_writer(call.caller, execution)
    data = await read_body(call.request, _STDIN_BYTES, call.service.settings.body_seconds)
    if data and not await process.write(data):
        raise InvalidArgument("it does not listen any more", hint="its input is closed")
    if call.query.close:
        process.close_input()
    return wire.Empty()


async def send_signal(call: Call) -> wire.Empty:
    process = call.service.execution(call.caller, call["execution"]).running_process()
    process.signal(signal_number(call.body.signal))
    return wire.Empty()


async def resize(call: Call) -> wire.Empty:
    execution = call.service.execution(call.caller, call["execution"])
    if not execution.has_terminal:
        raise InvalidArgument("it has no terminal", hint="start it with terminal")
    execution.running_process().resize(call.body.rows, call.body.columns)
    return wire.Empty()


async def end(call: Call) -> wire.Execution:
    execution = call.service.execution(call.caller, call["execution"])
    await execution.cancel()
    return execution.answer()


_TAG = "executions"
_ONE = "/v1/executions/{execution}"
_STREAMS = (Media.JSON, Media.EVENTS, Media.FRAMES)
ROUTES = (
    Endpoint(
        method="POST",
        path="/v1/executions",
        name="run",
        does="Run something in a box that nobody has used before, and that nobody uses after it.",
        handler=run,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.ExecutionCreate,
        kind=BodyKind.JSON,
        answer=wire.Execution,
        media=_STREAMS,
        starts=True,
        waits=True,
    ),
    Endpoint(
        method="POST",
        path="/v1/sessions/{session}/executions",
        name="run_in_session",
        does="Run something in a session: wait for it, stream it, or leave it in the background.",
        handler=run_in_session,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.ExecutionCreate,
        kind=BodyKind.JSON,
        answer=wire.Execution,
        media=_STREAMS,
        starts=True,
        waits=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/executions",
        name="list_executions",
        does="The tenant's executions that are still known, without their output.",
        handler=list_all,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.PageQuery,
        answer=wire.ExecutionPage,
    ),
    Endpoint(
        method="GET",
        path="/v1/sessions/{session}/executions",
        name="list_executions_of_session",
        does="The same of one session.",
        handler=list_of_session,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.PageQuery,
        answer=wire.ExecutionPage,
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        name="get_execution",
        does="One execution, with its result if it has ended.",
        handler=get,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.Execution,
    ),
    Endpoint(
        method="GET",
        path=_ONE + "/wait",
        name="wait_execution",
        does="Wait until it has ended; it does not end if the caller goes away.",
        handler=wait,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.Execution,
        waits=True,
    ),
    Endpoint(
        method="GET",
        path=_ONE + "/events",
        name="stream_execution",
        does="Its output as it comes, and its end; from `Last-Event-ID` on.",
        handler=events,
        scope=Scope.VIEW,
        tag=_TAG,
        media=(Media.EVENTS, Media.FRAMES),
        waits=True,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/stdin",
        name="write_stdin",
        does="Give an interactive one input, as bytes; with `close`, the end of it.",
        handler=stdin,
        scope=Scope.RUN,
        tag=_TAG,
        query=wire.StdinQuery,
        kind=BodyKind.STREAM,
        answer=wire.Empty,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/signal",
        name="signal_execution",
        does="Send a signal to its process group.",
        handler=send_signal,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.SignalSend,
        kind=BodyKind.JSON,
        answer=wire.Empty,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/resize",
        name="resize_terminal",
        does="Tell it the size of its terminal.",
        handler=resize,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.TerminalSize,
        kind=BodyKind.JSON,
        answer=wire.Empty,
    ),
    Endpoint(
        method="DELETE",
        path=_ONE,
        name="end_execution",
        does="End it with all that it started; returns when nothing of it runs.",
        handler=end,
        scope=Scope.RUN,
        tag=_TAG,
        answer=wire.Execution,
    ),
)
