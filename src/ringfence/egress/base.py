"""The ports between the parts of the proxy, and between it and whoever runs it.

A `Flow` is one connection of a box to one host and port, already judged as far as that can be told without looking into
it. The doors make flows; `splice` and `inspection` carry them. Nothing but a flow dials, so that what is dialled is
always the address that was looked at.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from ringfence.dataclass import dataclass, field
from ringfence.policy.reach import Judged
from ringfence.values.hosts import Host
from ringfence.values.network import NetworkDoor, NetworkGrant, SecretGrant
from ringfence.values.network_event import NetworkEvent

if TYPE_CHECKING:
    from ringfence.egress.ssh.base import SshLogin
    from ringfence.egress.tls import Tls

Headers = tuple[tuple[bytes, bytes], ...]
"""Names in small letters, in the order in which they came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Sockets made inside a box's network, and so its identity: nobody else can reach them.

    Each is bound to every address; where a connection was meant to go is its own name (`getsockname`), an IPv4 address
    often as `::ffff:a.b.c.d`. Not blocking. They belong to whoever is handed them, who closes them: a copy that is kept
    turns "refused" into "never answered" when the other one is gone.
    """

    proxy: socket.socket
    """TCP, `PROXY_PORT`."""
    dns_udp: socket.socket
    """Says where each packet was sent to (IPV6_PKTINFO, or IP_PKTINFO without IPv6), and may answer from there."""
    dns_tcp: socket.socket
    tcp: dict[int, socket.socket]
    """By port: `NetworkGrant.captured_ports` but those above."""
    is_loopback: bool = False
    """Whether only what is meant for the box's loopback comes out, since it has no routes of its own: names have to
    stand for addresses there."""
    is_carried: bool = False
    """Whether they stand for sockets that could not be passed out of a kernel of its own (native/carry_network.c): they
    bring packets with connections, or look-ups, and where these were meant to go (`egress.arriving`)."""

    def __iter__(self) -> Iterator[socket.socket]:
        return iter((self.proxy, self.dns_udp, self.dns_tcp, *self.tcp.values()))

    def close(self) -> None:
        for each in self:
            each.close()


@dataclass(slots=True)
class Stream:
    """Both directions of a connection, by asyncio's own streams."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    tls: "Tls | None" = None
    """What has to be between these and whoever speaks; None if nothing, or if asyncio does it."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """One HTTP request as the box sent it, whatever the version of HTTP."""

    method: str
    path: str
    """With its query."""
    headers: Headers


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the client is answered instead."""

    status: int
    """403, 407 never; 413, 421, 429, 502."""
    reason: str
    """One line of printable ASCII, short enough for a status line."""
    event_id: str = ""
    canary: str = ""
    """The secret whose placeholder was sent where it may not go, for the event."""


class Flow(Protocol):
    """One connection of a box to a host and port that is allowed as far as is known yet."""

    @property
    def box(self) -> str: ...
    @property
    def network(self) -> NetworkGrant: ...
    @property
    def door(self) -> NetworkDoor: ...
    @property
    def host(self) -> Host: ...
    @property
    def port(self) -> int: ...

    async def decide(self, head: RequestHead) -> Judged | Refusal:
        """Judge one request on it: rule, method, path, budget; a person is asked where the rule says so."""

    async def dial(self, *, tls: bool, alpn: Sequence[str] = ()) -> Stream:
        """Connect to the address that was looked at; with TLS, the certificate is verified for the host.

        Raises:
            DialRefused: no address that may be reached, or nobody answers; has the `Refusal` for the client.
        """

    def spend(self, sent: int) -> bool:
        """Count bytes that leave; False when the budget is used up, and the connection has to end."""

    def record(self, event: NetworkEvent) -> None: ...


class DialRefused(OSError):
    """The host cannot be reached."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class SecretRefused(OSError):
    """A placeholder turned up in a body or message that may not hold it: nothing more of it goes out."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class Inspector(Protocol):
    """Looks into a connection: terminates TLS towards the client, judges each request, and carries it on."""

    async def inspect(self, flow: Flow, client: Stream, first: bytes, *, tls: bool) -> None:
        """Carry the whole connection.

        Args:
            first: bytes that were read from the client already.
            tls: whether these begin a TLS connection; else they are plain HTTP.
        """


@dataclass(frozen=True, slots=True)
class Swapped:
    """A request with what secrets change in it."""

    head: RequestHead = field(repr=False)
    names: tuple[str, ...]
    """Of those that were put in, for the record."""
    body: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None
    """Replaces placeholders in the body as it streams; None leaves it as it is. Lengths stay the same.
    Raises `SecretRefused` where one may not be, before the last byte of it is out."""
    frame: Callable[[bytes], bytes] | None = None
    """The same for one text message of a WebSocket."""
    scrub: Callable[[bytes], bytes] | None = None
    """Takes real values out of an answer's header values and whole messages; keeps lengths."""
    scrub_body: Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]] | None = None
    """The same for a body as it streams, also where a value lies across two chunks."""
    signed_body: int = 0
    """If not 0, the body is needed before the head can be sent, at most so many bytes of it."""


class SecretDesk(Protocol):
    """Everything about the secrets of one box."""

    async def swap(self, host: Host, port: int, head: RequestHead, *, tls: bool) -> Swapped | Refusal:
        """The request with secrets put in; refused if a placeholder is sent where it may not go (a canary), on
        cleartext, or if a source gives no value. Never puts one in for TRACE and OPTIONS."""

    async def sign(self, host: Host, swapped: Swapped, body: bytes | None) -> RequestHead | Refusal:
        """For signers: the head that goes out, made from the whole body, as the box sent it or as `body` gave it.
        Needed only where `signed_body` is not 0."""

    def canary(self, raw: bytes) -> str:
        """The name of a secret whose placeholder is in these bytes (a URL, a name, opaque bytes); else empty."""


@dataclass(frozen=True, slots=True)
class SecretValue:
    """What a source gave, and until when it is good (monotonic clock; 0 is for ever)."""

    value: bytes = field(repr=False)
    good_until: float = 0.0


FetchSecret = Callable[[SecretGrant], Awaitable[SecretValue]]
"""Asks whoever runs the proxy for a secret's value: sources are read outside it, which is confined."""


@dataclass(frozen=True, slots=True)
class NetworkQuestion:
    """What a person is asked while a request waits."""

    box: str
    host: str
    port: int
    method: str
    path: str
    reason: str
    line: str
    """The rule that a yes for good would add to the policy."""


@dataclass(frozen=True, slots=True)
class NetworkAnswer:
    granted: bool
    by: str
    remembered: bool = False
    """For the session."""


class Overseer(Protocol):
    """Whoever runs the proxy: is told what happens, asks people, reads secrets."""

    def began(self, event: NetworkEvent) -> None:
        """Bytes are about to pass; the same `number` comes again, with `happened`, when that is over."""

    def happened(self, event: NetworkEvent) -> None: ...

    def ended(self) -> None:
        """The proxy is gone, and all that it carried has ended."""

    async def ask(self, question: NetworkQuestion) -> NetworkAnswer: ...
    async def secret(self, box: str, secret: SecretGrant) -> SecretValue: ...
    async def ssh_login(self, box: str, host: str, port: int) -> "SshLogin": ...
    async def ssh_sign(self, box: str, host: str, secret: str, public: bytes, data: bytes, flags: int) -> bytes: ...
