"""The votes of a policy on what a command line would do: one function for each kind of rule."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ringfence.dataclass import dataclass, replace
from ringfence.policy.hosts import HostRule, first_host_rule
from ringfence.policy.model import BUILT_IN, Setting
from ringfence.policy.rules import (
    FREE,
    HARMLESS_DEVICES,
    REDIRECTING,
    SETTERS,
    TRANSPARENT,
    CommandRule,
    Match,
    PathList,
    PathRule,
)
from ringfence.policy.schema import RiskLevel
from ringfence.shell.mentions import mentions
from ringfence.values.facts import Facts, HostFact, Origin, PathFact, Program, Span, Touch, Unknown
from ringfence.values.network import WEB_PORTS
from ringfence.values.paths import INSIDE as INSIDE
from ringfence.values.paths import is_below
from ringfence.values.verdict import Reason, Verdict

if TYPE_CHECKING:
    from ringfence.policy.terms import Terms

_LOOP: Final = re.compile(rf"\b(?:for|select)\s+({'|'.join(sorted(REDIRECTING))})\b")
"""A loop's variable is set without an assignment; it cannot be quoted, so the text tells."""

_COMMAND_RULES: Final = ("denied_commands", "approvals.ask_for.patterns", "allowed_commands")


def on_tool(terms: Terms) -> Iterator[Reason]:
    """Whether the role may use the tool, and whether a person has to say yes to every use."""
    setting = terms.get("tools")
    for names in terms.tools:
        if terms.tool not in (name.text for name in names):
            at = names[0].mark if names else setting.mark if setting else None
            yield Reason(
                Verdict.DENY,
                f"agent_roles.{terms.role}.tools",
                f"the role {terms.role} may not use {terms.tool}",
                f"add {terms.tool} to the role's tools",
                at.source if at else "",
                at.line if at else None,
            )
    for name in terms.value("approvals.ask_for.tools", ()):
        if name.text == terms.tool:
            yield Reason(
                Verdict.ASK,
                "approvals.ask_for.tools",
                f"every use of {terms.tool} needs approval",
                "a person's approval, or another policy",
                name.mark.source,
                name.mark.line,
            )


def on_risk(terms: Terms, found: RiskLevel | None = None, why: str = "") -> Iterator[Reason]:
    """What the tool's risk level, and the level that an analysis found, lead to."""
    setting = terms.settings["risk_level"]
    if terms.risk is RiskLevel.CRITICAL:
        yield _vote(
            Verdict.ASK, setting, f"{terms.tool} is of critical risk", "a person's approval, or a lower risk_level"
        )
    else:
        yield _vote(Verdict.ALLOW, setting, f"{terms.tool} is of {terms.risk} risk: {terms.handling}")
    asked = terms.get("approvals.ask_for.risks")
    if asked is None:
        return
    if terms.risk in asked.value and terms.risk is not RiskLevel.CRITICAL:
        yield _vote(Verdict.ASK, asked, f"{terms.tool} is of {terms.risk} risk", "a person's approval")
    if found is not None and found in asked.value and found is not terms.risk:
        yield _vote(Verdict.ASK, asked, f"the code looks like {found} risk: {why}", "a person's approval")


def on_language(terms: Terms, language: str | None) -> Iterator[Reason]:
    """Whether code may be in this language."""
    setting = terms.get("supported_languages")
    if language is None or setting is None:
        return
    if any(language not in names for names in setting.value):
        yield _vote(Verdict.DENY, setting, f"code in {language} is not supported", f"add {language} to the list")


def has_command_rules(terms: Terms) -> bool:
    """Whether anything is said about programs by their names."""
    return any(terms.get(name) is not None for name in _COMMAND_RULES)


