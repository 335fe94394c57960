"""Decides: from a request, a grant, where it runs and what holds for it, to a decision. Pure: never looks at the disk.

Every rule votes, and every vote is kept; the strictest one counts (allow < ask < deny). A fault in judging is a vote
against (requirement C12).
"""

import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ringfence.policy import judging
from ringfence.policy.globs import compiled
from ringfence.policy.isolation import isolation_of, on_wall
from ringfence.policy.risk.assess import assess
from ringfence.policy.schema import RiskLevel
from ringfence.policy.terms import Terms
from ringfence.shell.analyse import analyse
from ringfence.shell.checks import validate
from ringfence.shell.context import Context
from ringfence.values.facts import Answer, Facts, Finding
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.request import Request
from ringfence.values.risk import Risk
from ringfence.values.verdict import Decision, Reason, Verdict

_ALLOWED = Reason(Verdict.ALLOW, "default", "nothing speaks against it")
_BY_RISK = {
    Risk.SAFE: None,
    Risk.LOW: RiskLevel.LOW,
    Risk.MEDIUM: RiskLevel.MEDIUM,
    Risk.HIGH: RiskLevel.HIGH,
    Risk.CRITICAL: RiskLevel.CRITICAL,
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request wants to run, with links resolved."""

    cwd: Path
    home: str = ""
    """What `~` in a command stands for; empty if that is not known."""


def decide(
    request: Request,
    grant: Grant,
    place: Place,
    terms: Terms | None = None,
    *,
    language: str | None = None,
    wall: Wall | None = None,
    variables: Iterable[str] = (),
) -> Decision:
    """All votes on a request; the strictest one counts. Without terms, only the grant has a say.

    Args:
        wall: the one that stands, if it has to run behind that one.
        variables: which are set for it besides its own.
    """
    reasons = [_ALLOWED, *_on_directory(grant, place)]
    if terms is None:
        return Decision(tuple(reasons), grant)
    text = command_text(request)
    isolation = isolation_of(terms)
    routed = isolation.routed(language, text, (*dict(request.env), *variables)) if isolation is not None else None
    try:
        reasons += _on_terms(text, terms, grant, place, language)
    except Exception as fault:  # whatever it is, what could not be judged must not run
        reasons.append(
            Reason(
                Verdict.DENY,
                "fault in judging",
                f"the request could not be judged ({type(fault).__name__}: {fault})",
                "a simpler command; and please report this one",
            )
        )
    against = on_wall(routed, wall)
    if against is not None:
        reasons.append(against)
    return Decision(tuple(dict.fromkeys(reasons)), grant, terms.asking, text, routed)


def command_text(request: Request) -> str:
    """The text that is judged: the command line, or the words of a program without a shell, quoted for one."""
    if request.code is not None:
        return request.code
    return request.command if request.command is not None else shlex.join(request.argv or ())


def _on_terms(text: str, terms: Terms, grant: Grant, place: Place, language: str | None) -> Iterator[Reason]:
    yield from judging.on_tool(terms)
    yield from judging.on_language(terms, language)
    found, why = _assessed(text, terms, language or "bash")
    yield from judging.on_risk(terms, found, why)
    if language not in (None, "bash"):
        return  # code of another language is no command line; what it may do is up to the wall
    facts = analyse(text)
    yield from judging.on_commands(terms, facts)
    yield from judging.on_paths(terms, facts, judging.Where(grant.workspace, place.cwd, place.home))
    yield from judging.on_hosts(terms, facts)
    yield from _on_checks(facts, terms, grant, place)


def _assessed(text: str, terms: Terms, language: str) -> tuple[RiskLevel | None, str]:
    """What the analysis of the code advises; asked only where the policy makes something of it."""
    if terms.get("approvals.ask_for.risks") is None:
        return None, ""
    assessment = assess(language, text)
    worst = max(assessment.findings, key=lambda finding: finding.risk, default=None)
    return _BY_RISK[assessment.risk], worst.why if worst else ""


def _on_checks(facts: Facts, terms: Terms, grant: Grant, place: Place) -> Iterator[Reason]:
    confined = terms.value("temporary_files")
    context = Context(
        workspace=os.fspath(grant.workspace),
        home=place.home or "/home/agent",
        strictness=terms.strictness,
        sensitive=terms.value("validation.sensitive_files", "block") == "block",
        own_tmp_only=None if confined is None else confined == "own_prefix",
    )
    for finding in validate(facts, context):
        if finding.answer is not Answer.PASS:
            yield _as_vote(finding, terms)


def _as_vote(finding: Finding, terms: Terms) -> Reason:
    setting = terms.get("validation.strictness")
    return Reason(
        Verdict.DENY if finding.answer is Answer.BLOCK else Verdict.ALLOW,
        f"check {finding.check}: {finding.rule}",
        finding.why if finding.answer is Answer.BLOCK else f"warning: {finding.why}",
        finding.allow_by or "another way to write it, or a looser validation in the policy",
        setting.mark.source if setting else "",
        setting.mark.line if setting else None,
        finding.span,
    )


def _on_directory(grant: Grant, place: Place) -> Iterator[Reason]:
    if place.cwd is grant.workspace:
        return  # it was looked at when it was granted
    rules = compiled(grant.denied)
    cwd = os.fspath(place.cwd)
    if not any(_is_below(place.cwd, root) for root in (*grant.writable_roots, *grant.readable)):
        yield Reason(
            Verdict.DENY,
            "filesystem.whitelist",
            f"the working directory {cwd} is not in what is granted",
            f"add it to filesystem.whitelist, or run with --write {cwd}",
        )
    row = rules.matches(cwd)
    if row is not None:
        yield Reason(
            Verdict.DENY,
            f"filesystem.blacklist {row}",
            f"the working directory {cwd} is blacklisted",
            "work in another directory; the blacklist cannot be widened",
        )


def _is_below(path: Path, directory: Path) -> bool:
    return path == directory or directory in path.parents
