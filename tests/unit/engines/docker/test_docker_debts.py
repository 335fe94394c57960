"""What a daemon owes us is forgotten when it is gone, and not before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfence.engines.docker import pending_removals

_URL = "unix:///one"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr(pending_removals, "_owed", {})
    monkeypatch.setattr(pending_removals, "_put_off", {})
    monkeypatch.setattr(pending_removals.time, "monotonic", lambda: now[0])
    yield now


@pytest.mark.parametrize("was_there", [True, False])
def test_what_is_gone_is_forgotten_at_its_own_daemon_only(*, was_there: bool) -> None:
    pending_removals.owe(_URL, "a")
    pending_removals.owe("unix:///other", "a")

    pending_removals.settle(_URL, "a", was_there=was_there)

    assert pending_removals.owed_to(_URL) == () and pending_removals.owed_to("unix:///other") == ("a",)


def test_one_that_may_still_come_is_not_forgotten_because_it_is_not_there_yet(clock: list[float]) -> None:
    pending_removals.owe(_URL, "a", may_come=True)
    pending_removals.owe(_URL, "a")  # said again by whoever tries to remove it

    pending_removals.settle(_URL, "a", was_there=False)
    assert pending_removals.owed_to(_URL) == ("a",)
    clock[0] += 61
    pending_removals.settle(_URL, "a", was_there=False)

    assert pending_removals.owed_to(_URL) == ()


def test_one_that_came_and_was_removed_is_forgotten_at_once() -> None:
    pending_removals.owe(_URL, "a", may_come=True)

    pending_removals.settle(_URL, "a", was_there=True)

    assert pending_removals.owed_to(_URL) == ()


@pytest.mark.req("B7")
def test_one_that_cannot_be_removed_is_left_alone_for_a_while_and_not_forgotten(clock: list[float]) -> None:
    pending_removals.owe(_URL, "stuck")
    pending_removals.owe(_URL, "other")
    pending_removals.put_off(_URL, "stuck")

    assert pending_removals.due_to(_URL) == ("other",) and pending_removals.owed_to(_URL) == ("stuck", "other")
    clock[0] += 31
    assert pending_removals.due_to(_URL) == ("stuck", "other")