def on_commands(terms: Terms, facts: Facts) -> Iterator[Reason]:
    """The command rules on every program that the text would run."""
    for name, verdict in (("denied_commands", Verdict.DENY), ("approvals.ask_for.patterns", Verdict.ASK)):
        yield from _denied(terms, name, verdict, facts.programs)
        yield from _handed_on(terms, name, verdict, facts)
    setting = terms.get("allowed_commands")
    yield from _on_unknown_code(setting or terms.get("denied_commands"), facts, known_only=setting is not None)
    if setting is None:
        return
    for program in facts.programs:
        yield from _allowed(setting, program, terms.command_lists())
    yield from _on_redirecting(setting, facts)


def _on_redirecting(setting: Setting, facts: Facts) -> Iterator[Reason]:
    """Whatever may change which programs the allowed names stand for."""
    found = [(assignment.name, assignment.span) for assignment in facts.assignments if assignment.name in REDIRECTING]
    for program in facts.programs:
        if program.name in SETTERS:
            names = ((word.text or "").partition("=")[0].removesuffix("+") for word in program.argv[1:])
            found += [(name, program.span) for name in names if name in REDIRECTING]
    found += [(loop[1], Span(*loop.span(1))) for loop in _LOOP.finditer(facts.text)]
    for name, span in dict.fromkeys(found):
        why = f"{name} changes which programs the allowed names stand for"
        yield _vote(Verdict.DENY, setting, why, f"leave {name} as it is", span)


def _denied(terms: Terms, name: str, verdict: Verdict, programs: Sequence[Program]) -> Iterator[Reason]:
    rules: tuple[CommandRule, ...] = terms.value(name, ())
    for program in programs:
        for rule in rules:
            match rule.denies(program):
                case Match.YES:
                    what = " needs approval" if verdict is Verdict.ASK else " is denied"
                    why = f"`{_shown(program)}`" + (f": {rule.why}" if rule.why else what)
                    by = "a person's approval" if verdict is Verdict.ASK else f"remove `{rule.written}` from {name}"
                    yield _by(rule, name, verdict, why, by, program.span)
                case Match.MAYBE:
                    why = f"`{_shown(program)}` may turn out to be `{rule.written}`: not all of it is known yet"
                    by = "write it out, without variables or substitutions"
                    yield _by(rule, name, Verdict.ASK, why, by, program.span)
                case Match.NO:
                    pass


def _handed_on(terms: Terms, name: str, verdict: Verdict, facts: Facts) -> Iterator[Reason]:
    """A denied program that is not seen to run, but whose name is given to something that may well run it."""
    rules: tuple[CommandRule, ...] = terms.value(name, ())
    if not rules:
        return
    for mention in mentions(facts):
        for rule in rules:
            if not rule.is_meant_by(mention.words):
                continue
            surely = mention.runs and len(rule.words) == 1
            why = f"`{rule.written}` {mention.why}"
            by = (
                "a person's approval"
                if verdict is Verdict.ASK
                else f"leave it out, or remove `{rule.written}` from {name}"
            )
            yield _by(rule, name, verdict if surely else Verdict.ASK, why, by, mention.span)


def _on_unknown_code(setting: Setting | None, facts: Facts, *, known_only: bool) -> Iterator[Reason]:
    """Code that cannot be read before it runs; but for a program's own file, which is what the rule on it is about."""
    if setting is None:
        return
    for part in facts.opaque:
        if part.unknown in (Unknown.COMMAND, Unknown.CODE) and part.origin is not Origin.FILE:
            verdict = Verdict.DENY if known_only else Verdict.ASK
            yield _vote(verdict, setting, f"{part.why}, so no rule can judge it", "write the command out", part.span)


def on_stream(facts: Facts, unfed: Facts) -> Iterator[Reason]:
    """A program that runs its standard input, where that cannot be read before: under any policy a person is asked.

    Args:
        facts: what is known where something is fed to it.
        unfed: what is known where the input is empty; what is unknown only in the other is what the input says.
    """
    known = {part for part in unfed.opaque if part.unknown is Unknown.CODE}
    for part in facts.opaque:
        if part.unknown is Unknown.CODE and part not in known:
            why = f"{part.why}: its input comes while it runs, so that nothing of it can be judged"
            by = "a person's approval, or the input as a whole before it runs"
            yield Reason(Verdict.ASK, "standard input", why, by, span=part.span)
            return


