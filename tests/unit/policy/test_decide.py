"""Decisions: every vote is kept with its rule and place; deny beats ask beats allow; a fault is a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.policy import decide as module
from ringfence.policy.decide import Place, decide
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.values.grant import Grant
from ringfence.values.request import Request
from ringfence.values.verdict import Asking, Decision, Verdict

DOCUMENT = (Path(__file__).parents[2] / "corpus" / "sandbox_policy.yaml").read_text(encoding="utf-8")
WORKSPACE = Path("/home/ann/project")


def judged(
    text: str,
    command: str | tuple[str, ...],
    *,
    tool: str = "shell_exec",
    role: str | None = None,
    language: str | None = None,
) -> Decision:
    request = Request(command=command) if isinstance(command, str) else Request(argv=command)
    terms = effective((load_policy(text, "p.yaml"),), tool, role)
    place = Place(WORKSPACE, "/home/ann")
    return decide(request, Grant(workspace=WORKSPACE), place, terms, language=language)


def default(line: str) -> str:
    return f"policies: {{default: {{{line}}}}}"


@pytest.mark.req("B4")
@pytest.mark.parametrize(
    ("command", "verdict", "line"),
    [
        ("ls -la src", Verdict.ALLOW, None),
        ("cat a.py | grep x", Verdict.ALLOW, None),
        ("cd src && python x.py", Verdict.ALLOW, None),
        ("timeout 5 ls", Verdict.ALLOW, None),
        ("rm -r -f x", Verdict.DENY, 33),
        ("sudo ls", Verdict.DENY, 34),
        ("ls | xargs curl", Verdict.DENY, 35),
        ("make", Verdict.DENY, 26),
        ("./ls", Verdict.DENY, 26),
        ("PATH=/workspace/bin ls", Verdict.DENY, 25),
        ("read PATH < f; ls", Verdict.DENY, 25),
        ("printf -v PATH /x; ls", Verdict.DENY, 25),
        ("for PATH in /x; do ls; done", Verdict.DENY, 25),
        ("export LD_PRELOAD=x; ls", Verdict.DENY, 25),
        ("for f in a b; do cat $f; done", Verdict.ALLOW, None),
        ("ls() { make; }; ls", Verdict.DENY, 26),
    ],
)
def test_the_documents_policy_on_commands(command: str, verdict: Verdict, line: int | None) -> None:
    decision = judged(DOCUMENT, command)

    assert decision.verdict is verdict, decision.full
    if line is not None:
        assert (decision.deciding.source, decision.deciding.line) == ("p.yaml", line)


def test_a_program_without_a_shell_is_judged_by_the_same_rules() -> None:
    assert judged(DOCUMENT, ("ls", "a b; rm -rf x")).verdict is Verdict.ALLOW
    assert judged(DOCUMENT, ("sh", "-c", "rm -rf x")).deciding.rule == "denied_commands rm -rf"


def test_every_vote_is_kept_and_the_strictest_explains() -> None:
    decision = judged(DOCUMENT, "rm -r -f build; make")

    assert decision.sentence == (
        "refused: `rm -r -f build` is denied [rule: denied_commands rm -rf at p.yaml:33]; "
        "to allow it: remove `rm -rf` from denied_commands"
    )
    span = decision.deciding.span
    assert span is not None and decision.text[span.start : span.end] == "rm -r -f build"
    for word in ("denied_commands rm -rf at p.yaml:33", "`make` is not among", "risk_level at p.yaml:22", "default"):
        assert word in decision.full


@pytest.mark.req("B3")
@pytest.mark.parametrize(
    ("tool", "verdict", "handling"),
    [
        ("file_read", Verdict.ALLOW, "direct"),
        ("file_write", Verdict.ALLOW, "sandbox"),
        ("shell_exec", Verdict.ALLOW, "sandbox with limits"),
        ("system_admin", Verdict.ASK, "human approval"),
    ],
)
def test_the_risk_level_decides_how_a_tool_is_handled(tool: str, verdict: Verdict, handling: str) -> None:
    assert judged("", "ls", tool=tool).verdict is verdict
    assert effective((), tool).handling == handling


@pytest.mark.parametrize(
    "line",
    [
        "risk_level: critical",
        "approvals: {ask_for: {tools: [shell_exec]}}",
        "approvals: {ask_for: {risks: [high]}}",
        "approvals: {ask_for: {patterns: [git push]}}",
    ],
)
def test_what_is_to_be_asked_is_asked(line: str) -> None:
    decision = judged(default(line), "git push origin main")

    assert decision.verdict is Verdict.ASK
    assert decision.deciding.line == 1


def test_code_that_looks_risky_is_asked_for_where_the_policy_says_so() -> None:
    text = "policies: {tools: {code_run: {risk_level: medium, approvals: {ask_for: {risks: [critical]}}}}}"

    assert judged(text, "1 + 1", tool="code_run", language="python").verdict is Verdict.ALLOW
    assert judged(text, "import os; os.system('x')", tool="code_run", language="python").verdict is Verdict.ASK


def test_deny_beats_ask() -> None:
    text = default("denied_commands: [git push -f], approvals: {ask_for: {patterns: [git push]}}")

    assert judged(text, "git push").verdict is Verdict.ASK
    assert judged(text, "git push --force").verdict is Verdict.DENY


def test_how_to_ask_comes_with_the_decision() -> None:
    assert judged(default("approvals: {timeout: 2m, remember: session}"), "ls").asking == Asking(120, True)


@pytest.mark.parametrize("command", ["ls", "ls; true", "$X"])
def test_an_empty_allow_list_allows_nothing(command: str) -> None:
    assert judged(default("allowed_commands: []"), command).verdict is Verdict.DENY
    assert judged(default("allowed_commands: [ls]"), "ls").verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("cat src/a.py", Verdict.ALLOW),
        ("cat /workspace/src/a.py", Verdict.ALLOW),
        ("cat /home/ann/project/src/a.py", Verdict.ALLOW),
        ("cat a.py > /dev/null", Verdict.ALLOW),
        ("cat server.key", Verdict.DENY),
        ("cat /home/ann/project/x/server.key", Verdict.DENY),
        ("cd x && cat ../server.key", Verdict.DENY),
        ("cat ../other/a.py", Verdict.DENY),
        ("cat src/../../other", Verdict.DENY),
        ("cat ~/notes", Verdict.DENY),
        ("echo x > /srv/out", Verdict.DENY),
        ("cat $FILE", Verdict.ASK),
    ],
)
def test_paths_by_globs(command: str, verdict: Verdict) -> None:
    text = default("allowed_paths: [/workspace/**], denied_paths: ['/workspace/**/*.key']")

    assert judged(text, command).verdict is verdict, judged(text, command).full


def test_the_home_directory_of_a_rule_is_the_one_of_the_command() -> None:
    text = default("denied_paths: [/home/ann/.kube]")

    assert judged(text, "cat ~/.kube/config").verdict is Verdict.DENY


def test_a_host_in_a_command_is_judged() -> None:
    text = default("network_access: true, allowed_domains: ['*.example.com']")

    assert judged(text, "curl https://www.example.com/x").verdict is Verdict.ALLOW
    assert judged(text, "curl https://example.org/x").verdict is Verdict.DENY
    assert judged(default("network_access: false"), "curl https://www.example.com/x").verdict is Verdict.DENY


def test_a_role_may_only_use_its_tools() -> None:
    decision = judged(DOCUMENT, "ls", role="data_analyst")

    assert decision.deciding.rule == "agent_roles.data_analyst.tools"
    assert judged(DOCUMENT, "1", role="data_analyst", tool="code_run", language="python").verdict is Verdict.ALLOW


def test_a_language_that_is_not_supported_is_refused() -> None:
    assert judged(DOCUMENT, "ls", tool="code_run", language="bash").deciding.rule == "supported_languages"
    assert judged(DOCUMENT, "1", tool="code_run", language="python").verdict is Verdict.ALLOW


@pytest.mark.req("C3", "C12")
def test_text_that_cannot_be_understood_is_refused() -> None:
    assert judged("", "echo 'open").verdict is Verdict.DENY


@pytest.mark.req("C12")
def test_a_fault_in_judging_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged("", "ls").verdict is Verdict.ALLOW

    monkeypatch.setattr(module, "analyse", lambda text: 1 / 0)
    decision = judged("", "ls")

    assert (decision.verdict, decision.deciding.rule) == (Verdict.DENY, "fault in judging")


@pytest.mark.req("C3")
def test_strictness_decides_what_a_check_leads_to() -> None:
    strict, normal = (default(f"validation: {{strictness: {word}}}") for word in ("strict", "normal"))

    assert judged(normal, "cat .env").verdict is Verdict.ALLOW
    assert judged(strict, "cat .env").verdict is Verdict.DENY
    assert judged(normal, "rm -rf /").verdict is Verdict.DENY


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=120))
def test_any_text_gets_a_decision(text: str) -> None:
    decision = judged(DOCUMENT, text)

    assert decision.reasons
    assert decision.sentence and decision.full


@pytest.mark.parametrize("command", ["a " * 500_000, "ls;" * 10_000, "$(" * 5_000, "echo '" + "x" * 1_000_000 + "'"])
def test_huge_commands_are_decided_in_bounded_time(command: str) -> None:
    judged(DOCUMENT, command)
