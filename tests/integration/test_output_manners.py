"""Colours, notes and tables of the command line: on a real terminal, in a pipe, with NO_COLOR and by option."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.terminals import on_terminal

pytestmark = pytest.mark.req("X3")

RINGFENCE = (sys.executable, "-m", "ringfence.cli.app")
POLICY = "policies: {default: {denied_commands: [dd]}}\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a project, a shadow of it and a journal: whatever there is to show."""
    top = tmp_path_factory.mktemp("manners")
    project = top / "home" / "a-project-with-a-long-name" / "in-a-directory-below" / "that-has-a-longer-one-still"
    project.mkdir(parents=True)
    (project / "policy.yaml").write_text(POLICY)
    (top / "project").symlink_to(project)
    long = "echo " + " ".join(f"word{number}" for number in range(40))
    assert run(top, "run", "--shadow", f"cat ~/.ssh/id; echo x > new; {long} > other").returncode == 0
    assert run(top, "run", "--policy", "policy.yaml", "--", "dd", "if=/dev/zero").returncode == 122
    return top


def environment(top: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(top / "home"), "PYTHONPATH": os.pathsep.join(sys.path), **more}


def run(top: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RINGFENCE, *words],
        cwd=os.path.realpath(top / "project"),
        env=environment(top, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def typed(top: Path, *words: str, columns: int = 80, **more: str) -> bytes:
    where = Path(os.path.realpath(top / "project"))
    return on_terminal([*RINGFENCE, *words], cwd=where, env=environment(top, **more), columns=columns)[1]


SHOWN = [
    ("workspace", "list"),
    ("workspace", "diff"),
    ("audit", "tail"),
    ("audit", "show", "1"),
    ("violations",),
    ("check", "--policy", "policy.yaml", "--", "dd"),
    ("policy", "explain", "policy.yaml"),
    ("config", "show"),
    ("audit", "verify"),
    ("doctor",),
    ("workspace", "diff", "--help"),
]


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_colours_are_for_terminals_and_for_those_who_want_them(place: Path, words: tuple[str, ...]) -> None:
    piped = run(place, *words)

    assert "\x1b" not in piped.stdout + piped.stderr
    assert b"\x1b[" not in typed(place, *words, NO_COLOR="1")
    if "--help" not in words:
        assert "\x1b[" in run(place, "--color", "always", *words).stdout


def test_an_option_before_the_command_holds_for_it(place: Path) -> None:
    assert "\x1b[" in run(place, "--color", "always", "audit", "tail").stdout
    assert "\x1b[" not in run(place, "--color", "always", "audit", "tail", "--color", "never").stdout


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_ids_are_never_cut_and_a_row_keeps_to_the_terminal(place: Path, columns: int) -> None:
    (shadow,) = json.loads(run(place, "workspace", "list", "--json").stdout)

    shown = typed(place, "workspace", "list", columns=columns).decode()
    piped = run(place, "workspace", "list").stdout.splitlines()

    assert shadow["id"] in shown
    assert len(piped) == 2 and shadow["id"] in piped[1] and shadow["project"] in piped[1]


def test_at_eighty_columns_the_journal_shows_enough_of_a_command(place: Path) -> None:
    lines = typed(place, "audit", "tail", NO_COLOR="1").decode().splitlines()

    assert max(map(len, lines)) <= 80
    first = next(line for line in lines if "cat ~/.ssh/id" in line)
    assert len(first[first.index("cat ~/.ssh/id") :]) >= 45
    assert "word39" in run(place, "audit", "tail").stdout, "nothing is cut where no terminal is"


def test_quiet_leaves_out_notes_and_keeps_what_went_wrong(place: Path) -> None:
    loud = run(place, "run", "cat ~/.ssh/id; echo done")
    quiet = run(place, "run", "-q", "cat ~/.ssh/id; echo done")
    refused = run(place, "run", "-q", "--policy", "policy.yaml", "--", "dd")
    broken = run(place, "-q", "run", "-w", "/no/such", "true")

    assert "ringfence: " in loud.stderr and "ringfence: " not in quiet.stderr
    assert quiet.stdout == "done\n"
    assert "refused" in refused.stderr and refused.returncode == 122
    assert "hint:" in broken.stderr and broken.returncode == 125


def test_the_version_has_a_short_name(place: Path) -> None:
    assert run(place, "-V").stdout.startswith("ringfence ")


TABLES: list[tuple[tuple[str, ...], Callable[[object], bool]]] = [
    (("workspace", "list"), lambda said: isinstance(said, list) and len(said) == 1),
    (("workspace", "diff"), lambda said: isinstance(said, list) and len(said) == 2),
    (("workspace", "snapshots"), lambda said: said == []),
    (("violations",), lambda said: isinstance(said, dict) and said["total"] > 0),
    (("policy", "explain", "policy.yaml"), lambda said: isinstance(said, dict) and "shell_exec" in said["tools"]),
    (("policy", "check", "policy.yaml"), lambda said: isinstance(said, dict) and said["valid"]),
    (("config", "show"), lambda said: isinstance(said, dict) and len(said["settings"]) > 20),
    (("audit", "stats"), lambda said: isinstance(said, dict) and said["records"] > 0),
    (("pool",), lambda said: said == []),
]


@pytest.mark.parametrize(("words", "fits"), TABLES, ids=lambda each: " ".join(each) if isinstance(each, tuple) else "")
def test_what_is_a_table_is_also_json(place: Path, words: tuple[str, ...], fits: Callable[[object], bool]) -> None:
    assert fits(json.loads(run(place, *words, "--json").stdout))
