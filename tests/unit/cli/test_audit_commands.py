"""`ringfence audit`: what it prints, how it exits, and that nothing in a record reaches the terminal as it is."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ringfence.audit.journal import Journal
from ringfence.cli.commands.audit import audit
from ringfence.cli.exits import Finished
from ringfence.errors import AlreadyExists, InvalidArgument, NotFound

pytestmark = pytest.mark.req("B9")

NASTY = "echo \x1b[2J\x07 [red]bold[/red] \u202e =1+1"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    journal = Journal(tmp_path / "state")
    for run, agent, tool, result, command in (
        ("aaaa", "agent_1", "code_run", "success", "print(1)"),
        ("bbbb", "agent_2", "shell_exec", "refused", "rm -rf /"),
        ("cccc", "agent_1", "shell_exec", "failure", NASTY),
    ):
        fields = {"session_id": "s1", "agent_id": agent, "tool": tool, "command": command}
        ended = {"result": result, "exit_code": 1, "execution_time_ms": 2.5, "memory_used_mb": 1.0, "error": None}
        journal.open(run, fields).close(ended)
    journal.close()
    return tmp_path / "state"


def call(*words: str) -> tuple[int, str]:
    done: Result = CliRunner().invoke(audit, words)
    if isinstance(done.exception, Finished):
        return done.exception.code, done.stdout
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout


def records(*words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in call(*words, "--json")[1].splitlines()]


def test_tail_shows_the_last_records(state: Path) -> None:
    code, said = call("tail", "-n", "2")

    assert code == 0
    assert "print(1)" not in said and "rm -rf /" in said
    assert [record["run"] for record in records("tail")] == ["aaaa", "bbbb", "cccc"]


def test_nothing_in_a_record_reaches_the_terminal_as_it_is(state: Path) -> None:
    for words in (("tail",), ("search", "echo"), ("show", "cccc"), ("export", "--format", "csv"), ("export",)):
        said = call(*words)[1]
        assert not {"\x1b", "\x07", "\u202e"} & set(said), words
    assert "[red]bold[/red]" in call("tail")[1]


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (("search", "RM -RF"), ["bbbb"]),
        (("search", "--agent", "agent_1"), ["aaaa", "cccc"]),
        (("search", "--tool", "shell_exec", "--result", "failure"), ["cccc"]),
        (("search", "--session", "s1", "--since", "1h"), ["aaaa", "bbbb", "cccc"]),
        (("search", "--since", "2000-01-01", "--until", "2000-01-02T00:00:00Z"), []),
        (("search", "no such text"), []),
        (("tail", "-n", "1", "--agent", "agent_1"), ["cccc"]),
    ],
)
def test_records_are_found_by_what_is_asked(state: Path, words: tuple[str, ...], runs: list[str]) -> None:
    assert [record["run"] for record in records(*words)] == runs
    if words[0] == "search":
        assert call(*words)[0] == (0 if runs else 1)


@pytest.mark.parametrize(
    "words", [("search", "--result", "good"), ("tail", "--since", "soon"), ("verify", "--anchor", "x")]
)
def test_a_question_that_makes_no_sense_is_an_error_with_a_hint(state: Path, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call(*words)
    assert caught.value.hint


def test_show_tells_everything_about_a_run_by_its_id_or_number(state: Path) -> None:
    code, said = call("show", "bbbb")

    assert code == 0 and "rm -rf /" in said and "hash" in said
    assert records("show", "2")[0]["run"] == "bbbb"
    assert call("show", "none")[0] == 1


def test_verify_says_that_it_is_whole_and_gives_an_anchor_that_holds(state: Path) -> None:
    code, said = call("verify")
    assert code == 0 and said.startswith("intact: 3 records")
    anchor = said.splitlines()[1].removeprefix("last: ")

    assert call("verify", "--anchor", anchor)[0] == 0
    assert call("verify", "--anchor", "3:" + "0" * 64)[0] == 1


def test_verify_names_the_first_bad_record_and_exits_with_1(state: Path) -> None:
    path = state / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"rm -rf /", b"ls -la /"))

    code, said = call("verify")

    assert code == 1
    assert "journal.jsonl:2: record 2: was edited" in said
    report = json.loads(call("verify", "--json")[1])
    assert (report["ok"], report["fault"]["seq"], report["fault"]["line"]) == (False, 2, 2)


def test_stats_count(state: Path) -> None:
    found = json.loads(call("stats", "--json")[1])

    assert found["records"] == 3
    assert found["by_result"] == {"success": 1, "refused": 1, "failure": 1}
    assert "3 executions" in call("stats")[1]


def test_export_gives_json_lines_or_a_table_that_is_no_formula(state: Path, tmp_path: Path) -> None:
    lines = call("export")[1].splitlines()
    assert [json.loads(line) for line in lines] == [
        json.loads(line) for line in (state / "journal.jsonl").read_text().splitlines()
    ]
    journal = Journal(state)
    journal.open("dddd", {"command": "=HYPERLINK(1)"}).close({"result": "success"})
    journal.close()

    rows = list(csv.DictReader(io.StringIO(call("export", "--format", "csv")[1])))
    assert [row["run"] for row in rows] == ["aaaa", "bbbb", "cccc", "dddd"]
    assert rows[3]["command"] == "'=HYPERLINK(1)"

    target = tmp_path / "out.jsonl"
    assert call("export", "-o", str(target), "--result", "refused")[0] == 0
    assert json.loads(target.read_text())["run"] == "bbbb"
    with pytest.raises(AlreadyExists, match="already"):
        call("export", "-o", str(target))


def test_without_a_journal_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    for command in (("tail",), ("verify",), ("stats",)):
        with pytest.raises(NotFound, match="there is none"):
            call(*command, "--dir", str(tmp_path))


def test_keygen_makes_a_key_once_and_verify_takes_it(state: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="needs the extra `sign`")
    key = tmp_path / "keys" / "audit.key"

    code, said = call("keygen", str(key))

    assert code == 0 and f"RINGFENCE_AUDIT_KEY={key}" in said
    assert (key.stat().st_mode & 0o777, (key.parent / "audit.key.pub").is_file()) == (0o600, True)
    with pytest.raises(AlreadyExists, match="already"):
        call("keygen", str(key))
    assert call("verify", "--public-key", f"{key}.pub")[0] == 1, "nothing is signed yet"
