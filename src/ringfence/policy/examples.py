"""Checks the examples that a rule carries: what it has to match, and what it has to spare."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from ringfence.policy.hosts import HostRule, normal_host
from ringfence.policy.rules import CommandRule, Match, PathList, PathRule
from ringfence.shell.analyse import analyse

if TYPE_CHECKING:
    from ringfence.policy.document import Mark
    from ringfence.policy.faults import Faults
    from ringfence.policy.model import Name

Rule = CommandRule | PathRule | HostRule


def check_examples(
    rule: Rule, *, allowing: bool, matches: tuple[Name, ...], spares: tuple[Name, ...], faults: Faults
) -> None:
    """Hold a rule against its own examples.

    Args:
        faults: takes each that is not as the rule's writer believed; names the example's place.
    """
    for example in (*matches, *spares):
        with faults.kept():
            holds = _holds(rule, example.text, example.mark, allowing=allowing)
            if not holds and example in matches:
                why = f"the rule {rule.written!r} does not match its example {example.text!r}"
                raise example.mark.fault(why, "change the rule or the example")
            if holds and example in spares:
                why = f"the rule {rule.written!r} matches {example.text!r}, which it should spare"
                raise example.mark.fault(why, "change the rule or the example")


def _holds(rule: Rule, example: str, mark: Mark, *, allowing: bool) -> bool:
    match rule:
        case HostRule():
            host, _, port = example.rpartition(":") if example.count(":") == 1 else (example, "", "")
            if port and not port.isdigit():
                raise mark.fault(f"the example {example!r} is not a host", "write it as host or host:port")
            return rule.matches(normal_host(host), int(port) if port else None, surely=allowing)
        case PathRule():
            if not example.startswith("/"):
                raise mark.fault(f"the example {example!r} is not an absolute path", "write it from /")
            return PathList((rule,)).first((posixpath.normpath(example),)) is not None
        case CommandRule():
            facts = analyse(example)
            if facts.problem is not None:
                raise mark.fault(
                    f"the example {example!r} is not a command: {facts.problem.why}", "write a whole command"
                )
            if allowing:
                return any(rule.allows(program) is Match.YES for program in facts.programs)
            return any(rule.denies(program) is Match.YES for program in facts.programs)
