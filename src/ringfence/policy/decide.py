"""Decides: from a request, a grant, where it runs and what holds for it, to a decision. Pure: never looks at the disk.

Every rule votes, and every vote is kept; the strictest one counts (allow < ask < deny). A fault in judging is a vote
against (requirement C12).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass, replace
from ringfence.deferred import deferred, deferred_module
from ringfence.policy.given import Given, given_to
from ringfence.policy.globs import compiled
from ringfence.policy.isolation import assess_given, isolation_of, on_wall
from ringfence.values.facts import CheckAnswer, Facts, Finding, PathFact, Span, Touch
from ringfence.values.paths import is_below
from ringfence.values.risk import Assessment, Risk
from ringfence.values.verdict import Decision, Reason, Verdict

if TYPE_CHECKING:
    import ringfence.shell.analyse as analysing  # not the function of that name
    from ringfence.policy import judging, schema
    from ringfence.policy.terms import Terms
    from ringfence.shell.analyse import analyse
    from ringfence.shell.cells import analyse_code
    from ringfence.shell.checks import sensitive_path, validate
    from ringfence.shell.context import CheckContext
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Wall
    from ringfence.values.request import Request
else:
    analyse = deferred("ringfence.shell.analyse", "analyse")
    analyse_code = deferred("ringfence.shell.cells", "analyse_code")
    validate = deferred("ringfence.shell.checks", "validate")
    CheckContext = deferred("ringfence.shell.context", "CheckContext")
    judging = deferred_module("ringfence.policy.judging")
    schema = deferred_module("ringfence.policy.schema")
    sensitive_path = deferred_module("ringfence.shell.checks.sensitive_path")
    analysing = deferred_module("ringfence.shell.analyse")

BUILT_IN_PLACE: Final = "built-in"
"""Where a rule of a grant was written that nobody wrote (`Grant.places`)."""
_ALLOWED = Reason(Verdict.ALLOW, "default", "no rule objects")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request wants to run, with links resolved."""

    cwd: Path
    home: str = ""
    """What `~` in a command stands for; empty if that is not known."""
    is_own: bool = False
    """Whether it is a directory that the box has of its own, such as its /tmp: no grant is needed for that."""


def decide(
    request: Request,
    grant: Grant,
    place: Place,
    terms: Terms | None = None,
    *,
    language: str | None = None,
    wall: Wall | None = None,
    given: Given | None = None,
    asks_for_critical: bool = False,
) -> Decision:
    """All votes on a request; the strictest one counts. Without terms, only the grant has a say, and who can be asked.

    Args:
        wall: the one that stands, if it has to run behind that one.
        given: its input and variables, if they are more than the request says.
        asks_for_critical: whether, without terms, a person is asked about code that looks critical.
    """
    reasons = [_ALLOWED, *_on_directory(grant, place)]
    text = command_text(request)
    if given is None:
        given = given_to(request)
    risk = _RiskOnce(language or "bash", text, given)
    if terms is None:
        reasons += _on_critical(risk()) if asks_for_critical else ()
        return Decision(tuple(reasons), grant, text=text, assessment=risk.found)
    isolation = isolation_of(terms)
    routed = isolation.routed(risk()) if isolation is not None else None
    try:
        reasons += _on_terms(text, terms, grant, place, language, given, risk)
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
    return Decision(tuple(dict.fromkeys(reasons)), grant, terms.asking, text, routed, risk.found)


def command_text(request: Request) -> str:
    """The text that is judged: the command line, or the words of a program without a shell, quoted for one."""
    if request.code is not None:
        return request.code
    return request.command if request.command is not None else shlex.join(request.argv or ())


class _RiskOnce:
    """The assessment of one request, made when somebody first asks for it."""

    __slots__ = ("_given", "_language", "_text", "found")

    def __init__(self, language: str, text: str, given: Given) -> None:
        self._language, self._text, self._given = language, text, given
        self.found: Assessment | None = None

    def __call__(self) -> Assessment:
        if self.found is None:
            self.found = assess_given(self._language, self._text, self._given)
        return self.found


def _on_terms(
    text: str, terms: Terms, grant: Grant, place: Place, language: str | None, given: Given, risk: _RiskOnce
) -> Iterator[Reason]:
    yield from judging.on_tool(terms)
    yield from judging.on_language(terms, language)
    asks_by_risk = terms.get("approvals.ask_for.risks") is not None
    yield from judging.on_risk(terms, *(_advised(risk()) if asks_by_risk else (None, "")))
    if language not in (None, "bash"):
        # Code of another language is no command line, and which files and hosts it may use is up to the wall. The wall
        # knows no rules on commands, so the code is read for the programs that it runs, as after `python3 -c`. And its
        # interpreter reads the variables that it is given, like any program.
        if judging.has_command_rules(terms):
            yield from judging.on_commands(terms, analyse_code(language, text))
        if given.variables:
            facts = analyse(":", variables=given.values)
            yield from (replace(vote, span=None) for vote in _on_facts(facts, terms, grant, place, given))
        return
    facts = analyse(text, stdin=given.stdin, variables=given.values)
    yield from _on_facts(facts, terms, grant, place, given)
    if given.stdin is analysing.STREAM:
        yield from judging.on_stream(facts, analyse(text, stdin="", variables=given.values))


