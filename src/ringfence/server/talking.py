"""WebSockets: who connects, before it is accepted; then what the row's handler does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.websockets import WebSocket, WebSocketDisconnect

from ringfence.errors import RingfenceError
from ringfence.server.auth import authenticate
from ringfence.server.calling import check_scope, problem
from ringfence.server.endpoint import Endpoint, Talk
from ringfence.server.problems import HttpFault

if TYPE_CHECKING:
    from ringfence.server.service import Service
    from ringfence.server.tenants import Caller, Scope

_log = logging.getLogger("ringfence.server")
INTERNAL_ERROR = 1011


def still(talk: Talk, scope: Scope) -> Caller:
    """Who talks, looked at again: a token that was revoked meanwhile, or a login that ended, says nothing more.

    Raises:
        Unauthenticated, NotPermitted, HttpFault: they may not, or no longer.
    """
    caller = authenticate(talk.service, talk.socket, scope)
    check_scope(caller, scope)
    return caller


def talk(endpoint: Endpoint) -> Callable[[WebSocket], Awaitable[None]]:
    async def handle(socket: WebSocket) -> None:
        service: Service = socket.app.state.service
        request_id: str = socket.scope["ringfence.request_id"]
        try:
            caller = authenticate(service, socket, endpoint.scope)
            check_scope(caller, endpoint.scope)
            service.meter(caller)
            await endpoint.handler(Talk(service, caller, socket, request_id))
        except WebSocketDisconnect:
            pass
        except (RingfenceError, HttpFault) as fault:  # before it was accepted: an ordinary answer says why
            await socket.send_denial_response(problem(fault, request_id))
        except Exception:  # the outermost edge
            _log.exception("request %s failed", request_id)
            await socket.close(INTERNAL_ERROR)

    handle.__name__ = endpoint.name
    return handle
