"""Isolation: which code needs more of its wall than the rest, what more, and why. Pure, and only ever more.

A policy says what isolated code needs (`isolation_requires`) and which code that is (`security_mode`). The risk of the
code, which is advice, chooses between two walls, never whether there is one: both give all that the policy requires.

What a box gives cannot be changed while it stands, and its state cannot be carried into another one. So whoever keeps a
box for several calls has one wall for all of them: isolated at once under strict, where hardly any code is known to be
harmless; under permissive as its first call needs it. A later call that needs more is refused (`on_wall`).

What this does not protect against: code that looks harmless and is not runs behind the ordinary wall. So does code that
harmless code only names, such as a file of the workspace that is called like one of Python's own modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass, replace
from ringfence.deferred import deferred
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.risk import Assessment, Risk, Route, RouteDecision, SecurityMode
from ringfence.values.verdict import Reason, Verdict
from ringfence.values.visible import visible

if TYPE_CHECKING:
    from ringfence.policy.given import Given
    from ringfence.policy.risk.assess import assess
    from ringfence.policy.risk.route import route
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
else:
    assess = deferred("ringfence.policy.risk.assess", "assess")
    route = deferred("ringfence.policy.risk.route", "route")

RULE: Final = "isolation_requires"
_HIDDEN: Final = frozenset({Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN})
_PATTERN_SHOWN: Final = 40
"""Characters of a pattern, which may be a word of the code, that a reason keeps."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What a policy wants for code that is isolated, and by which mode code is."""

    needs: frozenset[Guarantee]
    mode: SecurityMode
    source: str
    line: int

    def routed(self, assessment: Assessment) -> RouteDecision:
        """Where a piece of code goes that looks so risky."""
        chosen = route(assessment, self.mode)
        needs = self.needs if chosen is Route.ISOLATED else frozenset()
        head = "isolated" if chosen is Route.ISOLATED else "the ordinary wall is enough"
        why = f"{head}: {_found(assessment)} under {self.mode}"
        return RouteDecision(chosen, why, needs, self.source, self.line)

    def why_from_the_start(self, routed: RouteDecision | None, *, once: bool) -> str:
        """Why a box is made isolated; empty if it is an ordinary one.

        Args:
            routed: where the call goes that it is made for; None if that is not known yet.
            once: whether that call is its only one.
        """
        if routed is not None and routed.is_isolated:
            return routed.why
        if self.mode is SecurityMode.STRICT and not (once and routed is not None):
            return "isolated: a session is as risky as its riskiest piece, under strict"
        return ""

    @property
    def sentence(self) -> str:
        """What is isolated, and what that means, for a person."""
        which = "what is not SAFE, and every session" if self.mode is SecurityMode.STRICT else "HIGH and CRITICAL code"
        return f"{which}: behind a wall with {', '.join(sorted(self.needs))} (security_mode {self.mode})"


def isolation_of(terms: Terms | None) -> Isolation | None:
    """What the policy says about isolating; None if nothing, and then no code is assessed for it."""
    setting = terms.get(RULE) if terms is not None else None
    if terms is None or setting is None or not terms.isolation_requires:
        return None
    return Isolation(terms.isolation_requires, terms.security_mode, setting.mark.source, setting.mark.line)


def isolated(grant: Grant, needs: frozenset[Guarantee]) -> Grant:
    """The grant with a wall that guarantees these too; what speaks against them in it is given up."""
    requires = grant.requires | needs
    return replace(
        grant,
        requires=requires,
        mediate_opens=grant.mediate_opens or Guarantee.DENIED_AT_OPEN in requires,
        read_outside=grant.read_outside and not needs & _HIDDEN,
    )


def on_wall(routed: RouteDecision | None, wall: Wall | None) -> Reason | None:
    """The vote against a call that needs more than the wall gives that stands already; None if it gives enough."""
    if routed is None or wall is None:
        return None
    lacking = routed.needs - wall.guarantees
    if not lacking:
        return None
    return Reason(
        Verdict.DENY,
        RULE,
        f"{routed.why}; that needs {', '.join(sorted(lacking))}, which the wall of this session ({wall.name}) does not "
        "give",
        "run it in a call of its own, or begin a new session with it; under `security_mode: strict` every session is "
        "isolated from the start",
        routed.source,
        routed.line,
    )


def assess_given(language: str, text: str, given: Given) -> Assessment:
    """How risky a piece of code looks with what it is given."""
    return assess(language, text, given.values, stdin=given.stdin)


def _found(assessment: Assessment) -> str:
    """The risk, and the first of what it is highest for."""
    risk = f"{assessment.risk.name} risk"
    worst = max(assessment.findings, key=lambda finding: finding.risk, default=None)
    if worst is None or assessment.risk is Risk.SAFE:
        return risk
    pattern = visible(worst.pattern)
    shown = pattern if len(pattern) <= _PATTERN_SHOWN else pattern[: _PATTERN_SHOWN - 3] + "..."
    return f"{risk} ({shown}, line {worst.line})"
