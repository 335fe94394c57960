"""`ringfence mcp install` as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.req("X3")


def ringfence(top: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (top / "project").mkdir(exist_ok=True)
    env = {"HOME": str(top), "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "ringfence.cli.app", "mcp", "install", *words]
    return subprocess.run(command, cwd=top / "project", env=env, capture_output=True, text=True, timeout=60)


def test_the_change_is_shown_and_made_only_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "project/.mcp.json"

    shown = ringfence(tmp_path, "claude-code", "--", "--allow", "pip")
    assert shown.returncode == 0 and '+      "command"' in shown.stdout and not file.exists()
    assert "--write" in shown.stderr
    written = ringfence(tmp_path, "claude-code", "--write", "--", "--allow", "pip")
    assert written.stdout == shown.stdout
    entry = json.loads(file.read_text())["mcpServers"]["ringfence"]
    assert entry["args"][-3:] == ["mcp", "--allow", "pip"] and Path(entry["command"]).is_absolute()
    again = ringfence(tmp_path, "claude-code", "--write", "--", "--allow", "pip")
    assert (again.returncode, again.stdout) == (0, "") and "already" in again.stderr
    other = ringfence(tmp_path, "claude-code", "--write")
    assert other.returncode == 125 and "another server" in other.stderr


def test_what_is_installed_starts_the_server(tmp_path: Path) -> None:
    ringfence(tmp_path, "cursor", "--write")
    entry = json.loads((tmp_path / "project/.cursor/mcp.json").read_text())["mcpServers"]["ringfence"]
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }

    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=json.dumps(hello) + "\n",
        env={"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path / "project",
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0 and json.loads(done.stdout)["result"]["serverInfo"]["name"] == "ringfence", done.stderr


def test_settings_of_the_user_name_the_workspace(tmp_path: Path) -> None:
    done = ringfence(tmp_path, "codex", "--write")
    assert done.returncode == 0
    assert f'"--workspace", "{tmp_path}/project"' in (tmp_path / ".codex/config.toml").read_text()


def test_an_unknown_client_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    done = ringfence(tmp_path, "emacs")
    assert done.returncode == 125 and "claude-code" in done.stderr
