"""The quick ways of the command line say what Typer and Rich would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringfence.cli import running
from ringfence.cli.lazy import load
from ringfence.cli.plain_help import NARROWEST, help_text, say_help
from ringfence.cli.quick import OPTIONS, read_line, run_quickly

KINDS = {"str": "text", "path": "path", "int": "number", "choice": "choice", "boolean": "flag"}


def typers() -> dict[str, tuple[str, str, bool]]:
    """Every spelling of an option of `run`, with the name, the kind of its value, and whether it may be repeated."""
    found: dict[str, tuple[str, str, bool]] = {}
    for param in load("run").params:
        if param.param_type_name == "option" and param.name != "help":
            kind = "flag" if param.is_flag else KINDS[param.type.name]
            for spelling in (*param.opts, *param.secondary_opts):
                found[spelling] = (param.name, kind, param.multiple)
    return found


def test_the_table_of_options_is_typers() -> None:
    assert {name: (key, kind.of, kind.is_many) for name, (key, kind) in OPTIONS.items()} == typers()


def by_typer(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, Any]]:
    """What Typer gives to the function that does the work."""
    given: list[Any] = []
    monkeypatch.setattr(
        "ringfence.cli.commands.run.run_command", lambda command, **options: given.append((command, options))
    )
    load("run").main(args=words, standalone_mode=False)
    return given[0]  # type: ignore[no-any-return]  # as it was given


PLAIN = [
    ["true"],
    ["--", "make", "-j4"],
    ["make", "-j4", "--", "x"],
    ["-", "x"],
    ["--timeout", "5s", "--write", "/usr", "--write=/tmp", "-e", "A=1", "--env", "B", "--", "sh", "-c", "x"],
    ["--read-only", "-i", "--json", "-v", "true"],
    ["--processes", "12", "--reach", "80", "--reach", "81", "true"],
    ["--language", "python", "1 + 1"],
    ["-w", "/tmp", "--policy", "nowhere.yaml", "--trace=off", "true"],
    ["--timeout", "1", "--timeout", "2", "true"],
    ["--allow", "pip", "--secret", "K=env:K@a.b", "--publish", "80:81", "--ask-network", "true"],
]


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_a_plain_line_is_read_as_typer_reads_it(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_line(words)
    command, options = by_typer(words, monkeypatch)

    assert read is not None
    assert read[0] == command
    assert read[1] == {name: value for name, value in options.items() if value not in (None, False, [])}


RARE = [
    [],
    ["--"],
    ["--help"],
    ["-h", "true"],
    ["--nonsense", "true"],
    ["--time", "5s", "true"],
    ["--timeout"],
    ["--timeout", "--json", "true"],
    ["--timeout", "", "true"],
    ["--json=yes", "true"],
    ["-iv", "true"],
    ["-w/tmp", "true"],
    ["--processes", "many", "true"],
    ["--processes", "-1", "true"],
    ["--processes", "٣", "true"],
    ["--color", "pink", "true"],
    ["--workspace", "", "true"],
]


@pytest.mark.parametrize("words", RARE, ids=" ".join)
def test_what_is_rare_or_wrong_is_left_to_typer(words: list[str]) -> None:
    assert read_line(words) is None


def test_other_commands_and_completion_are_left_to_typer() -> None:
    assert not run_quickly(["check", "true"], {})
    assert not run_quickly(["--quiet", "run", "true"], {})
    assert not run_quickly(["run", "true"], {"_RINGFENCE_COMPLETE": "bash_complete"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_path_that_cannot_be_read_is_left_to_typer(tmp_path: Path) -> None:
    (tmp_path / "closed").touch(mode=0)
    (tmp_path / "open").touch()

    assert read_line(["--read", os.fspath(tmp_path / "closed"), "true"]) is None
    assert read_line(["--read", os.fspath(tmp_path / "open"), "true"]) is not None


def test_the_quick_way_and_typer_hand_over_to_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(running, "run_command", lambda command, **options: given.append((command, options)))

    assert run_quickly(["run", "--quiet", "--color", "never", "--timeout", "5s", "true"], {})

    assert given == [(["true"], {"timeout": "5s"})]


# --- help -------------------------------------------------------------------------------------------------------------


def helps(width: int, **more: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": "/", "COLUMNS": str(width), "PYTHONUTF8": "1", **more}
    line = [sys.executable, "-m", "ringfence.cli.app", "--help"]
    done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, env=environ, check=True)
    return done.stdout.decode()


@pytest.mark.parametrize("width", [NARROWEST, 79, 80, 81, 100, 133, 200])
def test_the_plain_help_is_what_rich_draws(width: int) -> None:
    drawn = helps(width, TTY_INTERACTIVE="0")  # which the plain one leaves to Rich

    assert help_text(width) == drawn
    assert helps(width) == drawn


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TERMINAL_WIDTH", "_TYPER_STANDARD_TRACEBACK", "_RINGFENCE_COMPLETE"])
def test_help_of_another_kind_is_left_to_rich(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not say_help({name: "1"})
    assert not say_help({"COLUMNS": str(NARROWEST - 1)})
    assert capsys.readouterr().out == ""
    assert say_help({"COLUMNS": "80"})
    assert capsys.readouterr().out == help_text(80)
