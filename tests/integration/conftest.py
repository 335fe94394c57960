"""A caller of its own for each test: a home with secrets in it, a workspace, and nothing of the machine's settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ringfence
from tests.integration.stage import SECRET, SYSTEM_PATH, Place

_OF_THE_MACHINE = {"RINGFENCE_RUNSC_PATH", "RINGFENCE_KEEPER"}
"""Where its gVisor is, and that no test starts a keeper by the way: no settings of a person."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An ordinary person's account: HOME with secrets, a project below it, a plain PATH, no settings."""
    home = tmp_path / "home"
    workspace = home / "project"
    workspace.mkdir(parents=True)
    for name in (".ssh", ".aws"):
        (home / name).mkdir(mode=0o755)
        (home / name / "key").write_text(SECRET)
    (home / "diary").write_text(SECRET)
    for name in os.environ.keys() - _OF_THE_MACHINE:
        if name.startswith(("RINGFENCE_", "SYNAPSE_", "OPENAGENTIC_", "GIT_", "LC_")):
            monkeypatch.delenv(name)
    state = home / ".ringfence" / "state"
    for name, value in {"HOME": str(home), "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    return Place(tmp_path, home, workspace, state)


@pytest.fixture
def repository(place: Place) -> Place:
    """The same with a git repository in the workspace that has one commit."""
    line = (
        "git init -q -b main . && git config user.name A && git config user.email a@b.c && git "
        "commit -q --allow-empty -m one"
    )
    done = place.host(line)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture
def ringfence_process(place: Place) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Starts a Python program of ours as a child of its own; killed at the end if it still runs."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str) -> subprocess.Popen[str]:
        env = {"PATH": SYSTEM_PATH, "HOME": str(place.home), "TMPDIR": os.environ["TMPDIR"]}
        env |= {name: value for name, value in os.environ.items() if name in _OF_THE_MACHINE}
        env["PYTHONPATH"] = os.path.dirname(os.path.dirname(ringfence.__file__))
        child = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
            cwd=place.workspace,
            # A shell that starts us in the background makes us ignore it, and then our children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            child.kill()
        child.wait()
        for stream in (child.stdout, child.stdin):
            if stream is not None:
                stream.close()
