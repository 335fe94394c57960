"""The port of what a pool keeps."""

from collections.abc import Callable
from typing import Protocol


class PoolMember(Protocol):
    """Something that takes time to make and is used once."""

    @property
    def alive(self) -> bool: ...

    def probe(self) -> bool:
        """Whether it still stands, found out cheaply and without waiting: this is asked at every hand-out."""

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Have `tell` called, at most once and from the event loop, when the member is lost."""

    async def close(self) -> None:
        """End everything; returns when nothing of it is left. May take long, and may raise."""
