"""Servers inside boxes, each under an origin of its own: `http://LABEL.localhost:8080/` is one port of one session.

A page that a box serves is hostile. Under an origin of its own it shares neither cookies nor storage with the console,
nor with another session's page. A browser comes in by a link that is good once and for a minute; it is swapped for a
cookie of that origin alone. Programs use `/v1/sessions/ID/ports/PORT/...` with their token instead.

What this does not do: WebSockets of the server inside are not passed on.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import httpx
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from ringfence.dataclass import dataclass
from ringfence.errors import NotFound, RingfenceError, Unauthenticated
from ringfence.server.calling import check_scope, problem, timely
from ringfence.server.problems import HttpFault, http_fault
from ringfence.server.tenants import Scope

if TYPE_CHECKING:
    from ringfence.server.service import Service
    from ringfence.server.tenants import Caller

ENTER: Final = "/.ringfence/enter"
COOKIE: Final = "ringfence_port"
DOMAIN: Final = "localhost"
"""Browsers resolve names below it to loopback."""
TICKET_SECONDS: Final = 60.0
_SECONDS: Final = 60.0
_HOP_BY_HOP: Final = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_OURS: Final = frozenset({"host", "authorization", "cookie", "content-length", "ringfence-csrf", "x-request-id"})


@dataclass(frozen=True, slots=True)
class Door:
    """A port of a session."""

    tenant: str
    session_id: str
    port: int


class PortOrigins:
    """Which label is which port, and who may come in."""

    def __init__(self) -> None:
        self._doors: dict[str, Door] = {}
        self._tickets: dict[bytes, tuple[str, float, Caller]] = {}
        self._cookies: dict[bytes, tuple[str, Caller]] = {}

    def ticket(self, door: Door, caller: Caller) -> tuple[str, str, float]:
        """(label, ticket, until)"""
        label = next((label for label, known in self._doors.items() if known == door), None)
        if label is None:
            label = f"p{door.port}-{secrets.token_hex(8)}"
            self._doors[label] = door
        now = time.monotonic()
        self._tickets = {each: held for each, held in self._tickets.items() if held[1] > now}
        ticket = secrets.token_urlsafe(32)
        self._tickets[_digest(ticket)] = (label, now + TICKET_SECONDS, caller)
        return label, ticket, time.time() + TICKET_SECONDS

    def redeem(self, label: str, ticket: str) -> str | None:
        """The cookie for it; None if it is not good. It is good once."""
        held = self._tickets.pop(_digest(ticket), None)
        if held is None or held[0] != label or held[1] < time.monotonic():
            return None
        cookie = secrets.token_urlsafe(32)
        self._cookies[_digest(cookie)] = (label, held[2])
        return cookie

    def door(self, label: str) -> Door | None:
        return self._doors.get(label)

    def who(self, label: str, cookie: str | None) -> Caller | None:
        """Who opened the link that the cookie was given for; None if it is none of this label's."""
        known, caller = self._cookies.get(_digest(cookie or ""), ("", None))
        return caller if known == label else None

    def forget(self, tenant: str, session_id: str) -> None:
        """The session has ended."""
        gone = {label for label, door in self._doors.items() if (door.tenant, door.session_id) == (tenant, session_id)}
        self._doors = {label: door for label, door in self._doors.items() if label not in gone}
        self._cookies = {cookie: held for cookie, held in self._cookies.items() if held[0] not in gone}


class PortMiddleware:
    """Takes requests whose Host is the origin of a port; all others go on."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        label = label_of(scope)
        if label is None or scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": "not passed on"})
            return
        scope["ringfence.port"] = True
        request = Request(scope, receive)
        try:
            answer = await self._answer(request, label)
        except (RingfenceError, HttpFault) as fault:
            answer = problem(fault, scope.get("ringfence.request_id", ""))
        await answer(scope, receive, send)

    async def _answer(self, request: Request, label: str) -> Response:
        origins = self._service.port_origins
        door = origins.door(label)
        if door is None:
            raise NotFound("there is no such port", hint="open it again")
        if request.url.path == ENTER:
            cookie = origins.redeem(label, request.query_params.get("ticket", ""))
            if cookie is None:
                raise Unauthenticated("the link is not good any more", hint="open the port again")
            answer = RedirectResponse("/", 303)
            answer.set_cookie(
                COOKIE, cookie, path="/", secure=request.url.scheme == "https", httponly=True, samesite="lax"
            )
            return answer
        caller = origins.who(label, request.cookies.get(COOKIE))
        if caller is None or not self._service.is_good(caller):
            raise Unauthenticated("this origin is entered by a link of the server", hint="open the port again")
        check_scope(caller, Scope.VIEW if request.method in ("GET", "HEAD") else Scope.RUN)  # as for programs
        outside = self._service.published_port(door)
        return await pass_on(request, outside, request.url.path, self._service.settings.body_seconds)


def label_of(scope: AsgiScope) -> str | None:
    """The label of a Host such as `p8000-1f2e3d4c5b6a7988.localhost:8080`."""
    for name, value in scope.get("headers", ()):
        if name == b"host":
            host = value.decode("latin-1").partition(":")[0].lower()
            label, dot, rest = host.partition(".")
            return label if dot and rest == DOMAIN and label.startswith("p") else None
    return None


async def pass_on(request: Request, port: int, path: str, body_seconds: float) -> Response:
    """The request, without what is ours, to a port of this machine; and what came back, as it comes.

    Raises:
        HttpFault: nobody answers there.
    """
    headers = [
        (name, value)
        for name, value in request.headers.raw
        if name.decode("latin-1").lower() not in _HOP_BY_HOP | _OURS
    ]
    kept = "; ".join(f"{name}={value}" for name, value in request.cookies.items() if not name.startswith("ringfence"))
    if kept:
        headers.append((b"cookie", kept.encode("latin-1")))
    has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
    client = httpx.AsyncClient(timeout=_SECONDS, trust_env=False, follow_redirects=False)
    try:
        answer = await client.send(
            client.build_request(
                request.method,
                httpx.URL(f"http://127.0.0.1:{port}", path=path, query=request.scope["query_string"]),
                headers=headers,
                content=timely(request, body_seconds) if has_body else None,
            ),
            stream=True,
        )
    except httpx.HTTPError as fault:
        await client.aclose()
        raise http_fault(
            "bad_gateway", f"nobody answers at that port: {type(fault).__name__}", hint="is the server inside running?"
        ) from None
    except BaseException:
        await client.aclose()
        raise
    told = StreamingResponse(_body(client, answer), answer.status_code)
    told.raw_headers = [
        (name.lower(), value)
        for name, value in answer.headers.raw
        if name.decode("latin-1").lower() not in _HOP_BY_HOP and not _is_our_cookie(name, value)
    ]
    return told


def _is_our_cookie(name: bytes, value: bytes) -> bool:
    return name.lower() == b"set-cookie" and value.strip().lower().startswith(b"ringfence")


async def _body(client: httpx.AsyncClient, answer: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
        await client.aclose()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
