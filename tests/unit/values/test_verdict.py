"""Verdicts order themselves, and the decision keeps every reason."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.values.grant import Grant
from ringfence.values.verdict import Decision, Reason, Verdict

GRANT = Grant(workspace=Path("/w"))


@pytest.mark.req("C1")
@given(st.lists(st.sampled_from(Verdict), min_size=1))
def test_the_strictest_vote_decides_and_the_first_among_equals(votes: list[Verdict]) -> None:
    reasons = tuple(Reason(vote, f"rule {number}", "why") for number, vote in enumerate(votes))

    decision = Decision(reasons, GRANT)

    assert decision.verdict is max(votes)
    assert decision.deciding is reasons[votes.index(max(votes))]
    assert decision.reasons == reasons


def test_one_denial_outweighs_any_number_of_permissions() -> None:
    allow, deny = Reason(Verdict.ALLOW, "a", ""), Reason(Verdict.DENY, "d", "")

    assert Decision((allow, deny, allow), GRANT).verdict is Verdict.DENY
    assert Decision((allow, allow), GRANT).verdict is Verdict.ALLOW
