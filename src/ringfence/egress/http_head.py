"""The head of an HTTP/1 request, read with a bound and a deadline, and whom it names.

The grammar is h11's, which takes no folded lines, no blanks before a colon, no second Host and no bare line feeds in a
way that another parser would read differently. What is read stays in the client's buffer.
"""

import re
from typing import Final

import h11

from ringfence.dataclass import dataclass
from ringfence.egress.sockets import Client
from ringfence.values.hosts import BadHost, Host, canonical_host

LONGEST_HEAD: Final = 32 * 1024
_END: Final = b"\r\n\r\n"
_PORT: Final = re.compile(r"[0-9]{1,5}")
_URL: Final = re.compile(r"http://([^/?]*)([/?].*)?", re.IGNORECASE | re.DOTALL)
_HOPS: Final = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"proxy-authorization", b"proxy-authenticate", b"host", b"te"}
)


class BadHead(ValueError):
    """No head of a request that can be judged; its message says why."""


@dataclass(frozen=True, slots=True)
class Head:
    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    """As they were written."""
    host: Host | None
    """By the Host header; None if there is none (HTTP/1.0)."""
    port: int | None
    length: int
    """Of the head in the client's buffer."""


async def read_head(client: Client, deadline: float) -> Head:
    """The head at the beginning of what the client says.

    Raises:
        BadHead: it is none.
        Gone: the client ended, or took too long.
    """
    looked_at = 0
    while (end := client.buffered.find(_END, max(0, looked_at - 3))) < 0:
        looked_at = len(client.buffered)
        if looked_at > LONGEST_HEAD:
            raise BadHead(f"the head of the request is longer than {LONGEST_HEAD} bytes")
        await client.more(deadline)
    if end > LONGEST_HEAD:
        raise BadHead(f"the head of the request is longer than {LONGEST_HEAD} bytes")
    return parse_head(client.buffered[: end + len(_END)])


def parse_head(data: bytes) -> Head:
    """Raises BadHead."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD + 4)
    try:
        connection.receive_data(data)
        event = connection.next_event()
    except h11.RemoteProtocolError as bad:
        raise BadHead(f"no request of HTTP/1: {bad}") from None
    if not isinstance(event, h11.Request):
        raise BadHead("no request of HTTP/1")
    names = [name for name, _ in event.headers]
    if b"transfer-encoding" in names and b"content-length" in names:
        raise BadHead("a request with a length and in chunks, which servers read in different ways")
    said = [value for name, value in event.headers if name == b"host"]
    host, port = None, None
    if said and said[0]:
        try:
            host, port = split_authority(said[0].decode("ascii"))
        except (BadHost, UnicodeDecodeError) as bad:
            raise BadHead(f"the Host header names no host: {bad}") from None
    return Head(
        event.method.decode("ascii"),
        event.target.decode("ascii"),
        tuple((bytes(name), bytes(value)) for name, value in event.headers.raw_items()),
        host,
        port,
        len(data),
    )


def split_authority(text: str) -> tuple[Host, int | None]:
    """Host and port of `example.com:443` or `[::1]:443`.

    Raises:
        BadHost: it is no such thing; users and passwords are none either.
    """
    head, colon, tail = text.rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        return canonical_host(text), None
    if not _PORT.fullmatch(tail) or not 0 < int(tail) < 65536:
        raise BadHost("its port is none")
    if ":" in head and not (head.startswith("[") and head.endswith("]")):
        raise BadHost("an IPv6 address has to stand in brackets")
    return canonical_host(head), int(tail)


def split_url(target: str) -> tuple[Host, int, str]:
    """Host, port and origin form of a URL in plain HTTP.

    Raises:
        BadHost: its host is none.
        BadHead: it is no such URL.
    """
    if "#" in target or "\\" in target:
        raise BadHead("a URL with a character that no request holds")
    found = _URL.fullmatch(target)
    if found is None:
        if target.startswith("/") or target == "*":
            raise BadHead("this is a proxy: ask it for http://HOST/PATH, or use CONNECT")
        if target.lower().startswith("https://"):
            raise BadHead("use CONNECT for https")
        raise BadHead("only http:// is carried")
    if "@" in found[1]:
        raise BadHead("a URL with a user in it")
    host, port = split_authority(found[1])
    rest = found[2] or "/"
    return host, port or 80, rest if rest.startswith("/") else "/" + rest


def origin_form(head: Head, host: Host, port: int, target: str) -> bytes:
    """The head as a server takes it, for one request."""
    named = {
        token.strip().lower()
        for name, value in head.headers
        if name.lower() == b"connection"
        for token in value.split(b",")
    }
    upgrades = b"upgrade" in named
    dropped = _HOPS | (named - {b"upgrade", b"content-length", b"transfer-encoding", b"host"})
    authority = host.in_url if port == 80 else f"{host.in_url}:{port}"
    lines = [f"{head.method} {target} HTTP/1.1".encode("ascii"), b"Host: " + authority.encode("ascii")]
    lines += [name + b": " + value for name, value in head.headers if name.lower() not in dropped]
    lines.append(b"Connection: Upgrade" if upgrades else b"Connection: close")
    return b"\r\n".join(lines) + _END
