"""Which boxes that were made ahead a keeper has, for calls of which kind, and which have to go. Decides, does nothing.

One for each kind of call, a few in all, none for long: who has not called again within a minute is doing something
else, and a box takes memory while it waits.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class _Place(Generic[T]):
    who: T
    since: float
    is_ready: bool = False


@dataclass(slots=True)
class Shelf(Generic[T]):
    """
    Args:
        most: of how many kinds there may be one.
        seconds: how long one waits for its call.
    """

    most: int
    seconds: float
    _places: dict[int, _Place[T]] = field(default_factory=dict)

    def wants(self, kind: int) -> bool:
        """Whether one is to be made for calls of this kind; kind 0 is of calls that have none."""
        return bool(kind) and self.most > 0 and kind not in self._places

    def put(self, kind: int, who: T, now: float) -> T | None:
        """One is being made; who has to go for it, the one that has waited longest."""
        gone = None
        if len(self._places) >= self.most:
            oldest = min(self._places, key=lambda each: self._places[each].since)
            gone = self._places.pop(oldest).who
        self._places[kind] = _Place(who, now)
        return gone

    def ready(self, who: T, now: float) -> None:
        for place in self._places.values():
            if place.who is who:
                place.is_ready, place.since = True, now

    def take(self, kind: int) -> T | None:
        """One that is ready, for a call of this kind."""
        place = self._places.get(kind)
        return self._places.pop(kind).who if place is not None and place.is_ready else None

    def forget(self, who: T) -> None:
        """It is gone."""
        self._places = {kind: place for kind, place in self._places.items() if place.who is not who}

    def expired(self, now: float) -> list[T]:
        """Those that have waited too long; they are forgotten."""
        over = [kind for kind, place in self._places.items() if place.since + self.seconds <= now]
        return [self._places.pop(kind).who for kind in over]

    def seconds_left(self, now: float) -> float | None:
        """Until the next one has waited too long; None if there is none."""
        ends = [place.since + self.seconds - now for place in self._places.values()]
        return max(0.0, min(ends)) if ends else None

    def clear(self) -> list[T]:
        gone = [place.who for place in self._places.values()]
        self._places.clear()
        return gone

    def __len__(self) -> int:
        return len(self._places)

    def ages(self, now: float) -> list[float]:
        """For how long each that is ready has waited, in seconds."""
        return sorted(now - place.since for place in self._places.values() if place.is_ready)
