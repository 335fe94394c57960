"""Asks the keepers of this user how they are, or to stop."""

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from ringfence.keeper import wire

_SECONDS = 5.0
_LONGEST = 4096
_UCRED = struct.Struct("3i")


def ask_keepers(environ: Mapping[str, str], *, stop: bool) -> list[dict[str, Any]]:
    """What each keeper that answers says about itself; with `stop` it takes no further calls."""
    directory = wire.open_directory(environ.get("XDG_RUNTIME_DIR"))
    if directory is None:
        return []
    try:
        places = [wire.Place(directory, name) for name in _names(directory)]
        answers = (_ask(place, wire.STOP if stop else wire.STATUS) for place in places)
        return [answer for answer in answers if answer is not None]
    finally:
        os.close(directory)


def _names(directory: int) -> Iterator[str]:
    for entry in sorted(os.listdir(f"/proc/self/fd/{directory}")):
        if entry.endswith(wire.SOCKET_SUFFIX):
            yield entry.removesuffix(wire.SOCKET_SUFFIX)


def _ask(place: wire.Place, what: bytes) -> dict[str, Any] | None:
    with suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_SECONDS)
        connection.connect(place.address)
        peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        if _UCRED.unpack(peer)[1] != os.getuid():
            return None
        if connection.recv(_LONGEST) != wire.ACCEPTED:
            return None
        connection.send(what)
        answer = json.loads(connection.recv(_LONGEST))
        return answer if isinstance(answer, dict) else None
    return None
