"""Stands in front of every route: names the request, looks at Host and Origin, sets security headers, writes the log.

Host and Origin are looked at before anything else, on WebSockets too: a page of another site, or a name that was made
to point here (DNS rebinding), is refused whatever token it has. There are no CORS headers at all.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringfence.server.calling import problem
from ringfence.server.port_origins import DOMAIN
from ringfence.server.problems import HttpFault, http_fault

if TYPE_CHECKING:
    from ringfence.server.service import Service

_log = logging.getLogger("ringfence.access")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Guard:
    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._settings = service.settings
        self._ports = service.port_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers, begin = Headers(scope=scope), time.perf_counter()
        given = headers.get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else os.urandom(8).hex()
        scope["ringfence.request_id"] = request_id
        status = 0

        async def finish(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                answered = MutableHeaders(raw=message.setdefault("headers", []))
                answered["X-Request-ID"] = request_id
                answered.setdefault("Cache-Control", "no-store")
                for name, value in () if "ringfence.port" in scope else SECURITY_HEADERS.items():
                    answered.setdefault(name, value)
            elif message["type"] == "websocket.accept":
                status = 101
            await send(message)

        fault = self._refusal(scope, headers)
        try:
            if fault is None:
                await self._app(scope, receive, finish)
            elif scope["type"] == "http":
                await problem(fault, request_id)(scope, receive, finish)
            else:
                await finish({"type": "websocket.close", "code": 1008, "reason": fault.code})
        finally:
            _log.info(
                "request",
                extra={
                    "request_id": request_id,
                    "method": scope.get("method", "WEBSOCKET"),
                    "path": scope["path"],
                    "status": status,
                    "seconds": round(time.perf_counter() - begin, 6),
                    "traceparent": headers.get("traceparent"),
                },
            )

    def _refusal(self, scope: Scope, headers: Headers) -> HttpFault | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 and not (not hosts and _is_by_socket(scope)):
            return http_fault("malformed_request", "a request has one Host header")
        if hosts and not _is_by_socket(scope) and not self._knows(hosts[0]):
            return http_fault(
                "misdirected_request",
                "this server is not called by that name",
                hint="add it to `hosts` in the server's configuration",
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, hosts[0] if hosts else "", scope):
            return http_fault("origin_not_allowed", "pages of that origin may not speak to this server")
        return None

    def _knows(self, host: str) -> bool:
        name = _name_of(host)
        label, _, rest = name.partition(".")
        is_port = rest == DOMAIN and self._ports.door(label) is not None
        return name in _LOOPBACK or name in self._settings.hosts or is_port

    def _is_own(self, origin: str, host: str, scope: Scope) -> bool:
        if origin in self._settings.origins:
            return True
        secure = scope["scheme"] in ("https", "wss")
        return bool(host) and origin == f"{'https' if secure else 'http'}://{host}"


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_by_socket(scope: Scope) -> bool:
    server: Any = scope.get("server")
    return server is not None and server[1] is None
