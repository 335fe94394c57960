"""`ringfence wrap` around the real command lines of coding agents, with a scripted model at their maker's address."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.certificates import TestAuthority
from tests.support.coding_agents import AGENTS, Agent, stage
from tests.support.scripted_model import scripted_model

REAL = "sk-ant-api03-" + "R7q2W9e4T1y6U3i8O5" * 4
OUTSIDE = "outside-the-wall"
KEYS = ("x-api-key", "authorization", "x-goog-api-key")


@pytest.mark.parametrize("agent", AGENTS.values(), ids=str)
def test_the_agent_works_inside_and_never_has_its_key(agent: Agent, tmp_path: Path) -> None:
    place = stage(tmp_path)
    (place.top / OUTSIDE).write_text("of the host")
    authority = TestAuthority(tmp_path)
    command = f"echo key-$?-${agent.key}-end; cat {place.top / OUTSIDE}; ls {place.home}; touch made-inside"
    with scripted_model(agent.use(command), "All done.", tls=authority.server_context(agent.host)) as model:
        env = place.environment(
            **agent.settings(place.home, ""), **{agent.key: REAL, "SSL_CERT_FILE": str(authority.bundle)}
        )
        words = place.ringfence({443: model.port}, "wrap", "-v", "--", agent.program, *agent.arguments)
        done = place.run(words, env)

    assert done.returncode == 0 and "All done." in done.stdout, done.stdout + done.stderr
    first, second = model.seen
    # The maker gets the real key, which the agent never had.
    assert any(REAL in value for name, value in first.headers.items() if name.lower() in KEYS)
    assert "key-0-" in second.told and REAL not in second.told, second.told
    # The shell is inside: nothing of the host, and what it makes lies in the project.
    assert "No such file" in second.told and "of the host" not in second.told
    assert (place.project / "made-inside").exists()
    assert not any(REAL.encode() in path.read_bytes() for path in place.home.rglob("*") if path.is_file())
