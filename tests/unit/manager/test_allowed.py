"""Decisions are shared only by those who would decide the same."""

from dataclasses import replace
from pathlib import Path

from ringfence.manager.allowed import Allowed
from ringfence.manager.policing import PolicyEngine
from ringfence.policy.decide import Place, decide
from ringfence.policy.given import NOTHING_GIVEN
from ringfence.policy.terms import Terms
from ringfence.values.grant import Grant
from ringfence.values.request import Request

GRANT = Grant(workspace=Path("/srv/work"))
PLACE = Place(Path("/srv/work"), "/home/agent")


def terms() -> Terms:
    return PolicyEngine.from_text("policies: {tools: {shell_exec: {denied_commands: [sudo]}}}").terms()


def test_they_hold_for_the_very_same_grant_and_terms_and_for_whoever_asks_or_does_not() -> None:
    mine = terms()
    allowed = Allowed(GRANT, mine, asks=False)

    assert allowed.holds_for(GRANT, mine, asks=False)
    assert not allowed.holds_for(GRANT, mine, asks=True)
    assert not allowed.holds_for(GRANT, None, asks=False)
    assert not allowed.holds_for(GRANT, terms(), asks=False), "equal is not enough: nobody has compared them"
    assert not allowed.holds_for(replace(GRANT, read_only=True), mine, asks=False)


def test_the_oldest_goes_first() -> None:
    allowed = Allowed(GRANT, None)
    decision = decide(Request(command="true"), GRANT, PLACE, None)
    for number in range(300):
        allowed.keep((f"echo {number}", PLACE, None, NOTHING_GIVEN), decision)

    assert allowed.get(("echo 0", PLACE, None, NOTHING_GIVEN)) is None
    assert allowed.get(("echo 299", PLACE, None, NOTHING_GIVEN)) is decision
