"""A keeper and a person at a terminal: keys, the window's size, Ctrl-C, Ctrl-Z and fg, questions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.keepers import Stage, wait_for
from tests.support.terminals import Terminal

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.start()
    yield stage
    stage.stop()


def bash(stage: Stage) -> Terminal:
    env = stage.env | {"PS1": "you> ", "PATH": f"{stage.front.parent}:{stage.env['PATH']}", "HISTFILE": ""}
    return Terminal(["bash", "--norc", "--noprofile", "-i"], cwd=stage.project, env=env)


def test_a_program_on_a_terminal_has_its_keys_and_its_size(kept: Stage) -> None:
    before = kept.calls()
    wait = 'while [ "$(stty size)" != "40 120" ]; do sleep 0.05; done; exit 7'
    words = [str(kept.front), "run", "-t", f"stty size; read x; echo got $x; {wait}"]
    with Terminal(words, cwd=kept.project, env=kept.env, rows=30, columns=100) as terminal:
        terminal.wait_for("30 100")
        terminal.type("hello\r")
        terminal.wait_for("got hello")
        terminal.resize(40, 120)
        assert terminal.end() == 7
    assert kept.calls() == before + 1


def test_control_c_ends_it_and_control_z_stops_it_until_fg(kept: Stage) -> None:
    before = kept.calls()
    with bash(kept) as terminal:
        terminal.wait_for("you> ")
        terminal.type("ringfence run 'echo begun; sleep 60'; echo code-$?.\n")
        terminal.wait_for("begun\n")
        terminal.type(b"\x03")
        terminal.wait_for("code-130.")
        terminal.type("ringfence run 'echo second; while [ ! -e go ]; do sleep 0.05; done; exit 9'\n")
        terminal.wait_for("second\n")
        terminal.type(b"\x1a")
        terminal.wait_for("Stopped")
        (kept.project / "go").touch()
        terminal.type("jobs; echo is-$((1+1)).\n")
        terminal.wait_for("is-2.")
        terminal.type("fg; echo code-$?.\n")
        terminal.wait_for("code-9.")
        terminal.type("exit\n")
        terminal.end()
    assert kept.calls() == before + 2


def test_a_person_is_asked_and_answers(kept: Stage) -> None:
    (kept.project / "policy.yaml").write_text("policies:\n  default: {approvals: {ask_for: {tools: [shell_exec]}}}\n")
    words = [str(kept.front), "run", "--policy", "policy.yaml", "touch made"]
    before = kept.calls()
    with Terminal(words, cwd=kept.project, env=kept.env) as terminal:
        terminal.wait_for("[y]es")
        terminal.type("y\n")
        assert terminal.end() == 0, terminal.text
    assert (kept.project / "made").exists()
    assert kept.calls() == before + 1


def test_in_the_background_the_plain_way_is_taken(kept: Stage) -> None:
    """Only a process of the terminal's session is stopped when it reads there from the background."""
    before = kept.calls()
    with bash(kept) as terminal:
        terminal.wait_for("you> ")
        terminal.type("ringfence run -i cat &\n")
        wait_for(lambda: _says(terminal, "Stopped"))
        terminal.type("kill -9 %1; exec true\n")
        terminal.end()
    assert kept.calls() == before


def _says(terminal: Terminal, mark: str) -> bool:
    terminal.type("\n")
    terminal._read(0.5)
    return mark in terminal.text
