"""`ringfence mcp` in the real command lines of coding agents, and MCP's own inspector, over both transports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.coding_agents import AGENTS, Agent, stage
from tests.support.scripted_model import Use, scripted_model
from tests.support.serving import running_server

RINGFENCE = os.path.join(os.path.dirname(sys.executable), "ringfence")
WAIT = Use("exec_command", {"cmd": "sleep 2"})  # Codex begins without a server that is not there at once
CALLS = {
    "claude-code": (Use("mcp__ringfence__bash", {"command": "echo by-mcp; cat ../outside"}),),
    "codex": (WAIT, Use("bash", {"command": "echo by-mcp; cat ../outside"}, "mcp__ringfence")),
    "gemini": (Use("mcp_ringfence_bash", {"command": "echo by-mcp; cat ../outside"}),),
}


@pytest.mark.parametrize("agent", AGENTS.values(), ids=lambda agent: agent.name)
def test_the_agent_uses_our_tools(agent: Agent, tmp_path: Path) -> None:
    place = stage(tmp_path)
    (tmp_path / "outside").write_text("of the host")
    with scripted_model(*CALLS[agent.name], "All done.") as model:
        env = place.environment(**agent.settings(place.home, model.url), **{agent.key: "sk-ant-of-the-test"})
        scope = "project" if agent.name == "claude-code" else "user"
        done = place.run([RINGFENCE, "mcp", "install", agent.name, "--scope", scope, "--write"], env)
        assert done.returncode == 0, done.stderr
        more = {
            "claude-code": ("--mcp-config", str(place.project / ".mcp.json")),
            # Without a person, Codex refuses tools that may destroy something, which ours say of themselves.
            "codex": ("-c", 'mcp_servers.ringfence.default_tools_approval_mode="approve"'),
        }.get(agent.name, ())
        done = place.run([agent.program, *agent.arguments, *more], env)

    told = model.seen[-1].told
    assert "by-mcp" in told and "of the host" not in told, done.stdout + done.stderr + told


@pytest.fixture
def inspector() -> list[str]:
    found = Path(os.environ["RINGFENCE_INSPECTOR"])
    return [str(found / "node/bin/node"), str(found / ".bin/mcp-inspector"), "--cli"]


def inspect(words: list[str], cwd: Path) -> tuple[int, str]:
    node = os.path.dirname(words[0])
    env = {"PATH": f"{node}:{os.environ['PATH']}", "HOME": str(cwd.parent), "RINGFENCE_KEEPER": "off"}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=100, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_inspector_lists_and_calls_over_stdio(inspector: list[str], tmp_path: Path) -> None:
    project = stage(tmp_path).project
    code, said = inspect([*inspector, RINGFENCE, "mcp", "--method", "tools/list", "--format", "json"], project)
    assert code == 0 and "search_files" in said, said
    call = ["--method", "tools/call", "--tool-name", "bash", "--tool-args-json"]
    code, said = inspect([*inspector, RINGFENCE, "mcp", *call, json.dumps({"command": "echo it-ran"})], project)
    assert code == 0 and "it-ran" in said, said
    code, said = inspect(
        [*inspector, RINGFENCE, "mcp", *call, json.dumps({"command": "true", "sandbox": "nobody"})], project
    )
    assert code == 5, said  # isError, as the inspector has it


def test_the_inspector_lists_and_calls_over_http(inspector: list[str], tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        header = ["--transport", "http", "--header", f"Authorization: Bearer {server.token}"]
        target = [*inspector, f"{server.url}/mcp", *header]
        code, said = inspect([*target, "--method", "tools/list", "--format", "json"], tmp_path)
        assert code == 0 and "search_files" in said, said
        call = ["--method", "tools/call", "--tool-name", "bash", "--tool-args-json"]
        code, said = inspect([*target, *call, json.dumps({"command": "echo it-ran"})], tmp_path)
        assert code == 0 and "it-ran" in said, said
        wrong = [*inspector, f"{server.url}/mcp", "--transport", "http", "--header", "Authorization: Bearer rf_no"]
        code, said = inspect([*wrong, "--method", "tools/list"], tmp_path)
        assert code != 0, said
