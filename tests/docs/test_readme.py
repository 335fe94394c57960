"""README.md as a newcomer reads it: its commands and its snippet run on a fresh project, as they stand there."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line.split("  #")[0].strip() for line in re.findall(r"^\$ (ringfence .*)$", PAGE, re.MULTILINE)]
SNIPPET = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
SECONDS = 120.0


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with what the README takes for granted; the caller stands in it."""
    place = tmp_path / "home" / "work" / "project"
    place.mkdir(parents=True)
    (place.parent / "cache").mkdir()
    (place / "Makefile").write_text("all:\n\t@echo built > ../cache/built\n\nfix:\n\t@echo fixed > fixed.txt\n")
    (place / "a.csv").write_text("1,2\n3,4\n")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("STATE", "WORKSPACES", "SNAPSHOTS", "SHADOWS"):
        monkeypatch.setenv(f"RINGFENCE_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.chdir(place)
    return place


def run(command: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("ringfence")
    env = os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=SECONDS, env=env, check=False
    )


def test_the_commands_of_the_readme_run_one_after_the_other(project: Path) -> None:
    assert len(COMMANDS) >= 8
    for command in COMMANDS:
        command = command.replace("commit -p", "commit")  # -p asks at a terminal
        done = run(command)
        assert "ringfence: error" not in done.stderr, f"{command}: {done.stderr}"
        assert "Traceback" not in done.stderr and "Usage:" not in done.stderr, f"{command}: {done.stderr}"
        if "--shadow" in command:
            found = re.search(r"ringfence workspace commit (?:-p )?(\S+)", done.stdout + done.stderr)
            assert found is not None, done.stdout + done.stderr
            assert not (project / "fixed.txt").exists()
        if "--language python" in command:
            assert "4950" in done.stdout

    assert (project / "fixed.txt").read_text() == "fixed\n", "what was done on the shadow was committed"
    assert (project.parent / "cache" / "built").exists()


def test_the_snippet_of_the_readme_runs_as_it_stands_in_an_empty_directory(project: Path) -> None:
    empty = project.parent / "empty"
    empty.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", SNIPPET], cwd=empty, capture_output=True, text=True, timeout=SECONDS, check=False
    )

    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "hello" and "+fixed" in said and said[-3:] == ["12.57", "True", "42"]
    assert "blacklist" in done.stdout
    assert (empty / "note.txt").read_text() == "fixed\n"


def test_every_file_that_the_readme_names_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", PAGE) if "://" not in link]

    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_readme_gives_the_reason_of_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.match(r"[\w-]+", each)[0] for each in wanted}  # type: ignore[index]  # each begins with a name
    said = PAGE.partition("## Dependencies, and why")[2].partition("\n## ")[0]

    missing = {name for name in names if f"`{name}`" not in said and not name.startswith("tree-sitter-")}
    assert missing == set()
