"""What a request's head has to be before it is judged, and which headers concern one connection only.

What is judged is what is sent: a head is read once, strictly, and written anew. Whatever two readers could understand
differently (two lengths, two hosts, a line that ends or goes on in an odd way) is refused instead of repaired.
"""

import re
from typing import Final

from ringfence.egress.base import Headers, Refusal, RequestHead
from ringfence.values.hosts import BadHost, Host, canonical_host

_OF_ONE_CONNECTION: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",  # for a proxy, which we are: it goes no further
        b"te",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
_ODD_LINE: Final = re.compile(rb"(?<!\r)\n|\r(?!\n)|\n[ \t]|\x00")
_TARGET: Final = re.compile(r"[\x21\x22\x24-\x7e]+")  # visible ASCII without `#`
_ABSOLUTE: Final = re.compile(r"(https?)://([^/?#]*)(.*)", re.IGNORECASE)
_AUTHORITY: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(?::(\d{1,5}))?")
_METHOD: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")


class BadHead(ValueError):
    """A request that is answered with a status, and by closing the connection."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.refusal = Refusal(status, reason)


def check_lines(raw: bytes | bytearray, start: int = 0) -> None:
    """Raises:
    BadHead: a line ends with less than CR LF, or goes on in the next one.
    """
    if _ODD_LINE.search(raw, max(0, start - 1), len(raw) - raw.endswith(b"\r")):  # the rest of a CR may come yet
        raise BadHead(400, "Ringfence: the request holds a bare line end, a folded line or a NUL")


def check_framing(headers: Headers, version: bytes) -> None:
    """Raises:
    BadHead: the body's length can be understood in more than one way.
    """
    names = [name for name, _ in headers]
    if version not in (b"1.0", b"1.1"):
        raise BadHead(400, "Ringfence: this is not HTTP/1.1")
    if b"transfer-encoding" in names:
        if b"content-length" in names:
            raise BadHead(400, "Ringfence: the request has both a length and an encoding of transfer")
        if version != b"1.1":
            raise BadHead(400, "Ringfence: an encoding of transfer needs HTTP/1.1")
    if names.count(b"content-length") > 1:
        raise BadHead(400, "Ringfence: the request has two lengths")
    if names.count(b"host") != 1:
        raise BadHead(400, "Ringfence: the request has no host, or more than one")


def origin_form(method: str, target: str, *, scheme: str) -> tuple[str, str | None]:
    """The path with its query, and the authority that an absolute target names.

    Raises:
        BadHead: it is no target, or of another scheme.
    """
    if not _METHOD.fullmatch(method):
        raise BadHead(400, "Ringfence: the request's method is none")
    if method == "CONNECT":
        raise BadHead(405, "Ringfence: no tunnel inside an inspected connection")
    if not _TARGET.fullmatch(target):
        raise BadHead(400, "Ringfence: the request's target holds what no target holds")
    if target.startswith("/") or (target == "*" and method == "OPTIONS"):
        return target, None
    if (absolute := _ABSOLUTE.fullmatch(target)) is None:
        raise BadHead(400, "Ringfence: the request's target is no path")
    if absolute[1].lower() != scheme:
        raise BadHead(421, f"Ringfence: {absolute[1].lower()} was asked for on a connection for {scheme}")
    path = absolute[3]
    return (path if path.startswith("/") else f"/{path}"), absolute[2]


def check_authority(authority: str, host: Host, port: int) -> None:
    """Raises:
    BadHead: 421, it is not the host that the connection was judged by.
    """
    matched = _AUTHORITY.fullmatch(authority)
    try:
        if matched and canonical_host(matched[1]) == host and (matched[2] is None or int(matched[2]) == port):
            return
    except BadHost:
        pass
    shown = "".join(letter if " " < letter < "\x7f" else "?" for letter in authority[:80])
    raise BadHead(421, f"Ringfence: this connection is for {host}:{port}, not for {shown}")


def end_to_end(headers: Headers, *, upgrade: bool = False) -> Headers:
    """The headers that go on, without those of one connection and those that `Connection` names.

    `TE: trailers` goes on too: gRPC's servers insist on it. With `upgrade`, what asks for a WebSocket goes on.
    """
    dropped = _OF_ONE_CONNECTION
    for name, value in headers:
        if name.lower() == b"connection":
            named = {option.strip().lower() for option in value.split(b",")}
            # What carries the message cannot be declared away.
            dropped = dropped | (named - {b"host", b"content-length", b"content-type", b"content-encoding"})
    kept = []
    for name, value in headers:
        small = name.lower()
        if small not in dropped:
            kept.append((name, value))
        elif small == b"te" and b"trailers" in value.lower():
            kept.append((name, b"trailers"))
    if upgrade:
        kept += [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    return tuple(kept)


def asks_for_websocket(head_headers: Headers) -> bool:
    options = [value.lower() for name, value in head_headers if name == b"connection"]
    upgrades = [value.lower().strip() for name, value in head_headers if name == b"upgrade"]
    return upgrades == [b"websocket"] and any(b"upgrade" in value for value in options)


def header(headers: Headers, name: bytes) -> bytes | None:
    """The first one of a name in small letters."""
    for each, value in headers:
        if each == name or each.lower() == name:
            return value
    return None


def replaced(head: RequestHead, name: bytes, value: bytes) -> RequestHead:
    kept = tuple(each for each in head.headers if each[0] != name)
    return RequestHead(head.method, head.path, (*kept, (name, value)))


def refusal_body(refusal: Refusal) -> tuple[Headers, bytes]:
    """What a refusal says besides its status line: the same, for clients that show bodies only."""
    text = refusal.reason.encode("ascii", "replace") + b"\n"
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"text/plain; charset=us-ascii"),
        (b"content-length", b"%d" % len(text)),
        (b"cache-control", b"no-store"),
        (b"x-ringfence-refused", refusal.event_id.encode("ascii", "replace") or b"1"),
    ]
    return tuple(headers), text


def printable(reason: str) -> bytes:
    """For a status line: one line of ASCII, of bounded length."""
    return "".join(letter if " " <= letter < "\x7f" else "?" for letter in reason[:300]).encode()
