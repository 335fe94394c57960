"""`ringfence hook` in the real command lines of coding agents, each against a scripted model on loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.coding_agents import AGENTS, Agent, Stage, stage
from tests.support.scripted_model import Seen, scripted_model

POLICY = """
policies:
  default:
    denied_commands: [curl]
"""


def ask(place: Stage, agent: Agent, command: str, *more: str, **env: str) -> tuple[str, list[Seen]]:
    """Have the agent run a command, as its model says; what it printed, and what the model was told."""
    with scripted_model(agent.use(command), "All done.") as model:
        known = {agent.key: "sk-ant-of-the-test", **agent.settings(place.home, model.url), **env}
        done = place.run([agent.program, *agent.arguments, *more], place.environment(**known))
    assert "All done." in done.stdout, done.stdout + done.stderr
    return done.stdout + done.stderr, model.seen


def install(place: Stage, agent: Agent, *words: str) -> None:
    ringfence = os.path.join(os.path.dirname(sys.executable), "ringfence")
    done = place.run(
        [ringfence, "hook", "install", agent.name, "--scope", "user", "--write", *words], place.environment()
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Stage:
    (tmp_path / "outside").write_text("of the host")
    return stage(tmp_path)


@pytest.fixture(params=AGENTS.values(), ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest) -> Agent:
    found: Agent = request.param
    return found


def bypass(agent: Agent) -> tuple[str, ...]:
    """Codex has a sandbox of its own, which leaves no room for ours."""
    return ("-c", 'sandbox_mode="danger-full-access"') if agent.name == "codex" else ()


def test_without_the_hook_the_host_is_open(place: Stage, agent: Agent) -> None:
    _, seen = ask(place, agent, f"cat {place.top}/outside", *bypass(agent))

    assert "of the host" in seen[1].told


def test_the_command_is_walled(place: Stage, agent: Agent) -> None:
    install(place, agent)

    said, seen = ask(place, agent, f"cat {place.top}/outside; echo made > here; echo end-of-it", *bypass(agent))

    assert "end-of-it" in seen[1].told and "of the host" not in seen[1].told, said + seen[1].told
    assert (place.project / "here").read_text() == "made\n"
    commands = [record["command"] for record in place.journal() if record["event_type"] == "sandbox_execution"]
    assert any("end-of-it" in command for command in commands)
    # The second hook found the proof: nothing stands in the ledger.
    assert [path.name for path in (place.home / ".ringfence/state/hooks").iterdir()] == []


def test_a_refusal_is_shown_to_the_model_with_its_rule(place: Stage, agent: Agent) -> None:
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)
    install(place, agent, "--", "--policy", str(policy))

    _, seen = ask(place, agent, "curl http://127.0.0.1:9/ > made", *bypass(agent))

    assert "denied_commands" in seen[1].told and "policy.yaml:4" in seen[1].told, seen[1].told
    assert not (place.project / "made").exists()
