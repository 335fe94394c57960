"""How a request becomes a call and a call an answer: who asks, may they, for what, by when, and what came of it.

A caller who goes away is noticed: the handler is cancelled, and with it what it waits for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ringfence.errors import NotPermitted, RingfenceError, Unauthenticated
from ringfence.server import keys
from ringfence.server.auth import authenticate
from ringfence.server.endpoint import BodyKind, Call, Endpoint
from ringfence.server.problems import RETRY_SECONDS, HttpFault, http_fault, is_worth_repeating, problem_of
from ringfence.server.tenants import Scope
from ringfence.server.tracing import joined

if TYPE_CHECKING:
    from ringfence.server.service import Service
    from ringfence.server.tenants import Caller

_log = logging.getLogger("ringfence.server")
_encode = msgspec.json.Encoder().encode
_DEADLINE_HEADER = "ringfence-deadline"


def respond(endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
    """What Starlette calls for a row of the table."""
    decoder = None if endpoint.body is None else msgspec.json.Decoder(endpoint.body)

    async def handle(request: Request) -> Response:
        service: Service = request.app.state.service
        request_id: str = request.scope["ringfence.request_id"]
        try:
            caller = authenticate(service, request, endpoint.scope)
            check_media_type(endpoint, request)
            check_scope(caller, endpoint.scope)
            service.meter(caller)
            query = _query(endpoint, request)
            raw = await _body(endpoint, request, service)
            body = _decoded(endpoint, decoder, raw)
            call = Call(service, caller, request, query, body, request_id)
            with joined(request.headers, is_on=service.makes_spans):
                return await keys.once(call, endpoint, raw, lambda: _in_time(call, endpoint))
        except ClientDisconnect:
            return Response(status_code=499)
        except (RingfenceError, HttpFault) as fault:
            return problem(fault, request_id)
        except asyncio.CancelledError:
            raise
        except Exception as fault:  # the outermost edge: logged whole, told as no more than a fault
            _log.exception("request %s failed", request_id)
            return problem(fault, request_id)

    handle.__name__ = endpoint.name
    return handle


def check_scope(caller: Caller, scope: Scope | None) -> None:
    if scope is not None and scope not in caller.scopes:
        raise NotPermitted(
            f"this needs the scope {scope!s}, which the token {caller.name!r} does not have",
            scope=scope,
            hint="use a token that has it",
        )


def problem(fault: BaseException, request_id: str) -> Response:
    told = problem_of(fault, request_id)
    headers = {}
    if isinstance(fault, Unauthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="ringfence"'
    if is_worth_repeating(told):
        headers["Retry-After"] = str(RETRY_SECONDS)
    return Response(_encode(told), told.status, headers, media_type="application/problem+json")


async def _in_time(call: Call, endpoint: Endpoint) -> Response:
    """Run the handler until its deadline, and no longer than its caller waits."""
    seconds = _deadline(call, endpoint)
    work = asyncio.ensure_future(endpoint.handler(call))
    waits = {work}
    # A handler that reads the body itself learns from that when the caller goes away.
    gone = None if endpoint.kind is BodyKind.STREAM else asyncio.ensure_future(_gone(call.request))
    if gone is not None:
        waits.add(gone)
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return _answer(endpoint, work.result())
        if gone is not None and gone.done():
            raise ClientDisconnect
        raise http_fault(
            "deadline_exceeded",
            f"no answer within {seconds:g} s, so it was ended",
            hint="set the header Ringfence-Deadline, in seconds; or run it in the background",
        )
    finally:
        for task in waits:
            task.cancel()
        await asyncio.wait(waits)
        for task in waits:
            if not task.cancelled():
                task.exception()  # looked at


async def _gone(request: Request) -> None:
    """Until the caller's connection is closed. Its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _deadline(call: Call, endpoint: Endpoint) -> float:
    settings = call.service.settings
    given = call.request.headers.get(_DEADLINE_HEADER)
    if given is None:
        return settings.longest_seconds if endpoint.waits else settings.deadline_seconds
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= settings.longest_seconds:
        raise http_fault(
            "malformed_request",
            "Ringfence-Deadline is not a number of seconds",
            hint=f"above 0, at most {settings.longest_seconds:g}",
        )
    return seconds


def _answer(endpoint: Endpoint, given: Any) -> Response:
    if isinstance(given, Response):
        return given
    if given is None:
        return Response(status_code=204)
    return Response(_encode(given), endpoint.status, media_type="application/json")


# --- what was sent ----------------------------------------------------------------------------------------------------


def _query(endpoint: Endpoint, request: Request) -> Any:
    given = request.query_params.multi_items()
    if endpoint.query is None:
        if given and not endpoint.passes_query:
            raise http_fault("malformed_request", f"there is no parameter {given[0][0]!r} here")
        return None
    names = [name for name, _ in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise http_fault("malformed_request", f"the parameter {twice!r} is given twice")
    try:
        return msgspec.convert(dict(given), endpoint.query, strict=False)
    except msgspec.ValidationError as fault:
        raise http_fault("malformed_request", f"in the query: {fault}") from None


async def _body(endpoint: Endpoint, request: Request, service: Service) -> bytes:
    if endpoint.kind is BodyKind.STREAM:
        return b""
    limit = service.settings.body_bytes if endpoint.kind is BodyKind.JSON else 64 * 1024
    return await read_body(request, limit, service.settings.body_seconds)


async def read_body(request: Request, limit: int, seconds: float) -> bytes:
    """All of it, if it is no longer and no slower than that."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    pieces, size = [], 0
    async for piece in timely(request, seconds):
        size += len(piece)
        if size > limit:
            raise too_large(limit)
        pieces.append(piece)
    return b"".join(pieces)


def too_large(limit: int) -> HttpFault:
    return http_fault("body_too_large", f"the body is larger than {limit} bytes", hint="send it in parts, or as a file")


async def timely(request: Request, seconds: float) -> Any:
    """A body as it comes, each piece within so many seconds."""
    stream = request.stream().__aiter__()
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise http_fault("body_too_slow", f"nothing of the body came for {seconds:g} s") from None
        yield piece


def _decoded(endpoint: Endpoint, decoder: Any, raw: bytes) -> Any:
    if decoder is None:
        if raw and endpoint.kind is BodyKind.NONE:
            raise http_fault("malformed_request", "this takes no body")
        return None
    if not raw and endpoint.optional_body:
        return endpoint.body() if endpoint.body is not None else None
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as fault:
        raise http_fault("malformed_request", str(fault)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise http_fault("malformed_request", f"the body is no JSON: {fault}") from None
    except RecursionError:
        raise http_fault("malformed_request", "the body is nested too deep") from None


def check_media_type(endpoint: Endpoint, request: Request) -> None:
    """JSON says so: a form of another site's page cannot."""
    if endpoint.kind is not BodyKind.JSON:
        return
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != "application/json" and not (endpoint.optional_body and not given):
        raise http_fault("unsupported_media_type", "the body is not application/json", hint="set Content-Type")
