"""Who a box runs as. Never uid 0: run by root, a uid and gid that own nothing and that nobody else uses."""

import os

from ringfence.confinement.base import StandIn
from ringfence.errors import InitializationFailed

_BASE = 0x7000_0000
"""Far above what distributions, systemd and subordinate ranges hand out."""
_SPREAD = 1 << 24
INSIDE = 1000
"""What the dedicated ids look like from inside."""


def stand_in(writable: tuple[str, ...]) -> StandIn | None:
    """None for an ordinary user, who runs boxes as itself.

    Raises:
        InitializationFailed: this user namespace has no id to spare.
    """
    if os.geteuid() != 0:
        return None
    dedicated = _spare_id(_ranges("/proc/self/uid_map"), _ranges("/proc/self/gid_map"))
    owners = tuple((path, (info := os.stat(path)).st_uid, info.st_gid) for path in writable)
    return StandIn(dedicated, dedicated, owners)


def _spare_id(uids: list[tuple[int, int]], gids: list[tuple[int, int]]) -> int:
    wanted = _BASE + int.from_bytes(os.urandom(4)) % _SPREAD
    if all(any(first <= wanted < first + count for first, count in ranges) for ranges in (uids, gids)):
        return wanted
    # A container with few ids: take one from the end of the largest range, below the "nobody" that ends it.
    first, count = max(uids, key=lambda entry: entry[1])
    if count < 10_000:
        raise InitializationFailed(
            "run by root, but there is no uid to drop to in this user namespace",
            hint="run as an ordinary user, or give the container a larger uid range",
        )
    return first + count - 2000 + int.from_bytes(os.urandom(4)) % 1000


def _ranges(path: str) -> list[tuple[int, int]]:
    with open(path, encoding="ascii") as file:
        return [(int(first), int(count)) for first, _, count in (line.split() for line in file)]
