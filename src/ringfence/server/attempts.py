"""Counts bad tokens and logins by where they came from, loopback too, and bars who has too many for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

MOST = 20
"""Bad ones within `SECONDS`."""
SECONDS = 60.0
_MOST_PLACES = 10_000


class Attempts:
    def __init__(self) -> None:
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By place: since when, and how many."""

    def is_barred(self, place: str) -> bool:
        begin, count = self._failed.get(place, (0.0, 0))
        return count >= MOST and time.monotonic() - begin < SECONDS

    def failed(self, place: str) -> None:
        now = time.monotonic()
        begin, count = self._failed.pop(place, (now, 0))
        self._failed[place] = (begin, count + 1) if now - begin < SECONDS else (now, 1)
        while len(self._failed) > _MOST_PLACES:
            self._failed.popitem(last=False)


def address_of(connection: HTTPConnection) -> str:
    """Where a connection comes from; behind a proxy, that is the proxy."""
    return connection.client.host if connection.client is not None else "socket"
