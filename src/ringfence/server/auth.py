"""Finds out who asks: by the bearer token, by the cookie of a login, or as the owner on the Unix socket.

The socket is the owner's alone (mode 0600, and the peer's user id is looked at when it connects: `serving.py`).
Nothing else in a request says who it is from.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from ringfence.errors import Unauthenticated
from ringfence.server.attempts import address_of
from ringfence.server.logins import COOKIE, CSRF_HEADER, is_csrf_token
from ringfence.server.problems import http_fault
from ringfence.server.tenants import ALL_SCOPES, DEFAULT_TENANT, SOCKET, Caller, Scope, Tenant

if TYPE_CHECKING:
    from ringfence.server.service import Service

_ANYBODY = Caller(tenant=Tenant(name=""), token_id="", name="", scopes=frozenset())


def is_by_socket(connection: HTTPConnection) -> bool:
    """Whether it came by the Unix socket: uvicorn says where it was accepted, and gives no port then."""
    server = connection.scope.get("server")
    return server is not None and server[1] is None


def authenticate(service: Service, connection: HTTPConnection, scope: Scope | None) -> Caller:
    """
    Args:
        scope: None for what anybody may ask.

    Raises:
        Unauthenticated: no token, or none that is good.
        HttpFault: too many bad ones came from there.
    """
    header = connection.headers.get("authorization")
    cookie = connection.cookies.get(COOKIE)
    if header is None and cookie is not None and (caller := _logged_in(service, connection, cookie)) is not None:
        return caller
    if header is None:
        if is_by_socket(connection) and service.trusts_socket:
            return owner(service)
        if scope is None:
            return _ANYBODY
        raise Unauthenticated("a token is needed", hint="send Authorization: Bearer TOKEN; `ringfence token create`")
    place = address_of(connection)
    if service.attempts.is_barred(place):
        raise http_fault("too_many_attempts", "too many bad tokens came from there", hint="wait a minute")
    kind, _, text = header.partition(" ")
    found = service.tokens.check(text.strip()) if kind.lower() == "bearer" else None
    tenant = None if found is None else service.tenant(found.tenant)
    if found is None or tenant is None:
        service.attempts.failed(place)
        raise Unauthenticated("the token is not good", hint="it may be wrong, expired or revoked")
    return Caller(tenant=tenant, token_id=found.id, name=found.name, scopes=found.scopes, expires_at=found.expires_at)


def _logged_in(service: Service, connection: HTTPConnection, cookie: str) -> Caller | None:
    """
    Raises:
        HttpFault: it changes something, or opens a WebSocket, and does not come from a page of ours.
    """
    login = service.logins.find(cookie)
    token = None if login is None else service.tokens.get(login.token_id)
    tenant = None if token is None else service.tenant(token.tenant)
    if login is None or token is None or tenant is None or not token.is_good(time.time()):
        return None
    if connection.scope["type"] == "websocket":
        if "origin" not in connection.headers:  # the guard has found that it is our own, if there is one
            raise http_fault("origin_not_allowed", "a WebSocket by cookie has an Origin")
    elif connection.scope["method"] not in ("GET", "HEAD"):
        given = connection.headers.get(CSRF_HEADER, "")
        if not is_csrf_token(login, given):
            raise http_fault(
                "csrf_token_missing", "this changes something", hint="send Ringfence-CSRF, as GET /v1/me gives it"
            )
    return Caller(
        tenant=tenant,
        token_id=token.id,
        name=token.name,
        scopes=token.scopes,
        expires_at=token.expires_at,
        csrf_token=login.csrf_token,
        is_by_code=login.is_by_code,
    )


def owner(service: Service) -> Caller:
    tenant = service.tenant(DEFAULT_TENANT)
    assert tenant is not None, "settings always have it"
    return Caller(tenant=tenant, token_id=SOCKET, name=SOCKET, scopes=ALL_SCOPES)
