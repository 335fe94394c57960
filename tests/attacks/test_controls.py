"""Without a wall the same attacks succeed, so that a check which holds behind one says something.

Each runs inside the safety cgroup, which only root can make, with a time limit. A case that could do harm
(`control: skip`) never does. An ordinary user's fixture is another one, so what is attacked in it is shown for both
callers; what the kernel refuses to that user anyway, and what is no part of the fixture, for root alone.
"""

from __future__ import annotations

import pytest

from tests.attacks.cases import NEEDS_DEVICE, NEEDS_ROOT, Case, load, missing
from tests.attacks.conftest import marks
from tests.attacks.harness import PATH, Arena, Caller, Outcome, callers
from tests.attacks.worker import Way

FIXTURE = {"fs-read", "fs-write", "protected-paths", "proc-sys", "network", "signals", "tty", "fd-inheritance", "env"}
LEAKS = [
    pytest.param(caller, case, id=f"{caller}-{case.id}", marks=marks(case))
    for caller in callers()
    for case in load()
    if case.control == "leak" and (caller is Caller.ROOT or (case.category in FIXTURE and case.id not in NEEDS_ROOT))
]
NEVER = [case for case in load() if case.control == "skip"]


@pytest.mark.root
@pytest.mark.parametrize(("arena", "case"), LEAKS, indirect=["arena"], scope="session")
def test_the_attack_succeeds_without_a_wall(arena: Arena, case: Case) -> None:
    if lacking := missing(case, PATH):
        pytest.skip(f"{lacking} is not installed")

    verdict = arena.run(case, Way.UNCONFINED)

    if verdict.safe and case.id in NEEDS_DEVICE:
        pytest.skip(f"this machine has no {NEEDS_DEVICE[case.id]}")
    assert verdict.outcome is Outcome.UNSAFE, f"{case.id} ({case.title}): {verdict.why or 'the check holds'}"


@pytest.mark.root
@pytest.mark.parametrize("case", NEVER, ids=lambda case: case.id)
def test_a_harmful_case_is_never_run_without_a_wall(arena: Arena, case: Case) -> None:
    with pytest.raises(ValueError, match="never"):
        arena.run(case, Way.UNCONFINED)
