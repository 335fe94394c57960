"""What holds for the advice in every language, and what it leads to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.policy.risk import assess as module
from ringfence.policy.risk.assess import LANGUAGES, assess
from ringfence.policy.risk.findings import MAX_CODE, Findings
from ringfence.policy.risk.route import route
from ringfence.values.risk import Assessment, Risk, Route, SecurityMode

pytestmark = pytest.mark.req("E2", "C12")

# Pieces that are complete by themselves, of every risk.
PIECES = {
    "python": [
        "print(1)",
        "def json(): pass",
        "import json",
        "x = json",
        "import json as print",
        "eval = print",
        "class os: system = print",
        "import os",
        "os.system('id')",
        "o = os",
        "import os as o",
        "o.remove('a')",
        "s = '''\n'''",
        "if True:\n    pass",
        "eval(x)",
        "open('a', 'w')",
        "from math import *",
        "# coding: latin-1",
        "x.__class__",
        "import numpy as np",
        "np.zeros(1)",
        "from urllib.parse import quote",
        "import urllib.parse",
        "urllib.request",
    ],
    "javascript": [
        "console.log(1);",
        "function require() {}",
        "const fs = require('fs');",
        "fs.rmSync('a');",
        "let eval2 = 1;",
        "eval(x);",
        "class A { constructor() { this.a = 1; } }",
        "process.exit(0);",
        "import('net');",
        "[].constructor;",
        "`a`;",
        "var process2 = process;",
    ],
    "shell": [
        "echo hi",
        "ls",
        "X=1",
        "f() { echo a; }",
        "f",
        "rm -rf a",
        "curl https://a.b",
        "cd sub",
        "sudo id",
        "cat a > b",
        "$X",
    ],
}
PIECES["typescript"] = PIECES["javascript"]


@pytest.mark.parametrize("language", [*LANGUAGES, "cobol", ""])
@settings(deadline=None, max_examples=60)
@given(code=st.text())
def test_any_text_gives_an_answer(language: str, code: str) -> None:
    found = assess(language, code)

    assert found.risk in Risk
    assert (found.risk is Risk.SAFE) == (found.findings == ())
    assert all(finding.risk <= found.risk and finding.line >= 1 and finding.column >= 1 for finding in found.findings)


@pytest.mark.parametrize("language", PIECES)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_adding_code_never_lowers_the_risk(language: str, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.sampled_from(PIECES[language]), min_size=1, max_size=5))
    at = data.draw(st.integers(0, len(pieces)))
    more = [*pieces[:at], data.draw(st.sampled_from(PIECES[language])), *pieces[at:]]

    assert assess(language, "\n".join(more)).risk >= assess(language, "\n".join(pieces)).risk


@pytest.mark.parametrize("language", ["cobol", "", "pythonn", "exe"])
def test_an_unknown_language_is_at_least_high(language: str) -> None:
    assert assess(language, "print(1)").risk >= Risk.HIGH


@pytest.mark.parametrize(
    ("alias", "name"), [("py", "python"), ("Bash", "shell"), (" js ", "javascript"), ("ts", "typescript")]
)
def test_a_language_goes_by_several_names(alias: str, name: str) -> None:
    assert assess(alias, "").language == name


@pytest.mark.parametrize("language", LANGUAGES)
def test_code_that_is_too_long_is_critical_because_nobody_reads_it(language: str) -> None:
    assert assess(language, " " * (MAX_CODE + 1)).risk is Risk.CRITICAL


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_fault_in_the_analysis_is_critical(language: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(code: str, found: Findings) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setitem(module._ASSESSORS, language, broken)

    assert assess(language, "").risk is Risk.CRITICAL


def looks(risk: Risk) -> Assessment:
    return Assessment(risk, (), "python")


def test_strict_sends_all_that_is_not_safe_to_an_isolated_engine() -> None:
    routes = [route(looks(risk), SecurityMode.STRICT) for risk in Risk]

    assert routes == [Route.WALLED, *[Route.ISOLATED] * 4]


def test_permissive_follows_the_advice_and_still_walls_everything() -> None:
    routes = [route(looks(risk), SecurityMode.PERMISSIVE) for risk in Risk]

    assert routes == [Route.WALLED, Route.WALLED, Route.WALLED, Route.ISOLATED, Route.ISOLATED]


@pytest.mark.parametrize("mode", SecurityMode)
@pytest.mark.parametrize("risk", Risk)
def test_only_safe_code_under_permissive_has_the_light_wall_and_only_when_asked_for(
    mode: SecurityMode, risk: Risk
) -> None:
    light = route(looks(risk), mode, light_when_safe=True) is Route.DIRECT

    assert light == (mode is SecurityMode.PERMISSIVE and risk is Risk.SAFE)
    assert route(looks(risk), mode) is not Route.DIRECT


@pytest.mark.parametrize("mode", SecurityMode)
@pytest.mark.parametrize("asked", [False, True])
def test_more_risk_never_means_less_wall(mode: SecurityMode, asked: bool) -> None:
    routes = [route(looks(risk), mode, light_when_safe=asked) for risk in Risk]

    assert routes == sorted(routes)
