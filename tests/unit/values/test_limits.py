"""Limits: every one has a value that the kernel can hold, and none can be switched off."""

import math
from dataclasses import fields
from typing import Any

import pytest

from ringfence.errors import InvalidConfig
from ringfence.values.limits import Limits

NAMES = [field.name for field in fields(Limits)]


@pytest.mark.req("B6", "C9")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan, math.inf, -math.inf, True, False, "9", None, 2**63, 1e300])
def test_a_limit_cannot_be_switched_off_or_be_no_number(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=name) as caught:
        Limits(**{name: value})

    assert caught.value.hint


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [1, 7, 2**62])
def test_the_same_limit_with_a_number_above_zero_is_taken(name: str, value: int) -> None:
    assert getattr(Limits(**{name: value}), name) == value


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_seconds")])
def test_a_count_with_a_fraction_is_refused_because_the_kernel_would_not_take_it(name: str) -> None:
    with pytest.raises(InvalidConfig, match="whole number"):
        Limits(**{name: 1e9})


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_seconds")])
def test_a_time_may_have_a_fraction(name: str) -> None:
    assert getattr(Limits(**{name: 0.25}), name) == 0.25


def test_changed_sets_what_is_given_and_leaves_what_is_none() -> None:
    limits = Limits().changed(wall_seconds=3, memory_bytes=None)

    assert (limits.wall_seconds, limits.memory_bytes) == (3, Limits().memory_bytes)


def test_changed_checks_like_the_constructor() -> None:
    with pytest.raises(InvalidConfig):
        Limits().changed(processes=0)