_ONLY_CHANGES: Final = frozenset(
    (
        "PATH",  # a file of the workspace under a program's name: such a file may be started by its own name, too
        "HOME",  # whose settings are read: inside, none of the person's
        "CDPATH",  # where cd leads; what is done there is held by the wall
        "HISTFILE",  # what is remembered
        "HOSTALIASES",  # there is no network
        "NODE_TLS_REJECT_UNAUTHORIZED",
        "GIT_SSL_NO_VERIFY",
    )
)
"""Variables of the check that run and load nothing by themselves."""


def on_variable(terms: Terms, name: str, why: str) -> Iterator[Reason]:
    """A variable that comes with the request and makes programs run or load what no rule on commands sees."""
    setting = terms.get("allowed_commands") or terms.get("denied_commands")
    if setting is not None and name not in _ONLY_CHANGES:
        yield _vote(Verdict.ASK, setting, f"{why}, which no rule on commands sees", f"leave {name} out")


def _allowed(setting: Setting, program: Program, lists: Sequence[Sequence[CommandRule]]) -> Iterator[Reason]:
    written = program.argv[0].text if program.argv else None
    if written in FREE or written in TRANSPARENT:
        return
    for rules in lists:
        if any(rule.allows(program) is Match.YES for rule in rules):
            continue
        mark = rules[0].mark if rules else setting.mark
        shown = _shown(program)
        if program.name is None:
            why, by = "which program would run is not known before it runs", "write its name out"
        elif rules:
            why, by = f"`{shown}` is not among the allowed commands", f"add `{written}` to allowed_commands"
        else:
            why, by = f"`{shown}`: the list of allowed commands is empty", f"add `{written}` to allowed_commands"
        yield Reason(Verdict.DENY, "allowed_commands", why, by, mark.source, mark.line, program.span)
        return


@dataclass(frozen=True, slots=True)
class Where:
    """Where a command runs: what relative paths, `/workspace` and `~` stand for."""

    workspace: Path
    cwd: Path
    home: str = ""


def on_paths(terms: Terms, facts: Facts, where: Where) -> Iterator[Reason]:
    """The path rules on every path that the text names."""
    lists = PathLists.of(terms)
    for fact in facts.paths:
        for vote in on_path(terms, fact, where, lists):
            yield vote if fact.sure else replace(vote, verdict=min(vote.verdict, Verdict.ASK))
    setting = terms.get("allowed_paths")
    for part in facts.opaque:
        if setting is not None and part.unknown is Unknown.OPERAND:
            why = f"{part.why}, so that it may name a path that is not among the allowed ones"
            yield _vote(Verdict.ASK, setting, why, "write it out", part.span)


@dataclass(frozen=True, slots=True)
class PathLists:
    """The path rules of some terms, made ready once for all paths of a command."""

    hidden: PathList
    allowed: tuple[PathList, ...]

    @classmethod
    def of(cls, terms: Terms) -> Self:
        return cls(PathList(terms.hidden), tuple(PathList(rules) for rules in terms.path_lists()))


def on_path(terms: Terms, fact: PathFact, where: Where, lists: PathLists | None = None) -> Iterator[Reason]:
    """The path rules on one path."""
    lists = lists or PathLists.of(terms)
    spellings = spelled(fact.path, where)
    shown = spellings[-1]
    denied = lists.hidden.first(spellings)
    if denied is not None:
        listed = terms.value("denied_paths", ())
        name = "denied_paths" if denied in listed else "filesystem.deny"
        yield _by(
            denied, name, Verdict.DENY, f"{shown} {denied.why or 'is denied'}", f"remove it from {name}", fact.span
        )
    setting = terms.get("allowed_paths")
    if setting is not None and fact.touch not in (Touch.EXECUTE, Touch.NAME) and shown not in HARMLESS_DEVICES:
        for allowed in lists.allowed:
            if allowed.first(spellings) is None:
                mark = allowed.rules[0].mark if allowed.rules else setting.mark
                why = f"{shown} is not among the allowed paths"
                by = "add it to allowed_paths"
                yield Reason(Verdict.DENY, "allowed_paths", why, by, mark.source, mark.line, fact.span)
                break


