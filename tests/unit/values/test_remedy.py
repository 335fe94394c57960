"""Remedies: each door is told what it can do itself, an agent what to do instead, and no grant is wider than needed."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.values.limits import Limit
from ringfence.values.remedy import Access, Door, Need, raising
from ringfence.values.violation import Severity, Violation, ViolationType

pytestmark = pytest.mark.req("C7")


def a_violation(**changes: Any) -> Violation:
    parts: dict[str, Any] = {
        "kind": ViolationType.PATH,
        "severity": Severity.MEDIUM,
        "what": "no",
        "rule": "filesystem.whitelist",
        "allow_by": "by the library",
    }
    return Violation(**(parts | changes))


@pytest.mark.parametrize(
    ("door", "said"),
    [
        (Door.COMMAND_LINE, "--write '/a b/out'"),
        (Door.LIBRARY, "write=['/a b/out']"),
        (Door.POLICY, "add /a b/out to filesystem.write of the policy"),
        (Door.AGENT, "write below the workspace, in $HOME or in /tmp; only the operator can grant /a b/out"),
    ],
)
def test_a_missing_grant_is_said_in_the_words_of_the_door(door: Door, said: str) -> None:
    assert a_violation(need=Need(Access.WRITE, "/a b/out")).remedy(door) == said


@pytest.mark.parametrize("limit", Limit)
@pytest.mark.parametrize("door", Door)
def test_every_limit_has_a_remedy_at_every_door(limit: Limit, door: Door) -> None:
    violation = a_violation(
        kind=ViolationType.LIMIT, rule=f"limits.{limit}", allow_by=raising(limit, Door.LIBRARY), place="built-in"
    )

    said = violation.remedy(door)

    assert said == raising(limit, door)
    assert ("operator" in said) is (door is Door.AGENT)
    assert "raise the" not in said


def test_an_agent_is_not_told_to_change_what_is_not_its_own() -> None:
    for kind in ViolationType:
        said = a_violation(kind=kind, place="policy.yaml:3", allow_by="remove `x` from denied_commands").remedy(
            Door.AGENT
        )
        assert "remove `x`" not in said


def test_a_check_tells_an_agent_how_to_write_it_otherwise() -> None:
    check = a_violation(kind=ViolationType.DANGEROUS_PATTERN, place="built-in", allow_by="write it out")

    assert check.remedy(Door.AGENT) == "write it out"


def test_the_need_survives_the_journal() -> None:
    violation = a_violation(need=Need(Access.READ, "/etc/x"))

    assert Violation.from_record(violation.as_record()) == violation
