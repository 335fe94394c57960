"""The checks. Each module of this package is one: a function `check(facts, context)` with its table beside it.

To add a check, add a module. A check that fails is a refusal, as is a text that could not be read.

What this does not protect against: see `analyse`. A check sees facts; what is not among them passes.
"""

import pkgutil
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final

from ringfence.shell.context import CheckContext
from ringfence.values.facts import CheckAnswer, Facts, Finding, Span

Check = Callable[[Facts, CheckContext], Iterable[Finding]]


def _find() -> dict[str, Check]:
    found: dict[str, Check] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        check: Check = import_module(f"{__name__}.{module.name}").check
        found[module.name] = check
    return found


CHECKS: Final[dict[str, Check]] = _find()
"""By name."""


def validate(facts: Facts, context: CheckContext) -> tuple[Finding, ...]:
    """What every check says, in the order of the checks' names."""
    findings: list[Finding] = []
    if facts.problem is not None:
        why = f"cannot be understood: {facts.problem.why}"
        findings.append(Finding("parse", CheckAnswer.BLOCK, why, facts.problem.span, "problem"))
    for name, check in CHECKS.items():
        try:
            findings += check(facts, context)
        except Exception as error:
            why = f"the check itself failed ({type(error).__name__}), so the answer is no"
            findings.append(Finding(name, CheckAnswer.BLOCK, why, Span(0, len(facts.text)), "fault"))
    return tuple(findings)


def answer(findings: Iterable[Finding]) -> CheckAnswer:
    """The strictest of the answers; PASS if there is none."""
    return max((finding.answer for finding in findings), default=CheckAnswer.PASS)
