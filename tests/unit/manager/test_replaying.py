"""Recorded requests are decided anew by another policy."""

from __future__ import annotations

from typing import Any

from ringfence.manager.policing import PolicyEngine
from ringfence.manager.replaying import replay

STRICTER = """
policies:
  tools:
    shell_exec:
      denied_commands: [curl]
"""


def _record(command: str | None, **more: Any) -> dict[str, Any]:
    plain = {
        "event_type": "sandbox_execution",
        "tool": "shell_exec",
        "command": command,
        "verdict": "allow",
        "run": "r1",
    }
    return {**plain, "timestamp": "2026-01-01T00:00:00Z", **more}


def test_what_another_policy_refuses_is_told_with_its_rule_and_line() -> None:
    found = replay([_record("ls"), _record("curl example.com")], PolicyEngine.from_text(STRICTER, "new.yaml"))

    assert found.looked_at == 2
    (one,) = found.different
    assert (one.command, one.before, one.after) == ("curl example.com", "allow", "deny")
    assert "new.yaml:5" in one.rule


def test_what_it_would_allow_now_is_told_too() -> None:
    found = replay([_record("curl example.com", verdict="deny")], PolicyEngine.from_text("policies: {}\n"))

    assert [(one.before, one.after) for one in found.different] == [("deny", "allow")]


def test_what_cannot_be_decided_anew_is_counted_and_not_guessed() -> None:
    records = [_record(None), _record("x", event_type="sandbox_closed"), _record("x", tool="a_tool_of_mine")]

    found = replay(records, PolicyEngine.from_text(STRICTER))

    assert (found.looked_at, found.passed_over, found.different) == (0, 3, ())