def on_hosts(terms: Terms, facts: Facts) -> Iterator[Reason]:
    """The network rules on every host that the text names."""
    for fact in facts.hosts:
        yield from on_host(terms, fact)


def on_host(terms: Terms, fact: HostFact) -> Iterator[Reason]:
    """The network rules on one host."""
    target = fact.host if fact.port is None else f"{fact.host}:{fact.port}"
    access = terms.get("network_access")
    if access is not None and not access.value:
        why = f"{target}: {terms.tool} may not use the network"
        yield _vote(Verdict.DENY, access, why, "set network_access: true and allow the host", fact.span)
        return
    denied = first_host_rule(terms.value("denied_domains", ()), fact.host, fact.port)
    if denied is not None:
        why = f"{target} {denied.why or 'is denied'}"
        by = f"remove {denied.written} from denied_domains"
        yield _by(denied, "denied_domains", Verdict.DENY, why, by, fact.span)
    ports = terms.get("network.denylist.ports")
    if ports is not None and fact.port in ports.value:
        why = f"{target}: port {fact.port} is denied"
        yield _vote(Verdict.DENY, ports, why, f"remove {fact.port} from {ports.written}", fact.span)
    allowed = terms.get("allowed_domains")
    for rules in terms.host_lists():
        if allowed is None:
            break
        # A port that is not known yet is held by the proxy, which knows it.
        rule = first_host_rule(rules, fact.host, fact.port, surely=fact.port is not None)
        if rule is None:
            why = f"{target} is not among the allowed hosts"
            yield _vote(Verdict.DENY, allowed, why, f"add {fact.host} to {allowed.written}", fact.span)
            break
        if fact.port is not None and not any(
            fact.port in (each.ports or WEB_PORTS) for each in rules if _means(each, fact)
        ):
            why = f"{target}: a name alone means ports 80 and 443"
            yield _vote(Verdict.DENY, allowed, why, f"add {target} to {allowed.written}", fact.span)
            break
    default = terms.get("network.default")
    if allowed is None and default is not None and default.value == "none":
        why = f"{target}: no list names it, and the default is none"
        yield _vote(Verdict.DENY, default, why, f"add {fact.host} to network.allowlist.domains", fact.span)


def _means(rule: HostRule, fact: HostFact) -> bool:
    return first_host_rule((rule,), fact.host, fact.port, surely=True) is not None


def spelled(path: str, where: Where) -> tuple[str, ...]:
    """A path by every name that a rule may give it: as it is on the host, and as it is inside, which comes last."""
    root = os.fspath(where.workspace)
    if where.home and (path == "~" or path.startswith("~/")):
        path = where.home + path[1:]
    joined = path if path.startswith("/") else posixpath.join(os.fspath(where.cwd), path)
    host = "/" + posixpath.normpath(joined).lstrip("/")
    if is_below(host, INSIDE):
        return (root.rstrip("/") + host[len(INSIDE) :], host)
    if is_below(host, root):
        return (host, INSIDE + host[len(root.rstrip("/")) :])
    return (host,)


def _shown(program: Program) -> str:
    text = " ".join("?" if word.text is None else word.text for word in program.argv)
    return text if len(text) <= 80 else text[:77] + "..."


def _vote(verdict: Verdict, setting: Setting, why: str, allow_by: str = "", span: Span | None = None) -> Reason:
    built_in = setting.mark == BUILT_IN
    source, line = ("", None) if built_in else (setting.mark.source, setting.mark.line)
    return Reason(verdict, setting.written, why, allow_by, source, line, span)


def _by(
    rule: CommandRule | PathRule | HostRule, name: str, verdict: Verdict, why: str, allow_by: str, span: Span
) -> Reason:
    return Reason(verdict, f"{name} {rule.written}", why, allow_by, rule.mark.source, rule.mark.line, span)
