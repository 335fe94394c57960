"""Remembers containers that a daemon could not be told to remove: whoever next has a daemon that answers tells it.

Without this, one that was ordered and never started would stay as long as we live: nothing in it sees us go.
"""

import time

_DOUBT_SECONDS = 60.0
"""How long a daemon that gave no answer may still be making what it was asked for: until then, that there is no such
container is not the end of it."""

_PAUSE_SECONDS = 30.0
"""How long one is left alone that a daemon which answers cannot remove: each try costs whoever makes it seconds."""

_owed: dict[str, dict[str, float]] = {}
"""By daemon: containers, by id or name, and until when each may still come to be."""
_put_off: dict[tuple[str, str], float] = {}
"""Until when a container of a daemon is left alone."""


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
        _put_off.pop((url, container), None)


def owed_to(url: str) -> tuple[str, ...]:
    return tuple(_owed.get(url, ()))


def due_to(url: str) -> tuple[str, ...]:
    """Those that are worth another try."""
    return tuple(each for each in owed_to(url) if _put_off.get((url, each), 0.0) <= time.monotonic())


def put_off(url: str, container: str) -> None:
    """It was tried again, in vain."""
    _put_off[url, container] = time.monotonic() + _PAUSE_SECONDS
