"""The first hour of somebody who builds an agent: a script typed from the guide, its errors, and what a model sees."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ringfence

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.req("X2")

SCRIPT = """
import asyncio
import ringfence
import ringfence.sync

with ringfence.sync.Sandbox(workspace="project") as sandbox:
    done = sandbox.shell("python3 app.py", timeout="30s")
    print("said", done.stdout.strip(), done.ok, repr(done))
    sandbox.files.write("notes/plan.txt", "first", parents=True)
    print("read", sandbox.shell("cat notes/plan.txt").stdout)
    refused = sandbox.shell("cat ~/.ssh/id_rsa")
    print("refused", refused.ok, refused.blocked, "blacklist" in refused.annotated_stderr)
    try:
        sandbox.files.read("nowhere.txt")
    except FileNotFoundError as missing:
        print("missing", type(missing).__name__, missing.errno)
    try:
        sandbox.shell("true", timeout="soon")
    except ValueError as wrong:
        print("wrong", type(wrong).__name__)
    try:
        sandbox.shell("sleep 9", timeout=0.5).check()
    except TimeoutError as late:
        print("late", type(late).__name__)


async def side_by_side() -> None:
    async with ringfence.Sandbox(workspace="project") as sandbox:
        first, second = await asyncio.gather(sandbox.shell("sleep 0.2; echo a"), sandbox.shell("sleep 0.2; echo b"))
        print("both", first.stdout.strip() + second.stdout.strip())
        with_stdin = await sandbox.shell("cat", stdin="text")
        print("stdin", with_stdin.stdout)


asyncio.run(side_by_side())
"""


def test_a_script_from_the_guide_does_what_the_guide_says(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "app.py").write_text("print('hello')\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("secret\n")
    (tmp_path / "agent.py").write_text(SCRIPT)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    done = subprocess.run(
        [sys.executable, "agent.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert said["said"].startswith("hello True <Result exited with 0")
    assert said["read"] == "first"
    assert said["refused"] == "False True True"
    assert said["missing"] == "NotFound 2"
    assert said["wrong"] == "InvalidArgument"
    assert said["late"] == "Timeout"
    assert said["both"] == "ab"
    assert said["stdin"] == "text"
    assert (project / "notes" / "plan.txt").read_text() == "first"


PAGES = ("README.md", "docs/quickstart.md", "docs/files.md")
SCRIPTS = [
    pytest.param(text, id=f"{page}-{number}")
    for page in PAGES
    for number, text in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
]


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_script_of_the_first_pages_runs_in_an_empty_directory(script: str, tmp_path: Path) -> None:
    """As it stands, from a file: without a project, and without a notebook that awaits."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "first.py").write_text(script)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    done = subprocess.run(
        [sys.executable, "first.py"],
        cwd=tmp_path / "work",
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_workspace_that_is_not_there_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match="make it first"):
        ringfence.run("true", workspace="project")
    (tmp_path / "project").mkdir()
    assert ringfence.run("true", workspace="project").ok
