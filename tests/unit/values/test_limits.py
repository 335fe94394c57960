"""Limits: every one has a value that the kernel can hold, and none can be switched off."""

import math
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from ringfence.errors import InvalidArgument
from ringfence.values.limits import Limits

NAMES = [field.name for field in fields(Limits)]


@pytest.mark.req("B6", "C9")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0, -1, -0.5, math.nan, math.inf, -math.inf, True, False, "nine", None, 2**63, 1e300])
def test_a_limit_cannot_be_switched_off_or_be_no_number(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=name) as caught:
        Limits(**{name: value})

    assert caught.value.hint


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [1, 7, 2**62])
def test_the_same_limit_with_a_number_above_zero_is_taken(name: str, value: int) -> None:
    assert getattr(Limits(**{name: value}), name) == value


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_seconds")])
def test_a_count_with_a_fraction_is_refused_because_the_kernel_would_not_take_it(name: str) -> None:
    with pytest.raises(InvalidArgument, match="whole number"):
        Limits(**{name: 1e9})


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("_seconds")])
def test_a_time_may_have_a_fraction(name: str) -> None:
    assert getattr(Limits(**{name: 0.25}), name) == 0.25


def test_changed_sets_what_is_given_and_leaves_what_is_none() -> None:
    limits = Limits().changed(wall_seconds=3, memory_bytes=None)

    assert (limits.wall_seconds, limits.memory_bytes) == (3, Limits().memory_bytes)


def test_changed_checks_like_the_constructor() -> None:
    with pytest.raises(InvalidArgument):
        Limits().changed(processes=0)


def test_the_cpu_time_follows_the_wall_clock_time_unless_it_is_given() -> None:
    assert Limits().cpu_seconds == 300
    assert Limits(wall_seconds=600).cpu_seconds == 1500
    assert Limits().changed(wall_seconds=600).cpu_seconds == 1500
    assert replace(Limits(wall_seconds=600), wall_seconds=10).cpu_seconds == 25
    assert Limits(cpu_seconds=300).changed(wall_seconds=600).cpu_seconds == 300
    assert Limits(wall_seconds=600).changed(cpu_seconds=7).changed(wall_seconds=30).cpu_seconds == 7
    assert Limits(wall_seconds=2**61).cpu_seconds <= 2**62


@pytest.mark.req("B6", "C9")
def test_sizes_and_times_may_be_texts() -> None:
    limits = Limits().changed(
        memory_bytes="512MB", output_bytes="64KiB", wall_seconds="1.5m", cpu_seconds=timedelta(hours=1)
    )

    assert (limits.memory_bytes, limits.output_bytes) == (512 * 1024**2, 64 * 1024)
    assert (limits.wall_seconds, limits.cpu_seconds) == (90.0, 3600.0)
    assert Limits(disk_bytes="1GB").disk_bytes == 1024**3  # type: ignore[arg-type]  # as a person would try it
    with pytest.raises(InvalidArgument, match="processes"):
        Limits().changed(processes="5")
