"""The engine that is asked for, or one that the policy names and that is no weaker; else an error that says why."""

import asyncio
from pathlib import Path

import pytest

from ringfence.engines.base import Box
from ringfence.errors import InitializationFailed
from ringfence.manager.routing import USUAL, FirstEngine
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee
from tests.support.fakes import FakeBox, FakeEngine

pytestmark = pytest.mark.req("E2", "D1")

GRANT = Grant(workspace=Path("/w"))


class Missing:
    def __init__(self, name: str) -> None:
        self.name = name

    async def open(self, grant: Grant) -> Box:
        raise InitializationFailed(f"{self.name} is not installed")


class Giving(FakeEngine):
    """One that says what it was required to guarantee."""

    def __init__(self, name: str, guarantees: frozenset[Guarantee]) -> None:
        super().__init__()
        self.name = name
        self.guarantees = guarantees

    async def open(self, grant: Grant) -> FakeBox:
        if lacking := grant.requires - self.guarantees:
            raise InitializationFailed(f"lacks {', '.join(sorted(lacking))}")
        return await super().open(grant)


def test_the_first_is_taken_if_it_can_be_had() -> None:
    box = asyncio.run(FirstEngine((Giving("one", USUAL), Missing("two"))).open(GRANT))

    assert isinstance(box, FakeBox) and box.notes == []


def test_another_stands_in_and_says_so() -> None:
    box = asyncio.run(FirstEngine((Missing("one"), Giving("two", USUAL))).open(GRANT))

    assert isinstance(box, FakeBox)
    assert box.notes == ["two instead of one, as the policy allows (one: one is not installed)"]


@pytest.mark.parametrize("lost", sorted(USUAL))
def test_one_that_is_weaker_does_not(lost: Guarantee) -> None:
    with pytest.raises(InitializationFailed, match=lost):
        asyncio.run(FirstEngine((Missing("one"), Giving("two", USUAL - {lost}))).open(GRANT))


def test_none_is_an_error_that_names_them_all() -> None:
    with pytest.raises(InitializationFailed, match=r"one is not installed.*two is not installed"):
        asyncio.run(FirstEngine((Missing("one"), Missing("two"))).open(GRANT))
