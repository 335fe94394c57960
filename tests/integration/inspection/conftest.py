"""A loop in a thread, and servers and fronts on it, all closed at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.inspected import Front, Handler, Loop, Origin

Place = Callable[..., Front]


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def place(loop: Loop) -> Iterator[Place]:
    """A server that does what it is told, and a front before it."""
    made: list[Front | Origin] = []

    def make(handler: Handler, *, alpn: tuple[str, ...] = ("http/1.1",), tls: bool = True, **options: Any) -> Front:
        origin = Origin(loop, handler, alpn=alpn, tls=tls)
        front = Front(loop, origin.address, origin=origin.authority, **options)
        made.extend((front, origin))
        return front

    yield make
    for each in made:
        each.close()
