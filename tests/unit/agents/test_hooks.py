"""What a hook says to each client, replayed from the shapes that the real ones send; what it trusts, and what not."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from ringfence.agents.hooks.deciding import Hook
from ringfence.agents.hooks.dialects import DIALECTS, Answer, Way
from ringfence.agents.hooks.tokens import Ledger, Ticket, digest
from ringfence.errors import CommandNotAllowed
from ringfence.manager.policing import PolicyEngine
from ringfence.values.request import Request
from ringfence.values.verdict import Decision

PROGRAM = ("/opt/bin/ringfence-shell",)
COMMAND = "echo 'it'\"'\"'s'; ls $HOME && true"
ENGINE = PolicyEngine.from_text(
    "policies: {default: {denied_commands: [curl], approvals: {ask_for: {patterns: [touch]}}}}", "team.yaml"
)


def payload(client: str, command: str, *, over: bool = False, tool: str | None = None, **more: Any) -> dict[str, Any]:
    """As recorded from Claude Code 2.1.197, Codex 0.169 and Gemini CLI 0.61; the others from their documents."""
    match client:
        case "claude-code" | "codex":
            event = "PostToolUse" if over else "PreToolUse"
            common = {"session_id": "s", "tool_use_id": "t1", "cwd": "/project", "permission_mode": "default"}
            shown = {"tool_name": tool or "Bash", "tool_input": {"command": command, "description": "d"}}
            return {**common, **shown, "hook_event_name": event, **more}
        case "gemini":
            event = "AfterTool" if over else "BeforeTool"
            shown = {"tool_name": tool or "run_shell_command", "tool_input": {"command": command}}
            return {"session_id": "s", "cwd": "/project", "hook_event_name": event, **shown, **more}
        case "copilot":
            arguments = json.dumps({"command": command})
            result: dict[str, Any] = {"toolResult": {}} if over else {}
            return {"cwd": "/project", "sessionId": "s", "toolName": tool or "bash", "toolArgs": arguments, **result}
        case "cursor":
            event = "afterShellExecution" if over else "beforeShellExecution"
            return {"command": command, "cwd": "/project", "conversation_id": "s", "hook_event_name": event}
        case "goose":
            shown = {"tool_name": tool or "shell", "tool_input": {"command": command}}
            return {"event": "PostToolUse" if over else "PreToolUse", "session_id": "s", "working_dir": "/p", **shown}
        case _:
            event = "post_run_command" if over else "pre_run_command"
            info = {"command_line": command, "cwd": "/project"}
            return {"agent_action_name": event, "trajectory_id": "s", "execution_id": "e", "tool_info": info}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def hook(client: str, **more: Any) -> Hook:
    fields: dict[str, Any] = {"program": PROGRAM, "options": (), "trusts_wall": False, **more}
    return Hook(dialect=DIALECTS[client], **fields)


def no_policy(command: str, more: tuple[str, ...]) -> Decision | None:
    return None


def by_policy(command: str, more: tuple[str, ...]) -> Decision | None:
    return ENGINE.decide(Request(command=command))


def said(client: str, answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def rewritten(client: str, answer: Answer) -> str:
    found = said(client, answer)
    match client:
        case "claude-code" | "codex":
            return str(found["hookSpecificOutput"]["updatedInput"]["command"])
        case "gemini":
            return str(found["hookSpecificOutput"]["tool_input"]["command"])
        case _:
            return str(found["modifiedArgs"]["command"])


REWRITERS = [name for name, dialect in DIALECTS.items() if dialect.way is Way.REWRITE]
TELLERS = [name for name, dialect in DIALECTS.items() if dialect.way is Way.TELL]


def call(client: str, ledger: Ledger, judge: Any, command: str, **more: Any) -> Answer:
    return hook(client).answer(json.dumps(payload(client, command, **more)).encode(), lambda: ledger, judge)


@pytest.mark.parametrize("client", REWRITERS)
def test_a_command_is_rewritten_to_run_inside_and_proves_it_once(client: str, ledger: Ledger) -> None:
    words = shlex.split(rewritten(client, call(client, ledger, no_policy, COMMAND)))

    assert (*words[:1], words[1], *words[3:]) == (*PROGRAM, "--token", "-c", COMMAND)
    ticket = ledger.redeem(words[2], COMMAND)
    assert ticket.client == client and ticket.options == ("--workspace", "/project")
    with pytest.raises(CommandNotAllowed, match="used already"):
        ledger.redeem(words[2], COMMAND)


@pytest.mark.parametrize("client", REWRITERS)
def test_what_was_proven_leaves_nothing(client: str, ledger: Ledger, tmp_path: Path) -> None:
    command = rewritten(client, call(client, ledger, no_policy, COMMAND))
    ledger.redeem(shlex.split(command)[2], COMMAND)

    assert call(client, ledger, no_policy, command, over=True) == Answer()
    assert list((tmp_path / "hooks").iterdir()) == []


@pytest.mark.parametrize("client", REWRITERS)
def test_a_client_that_drops_the_rewrite_is_found_and_stopped(
    client: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.agents.hooks.tokens._BACKGROUND_SECONDS", 0.0)
    call(client, ledger, no_policy, COMMAND)

    report = call(client, ledger, no_policy, COMMAND, over=True)  # the original, not what we said

    assert "not proven" in report.stdout + report.stderr
    refused = call(client, ledger, no_policy, "true")
    assert "hook clear" in refused.stdout + refused.stderr and len(ledger.alarms()) == 1
    ledger.clear()
    assert rewritten(client, call(client, ledger, no_policy, "true"))


@pytest.mark.parametrize("client", DIALECTS)
def test_a_refusal_names_the_rule(client: str, ledger: Ledger) -> None:
    answer = call(client, ledger, by_policy, "curl http://example.com")

    text = answer.stdout + answer.stderr
    assert "denied_commands" in text and "team.yaml" in text
    assert answer.code == 2 or "deny" in answer.stdout


@pytest.mark.parametrize("client", DIALECTS)
def test_ask_is_said_only_where_a_person_is_asked(client: str, ledger: Ledger) -> None:
    answer = call(client, ledger, by_policy, "touch x")

    if client != "claude-code":
        assert answer.code == 2 or "deny" in answer.stdout
        return
    assert said(client, answer)["hookSpecificOutput"]["permissionDecision"] == "ask"
    assert ledger.redeem(shlex.split(rewritten(client, answer))[2], "touch x").approved


@pytest.mark.parametrize("mode", ["bypassPermissions", "dontAsk", "auto", "", "new"])
def test_claude_code_is_not_told_to_ask_in_a_mode_that_may_ask_nobody(mode: str, ledger: Ledger) -> None:
    answer = call("claude-code", ledger, by_policy, "touch x", permission_mode=mode)

    assert said("claude-code", answer)["hookSpecificOutput"]["permissionDecision"] == "deny"


def told(refused: Answer) -> str:
    """What a model is to run instead."""
    text = json.loads(refused.stdout)["agent_message"] if refused.stdout else refused.stderr
    return str(text.partition("Run exactly this instead: ")[2])


@pytest.mark.parametrize("client", TELLERS)
def test_what_a_model_is_told_to_run_has_the_options_of_the_hook(client: str, ledger: Ledger) -> None:
    strict = hook(client, options=("--read-only", "--deny", "*.pem"))
    data = json.dumps(payload(client, COMMAND)).encode()

    words = shlex.split(told(strict.answer(data, lambda: ledger, no_policy)))

    assert ledger.redeem(words[2], COMMAND).options[:3] == ("--read-only", "--deny", "*.pem")
    bare = json.dumps(payload(client, shlex.join([*PROGRAM, "-c", COMMAND]))).encode()
    again = strict.answer(bare, lambda: ledger, no_policy)
    assert shlex.split(told(again))[3:] == ["-c", COMMAND], "without a token it would run with others"


@pytest.mark.parametrize("client", TELLERS)
def test_who_cannot_rewrite_is_told_what_to_run(client: str, ledger: Ledger) -> None:
    wanted = told(call(client, ledger, no_policy, COMMAND))
    assert shlex.split(wanted)[3:] == ["-c", COMMAND]

    allowed = call(client, ledger, no_policy, wanted)
    assert allowed.code == 0 and "deny" not in allowed.stdout
    spaced = wanted.replace(" -c ", "  -c ")
    for trick in (f"{wanted}; id", f"{wanted} && id", f"FOO=1 {wanted}", f"{wanted} > /tmp/x", spaced):
        again = call(client, ledger, no_policy, trick)
        assert again.code == 2 or "deny" in again.stdout, trick


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "copilot", "goose"])
def test_other_tools_pass(client: str, ledger: Ledger) -> None:
    assert call(client, ledger, by_policy, "curl", tool="Read") == Answer()


@pytest.mark.parametrize("client", DIALECTS)
@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 5000, b'{"tool_name": 1, "tool_input": {}}']
)
def test_what_is_no_call_is_blocked(client: str, data: bytes, ledger: Ledger) -> None:
    assert hook(client).answer(data, lambda: ledger, no_policy).code == 2


@pytest.mark.parametrize("client", REWRITERS)
def test_nothing_is_wrapped_twice(client: str, ledger: Ledger) -> None:
    once = rewritten(client, call(client, ledger, no_policy, COMMAND))
    twice = rewritten(client, call(client, ledger, no_policy, once))

    assert shlex.split(twice)[4] == COMMAND and twice != once


def test_a_wrapped_command_is_judged_by_what_it_runs(ledger: Ledger) -> None:
    wrapped = shlex.join([*PROGRAM, "-c", "curl http://example.com"])

    for client in DIALECTS:
        answer = call(client, ledger, by_policy, wrapped)
        assert "denied_commands" in answer.stdout + answer.stderr, client


def test_codex_gets_allow_with_its_rewrite_and_claude_code_only_if_told_so(ledger: Ledger) -> None:
    codex = said("codex", call("codex", ledger, no_policy, "true"))["hookSpecificOutput"]
    plain = said("claude-code", call("claude-code", ledger, no_policy, "true"))["hookSpecificOutput"]
    trusting = hook("claude-code", trusts_wall=True)
    data = json.dumps(payload("claude-code", "true")).encode()
    trusted = said("claude-code", trusting.answer(data, lambda: ledger, no_policy))["hookSpecificOutput"]

    assert codex["permissionDecision"] == trusted["permissionDecision"] == "allow"
    assert "permissionDecision" not in plain and plain["updatedInput"]["description"] == "d"


def test_a_token_is_for_its_command_alone(ledger: Ledger) -> None:
    ticket = Ticket(client="codex", session="s", command=digest("ls"), options=(), approved=False)
    token = ledger.issue(ticket, "c")

    with pytest.raises(CommandNotAllowed, match="another one"):
        ledger.redeem(token, "ls; id")
    assert ledger.redeem(token, "ls").session == "s"
    for bad in ("", "../../etc/passwd", "x" * 40, "ran-" + token):
        with pytest.raises(CommandNotAllowed):
            ledger.redeem(bad, "ls")


def test_one_session_does_not_stop_another(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.agents.hooks.tokens._BACKGROUND_SECONDS", 0.0)
    call("codex", ledger, no_policy, "ls", over=True)

    assert "hook clear" in call("codex", ledger, no_policy, "ls").stdout
    assert rewritten("codex", call("codex", ledger, no_policy, "ls", session_id="other"))


def test_a_file_of_another_hook_that_goes_meanwhile_is_no_fault(ledger: Ledger, tmp_path: Path) -> None:
    """An agent runs several commands at once; a link that leads nowhere is what a name that is gone looks like."""
    (tmp_path / "hooks" / ".renamed").symlink_to("gone")

    assert rewritten("claude-code", call("claude-code", ledger, no_policy, "true"))
