"""What the environment of a deployment bounds."""

from __future__ import annotations

import pytest

from ringfence.errors import InvalidConfig
from ringfence.policy.bounds import Bounds, pool_size, read_bounds
from ringfence.values.limits import Limits

pytestmark = pytest.mark.req("B6", "B8")


@pytest.mark.parametrize("prefix", ["RINGFENCE", "SANDBOX"])
def test_every_variable_is_read_under_both_names(prefix: str) -> None:
    environ = {f"{prefix}_MAX_MEMORY": "512m", f"{prefix}_MAX_CPU": "1.5", f"{prefix}_NETWORK": "none"}

    assert read_bounds(environ) == Bounds(memory_bytes=512 << 20, cores=1.5)
    assert pool_size({f"{prefix}_POOL_SIZE": "10"}) == 10
    assert (read_bounds({}), pool_size({})) == (Bounds(), 2)


def test_bounds_cap_and_never_raise() -> None:
    bounds = Bounds(memory_bytes=100, cores=0.5)

    assert bounds.limits(Limits(memory_bytes=50, cpu_seconds=1)) == Limits(memory_bytes=50, cpu_seconds=1)
    assert bounds.limits(Limits()).memory_bytes == 100 and bounds.limits(Limits()).cpu_seconds == 60
    assert (bounds.least_cores(None), bounds.least_cores(2.0), bounds.least_cores(0.1)) == (0.5, 0.5, 0.1)
    assert Bounds().limits(Limits()) == Limits() and Bounds().least_cores(None) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SANDBOX_MAX_MEMORY", "lots"),
        ("SANDBOX_MAX_MEMORY", "0"),
        ("RINGFENCE_MAX_CPU", "nan"),
        ("RINGFENCE_MAX_CPU", "inf"),
        ("RINGFENCE_MAX_CPU", "-1"),
        ("SANDBOX_NETWORK", "bridge"),
    ],
)
def test_a_value_that_makes_no_sense_names_its_variable(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        read_bounds({name: value})


def test_a_pool_size_is_a_number() -> None:
    with pytest.raises(InvalidConfig, match="SANDBOX_POOL_SIZE"):
        pool_size({"SANDBOX_POOL_SIZE": "few"})
