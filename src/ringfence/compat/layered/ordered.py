"""An enum of words whose members are ordered as they are written down, and not as texts."""

from enum import StrEnum
from typing import Self


class OrderedWords(StrEnum):
    @property
    def _place(self) -> int:
        return tuple(type(self)).index(self)

    def _other(self, other: str) -> Self:
        return type(self)(other)

    def __lt__(self, other: str) -> bool:
        return self._place < self._other(other)._place

    def __le__(self, other: str) -> bool:
        return self._place <= self._other(other)._place

    def __gt__(self, other: str) -> bool:
        return self._place > self._other(other)._place

    def __ge__(self, other: str) -> bool:
        return self._place >= self._other(other)._place
