"""Questions that wait for a person, their answers, and what happens in the tenant as it happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect

from ringfence.errors import RingfenceError
from ringfence.server import wire
from ringfence.server.bus import Happening
from ringfence.server.endpoint import BodyKind, Call, Endpoint, Media, Talk
from ringfence.server.pages import page
from ringfence.server.problems import HttpFault, problem_of
from ringfence.server.service import Service
from ringfence.server.streaming import NO_BUFFERING, PING_SECONDS
from ringfence.server.talking import still
from ringfence.server.tenants import Caller, Scope

_encode = msgspec.json.Encoder().encode
_POLICY_VIOLATION = 1008


async def list_questions(call: Call) -> wire.QuestionPage:
    found = call.service.questions.list(call.caller.tenant.name, only_open=call.query.state == "open")
    items, cursor = page(found, call.query, lambda each: (each.asked_at, each.id))
    return wire.QuestionPage(items=items, next_cursor=cursor)


async def get(call: Call) -> wire.Question:
    return call.service.questions.get(call.caller.tenant.name, call["question"])


async def answer(call: Call) -> wire.Question:
    return call.service.questions.answer(call.caller, call["question"], call.body)


async def events(call: Call) -> StreamingResponse:
    return StreamingResponse(_events(call.service, call.caller), headers=NO_BUFFERING, media_type=Media.EVENTS.value)


async def _events(service: Service, caller: Caller) -> AsyncIterator[bytes]:
    async for happening in _happenings(service, caller):
        if happening is None:
            yield b": still there\n\n"
        else:
            yield b"event: %s\ndata: %s\n\n" % (happening.kind.encode(), _encode(happening.data))


async def _happenings(service: Service, caller: Caller) -> AsyncIterator[Happening | None]:
    """What is open now, then what happens; None now and then, when nothing does. Questions go to who may answer."""
    may_answer = Scope.APPROVE in caller.scopes
    tenant = caller.tenant.name
    listening = service.bus.listen(tenant)
    pending: asyncio.Future[Happening] = asyncio.ensure_future(anext(listening))
    await asyncio.sleep(0)  # it listens from here on: nothing is lost between what is open and what comes
    try:
        if may_answer:
            for question in service.questions.list(tenant, only_open=True):
                yield Happening("question.asked", question)
        while True:
            done, _ = await asyncio.wait((pending,), timeout=PING_SECONDS)
            if not done:
                yield None
                continue
            try:
                happening = pending.result()
            except StopAsyncIteration:
                return
            pending = asyncio.ensure_future(anext(listening))
            if not service.is_good(caller):
                return
            if may_answer or not happening.kind.startswith("question."):
                yield happening
    finally:
        pending.cancel()
        await asyncio.wait((pending,))
        await listening.aclose()  # type: ignore[attr-defined]  # a generator, which AsyncIterator does not say


async def talk(talk: Talk) -> None:
    """`{"event", "data"}` out; in: `{"id", "choice", "request_hash", "comment"}`, each answered with `event: reply`."""
    socket = talk.socket
    await socket.accept()
    sending = asyncio.Lock()

    async def send(kind: str, data: object) -> None:
        async with sending:
            await socket.send_text(_encode({"event": kind, "data": data}).decode())

    async def tell() -> None:
        async for happening in _happenings(talk.service, talk.caller):
            if happening is not None:
                await send(happening.kind, happening.data)
        await socket.close(1001)

    telling = asyncio.ensure_future(tell())
    try:
        while True:
            text = await socket.receive_text()
            try:
                given = msgspec.json.decode(text, type=wire.SocketAnswer)
            except (msgspec.DecodeError, RecursionError):
                await socket.close(_POLICY_VIOLATION, "an answer has id, choice and request_hash")
                return
            asked = wire.QuestionAnswer(choice=given.choice, request_hash=given.request_hash, comment=given.comment)
            try:
                await send("reply", talk.service.questions.answer(still(talk, Scope.APPROVE), given.id, asked))
            except (RingfenceError, HttpFault) as fault:
                await send("reply", problem_of(fault, talk.request_id))
    except (WebSocketDisconnect, KeyError):  # KeyError: a frame of bytes where text is expected
        return
    finally:
        telling.cancel()
        await asyncio.wait((telling,))
        if not telling.cancelled():
            telling.exception()


_TAG = "questions"
_ONE = "/v1/questions/{question}"
ROUTES = (
    Endpoint(
        method="GET",
        path="/v1/questions",
        name="list_questions",
        does="Questions that wait for an answer; with `state=all`, also those of the last month.",
        handler=list_questions,
        scope=Scope.APPROVE,
        tag=_TAG,
        query=wire.QuestionQuery,
        answer=wire.QuestionPage,
    ),
    Endpoint(
        method="GET",
        path=_ONE,
        name="get_question",
        does="One question, with its answer if it has one.",
        handler=get,
        scope=Scope.APPROVE,
        tag=_TAG,
        answer=wire.Question,
    ),
    Endpoint(
        method="POST",
        path=_ONE + "/answer",
        name="answer_question",
        does="Answer it. The first answer counts; the token whose session asks cannot give it.",
        handler=answer,
        scope=Scope.APPROVE,
        tag=_TAG,
        body=wire.QuestionAnswer,
        kind=BodyKind.JSON,
        answer=wire.Question,
    ),
    Endpoint(
        method="GET",
        path="/v1/events",
        name="stream_events",
        does="What happens in the tenant, as it happens: questions, executions, sessions.",
        handler=events,
        scope=Scope.VIEW,
        tag=_TAG,
        media=(Media.EVENTS,),
        waits=True,
    ),
    Endpoint(
        method="WEBSOCKET",
        path="/v1/events/socket",
        name="talk_events",
        does="The same over a WebSocket, on which questions can be answered.",
        handler=talk,
        scope=Scope.APPROVE,
        tag=_TAG,
    ),
)
