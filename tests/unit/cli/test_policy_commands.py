"""`ringfence check` and `ringfence policy`: exit codes, places, spans, JSON; nothing paints the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ringfence.cli.app import app
from ringfence.cli.commands.check import underlined

POLICY = """\
policies:
  default:
    denied_commands: [rm -rf]
    approvals: {ask_for: {patterns: [git push]}}
  agent_roles:
    reviewer: {tools: [file_read, shell_exec], max_memory: 1GB}
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RINGFENCE_POLICY", raising=False)
    file = tmp_path / "p.yaml"
    file.write_text(POLICY)
    return file


def ringfence(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize(
    ("command", "code"), [("ls", 0), ("git push", 10), ("rm -r -f x", 11), ("rm -rf x; git push", 11)]
)
def test_check_exits_by_the_verdict(policy: Path, command: str, code: int) -> None:
    assert ringfence("check", "--policy", policy, "--", command).exit_code == code


def test_check_underlines_what_each_vote_is_about(policy: Path) -> None:
    lines = ringfence("check", "--policy", policy, "--", "ls && rm -r -f x").output.splitlines()

    at = next(index for index, line in enumerate(lines) if line.strip() == "ls && rm -r -f x")
    assert lines[at + 1].strip() == "^" * len("rm -r -f x")
    assert lines[at + 1].index("^") == lines[at].index("rm")
    assert f"rule: denied_commands rm -rf at {policy}:3" in "\n".join(lines)
    assert "to allow it: remove `rm -rf`" in "\n".join(lines)


def test_check_takes_several_words_as_a_program_without_a_shell(policy: Path) -> None:
    assert ringfence("check", "--policy", policy, "--", "echo", "; rm -rf x").exit_code == 0
    assert ringfence("check", "--policy", policy, "--", "rm", "-r", "-f", "x").exit_code == 11


def test_check_as_json_holds_every_vote(policy: Path) -> None:
    said = json.loads(ringfence("check", "--policy", policy, "--json", "--", "rm -rf x").output)

    assert said["verdict"] == "deny"
    vote = next(vote for vote in said["votes"] if vote["verdict"] == "deny")
    assert (vote["source"], vote["line"], vote["span"]) == (str(policy), 3, [0, 8])


def test_control_characters_are_made_visible(policy: Path) -> None:
    shown = ringfence("check", "--policy", policy, "--", "rm -rf 'x\x1b[2J\u202e'").output

    assert "\x1b[2J" not in shown and "\u202e" not in shown
    assert "\\x1b[2J" in shown


def test_a_stretch_in_a_long_text_is_shown_with_a_little_around_it() -> None:
    line, marks = underlined("a" * 500 + "EVIL" + "b" * 500, 500, 504)

    assert line[marks.index("^") : marks.rindex("^") + 1] == "EVIL"
    assert len(line) < 120 and line.startswith("...") and line.endswith("...")


def test_a_role_or_tool_that_is_not_there_is_an_error(policy: Path) -> None:
    assert "reviewer" in str(ringfence("check", "--policy", policy, "--role", "reviewr", "--", "ls").exception)


def test_policy_check_names_the_fault_or_the_remarks(policy: Path) -> None:
    assert "p.yaml: valid" in ringfence("policy", "check", policy).output

    policy.write_text(POLICY.replace("[rm -rf]", "[rm, rm -rf]"))
    assert "adds nothing" in ringfence("policy", "check", policy).output
    assert ringfence("policy", "check", "--strict", policy).exit_code == 1

    policy.write_text(POLICY.replace("denied_commands", "denied_comands"))
    assert "p.yaml:3:5: unknown key 'denied_comands'" in str(ringfence("policy", "check", policy).exception)


def test_policy_explain_says_what_holds_and_where_it_is_written(policy: Path) -> None:
    shown = ringfence("policy", "explain", policy, "--role", "reviewer").output

    assert "shell_exec" in shown and "limits.memory: 1 GiB" in shown and "p.yaml:6" in shown
    assert "code_run" not in shown
    said = json.loads(ringfence("policy", "explain", policy, "--role", "reviewer", "--json").output)
    assert said["tools"]["code_run"]["usable"] is False


def test_policy_init_writes_a_valid_file_and_never_over_another(tmp_path: Path, policy: Path) -> None:
    fresh = tmp_path / "fresh.yaml"

    assert ringfence("policy", "init", fresh).exit_code == 0
    assert ringfence("policy", "check", "--strict", fresh).exit_code == 0
    before = policy.read_text()
    assert ringfence("policy", "init", policy).exit_code != 0
    assert policy.read_text() == before


# --- where it would go ------------------------------------------------------------------------------------------------

ISOLATING = "policies:\n  default:\n    security_mode: permissive\n    isolated: [own_kernel]\n"


@pytest.mark.req("E2")
@pytest.mark.parametrize(
    ("words", "to", "why"),
    [
        (("--language", "py", "x = 1\neval('x')"), "isolated", "isolated: HIGH risk (eval, line 2) under permissive"),
        (("--language", "js", "eval('1')"), "isolated", "isolated: HIGH risk (eval, line 1) under permissive"),
        (("--language", "python", "print(1)"), "walled", "the ordinary wall is enough: SAFE risk under permissive"),
        (("--", "echo x"), "walled", "the ordinary wall is enough: SAFE risk under permissive"),
        (("--", "curl", "http://x"), "isolated", "isolated: HIGH risk (curl, line 1) under permissive"),
    ],
)
def test_check_says_where_it_would_go_and_why(policy: Path, words: tuple[str, ...], to: str, why: str) -> None:
    policy.write_text(ISOLATING)

    shown = ringfence("check", "--policy", policy, *words)
    said = json.loads(ringfence("check", "--policy", policy, "--json", *words).output)

    assert shown.exit_code == 0 and why in shown.output and f"rule: isolated at {policy}:4" in shown.output
    needs = ["own kernel"] if to == "isolated" else []
    assert said["route"] == {"to": to, "why": why, "needs": needs, "source": str(policy), "line": 4}


@pytest.mark.req("E2")
def test_check_without_isolation_says_nothing_of_it(policy: Path) -> None:
    assert "wall" not in ringfence("check", "--policy", policy, "--", "curl http://x").output
    assert json.loads(ringfence("check", "--policy", policy, "--json", "--", "ls").output)["route"] is None


@pytest.mark.req("E2")
@pytest.mark.parametrize(("mode", "which"), [("permissive", "HIGH and CRITICAL"), ("strict", "every session")])
def test_policy_explain_says_what_is_isolated_and_what_that_means(policy: Path, mode: str, which: str) -> None:
    policy.write_text(ISOLATING.replace("permissive", mode))

    shown = ringfence("policy", "explain", policy, "--tool", "code_run").output
    said = json.loads(ringfence("policy", "explain", policy, "--tool", "code_run", "--json").output)

    assert which in shown and "own kernel" in shown and f"security_mode {mode}" in shown
    assert which in said["tools"]["code_run"]["isolates"]
    policy.write_text(POLICY)
    assert "isolated" not in ringfence("policy", "explain", policy, "--tool", "code_run").output


def test_check_of_code_takes_one_argument_and_a_language_that_is_known(policy: Path) -> None:
    assert "quote it" in str(ringfence("check", "--policy", policy, "-l", "python", "print(1)", "x").exception)
    assert "unknown language" in str(ringfence("check", "--policy", policy, "-l", "klingon", "x").exception)
