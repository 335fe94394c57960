"""The first hour of a security engineer: decide, try, look, and try to deceive the record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminals import Terminal

pytestmark = [pytest.mark.req("B4", "B9", "B11", "X3"), pytest.mark.timeout(300)]

RINGFENCE = (sys.executable, "-m", "ringfence.cli.app")


class Desk:
    def __init__(self, top: Path) -> None:
        self.project = top / "home" / "project"
        self.project.mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(top / "home"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }

    def gets(self, *words: str, code: int = 0) -> str:
        """Everything that a command says, in a pipe."""
        done = subprocess.run(
            [*RINGFENCE, *words],
            cwd=self.project,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, f"$ ringfence {' '.join(words)}\n{done.stdout}"
        assert "\x1b" not in done.stdout
        return done.stdout

    def types(self, *words: str, answer: tuple[str, str], code: int) -> str:
        """The same on a terminal, with an answer to a question."""
        with Terminal([*RINGFENCE, *words], cwd=self.project, env=self.env, columns=120) as terminal:
            terminal.wait_for(answer[0])
            terminal.type(answer[1])
            assert terminal.end() == code, terminal.text
            return terminal.text


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    (desk.project / "pyproject.toml").write_text("[project]\nname = 'shop'\n")
    (desk.project / "tests").mkdir()
    (desk.project / "tests" / "test_shop.py").write_text("")
    (desk.project / "server.pem").write_text("secret\n")
    return desk


def test_the_first_hour(desk: Desk) -> None:
    # A policy that starts from the project: valid, without remarks, and its meaning is said.
    said = desk.gets("init")
    assert "python" in said and "pytest -q" in said and "asked about" in said and "**/*.pem" in said
    assert desk.gets("policy", "check", "--strict", "policy.yaml").endswith("policy.yaml: valid\n")
    assert "exists already" in desk.gets("init", code=125)

    # Mistakes in it: all at once, each with its line and the nearest name.
    good = (desk.project / "policy.yaml").read_text()
    broken = good.replace("max_memory: 2GB", "max_memroy: 2GB").replace("mode: normal", "mode: norml")
    (desk.project / "broken.yaml").write_text(broken)
    said = desk.gets("policy", "check", "broken.yaml", code=125)
    assert "2 errors" in said and "did you mean 'max_memory'?" in said and "did you mean 'normal'?" in said
    assert "broken.yaml" in desk.gets("run", "--policy", "broken.yaml", "true", code=125), "nothing runs under it"

    # What it means, once; what is in force, and from where.
    said = desk.gets("policy", "explain", "policy.yaml")
    assert said.startswith("every tool\n") and said.count("filesystem.deny:") == 1
    said = desk.gets("config", "show", "--policy", "policy.yaml", "--changed")
    assert "limits.wall" in said and "policy.yaml:" in said

    # One command, before it runs and when it is run.
    said = desk.gets("check", "--policy", "policy.yaml", "--", "make && rm -r -f build", code=11)
    assert "^^^^" in said and "denied_commands rm -rf at policy.yaml:" in said
    said = desk.gets("run", "--policy", "policy.yaml", "--", "rm -rf build", code=122)
    assert "refused" in said and "denied_commands rm -rf at policy.yaml:" in said
    assert "filesystem.deny **/*.pem" in desk.gets("run", "--policy", "policy.yaml", "cat server.pem", code=122)
    disguised = (
        "import base64; print(open(base64.b64decode('c2VydmVyLnBlbQ==')).read())"  # the wall holds, not the name
    )
    said = desk.gets("run", "--policy", "policy.yaml", "-l", "python", disguised, code=1)
    assert "secret" not in said and "Permission" in said
    said = desk.types("run", "--policy", "policy.yaml", "--", "git push", answer=("[y]es, [n]o? [n] ", "n\n"), code=122)
    assert "did not say yes" in said or "refused" in said

    # The organisation's policy is in force whatever the caller passes.
    (desk.project.parent / "org.yaml").write_text("policies: {default: {denied_commands: [curl]}}\n")
    desk.env["RINGFENCE_POLICY"] = str(desk.project.parent / "org.yaml")
    assert "org.yaml:1" in desk.gets("run", "--policy", "policy.yaml", "--", "curl -V", code=122)
    assert "$RINGFENCE_POLICY" in desk.gets("config", "show", "--changed")
    del desk.env["RINGFENCE_POLICY"]

    # What was refused, and the record of it all.
    report = json.loads(desk.gets("violations", "--json"))
    assert report["total"] >= 3 and report["by_type"]["command_blocked"] >= 2
    assert "refused" in desk.gets("audit", "tail") and "cat server.pem" in desk.gets("audit", "search", "server.pem")
    whole = desk.gets("audit", "verify")
    anchor = next(line.removeprefix("last: ") for line in whole.splitlines() if line.startswith("last: "))
    assert desk.gets("audit", "verify", "--anchor", anchor).startswith("intact")

    # Somebody edits the record.
    journal = Path(desk.env["HOME"]) / ".ringfence" / "state" / "journal.jsonl"
    text = journal.read_text()
    journal.write_text(text.replace("rm -rf build", "ls -l build", 1))
    assert "was edited" in desk.gets("audit", "verify", code=1)
    journal.write_text(text)
    assert desk.gets("audit", "verify").startswith("intact")

    # What this machine can guarantee.
    found = json.loads(desk.gets("doctor", "--json"))
    assert found["healthy"] and any(wall["default"] for wall in found["walls"])
