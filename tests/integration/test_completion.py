"""Completion as a real bash does it: it sources what we print, and asks us for each TAB."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.req("X3")

POLICY = """\
policies:
  default: {max_memory: 1GB}
  agent_roles:
    reviewer: {tools: [file_read]}
    releaser: {max_memory: 2GB}
"""
COMPLETE = """
eval "$(ringfence --show-completion bash)"
IFS=' ' read -r -a COMP_WORDS <<< "$1"
[[ "$1" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_ringfence_completion ringfence
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a policy and a shadow with a name, and `ringfence` on PATH."""
    top = tmp_path_factory.mktemp("completion")
    for name in ("home", "project", "bin"):
        (top / name).mkdir()
    script = top / "bin" / "ringfence"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ringfence.cli.app "$@"\n')
    script.chmod(0o755)
    (top / "project" / "policy.yaml").write_text(POLICY)
    assert in_bash(top, "ringfence workspace new --name spring-cleaning").returncode == 0
    return top


def in_bash(top: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": f"{top}/bin:{os.environ['PATH']}",
        "HOME": str(top / "home"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    return subprocess.run(
        ["bash", "-c", script, "bash", *words],
        cwd=top / "project",
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        ("ringfence wor", {"workspace"}),
        ("ringfence workspace dif", {"diff"}),
        ("ringfence workspace diff spr", {"spring-cleaning"}),
        ("ringfence run --use-shadow spr", {"spring-cleaning"}),
        ("ringfence run --policy policy.yaml --role re", {"reviewer", "releaser"}),
        ("ringfence policy explain policy.yaml --role rev", {"reviewer"}),
        ("ringfence run --policy policy.yaml --tool code", {"code_run"}),
        ("ringfence run --language py", {"python", "py", "python3"}),
        ("ringfence check -l type", {"typescript"}),
        ("ringfence run --trace ", {"off", "changes", "reads", "full"}),
        ("ringfence run --mediate", {"--mediate-opens"}),
        ("ringfence run --role re", set()),
    ],
)
def test_tab_proposes_what_fits(place: Path, line: str, proposed: set[str]) -> None:
    done = in_bash(place, COMPLETE, line)

    assert done.stderr == ""
    assert {word for word in done.stdout.split("\n") if word} == proposed
