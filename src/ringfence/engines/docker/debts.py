"""Remembers containers that a daemon could not be told to remove: whoever next has a daemon that answers tells it.

Without this, one that was ordered and never started would stay as long as we live: nothing in it sees us go.
"""

import time

_DOUBT_SECONDS = 60.0
"""How long a daemon that gave no answer may still be making what it was asked for: until then, that there is no such
container is not the end of it."""

_owed: dict[str, dict[str, float]] = {}
"""By daemon: containers, by id or name, and until when each may still come to be."""


def owe(url: str, container: str, *, may_come: bool = False) -> None:
    """Note that a container has to go, which may not even be there yet."""
    until = time.monotonic() + _DOUBT_SECONDS if may_come else 0.0
    owed = _owed.setdefault(url, {})
    owed[container] = max(until, owed.get(container, 0.0))


def settle(url: str, container: str, *, was_there: bool) -> None:
    """The daemon has removed it, or says that there is none: it is forgotten, unless it may still come."""
    owed = _owed.get(url, {})
    if was_there or owed.get(container, 0.0) <= time.monotonic():
        owed.pop(container, None)


def owed_to(url: str) -> tuple[str, ...]:
    return tuple(_owed.get(url, ()))
