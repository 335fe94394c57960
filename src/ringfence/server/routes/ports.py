"""Servers inside a session's box: a link for a browser, and a way through for programs."""

from __future__ import annotations

from starlette.responses import Response

from ringfence.errors import InvalidArgument, NotPermitted
from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint, Media
from ringfence.server.port_origins import DOMAIN, ENTER, Door, pass_on
from ringfence.server.tenants import Scope


def _door(call: Call) -> Door:
    session = call.service.session(call.caller, call["session"])
    text = call["port"]
    if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536):
        raise InvalidArgument(f"{text!r} is not a port", argument="port")
    return Door(session.tenant, session.id, int(text))


async def open_port(call: Call) -> wire.PortLink:
    door = _door(call)
    call.service.published_port(door)
    label, ticket, until = call.service.port_origins.ticket(door, call.caller)
    url = call.request.url
    port = f":{url.port}" if url.port is not None else ""
    return wire.PortLink(url=f"{url.scheme}://{label}.{DOMAIN}{port}{ENTER}?ticket={ticket}", expires_at=until)


async def through(call: Call) -> Response:
    """For programs with a token: a page of a box is not shown under the server's own origin."""
    if call.caller.csrf_token is not None:
        raise NotPermitted("a browser comes in by the port's own origin", hint="POST .../open gives a link")
    outside = call.service.published_port(_door(call))
    answer = await pass_on(call.request, outside, "/" + call["path"], call.service.settings.body_seconds)
    answer.headers["Content-Security-Policy"] = "sandbox"
    return answer


_TAG = "ports"
_PORT = "/v1/sessions/{session}/ports/{port}"
ROUTES = (
    Endpoint(
        method="POST",
        path=_PORT + "/open",
        name="open_port",
        does="A link for a browser to a published port, under an origin of its own; good once, for a minute.",
        handler=open_port,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.PortLink,
    ),
    *(
        Endpoint(
            method=method,
            path=_PORT + "/http/{path:path}",
            name=f"port_{method.lower()}",
            does=f"{method} to a server inside, at a published port.",
            handler=through,
            scope=Scope.VIEW if method == "GET" else Scope.RUN,
            tag=_TAG,
            query=None,
            kind=BodyKind.STREAM,
            media=(Media.ANY,),
            waits=True,
            passes_query=True,
        )
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ),
)
