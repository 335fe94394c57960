"""The two sides of a request, whatever the version of HTTP: as a box sent it, and as a server answers it.

`carry` moves requests from one to the other and knows nothing of frames; `http1` and `http2` have both sides each.
"""

from collections.abc import AsyncIterator
from typing import Protocol

from ringfence.dataclass import dataclass, field
from ringfence.egress.base import Headers, Refusal, RequestHead
from ringfence.egress.inspection.wire import Wire


class Stopped(OSError):
    """A request cannot go on, and this is what the client is told, if it can be told anything still."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class ServerFailed(Stopped):
    """The server died, said nothing, or said what is not HTTP."""

    def __init__(self, reason: str, status: int = 502, *, said_nothing: bool = False) -> None:
        super().__init__(Refusal(status, reason))
        self.said_nothing = said_nothing
        """Whether it ended the connection before one byte of the answer, as it does with one that was idle."""


class ClientFailed(OSError):
    """The client is gone, or sent what is not HTTP: nobody is there to be told."""


@dataclass(frozen=True, slots=True)
class Times:
    """How long each part of an exchange may take, in seconds."""

    handshake: float = 10.0
    head: float = 20.0
    """From the first byte of a request's head to its last."""
    idle: float = 120.0
    """Between two requests."""
    answer: float = 600.0
    """From the whole request to the answer's head: models think for minutes."""
    stalled: float = 900.0
    """Without any byte in either direction, while a request is under way."""
    hundred: float = 2.0
    """For `100 Continue`, after which the body is sent without."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much may be held of what the other side sends."""

    head: int = 64 * 1024
    drained: int = 256 * 1024
    """Of a refused request's body, read so that the connection can go on."""
    message: int = 16 * 1024 * 1024
    """Of a WebSocket, where messages are looked into."""
    streams: int = 100
    """Of one HTTP/2 connection, at the same time."""
    window: int = 1024 * 1024
    """Of an HTTP/2 stream: what may wait here because the other side takes it slowly."""


@dataclass(frozen=True, slots=True)
class Limits:
    times: Times = field(default_factory=Times)
    sizes: Sizes = field(default_factory=Sizes)


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of a server's answer, without what concerns one connection only."""

    status: int
    reason: bytes
    headers: Headers
    """Names as the server wrote them."""
    ended: bool = False
    """Whether there is nothing more, as far as is known: gRPC tells this from an empty body."""


class Incoming(Protocol):
    """One request of a box."""

    @property
    def head(self) -> RequestHead: ...
    @property
    def spelled(self) -> dict[bytes, bytes]:
        """Names of headers as the client wrote them, by the same in small letters."""

    @property
    def has_body(self) -> bool: ...
    @property
    def length(self) -> int | None:
        """Of the body; None if it is not said beforehand."""

    @property
    def wants_continue(self) -> bool: ...
    @property
    def upgrades(self) -> bool:
        """Whether it asks for a WebSocket."""

    @property
    def trailers(self) -> Headers:
        """Known once the body has ended."""

    def body(self) -> AsyncIterator[bytes]:
        """Raises:
        ClientFailed: it ended before it was whole.
        """

    async def send_continue(self) -> None: ...
    async def send_head(self, answer: Answer) -> None: ...
    async def send_data(self, data: bytes) -> None: ...
    async def send_end(self, trailers: Headers) -> None: ...

    async def refuse(self, refusal: Refusal) -> None:
        """Answer with a refusal; once the answer has begun, end it so that the client sees an error."""

    async def switch(self, answer: Answer) -> tuple[Wire, bytes]:
        """Answer 101, and give the connection away, with what was read of it already."""


class Outgoing(Protocol):
    """The same request at the server."""

    @property
    def continued(self) -> bool:
        """Whether the server wants the body."""

    async def send_data(self, data: bytes) -> None: ...
    async def send_end(self, trailers: Headers) -> None: ...

    async def answer(self) -> Answer:
        """Raises:
        ServerFailed: it gave none.
        """

    def body(self) -> AsyncIterator[bytes]:
        """Raises:
        ServerFailed: it ended before it was whole.
        """

    @property
    def trailers(self) -> Headers: ...
    async def switch(self) -> tuple[Wire, bytes]: ...

    async def release(self) -> None:
        """The exchange is over: the connection may be used again, if it is in a state to be."""

    def abort(self) -> None:
        """Give it up; whoever waits for it gets `ServerFailed`."""


class Upstream(Protocol):
    """Connections to the server of one flow."""

    async def open(self, head: RequestHead, spelled: dict[bytes, bytes], *, chunked: bool, ended: bool) -> Outgoing:
        """Send a request's head.

        Args:
            chunked: it has a body whose length the head does not say.
            ended: it has no body.

        Raises:
            DialRefused: nobody answers.
            ServerFailed: the connection ended meanwhile.
        """

    async def close(self) -> None: ...
