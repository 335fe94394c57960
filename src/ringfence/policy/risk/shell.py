"""Shell commands, by the facts that `shell.analyse` finds in them. Advice only."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ringfence.policy.risk.findings import Findings
from ringfence.policy.risk.javascript import assess_javascript
from ringfence.policy.risk.patterns import shell as rows
from ringfence.policy.risk.patterns.base import RiskRow
from ringfence.policy.risk.python import assess_python
from ringfence.shell.analyse import ScriptStream, analyse
from ringfence.values.facts import Facts, Opaque, Origin, PathFact, Program, Span, Touch, Unknown, Via
from ringfence.values.paths import is_below
from ringfence.values.risk import Risk

_PLAIN = re.compile(rows.PLAIN)
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_ASSESSORS: Final = {"python": assess_python, "javascript": assess_javascript}


def assess_shell(
    code: str, found: Findings, variables: Mapping[str, str] = _NONE, stdin: str | ScriptStream | None = None
) -> None:
    """Add what is found in this command line, with these variables and this input."""
    read_facts(analyse(code, stdin=stdin, variables=variables), found)


def read_facts(facts: Facts, found: Findings) -> None:
    """Add what the facts about a command line come to."""
    code = facts.text
    reader = _Reader(code, found)
    if facts.problem is not None:
        reader.add(facts.problem.span, "syntax error", rows.UNREADABLE)
    for part in facts.opaque:
        reader.opaque(part)
    for construct in facts.constructs:
        if (shape := rows.SHAPES.get(construct.shape)) is not None:
            reader.add(construct.span, construct.shape.value, shape)
    for program in facts.programs:
        reader.program(program)
    for path in facts.paths:
        reader.path(path)
    for host in facts.hosts:
        reader.add(host.span, host.host, rows.HOST)
    for assignment in facts.assignments:
        row = rows.LOADER_VARIABLES.get(assignment.name, rows.ASSIGNMENT)
        reader.add(assignment.span, f"{assignment.name}=", row)
    if _PLAIN.fullmatch(code) is None:
        reader.add(Span(0, len(code)), "expansion", rows.EXPANSION)


class _Reader:
    """Turns facts into findings, with lines and columns."""

    def __init__(self, code: str, found: Findings) -> None:
        self._code = code
        self._found = found

    def add(self, span: Span, pattern: str, row: RiskRow) -> None:
        line = self._code.count("\n", 0, span.start) + 1
        column = span.start - self._code.rfind("\n", 0, span.start)
        self._found.add(pattern, row, line, column)

    def opaque(self, part: Opaque) -> None:
        if part.origin is Origin.BUILT:
            return  # the code has a row of its own
        row = rows.UNSEEN[part.unknown]
        if part.unknown is not Unknown.OPERAND and part.origin in (Origin.NETWORK, Origin.DECODED):
            row = rows.HIDDEN_CODE
        self.add(part.span, f"opaque {part.unknown}", RiskRow(row.risk, f"{row.why}: {part.why}"))

    def program(self, program: Program) -> None:
        for wrapper in program.wrappers:
            self.add(program.span, wrapper, rows.PROGRAMS.get(wrapper, rows.UNKNOWN_PROGRAM))
        if Via.REMOTE in program.via:
            self.add(program.span, "another machine", rows.REMOTE)
        name = program.name
        if name is None or not program.argv:
            self.add(program.span, "unknown program", rows.UNSEEN_PROGRAM)
            return
        if not self._inline_code(program, name):
            self._named(program, name)

    def _named(self, program: Program, name: str) -> None:
        path = program.argv[0].text or ""
        if "/" in path and not path.startswith(rows.SYSTEM):
            self.add(program.span, path, rows.OWN_PROGRAM)
        if name not in rows.HARMLESS:
            self.add(program.span, name, rows.PROGRAMS.get(name, rows.UNKNOWN_PROGRAM))
        odd = rows.DANGEROUS_OPTIONS.get(name, ())
        if any(word.text is None or (odd and word.text.startswith(odd)) for word in program.argv[1:]) and odd:
            self.add(program.span, name, rows.ODD_OPTION)

    def _inline_code(self, program: Program, name: str) -> bool:
        """Whether this is `python -c CODE` or the like, with code that is known: then the code is read."""
        option, language = rows.INLINE_CODE.get(name, ("", ""))
        words = [word.text for word in program.argv[1:3]]
        if not option or len(words) < 2 or words[0] != option or words[1] is None:
            return False
        inner = Findings()
        _ASSESSORS[language](words[1], inner)
        for finding in inner.assessment(language).findings:
            why = f"within the {language} code: {finding.why}"
            self.add(program.argv[2].span, finding.pattern, RiskRow(finding.risk, why))
        self.add(program.span, f"{name} {option}", rows.INLINE)
        return True

    def path(self, fact: PathFact) -> None:
        path = fact.path
        if path in rows.HARMLESS_PATHS and fact.touch in (Touch.READ, Touch.WRITE):
            return
        if fact.touch is Touch.EXECUTE and path.startswith(rows.SYSTEM):
            return
        own = any(is_below(path, place) for place in rows.OWN_PLACES)
        outside = ".." in path.split("/") or (path.startswith(("/", "~")) and not own)
        row = (rows.OUTSIDE if outside else rows.INSIDE)[fact.touch]
        if fact.touch is Touch.REMOVE and fact.recursive and fact.pattern and not outside:
            row = RiskRow(Risk.CRITICAL, "removes whatever a pattern finds, and all below it")
        self.add(fact.span, path, row)
