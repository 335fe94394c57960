"""Tokens of the tenant, and logins of browsers."""

from __future__ import annotations

import time

import msgspec
from starlette.responses import Response

from ringfence.errors import InvalidArgument, NotPermitted, Unauthenticated
from ringfence.server import wire
from ringfence.server.attempts import address_of
from ringfence.server.endpoint import BodyKind, Call, Endpoint
from ringfence.server.logins import COOKIE, LIFE_SECONDS
from ringfence.server.problems import http_fault
from ringfence.server.service import Service
from ringfence.server.tenants import Scope
from ringfence.server.tokens import TokenInfo


async def create(call: Call) -> wire.NewToken:
    body: wire.TokenCreate = call.body
    try:
        scopes = frozenset(map(Scope, body.scopes))
    except ValueError:
        raise InvalidArgument("a scope that is none", argument="scopes", hint=", ".join(Scope)) from None
    more = scopes - call.caller.scopes
    if more:
        raise NotPermitted("a token makes no token with more scopes than its own", scope=min(more))
    if Scope.APPROVE in scopes and Scope.RUN in call.caller.scopes and not call.caller.is_person:
        raise NotPermitted(
            "a token that runs things makes none that approves: it would answer itself",
            scope=Scope.APPROVE,
            hint="`ringfence token create`, on the server's machine",
        )
    text, made = call.service.tokens.create(
        tenant=call.caller.tenant.name, name=body.name, scopes=scopes, lives_seconds=body.lives_seconds
    )
    return wire.NewToken(token=text, info=_told(made))


async def list_tokens(call: Call) -> wire.TokenPage:
    return wire.TokenPage(items=[_told(found) for found in call.service.tokens.list(call.caller.tenant.name)])


async def revoke(call: Call) -> wire.Token:
    return _told(call.service.tokens.revoke(call["token"], call.caller.tenant.name))


def _told(found: TokenInfo) -> wire.Token:
    return wire.Token(
        id=found.id,
        name=found.name,
        scopes=sorted(found.scopes),
        created_at=found.created_at,
        expires_at=found.expires_at,
        revoked_at=found.revoked_at,
        used_at=found.used_at,
    )


async def login(call: Call) -> Response:
    """By the token or code in the body; from then on by the cookie, with the CSRF token for what changes something."""
    service, place = call.service, address_of(call.request)
    if (call.body.token is None) == (call.body.code is None):
        raise InvalidArgument("sign in with a token or with a code", hint="give one of them")
    if service.attempts.is_barred(place):
        raise http_fault("too_many_attempts", "too many bad tokens came from there", hint="wait a minute")
    token = _of_code(service, call.body.code) if call.body.token is None else service.tokens.check(call.body.token)
    tenant = None if token is None else service.tenant(token.tenant)
    if token is None or tenant is None:
        service.attempts.failed(place)
        raise Unauthenticated("the token is not good", hint="it may be wrong, expired or revoked")
    cookie, made = service.logins.begin(token, is_by_code=call.body.code is not None)
    told = wire.Me(
        tenant=tenant.name,
        token=token.name,
        scopes=sorted(token.scopes),
        expires_at=token.expires_at,
        csrf_token=made.csrf_token,
    )
    answer = Response(msgspec.json.encode(told), media_type="application/json")
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=int(LIFE_SECONDS),
        path="/",
        secure=call.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return answer


def _of_code(service: Service, code: str) -> TokenInfo | None:
    ident = service.logins.redeem(code)
    token = None if ident is None else service.tokens.get(ident)
    return token if token is not None and token.is_good(time.time()) else None


async def logout(call: Call) -> Response:
    cookie = call.request.cookies.get(COOKIE)
    if cookie is not None:
        call.service.logins.end(cookie)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


_TAG = "tokens"
ROUTES = (
    Endpoint(
        method="POST",
        path="/v1/tokens",
        name="create_token",
        does="Make a token of the tenant; its text is in this answer only.",
        handler=create,
        scope=Scope.TOKENS,
        tag=_TAG,
        body=wire.TokenCreate,
        kind=BodyKind.JSON,
        answer=wire.NewToken,
        status=201,
    ),
    Endpoint(
        method="GET",
        path="/v1/tokens",
        name="list_tokens",
        does="The tenant's tokens, without their text.",
        handler=list_tokens,
        scope=Scope.TOKENS,
        tag=_TAG,
        answer=wire.TokenPage,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/tokens/{token}",
        name="revoke_token",
        does="From now on it opens nothing.",
        handler=revoke,
        scope=Scope.TOKENS,
        tag=_TAG,
        answer=wire.Token,
    ),
    Endpoint(
        method="POST",
        path="/v1/login",
        name="login",
        does="For browsers: swap a token, or a one-time code, for a cookie.",
        handler=login,
        scope=None,
        tag=_TAG,
        body=wire.LoginCreate,
        kind=BodyKind.JSON,
        answer=wire.Me,
    ),
    Endpoint(
        method="POST",
        path="/v1/logout",
        name="logout",
        does="End the login of the cookie.",
        handler=logout,
        scope=None,
        tag=_TAG,
        status=204,
    ),
)
