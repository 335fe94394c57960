"""What the first bytes of a connection are: TLS with which name, HTTP, or something else.

A ClientHello may lie in several TLS records, split anywhere; it is put together up to a bound. Nothing is believed
beyond its own length. What is not TLS and not HTTP is `RAW`. An encrypted ClientHello (ECH) shows the outer name, which
is compared like any other, so that a hidden name passes only with the one that the rule allows in front of it.
"""

import re
from enum import Enum
from typing import Final

from ringfence.dataclass import dataclass

LONGEST_HELLO: Final = 64 * 1024  # post-quantum key shares and GREASE ECH need some kilobytes
LONGEST_METHOD: Final = 24
_HANDSHAKE: Final = 0x16
_CLIENT_HELLO: Final = 1
_LONGEST_RECORD: Final = 16384
_SERVER_NAME: Final = 0
_ALPN: Final = 16
_ECH: Final = 0xFE0D
_METHOD: Final = re.compile(rb"[A-Z][A-Z-]{0,23} ")
_MAYBE_METHOD: Final = re.compile(rb"[A-Z][A-Z-]{0,23} ?")
HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Kind(Enum):
    TLS = "TLS"
    HTTP = "HTTP"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class FirstBytes:
    kind: Kind
    server_name: str | None = None
    """Of TLS, as it was sent; None if there is none."""
    alpn: tuple[bytes, ...] = ()
    has_ech: bool = False
    fault: str = ""
    """Why it is refused whatever the rules say: TLS that is no TLS."""


class _Short(Exception):
    """More bytes are needed."""


class _Bad(Exception):
    """It is no ClientHello."""


def look_at(data: bytes) -> FirstBytes | None:
    """What they are; None if more bytes are needed to tell."""
    if not data:
        return None
    if data[0] == _HANDSHAKE:
        try:
            return _client_hello(data)
        except _Short:
            if len(data) > LONGEST_HELLO:
                return FirstBytes(Kind.TLS, fault="the ClientHello has no end")
            return None
        except _Bad as bad:
            return FirstBytes(Kind.TLS, fault=str(bad))
    if _METHOD.match(data):
        return FirstBytes(Kind.HTTP)
    if len(data) <= LONGEST_METHOD and _MAYBE_METHOD.fullmatch(data):
        return None
    return FirstBytes(Kind.RAW)


def _client_hello(data: bytes) -> FirstBytes:
    message = _handshake(data)
    body = _Reader(message)
    body.skip(2 + 32)  # version, random
    body.vector(1)  # session
    body.vector(2)  # ciphers
    body.vector(1)  # compression
    if body.at_end:
        return FirstBytes(Kind.TLS)
    extensions = _Reader(body.vector(2))
    if not body.at_end:
        raise _Bad("bytes follow the ClientHello's extensions")
    names: list[str] = []
    alpn: tuple[bytes, ...] = ()
    seen: set[int] = set()
    while not extensions.at_end:
        kind = extensions.number(2)
        content = extensions.vector(2)
        if kind in seen:
            raise _Bad("an extension of the ClientHello comes twice")
        seen.add(kind)
        if kind == _SERVER_NAME:
            names = _server_names(content)
        elif kind == _ALPN:
            alpn = _protocols(content)
    return FirstBytes(Kind.TLS, names[0] if names else None, alpn, _ECH in seen)


def _handshake(data: bytes) -> bytes:
    """The body of the ClientHello, out of as many records as it takes."""
    message = bytearray()
    at = 0
    while True:
        if len(data) - at < 5:
            _check_record(data[at:])
            raise _Short
        _check_record(data[at : at + 5])
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        message += data[at + 5 : at + 5 + length]
        if message and message[0] != _CLIENT_HELLO:
            raise _Bad("TLS that does not begin with a ClientHello")
        if len(message) >= 4:
            wanted = int.from_bytes(message[1:4], "big")
            if wanted > LONGEST_HELLO:
                raise _Bad("the ClientHello is too long")
            if len(message) >= 4 + wanted:
                return bytes(message[4 : 4 + wanted])
        at += 5 + length
        if at > len(data):
            raise _Short


def _check_record(head: bytes) -> None:
    if head and head[0] != _HANDSHAKE:
        raise _Bad("a TLS record of another kind inside the ClientHello")
    if len(head) > 1 and head[1] != 3:
        raise _Bad("no version of TLS that is known")
    if len(head) == 5 and not 0 < int.from_bytes(head[3:5], "big") <= _LONGEST_RECORD:
        raise _Bad("an empty TLS record, or one that is too long")


def _server_names(content: bytes) -> list[str]:
    reader = _Reader(content)
    listed = _Reader(reader.vector(2))
    names: list[str] = []
    while not listed.at_end:
        kind, name = listed.number(1), listed.vector(2)
        if kind != 0 or names:
            raise _Bad("more than one server name")
        try:
            names.append(name.decode("ascii"))
        except UnicodeDecodeError:
            raise _Bad("a server name that is not ASCII") from None
    if not reader.at_end or not names:
        raise _Bad("a server name that is none")
    return names


def _protocols(content: bytes) -> tuple[bytes, ...]:
    reader = _Reader(content)
    listed = _Reader(reader.vector(2))
    found: list[bytes] = []
    while not listed.at_end:
        found.append(listed.vector(1))
    return tuple(found)


class _Reader:
    """Reads numbers and vectors; whoever wants more than there is has no ClientHello."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)

    def skip(self, count: int) -> None:
        if self._at + count > len(self._data):
            raise _Bad("the ClientHello is cut short")
        self._at += count

    def number(self, width: int) -> int:
        start = self._at
        self.skip(width)
        return int.from_bytes(self._data[start : self._at], "big")

    def vector(self, width: int) -> bytes:
        length = self.number(width)
        start = self._at
        self.skip(length)
        return self._data[start : self._at]
