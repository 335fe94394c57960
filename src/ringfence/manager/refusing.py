"""Says why a request does not run: the decision, nobody's approval, or a wall that gives too little."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.deferred import deferred
from ringfence.policy.isolation import on_wall
from ringfence.values.outcome import Refused, Result
from ringfence.values.verdict import Decision, Reason, Verdict

if TYPE_CHECKING:
    from ringfence.approvals.base import Approval
    from ringfence.approvals.question import hash_request
    from ringfence.engines.base import Box
    from ringfence.policy.violating import violation_of
    from ringfence.values.request import Request
else:
    hash_request = deferred("ringfence.approvals.question", "hash_request")
    violation_of = deferred("ringfence.policy.violating", "violation_of")


def refusal(request: Request, decision: Decision, approval: Approval | None) -> Result | None:
    """Why it does not run; None if it may: because the decision says so, or because exactly this was approved."""
    reason = decision.deciding
    match decision.verdict:
        case Verdict.ALLOW:
            return None
        case Verdict.ASK if approval is not None and approval.covers(hash_request(request, decision.grant)):
            return None
        case Verdict.ASK if approval is not None:
            why = f"{reason.why}; {approval.by} did not say yes ({approval.how})"
        case Verdict.ASK:
            why = f"{reason.why}; a person has to say yes, and there is nobody to ask"
            other = "" if reason.allow_by.startswith("a person's approval") else f", or {reason.allow_by}"
            where = f"run it where a person can be asked: at a terminal, or by a confirmation service{other}"
            reason = replace(reason, allow_by=where)
        case Verdict.DENY:
            why = reason.why
    return _refused(decision, reason, why)


def too_weak(decision: Decision, box: Box) -> Result | None:
    """Why it does not run in this box: another call chose its wall while this one waited; None if it may."""
    against = on_wall(decision.routed, box.wall)
    return _refused(decision, against, against.why) if against is not None else None


def _refused(decision: Decision, reason: Reason, why: str) -> Result:
    violation = violation_of(decision, reason, why, time.time())
    return Result(ending=Refused(why, reason.place, reason.allow_by), violations=(violation,))
