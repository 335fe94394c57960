"""Collects what is wrong with a policy, so that its writer sees all of it at once."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from ringfence.errors import InvalidConfig

MOST: Final = 50
"""Errors that are looked for in one file: more than that is another kind of file, and each costs a search for the
nearest valid name."""

T = TypeVar("T")
S = TypeVar("S")


class Faults:
    """The errors of one file. Whoever reads goes on after an error; what was read then counts for nothing."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._found: list[InvalidConfig] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the error that is raised below, and go on after the block."""
        try:
            yield
        except InvalidConfig as fault:
            self.add(fault)

    def add(self, fault: InvalidConfig) -> None:
        """
        Raises:
            InvalidConfig: there are more than anybody would read.
        """
        known = {each.message for each in self._found}
        if fault.message not in known:  # an alias is read as often as it is used
            self._found.append(fault)
        if len(self._found) >= MOST:
            self.raise_all()

    def add_all(self, others: "Faults") -> None:
        for fault in others._found:
            self.add(fault)

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def last(self) -> InvalidConfig:
        return self._found[-1]

    def each(self, read: Callable[[S], T], items: Iterable[S]) -> tuple[T, ...]:
        """What `read` makes of each item, but for those that are wrong."""
        found: list[T] = []
        for item in items:
            with self.kept():
                found.append(read(item))
        return tuple(found)

    def raise_all(self) -> None:
        """
        Raises:
            InvalidConfig: something is wrong: that error, or one that names them all in the order of their lines.
        """
        found = sorted(self._found, key=lambda fault: (fault.line or 0, fault.column or 0))
        if len(found) == 1:
            raise found[0]
        if found:
            many = f"at least {len(found)}" if len(found) >= MOST else str(len(found))
            raise InvalidConfig(f"{many} errors", source=self._source, faults=tuple(found))
