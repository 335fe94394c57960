"""`ringfence run -t` and `ringfence shell`: a full-screen program inside the wall, on a real terminal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminals import Terminal

pytestmark = pytest.mark.req("X3", "X2")

RINGFENCE = (sys.executable, "-m", "ringfence.cli.app")

FULL_SCREEN = """
import curses, os, signal

def main(screen):
    screen.keypad(True)
    def draw(what):
        rows, columns = screen.getmaxyx()
        screen.clear()
        screen.addstr(0, 0, f"size {rows}x{columns} last {what} tty {os.isatty(0)}{os.isatty(1)}{os.isatty(2)}")
        screen.refresh()
    signal.signal(signal.SIGINT, lambda *_: seen.append("interrupt"))
    draw("nothing")
    screen.timeout(50)
    while True:
        key = screen.getch()
        if seen:
            draw(seen.pop())
        if key == curses.KEY_RESIZE:
            draw("resize")
        elif key == ord("q"):
            return
        elif key >= 0:
            draw(f"key {key}")

seen = []
curses.wrapper(main)
open("left-behind", "w").write("by the program\\n")
raise SystemExit(7)
"""
"""As a coding agent's own command line works: raw mode, the whole screen, keys one by one, the size of the window."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("project", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "project" / "agent.py").write_text(FULL_SCREEN)
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "PYTHONPATH": os.pathsep.join(sys.path), **more}


def typed(place: Path, *words: str, rows: int = 24, columns: int = 80, **more: str) -> Terminal:
    env = environment(place, **more)
    return Terminal([*RINGFENCE, *words], cwd=place / "project", env=env, rows=rows, columns=columns)


@pytest.mark.parametrize(
    "words", [("run", "-t", "--", "python3", "agent.py"), ("shell", "--", "python3", "agent.py")], ids=" ".join
)
def test_a_full_screen_program_has_the_whole_terminal(place: Path, words: tuple[str, ...]) -> None:
    with typed(place, *words, rows=30, columns=100) as terminal:
        terminal.wait_for("size 30x100 last nothing tty TrueTrueTrue")
        assert terminal.is_raw()
        terminal.type("x")
        terminal.wait_for(f"key {ord('x')}")
        terminal.type(b"\x1bOA")  # the key with the arrow up, as xterm sends it to such programs
        terminal.wait_for("key 259")
        terminal.resize(40, 120)
        terminal.wait_for("size 40x120")
        terminal.type(b"\x03")
        terminal.wait_for("interrupt")
        terminal.type("q")

        assert terminal.end() == 7
        assert not terminal.is_raw(), "the terminal is as before"
    assert (place / "project" / "left-behind").read_text() == "by the program\n"


def test_a_shell_says_where_one_is_and_exits_as_it_exits(place: Path) -> None:
    with typed(place, "shell", "--shadow") as terminal:
        shadow = terminal.wait_for("(ringfence shadow ").split("(ringfence shadow ")[1].split(")")[0]
        terminal.type("cd /workspace && touch made; echo $((40 + 2)); exit 5\n")
        terminal.wait_for("workspace discard")

        assert terminal.end() == 5
        assert "42" in terminal.text and "+ made" in terminal.text
    (listed,) = json.loads(
        subprocess.run(
            [*RINGFENCE, "workspace", "list", "--json"],
            cwd=place / "project",
            env=environment(place),
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    )
    assert listed["id"] == shadow
    assert not (place / "project" / "made").exists()


def test_a_shell_without_colours_has_a_plain_prompt(place: Path) -> None:
    with typed(place, "shell", "-q", "--read-only", NO_COLOR="1") as terminal:
        terminal.wait_for("(ringfence read-only) ")
        terminal.type("touch new; exit\n")

        assert terminal.end() == 1
        assert b"\x1b[33m" not in terminal.said
        assert "a shell inside" not in terminal.text and "Read-only file system" in terminal.text


def test_variables_come_along_by_name_and_by_value(place: Path) -> None:
    words = ("shell", "-e", "OURS", "-e", "GIVEN=two", "--", "sh", "-c", "echo $OURS $GIVEN $OTHER.")
    with typed(place, *words, OURS="one", OTHER="three") as terminal:
        assert terminal.end() == 0
        assert "one two .\n" in terminal.text


def test_a_program_on_a_terminal_is_ended_in_time_and_the_terminal_is_put_back(place: Path) -> None:
    with typed(place, "run", "-t", "--timeout", "1s", "--", "python3", "agent.py") as terminal:
        code = terminal.end()

        assert code == 124 and "timed out" in terminal.text
        assert not terminal.is_raw()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_it_from_outside_gets_the_terminal_back(place: Path, number: signal.Signals) -> None:
    with typed(place, "run", "-t", "--", "python3", "agent.py") as terminal:
        terminal.wait_for("last nothing")
        terminal.process.send_signal(number)

        assert terminal.end() == 128 + number
        assert not terminal.is_raw()


def test_a_policy_judges_what_runs_on_a_terminal(place: Path) -> None:
    (place / "project" / "p.yaml").write_text(
        "policies: {default: {denied_commands: [dd], approvals: {ask_for: {patterns: [tty]}}}}\n"
    )

    with typed(place, "run", "-t", "--policy", "p.yaml", "--", "dd") as terminal:
        assert terminal.end() == 122
        assert "refused" in terminal.text and "denied_commands dd" in terminal.text
    with typed(place, "run", "-t", "--policy", "p.yaml", "--", "tty") as terminal:
        terminal.wait_for("[y]es, [n]o? [n] ")
        terminal.type("y\n")
        assert terminal.end() == 0
        assert "/dev/pts/" in terminal.text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "-t", "true"), "-t needs a terminal"),
        (("run", "-t", "--json", "true"), "leave out -t or --json"),
        (("shell", "--", "true"), "a shell needs a terminal"),
    ],
    ids=" ".join,
)
def test_without_a_terminal_it_is_said_what_to_do(place: Path, words: tuple[str, ...], says: str) -> None:
    done = subprocess.run(
        [*RINGFENCE, *words],
        cwd=place / "project",
        env=environment(place),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 125
    assert says in done.stderr and "hint:" in done.stderr
