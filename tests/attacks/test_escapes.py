"""No command gets out of its box, whoever starts it and however it came in; and what must work inside does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.attacks.cases import KEPT_IN_SESSION, LATER, OF_THE_PROXY, Case, load
from tests.attacks.conftest import PROPERTY, marks
from tests.attacks.harness import Arena, Outcome
from tests.attacks.worker import Way


def _parameter(case: Case, way: Way) -> object:
    all_marks = [*marks(case), pytest.mark.req(*case.requirements)]
    if case.id in LATER:
        all_marks.append(pytest.mark.xfail(raises=AssertionError, reason=LATER[case.id], strict=True))
    return pytest.param(case, way, id=f"{case.id}-{way}", marks=all_marks)


def test_few_cases_wait_for_a_later_wall() -> None:
    assert len(LATER) <= 10
    assert LATER.keys() <= {case.id for case in load()}
    assert KEPT_IN_SESSION.keys() <= {case.id for case in load() if case.command2 is not None}


@pytest.mark.parametrize(("case", "way"), [_parameter(case, way) for case in load() for way in case.ways])
def test_the_wall_holds(arena: Arena, case: Case, way: Way, record_property: Callable[[str, object], None]) -> None:
    record_property(PROPERTY, (f"{arena.caller}, {way}", case.id))
    if lacking := arena.lacks(case):
        pytest.skip(f"{lacking} is not installed")

    verdict = arena.run(case, way)

    if verdict.outcome is Outcome.VOID:  # no AssertionError: this is never what is expected of a later case
        pytest.fail(f"{case.id} ({case.title}) showed nothing: {verdict.why}")
    assert verdict.outcome is Outcome.SAFE, f"{case.id} ({case.title}): {verdict.why}"


_ABOUT_THE_NETWORK = [case for case in load() if case.id.startswith("NET-") or case.id == "OK-36"]
"""All others do not come near it; `python -m tests.attacks --network` runs them, too."""


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.id, marks=marks(case)) for case in _ABOUT_THE_NETWORK if case.id not in OF_THE_PROXY],
)
def test_the_wall_holds_where_there_is_a_network(networked: Arena, case: Case) -> None:
    verdict = networked.run(case, Way.COLD)

    assert verdict.outcome is Outcome.SAFE, f"{case.id} ({case.title}): {verdict.why}"
