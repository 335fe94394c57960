"""The plan: what is missing is started, in bounds; what is too old goes; the next look is never missed."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidArgument
from ringfence.pool.plan import (
    LONGEST_PAUSE_SECONDS,
    SHORTEST_WAIT_SECONDS,
    PoolConfig,
    PoolPlan,
    PoolSnapshot,
    pause_seconds,
    plan,
)

CONFIG = PoolConfig(min_instances=2, max_instances=4, max_age_seconds=100, starts_per_second=10)


def planned(*born: float, now: float = 0.0, config: PoolConfig = CONFIG, **more: Any) -> PoolPlan:
    return plan(PoolSnapshot(**({"born": born, "members": len(born)} | more)), config, now)


def test_an_empty_pool_starts_one_and_looks_again_when_the_rate_allows_the_next() -> None:
    config = PoolConfig(min_instances=2, starts_at_once=2, starts_per_second=10)

    assert planned(config=config) == PoolPlan(start=1, wait_seconds=0.1)


def test_a_full_pool_does_nothing_until_its_members_age() -> None:
    assert planned(0, 0, now=1) == PoolPlan(wait_seconds=89)


def test_the_rate_holds_back_a_start() -> None:
    assert planned(refilled_at=0.0, now=0.04) == PoolPlan(wait_seconds=pytest.approx(0.06))
    assert planned(refilled_at=0.0, now=0.11).start == 1


def test_no_more_are_under_way_than_may_be_at_once() -> None:
    assert planned(refilling=1, members=1) == PoolPlan()


def test_the_maximum_holds_back_a_start() -> None:
    assert planned(members=4) == PoolPlan()
    assert planned(members=3).start == 1


def test_a_failure_holds_back_a_start_and_each_further_one_for_longer() -> None:
    assert planned(failed_at=0.0, failures_in_a_row=3, now=0.1) == PoolPlan(wait_seconds=pytest.approx(0.3))
    pauses = [pause_seconds(count) for count in range(12)]

    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == pause_seconds(10_000) == LONGEST_PAUSE_SECONDS


def test_an_ageing_member_stays_until_its_replacement_stands() -> None:
    alone = planned(0, 50, now=95)
    beside = planned(0, 50, 94, now=95)

    assert (alone.start, alone.retire) == (1, ())
    assert (beside.start, beside.retire) == (0, (0,))


def test_of_ageing_members_the_oldest_goes_first() -> None:
    assert planned(3, 1, 2, now=95).retire == (1,)


def test_an_expired_member_goes_whatever_comes() -> None:
    assert planned(0, 0, now=100, failed_at=100.0, failures_in_a_row=5).retire == (0, 1)


def test_nothing_is_renewed_that_is_not_kept() -> None:
    config = PoolConfig(min_instances=0, max_instances=4, max_age_seconds=100)

    assert planned(0, now=95, config=config) == PoolPlan(retire=(0,))


def test_a_rest_that_rounding_leaves_is_no_busy_loop() -> None:
    assert planned(refilled_at=1e6, now=1e6 + 0.1 - 1e-9).wait_seconds == SHORTEST_WAIT_SECONDS


@given(
    born=st.lists(st.floats(0, 200), max_size=6),
    now=st.floats(200, 400),
    refilling=st.integers(0, 3),
    others=st.integers(0, 5),
    failures=st.integers(0, 40),
    ago=st.floats(0, 60),
)
def test_no_plan_passes_a_bound_or_sleeps_through_its_next_step(
    born: list[float], now: float, refilling: int, others: int, failures: int, ago: float
) -> None:
    snapshot = PoolSnapshot(
        born=tuple(born),
        refilling=refilling,
        members=len(born) + refilling + others,
        refilled_at=now - ago,
        failures_in_a_row=failures,
        failed_at=now - ago,
    )

    todo = plan(snapshot, CONFIG, now)

    assert snapshot.members + todo.start <= max(CONFIG.max_instances, snapshot.members)
    assert refilling + todo.start <= max(CONFIG.starts_at_once, refilling)
    assert todo.start == 0 or ago >= pause_seconds(failures) - 1e-6
    assert {place for place, at in enumerate(born) if now - at >= 100} <= set(todo.retire)
    assert len(set(todo.retire)) == len(todo.retire)
    assert todo.wait_seconds >= SHORTEST_WAIT_SECONDS
    kept = [at for place, at in enumerate(born) if place not in todo.retire]
    assert all(todo.wait_seconds <= at + 100 - now + SHORTEST_WAIT_SECONDS for at in kept)


@pytest.mark.parametrize(
    "values",
    [
        {"min_instances": -1},
        {"min_instances": 11},
        {"min_instances": 1.5},
        {"min_instances": True},
        {"max_instances": 0},
        {"max_age_seconds": 0},
        {"max_age_seconds": math.nan},
        {"starts_per_second": -1},
        {"starts_at_once": 0},
        {"acquire_timeout_seconds": 0},
        {"acquire_timeout_seconds": "30"},
        {"waiting_max": -1},
        {"close_timeout_seconds": 0},
    ],
    ids=str,
)
def test_an_impossible_value_is_refused_by_name(values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(values))):
        PoolConfig(**values)


def test_zero_is_possible_where_it_means_none() -> None:
    PoolConfig(min_instances=0, waiting_max=0, max_age_seconds=math.inf)
