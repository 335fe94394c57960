"""`ringfence hook` and `ringfence-shell` as clients use them: the call on stdin, the answer run by a shell.

The client is played by the test, with the messages of real ones; the real ones are in tests/agents.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_wrap import environment, program

pytestmark = pytest.mark.req("X3")
BIN = Path(sys.executable).parent
RINGFENCE = str(BIN / "ringfence")
SHELL = str(BIN / "ringfence-shell")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in ("home/.codex", "project/sub", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside").write_text("of the host")
    return tmp_path


def run(top: Path, words: list[str] | str, stdin: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(top, RINGFENCE_KEEPER="off", **more)
    return subprocess.run(
        words,
        cwd=top / "project",
        env=env,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        shell=isinstance(words, str),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def installed(top: Path, *words: str) -> str:
    """The line that the client is told to run."""
    run(top, [RINGFENCE, "hook", "install", "claude-code", "--write", *words])
    settings = json.loads((top / "project/.claude/settings.json").read_text())
    return str(settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"])


def told(line: str, top: Path, command: str, event: str = "PreToolUse") -> subprocess.CompletedProcess[str]:
    shown: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": "t"}
    call = {"session_id": "s", "cwd": str(top / "project"), "hook_event_name": event, **shown}
    return run(top, line, json.dumps(call))


def test_a_command_goes_through_the_whole_way(top: Path) -> None:
    line = installed(top)
    command = f"cd sub && cat {top}/outside; echo made > here; exit 4"

    answer = json.loads(told(line, top, command).stdout)["hookSpecificOutput"]["updatedInput"]["command"]
    done = run(top, answer)
    after = told(line, top, answer, "PostToolUse")

    assert done.returncode == 4 and "of the host" not in done.stdout and "No such file" in done.stderr
    assert (top / "project/sub/here").read_text() == "made\n" and (after.returncode, after.stdout) == (0, "")
    assert run(top, answer).returncode == 125, "a token is good once"
    assert "of the host" in run(top, command).stdout, "the same without the hook"


def test_what_the_person_was_asked_about_runs(top: Path) -> None:
    policy = top / "team.yaml"
    policy.write_text("policies: {default: {approvals: {ask_for: {patterns: [touch]}}}}")
    line = installed(top, "--", "--policy", str(policy))
    shown: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "touch  sub/x"}, "tool_use_id": "t"}
    call = {"session_id": "s", "cwd": str(top / "project"), "hook_event_name": "PreToolUse", **shown}

    asked = json.loads(run(top, line, json.dumps({**call, "permission_mode": "default"})).stdout)["hookSpecificOutput"]
    done = run(top, asked["updatedInput"]["command"])

    assert asked["permissionDecision"] == "ask" and done.returncode == 0, done.stderr
    assert (top / "project/sub/x").exists()


def test_a_dropped_rewrite_is_found_and_the_person_lets_it_go_on(top: Path) -> None:
    line = installed(top)
    told(line, top, "true")

    after = told(line, top, "true", "PostToolUse")
    refused = told(line, top, "true")
    status = run(top, [RINGFENCE, "hook", "status"])

    assert "not proven" in after.stdout and "deny" in refused.stdout
    assert status.returncode == 1 and "Claude Code" in status.stdout
    run(top, [RINGFENCE, "hook", "clear"])
    assert "updatedInput" in told(line, top, "true").stdout
    assert run(top, [RINGFENCE, "hook", "status"]).returncode == 0


def test_whatever_fails_is_a_refusal(top: Path) -> None:
    line = installed(top)

    assert run(top, line, "no json").returncode == 2
    (top / "home/.ringfence").mkdir(exist_ok=True)
    os.rename(top / "home/.ringfence", top / "home/elsewhere")
    (top / "home/.ringfence").write_text("in the way")
    assert told(line, top, "true").returncode == 2
    gone = line.replace(RINGFENCE, str(top / "no-such-program"))
    assert gone != line and told(gone, top, "true").returncode == 2


def test_modules_in_the_project_are_not_loaded_by_what_is_installed(top: Path) -> None:
    line = installed(top)
    for name in ("json.py", "ringfence.py", "typer.py"):
        (top / "project" / name).write_text("import os; os.system('touch ../planted')")

    assert "updatedInput" in told(line, top, "true").stdout and not (top / "planted").exists()
    # The twin: as a module, from the project, it would be.
    run(top, [sys.executable, "-m", "ringfence.cli.app", "--help"])
    assert (top / "planted").exists()


def test_inside_wrap_the_hook_passes_everything(top: Path) -> None:
    call = json.dumps({"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "true"}})
    program(top, "codex", f"echo '{call}' | {RINGFENCE} hook claude-code; echo code $?")

    outside = run(top, [str(top / "bin/codex")])
    inside = run(
        top,
        [RINGFENCE, "wrap", "--read", str(BIN.parent), "--read", str(Path(__file__).parents[2] / "src"), "--", "codex"],
    )

    assert "updatedInput" in outside.stdout
    assert inside.stdout == "code 0\n", inside.stderr


def test_as_a_shell_it_takes_the_usual_forms(top: Path) -> None:
    assert run(top, [SHELL, "-lc", "echo $((6 * 7))"]).stdout == "42\n"
    assert run(top, [SHELL, "echo a b | tr a-z A-Z"]).stdout == "A B\n"
    assert run(top, [SHELL, "-c", "echo $0 $1", "--help", "-h"]).stdout == "--help -h\n"
    assert run(top, [SHELL, "-c", "cat; exit 3"], "from a pipe\n").stdout == "from a pipe\n"
    assert "No such file" in run(top, [SHELL, "cat", str(top / "outside")]).stderr
    granted = run(top, [SHELL, "cat", str(top / "outside")], RINGFENCE_SHELL_OPTIONS=f"--read {top}/outside")
    assert granted.stdout == "of the host"
    wrong = run(top, [SHELL, "-c", "true"], RINGFENCE_SHELL_OPTIONS="--json")
    assert wrong.returncode == 125 and "no options" in wrong.stderr
