"""Frozen values as plain ones and back: nothing is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import InvalidArgument
from ringfence.values.carried import carried, fetched
from ringfence.values.facts import Span
from ringfence.values.files import FileKind, FileStat
from ringfence.values.grant import Grant, Shadowing, Trace
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limits
from ringfence.values.network import NetworkGrant
from ringfence.values.outcome import Usage
from ringfence.values.principal import Principal
from ringfence.values.remedy import Access, Need
from ringfence.values.risk import Assessment, Risk, RiskFinding, Route, RouteDecision
from ringfence.values.verdict import Asking, Decision, Reason, Verdict

GRANT = Grant(
    workspace=Path("/w"),
    shadow=Shadowing(Path("/s"), is_copy=True, memory_bytes=5),
    readable=(Path("/r"), Path("/q")),
    denied=("**/.env",),
    env=(("A", "ä"), ("B", "")),
    trace=Trace.FULL,
    limits=Limits(memory_bytes=1 << 26, wall_seconds=3.0),
    cores=1.5,
    requires=frozenset({Guarantee.NEVER_ROOT, Guarantee.OWN_KERNEL}),
)
VOTE = Reason(Verdict.DENY, "r", "why", "by", "p.yaml", 3, Span(1, 2), Need(Access.WRITE, "/x"))
VALUES: list[Any] = [
    GRANT,
    VOTE,
    Reason(Verdict.ALLOW, "r", "why"),
    Wall("bwrap", frozenset({Guarantee.TREE_DIES}), ("cgroup v2",), ("a note",)),
    Usage(1.0, 0.5, 100, "cgroup"),
    Limits(),
    Principal(session_id="s", agent_id="a", org_id=None, tool="t"),
    Decision(
        (VOTE, Reason(Verdict.ASK, "q", "ask")),
        GRANT,
        Asking(3.0, True),
        "rm -rf /",
        RouteDecision(Route.ISOLATED, "risk", frozenset({Guarantee.OWN_KERNEL})),
        Assessment(Risk.CRITICAL, (RiskFinding(Risk.CRITICAL, "p", "why", 1, 2),), "python"),
    ),
    NetworkGrant(),
    FileStat(
        path="a\udcff",
        kind=FileKind.LINK,
        size_bytes=1,
        mode=0o777,
        modified_seconds=1.5,
        uid=0,
        gid=0,
        links=1,
        inode=7,
        target="b",
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert fetched(type(value), json.loads(json.dumps(carried(value)))) == value


def test_limits_that_nobody_gave_can_still_be_raised() -> None:
    back = fetched(Limits, carried(Limits(memory_bytes=1 << 26)))

    assert back.may_rise
    assert not fetched(Limits, carried(Limits(wall_seconds=120.0))).may_rise


def test_what_is_no_such_value_is_said() -> None:
    with pytest.raises(InvalidArgument, match="not a FileStat"):
        fetched(FileStat, {"path": 3})
    with pytest.raises(InvalidArgument, match="not a Reason"):
        fetched(Reason, {"verdict": "perhaps", "rule": "r", "why": "w"})
