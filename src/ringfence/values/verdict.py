"""Verdicts, the reasons for them, and the decision that they add up to."""

from dataclasses import dataclass
from enum import IntEnum

from ringfence.values.grant import Grant


class Verdict(IntEnum):
    """Ordered by strictness, so that the strictest of many is their `max()`."""

    ALLOW = 0
    ASK = 1
    DENY = 2


@dataclass(frozen=True, slots=True)
class Reason:
    """One vote: what a rule says, which rule it was, and what would change its mind."""

    verdict: Verdict
    rule: str
    why: str
    allow_by: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Every vote on a request, and the grant that holds if it is allowed."""

    reasons: tuple[Reason, ...]
    grant: Grant

    @property
    def deciding(self) -> Reason:
        """The strictest vote; the first one given among equals."""
        return max(self.reasons, key=lambda reason: reason.verdict)

    @property
    def verdict(self) -> Verdict:
        return self.deciding.verdict
