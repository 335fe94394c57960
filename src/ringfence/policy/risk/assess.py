"""Assesses: from code and its language to a risk, with the patterns found and where. Advice only.

Whoever writes the code knows this file too. What it calls HIGH deserves a second look; what it calls SAFE is made only
of parts on a list of harmless ones, which is as much as reading can give. Neither is a wall, and no wall is left out
because of it; where a caller asks for that, a lighter one is taken (`route`).

Four rules keep the advice honest:
- SAFE is earned: each construct, name and module has to be on the list. The unknown is HIGH.
- Code that is too long or too deep to be read is CRITICAL, because nobody has read it.
- A fault in the analysis is CRITICAL as well, never a pass.
- More code never means less risk: of two complete pieces, their sum is at least as risky as each. This is why a name
  is never believed to be harmless because the code redefines it, and why a session that keeps its state is as risky as
  its riskiest piece.

What this does not protect against: anything. Code can put together names that appear nowhere in its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ringfence.policy.risk import findings as limits
from ringfence.policy.risk.findings import Findings
from ringfence.policy.risk.javascript import assess_javascript, assess_jsx, assess_tsx, assess_typescript
from ringfence.policy.risk.patterns.shell import ASSIGNMENT, LOADER_VARIABLES
from ringfence.policy.risk.python import assess_python
from ringfence.policy.risk.secrets import add_secrets
from ringfence.policy.risk.shell import assess_shell, read_facts

if TYPE_CHECKING:
    from ringfence.shell.analyse import ScriptStream
    from ringfence.values.facts import Facts
    from ringfence.values.risk import Assessment

Assessor = Callable[[str, Findings], None]

_ASSESSORS: Final[dict[str, Assessor]] = {
    "python": assess_python,
    "javascript": assess_javascript,
    "jsx": assess_jsx,
    "typescript": assess_typescript,
    "tsx": assess_tsx,
    "shell": assess_shell,
}

_ALIASES: Final[dict[str, str]] = {
    "py": "python",
    "python3": "python",
    "js": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "node": "javascript",
    "nodejs": "javascript",
    "ts": "typescript",
    "mts": "typescript",
    "cts": "typescript",
    "bash": "shell",
    "sh": "shell",
}

LANGUAGES: Final = tuple(_ASSESSORS)
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def assess(
    language: str, code: str, variables: Mapping[str, str] = _NONE, *, stdin: str | ScriptStream | None = None
) -> Assessment:
    """How risky this code looks, with these variables set for it and this fed to it. Always answers; never SAFE where
    it does not know."""
    given = language.strip().lower()
    name = _ALIASES.get(given, given)
    found = Findings()
    for variable in variables:
        found.add(f"{variable}=", LOADER_VARIABLES.get(variable, ASSIGNMENT), 1, 1)
    assessor = _ASSESSORS.get(name)
    if assessor is None:
        found.add("unknown language", limits.UNKNOWN_LANGUAGE, 1, 1)
        return found.assessment(name)
    if len(code) > limits.MAX_CODE:
        found.add("too long", limits.TOO_LONG, 1, 1)
        return found.assessment(name)
    try:
        code.encode("utf-8")
    except UnicodeEncodeError:
        found.add("not text", limits.NO_TEXT, 1, 1)
        return found.assessment(name)
    if assessor is assess_shell:
        return _assessed(lambda: assess_shell(code, found, variables, stdin), found, name)

    def read() -> None:
        assessor(code, found)
        add_secrets(code, found)

    return _assessed(read, found, name)


def assess_facts(facts: Facts) -> Assessment:
    """The same for a shell command that has been analysed already."""
    found = Findings()
    if len(facts.text) > limits.MAX_CODE:
        found.add("too long", limits.TOO_LONG, 1, 1)
        return found.assessment("shell")
    return _assessed(lambda: read_facts(facts, found), found, "shell")


def _assessed(work: Callable[[], None], found: Findings, language: str) -> Assessment:
    try:
        work()
    except Exception as fault:  # the safe answer to a fault of our own, whatever it is
        found.add(f"fault: {type(fault).__name__}", limits.FAULT, 1, 1)
    return found.assessment(language)
