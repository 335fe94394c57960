"""One row of the route table: what a path takes, gives and needs. Routes, OpenAPI and tests are made from the rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from ringfence.dataclass import dataclass

if TYPE_CHECKING:
    import msgspec
    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from ringfence.server.service import Service
    from ringfence.server.tenants import Caller, Scope


class Media(Enum):
    """What an answer is, besides JSON."""

    JSON = "application/json"
    BYTES = "application/octet-stream"
    EVENTS = "text/event-stream"
    FRAMES = "application/x-ringfence-frames"
    TEXT = "text/plain"
    LINES = "application/x-ndjson"
    DIFF = "text/x-diff"
    ANY = "*/*"


class BodyKind(Enum):
    """How a request's body is taken."""

    NONE = "none"
    JSON = "json"
    STREAM = "stream"
    """As it comes, by the handler."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request, understood: who asks, for what."""

    service: Service
    caller: Caller
    request: Request
    query: Any
    body: Any
    request_id: str

    def __getitem__(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])


@dataclass(frozen=True, slots=True)
class Talk:
    """One WebSocket, before it is accepted."""

    service: Service
    caller: Caller
    socket: WebSocket
    request_id: str

    def __getitem__(self, name: str) -> str:
        return str(self.socket.path_params[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    method: str
    """`WEBSOCKET` for one."""
    path: str
    name: str
    """Of the operation, for generated clients; never changes."""
    does: str
    """In one line."""
    handler: Callable[[Any], Awaitable[Any]]
    scope: Scope | None
    """What the token has to have; None: anybody may ask."""
    tag: str
    query: type[msgspec.Struct] | None = None
    body: type[msgspec.Struct] | None = None
    kind: BodyKind = BodyKind.NONE
    answer: type[msgspec.Struct] | None = None
    """None: no content, or what `media` says."""
    media: tuple[Media, ...] = (Media.JSON,)
    status: int = 200
    starts: bool = False
    """Whether it starts or makes something, so that an `Idempotency-Key` is heeded."""
    waits: bool = False
    """Whether it may take as long as what it waits for: its deadline is the longest, and is given by the caller."""
    optional_body: bool = False
    passes_query: bool = False
    """Whether any query is taken: it is meant for somebody else."""
