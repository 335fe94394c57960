"""`ringfence check` and `ringfence policy`: exit codes, places, spans, JSON; nothing paints the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ringfence.cli.app import app
from ringfence.cli.commands.check import underlined
from ringfence.manager.blocking import wait_for
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.sandbox import Sandbox
from ringfence.values.request import Request
from ringfence.values.verdict import Verdict

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


def test_check_writes_no_colours_where_there_is_no_terminal(policy: Path) -> None:
    assert "\x1b" not in ringfence("check", "--policy", policy, "--", "rm -rf x").output


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
    assert "not for this role: " in shown and "code_run" in shown.split("not for this role: ")[1]
    assert "\ncode_run" not in shown
    said = json.loads(ringfence("policy", "explain", policy, "--role", "reviewer", "--json").output)
    assert said["tools"]["code_run"]["usable"] is False


def test_policy_explain_says_once_what_all_tools_have_in_common(policy: Path) -> None:
    policy.write_text("policies:\n  default: {max_memory: 1GB}\n  tools: {shell_exec: {denied_commands: [dd]}}\n")

    shown = ringfence("policy", "explain", policy).output

    assert shown.count("limits.memory") == 1 and shown.count("denied_commands") == 1
    assert "file_read, file_list, search  (direct)\n" in shown
    every, shell = shown.index("every tool"), shown.index("\nshell_exec")
    assert every < shown.index("limits.memory") < shell < shown.index("denied_commands")


def test_policy_check_names_all_errors_as_text_and_as_json(policy: Path) -> None:
    policy.write_text("policies:\n  default:\n    max_memry: 1GB\n    engine: nativ\n")

    said = json.loads(ringfence("policy", "check", "--json", policy).output)
    fault = ringfence("policy", "check", policy).exception

    assert [(each["line"], each["hint"]) for each in said["errors"]] == [
        (3, "did you mean 'max_memory'?"),
        (4, "did you mean 'native'?"),
    ]
    assert not said["valid"]
    assert [each.line for each in getattr(fault, "faults", ())] == [3, 4]


def test_policy_schema_prints_the_schema_for_editors() -> None:
    assert json.loads(ringfence("policy", "schema").output)["title"] == "Ringfence policy"


# --- one way for all --------------------------------------------------------------------------------------------------


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home with a project, and a configuration that hides something."""
    home = tmp_path / "home"
    (home / "project").mkdir(parents=True)
    (home / ".ringfence").mkdir()
    (home / "keys").mkdir()
    (home / ".ringfence" / "sandbox.json").write_text('{"filesystem": {"blacklist":\n ["~/keys", "**/*.pem"]}}')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "project")
    return home


@pytest.mark.req("A3", "C2")
@pytest.mark.parametrize("command", ["cat ~/keys/a", "cat ../keys/a", "cat x.pem", "rm -r ~/keys"])
def test_check_knows_the_configured_blacklist_as_a_run_does(policy: Path, account: Path, command: str) -> None:
    done = ringfence("check", "--policy", policy, "--", command)
    engine = PolicyEngine.from_files(project=policy).decide(Request(command=command), workspace=account / "project")

    assert done.exit_code == 11 and "is blacklisted" in done.output
    assert "sandbox.json:2" in done.output
    assert engine.verdict is Verdict.DENY and engine.deciding.rule.startswith("filesystem.blacklist")
    sandbox = Sandbox(account / "project", policy=policy)
    assert sandbox.check_command(command) == engine.deciding
    wait_for(sandbox.close())


def test_check_says_what_runs_and_is_refused_inside(policy: Path, account: Path) -> None:
    done = ringfence("check", "--policy", policy, "--", "cat .env || true")

    assert done.exit_code == 0
    assert "inside this is refused" in done.output and "rule: filesystem.blacklist **/.env" in done.output


def test_check_without_a_policy_says_that_there_is_none_and_what_the_wall_hides(account: Path) -> None:
    done = ringfence("check", "--", "cat ~/keys/a")
    said = json.loads(ringfence("check", "--json", "--", "cat ~/keys/a").output)

    assert done.exit_code == 0 and "no policy is in force" in done.output
    assert [entry["rule"] for entry in said["refused_inside"]] == [f"filesystem.blacklist {account}/keys"]


def test_check_judges_what_would_be_given(policy: Path, account: Path) -> None:
    fed = CliRunner().invoke(app, ["check", "--policy", str(policy), "-i", "--", "bash"], input="rm -r -f x\n")

    assert fed.exit_code == 11
    assert ringfence("check", "--policy", policy, "--", "bash").exit_code == 0
    assert ringfence("check", "--policy", policy, "--env", "GIT_PAGER=rm -r -f x", "--", "git log").exit_code == 11


def test_check_of_a_sandbox_that_is_switched_off_says_that_nothing_runs(
    policy: Path, account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_SANDBOX_ENABLED", "0")

    assert "nothing runs without a wall" in str(ringfence("check", "--policy", policy, "--", "ls").exception)


# --- what opens no host -----------------------------------------------------------------------------------------------


@pytest.mark.req("B5")
@pytest.mark.parametrize("rule", ["network_access: true", "network: {default: allow}"])
def test_a_policy_that_sounds_open_and_names_no_host_is_told_so(policy: Path, account: Path, rule: str) -> None:
    policy.write_text(f"policies:\n  default:\n    {rule}\n")

    checked = ringfence("policy", "check", "--strict", policy)
    explained = ringfence("policy", "explain", policy, "--tool", "shell_exec")
    asked = ringfence("check", "--policy", policy, "--", "ls")

    for said in (checked, explained, asked):
        assert "opens no host by itself" in said.output and f"{policy}:3" in said.output
        assert said.exit_code == 0


@pytest.mark.parametrize(
    "rule", ["network_access: false", "denied_domains: [example.com]", "max_memory: 1GB", "network: {allow: [pip]}"]
)
def test_other_policies_are_told_nothing_of_it(policy: Path, account: Path, rule: str) -> None:
    policy.write_text(f"policies:\n  default:\n    {rule}\n")

    assert "opens no host" not in ringfence("policy", "check", policy).output
    assert "opens no host" not in ringfence("check", "--policy", policy, "--", "ls").output


def test_a_rule_on_the_loopback_is_told_that_it_is_the_box_itself(policy: Path, account: Path) -> None:
    policy.write_text("network:\n  allow: [localhost]\n")

    assert "network.reach: [PORT]" in ringfence("policy", "check", policy).output


@pytest.mark.req("B5")
def test_check_says_what_would_be_reached(policy: Path, account: Path) -> None:
    policy.write_text("network:\n  allow: [api.example.com, {host: db.example.com, ports: [5432], raw: true}]\n")

    asked = ringfence("check", "--policy", policy, "--", "curl https://api.example.com/x")
    other = ringfence("check", "--policy", policy, "--", "curl https://other.example.com/x")
    without = ringfence("check", "--allow", "pypi.org", "--json", "--", "ls")

    assert asked.exit_code == 0 and "network: api.example.com, db.example.com:5432 raw" in asked.output
    assert other.exit_code == 11 and f"{policy}:2" in other.output
    assert any("network: pypi.org" in note for note in json.loads(without.output)["notes"])
    assert "network: off" in ringfence("check", "--", "ls").output


# --- where it would go ------------------------------------------------------------------------------------------------

ISOLATING = "policies:\n  default:\n    security_mode: permissive\n    isolation_requires: [own_kernel]\n"


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

    assert shown.exit_code == 0 and why in shown.output and f"rule: isolation_requires at {policy}:4" in shown.output
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
