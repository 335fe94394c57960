"""The first hour of a person at a terminal: one bash on a real terminal, and what they would type into it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminals import Terminal

pytestmark = [pytest.mark.req("X3"), pytest.mark.timeout(300)]

TESTS = """\
import unittest, shop

class Prices(unittest.TestCase):
    def test_total(self):
        self.assertEqual(shop.total([1, 2]), 3)
"""
ASSISTANT = """\
import curses
def main(screen):
    screen.addstr(0, 0, "assistant ready")
    screen.getch()
curses.wrapper(main)
open("notes.md", "w").write("by the assistant\\n")
"""


class Person:
    """Types a line and waits until the prompt is back."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._count = 0

    def types(self, line: str, *answers: tuple[str, str]) -> str:
        """What the screen shows after a line; `answers` are (what is waited for, what is typed then)."""
        self._count += 1
        begin = len(self._terminal.text)
        done = f"done-{self._count}-"
        self._terminal.type(f"{line}; echo done-$(({self._count}))-$?.\n")
        for mark, keys in answers:
            self._terminal.wait_for(mark, self._terminal.text[:begin].count(mark) + 1)
            self._terminal.type(keys)
        self._terminal.wait_for(done)
        self._terminal.wait_for("you> ", self._count + 1)
        return self._terminal.text[begin:]

    def exit_code(self, shown: str) -> int:
        return int(shown.rsplit(f"done-{self._count}-", 1)[1].split(".")[0])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("home", "home/project", "home/notes", "bin"):
        (tmp_path / name).mkdir()
    project = tmp_path / "home" / "project"
    (project / "shop.py").write_text("def total(prices):\n    return 0\n")
    (tmp_path / "home" / "notes" / "plan.txt").write_text("buy bread\n")
    (project / "test_shop.py").write_text(TESTS)
    (project / "assistant.py").write_text(ASSISTANT)
    script = tmp_path / "bin" / "ringfence"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ringfence.cli.app "$@"\n')
    script.chmod(0o755)
    return tmp_path


@pytest.fixture
def person(place: Path) -> Iterator[Person]:
    env = {
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "HOME": str(place / "home"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PS1": "you> ",
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
    }
    bash = ["bash", "--norc", "--noprofile", "-i"]
    with Terminal(bash, cwd=place / "home" / "project", env=env, rows=40, columns=100) as terminal:
        terminal.wait_for("you> ")
        yield Person(terminal)
        terminal.type("exit\n")
        terminal.end()


def test_the_first_hour(person: Person, place: Path) -> None:
    home, project = place / "home", place / "home" / "project"

    assert "ringfence 0." in person.types("ringfence -V")
    assert "Write a policy that starts from this project" in person.types("ringfence --help")

    # Completion, with the TAB key.
    person.types('eval "$(ringfence --show-completion bash)"')
    assert "There are no shadows." in person.types("ringfence worksp\tlist")

    # The tests fail inside as they do outside, and the exit code is theirs.
    shown = person.types('ringfence run "python3 -B -m unittest -q"')
    assert "FAILED" in shown and person.exit_code(shown) == 1

    # What is refused is said with the option that would allow it, and that option works.
    shown = person.types("ringfence run 'cat ~/notes/plan.txt'")
    assert f"to allow it: --read {home}/notes/plan.txt\n" in shown and "buy bread" not in shown
    shown = person.types("ringfence run --read ~/notes/plan.txt 'cat ~/notes/plan.txt'")
    assert "buy bread" in shown and person.exit_code(shown) == 0

    # An agent's work on a shadow: looked at, taken over hunk by hunk, new files shown.
    fix = "sed -i 's/0/sum(prices)/' shop.py; echo remember > todo.txt; python3 -B -m unittest -q"
    shown = person.types(f'ringfence run --shadow "{fix}"')
    assert "+ todo.txt" in shown and "~ shop.py" in shown and (project / "shop.py").read_text().endswith("return 0\n")
    assert "the latest of" in person.types("ringfence workspace diff")
    shown = person.types("ringfence workspace commit -p", ("Take this change [", "y\n"), ("todo.txt", "n\n"))
    assert "+remember" in shown and "sum(prices)" in (project / "shop.py").read_text()
    assert not (project / "todo.txt").exists()
    shown = person.types("ringfence workspace discard", ("Discard the shadow?", "y\n"))
    assert person.exit_code(shown) == 0

    # A look around inside, and an assistant's own command line.
    shown = person.types("ringfence shell --read-only", ("(ringfence read-only) ", "ls; exit 3\n"))
    assert "shop.py" in shown and person.exit_code(shown) == 3
    person.types("ringfence shell -- python3 assistant.py", ("assistant ready", "q"))
    assert (project / "notes.md").read_text() == "by the assistant\n"

    # Where it all went.
    shown = person.types("ringfence audit tail")
    assert "unittest -q" in shown and "success" in shown and "failure" in shown
    assert "error [not_found]" in person.types("ringfence workspace diff")