def _on_facts(facts: Facts, terms: Terms, grant: Grant, place: Place, given: Given) -> Iterator[Reason]:
    where = judging.Where(grant.workspace, place.cwd, place.home)
    yield from judging.on_commands(terms, facts)
    yield from judging.on_paths(terms, facts, where)
    yield from _on_blacklist(facts, grant, where)
    yield from judging.on_hosts(terms, facts)
    for finding in _findings(facts, terms, grant, place):
        yield _as_vote(finding, terms)
        if finding.check == "variable" and finding.rule in given.values:
            yield from judging.on_variable(terms, finding.rule, finding.why)


def _on_blacklist(facts: Facts, grant: Grant, where: judging.Where) -> Iterator[Reason]:
    """Paths that somebody has put on the blacklist. The built-in rows have no vote: the wall refuses them quietly, and
    a line such as `test -f .env` may run."""
    rules, written = compiled(grant.denied), dict(grant.places)
    for fact in facts.paths:
        row = next((row for path in judging.spelled(fact.path, where) if (row := rules.matches(path))), None)
        rule = f"filesystem.blacklist {row}"
        if row is None or written.get(rule) == BUILT_IN_PLACE:
            continue
        verdict = Verdict.DENY if fact.sure else Verdict.ASK
        source, _, line = written.get(rule, "").rpartition(":")
        number = int(line) if line.isdigit() else None
        why = f"{fact.path} is blacklisted"
        yield Reason(verdict, rule, why, "take it off the blacklist", source if number else "", number, fact.span)


def _advised(assessment: Assessment) -> tuple[schema.RiskLevel | None, str]:
    """What the analysis of the code advises."""
    worst = max(assessment.findings, key=lambda finding: finding.risk, default=None)
    level = None if assessment.risk is Risk.SAFE else schema.RiskLevel[assessment.risk.name]
    return level, worst.why if worst else ""


def _on_critical(assessment: Assessment) -> Iterator[Reason]:
    """The vote of the advice alone, where no policy is in force and somebody can be asked (requirement E1)."""
    if assessment.risk is Risk.CRITICAL:
        worst = max(assessment.findings, key=lambda finding: finding.risk)
        why = f"it looks like critical risk: {worst.why} ({worst.pattern}, line {worst.line})"
        yield Reason(Verdict.ASK, "critical risk", why, "a person's approval, or a policy that says what may run")


def on_file(path: str, terms: Terms, grant: Grant, home: str, *, write: bool) -> Iterator[Reason]:
    """The votes on a path that is opened without a command: the lists of the policy, and sensitive files."""
    fact = PathFact(Touch.WRITE if write else Touch.READ, path, Span(0, len(path)))
    yield from judging.on_path(terms, fact, judging.Where(grant.workspace, grant.workspace, home))
    facts = Facts(path, paths=(fact,))
    for finding in sensitive_path.check(facts, _context(terms, grant, home)):
        if finding.answer is CheckAnswer.BLOCK:
            yield replace(_as_vote(finding, terms), span=None)


def _context(terms: Terms, grant: Grant, home: str) -> CheckContext:
    confined = terms.value("temporary_files")
    return CheckContext(
        workspace=os.fspath(grant.workspace),
        home=home or "/home/agent",
        strictness=terms.strictness,
        sensitive=terms.value("validation.sensitive_files", "block") != "warn",
        own_tmp_only=None if confined is None else confined == "own_prefix",
        writable=tuple(map(os.fspath, grant.writable)),
    )


def _findings(facts: Facts, terms: Terms, grant: Grant, place: Place) -> Iterator[Finding]:
    """What the checks do not pass."""
    for finding in validate(facts, _context(terms, grant, place.home)):
        if finding.answer is not CheckAnswer.PASS:
            yield finding


def _as_vote(finding: Finding, terms: Terms) -> Reason:
    setting = terms.get("validation.strictness")
    return Reason(
        Verdict.DENY if finding.answer is CheckAnswer.BLOCK else Verdict.ALLOW,
        f"check {finding.check}: {finding.rule}",
        finding.why if finding.answer is CheckAnswer.BLOCK else f"warning: {finding.why}",
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
    roots = map(os.fspath, (*grant.writable_roots, *grant.readable))
    if not place.is_own and not any(is_below(cwd, root) for root in roots):
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
