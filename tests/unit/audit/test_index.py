"""The index answers from the log, follows it, and is made anew whenever it does not fit."""

import os
import sqlite3
from pathlib import Path

import pytest

from ringfence.audit.index import Filter, Index
from ringfence.audit.journal import Journal
from ringfence.policy.audit_settings import AuditSettings
from tests.support.journals import a_journal, fork

pytestmark = pytest.mark.req("B9")


def runs(directory: Path, **wanted: str) -> list[str]:
    with Index(directory) as index:
        return [record.get("run", record.get("event_type")) for record in index.find(Filter(**wanted))]


def test_it_finds_by_session_agent_tool_result_time_and_text(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for run, session, agent, tool, result, command in (
        ("r1", "s1", "a1", "code_run", "success", "print(1)"),
        ("r2", "s1", "a2", "shell_exec", "refused", "rm -rf /"),
        ("r3", "s2", "a1", "shell_exec", "failure", "make TEST"),
    ):
        fields = {"session_id": session, "agent_id": agent, "tool": tool, "command": command}
        journal.open(run, fields).close({"result": result, "error": "100% Broken" if run == "r3" else None})
    journal.close()

    assert runs(tmp_path) == ["r1", "r2", "r3"]
    assert runs(tmp_path, session_id="s1") == ["r1", "r2"]
    assert runs(tmp_path, agent_id="a1", tool="shell_exec") == ["r3"]
    assert runs(tmp_path, result="refused") == ["r2"]
    assert runs(tmp_path, text="make test") == runs(tmp_path, text="% broken") == ["r3"]
    assert runs(tmp_path, text="' OR 1 --") == runs(tmp_path, text="r%t") == []
    assert runs(tmp_path, text="%") == ["r3"]
    assert runs(tmp_path, since="2999-01-01") == runs(tmp_path, until="1999-01-01") == []
    assert runs(tmp_path, since="1999-01-01", until="2999-01-01") == ["r1", "r2", "r3"]


def test_it_follows_the_log_over_rotations(tmp_path: Path) -> None:
    small = AuditSettings(max_bytes=1500)
    seen = 0
    for _ in range(6):
        a_journal(tmp_path, 7, small)
        seen += 7
        with Index(tmp_path) as index:
            assert [record["seq"] for record in index.find(Filter())] == list(range(1, seen + 1))
            assert index.show("3")[0]["run"] == "r3"
            assert len(index.show("r3")) == seen // 7


@pytest.mark.parametrize("harm", ["gone", "no database", "empty", "other version", "other log", "rows gone"])
def test_it_is_made_anew_when_it_does_not_fit(tmp_path: Path, harm: str) -> None:
    a_journal(tmp_path, 5)
    assert len(runs(tmp_path)) == 5
    path = tmp_path / "index.sqlite3"
    match harm:
        case "gone":
            path.unlink()
        case "no database":
            path.write_bytes(b"x" * 5000)
        case "empty":
            path.write_bytes(b"")
        case "other version":
            with sqlite3.connect(path) as database:
                database.execute("PRAGMA user_version = 77")
            database.close()
        case "other log":
            for name in ("journal.jsonl", "head"):
                (tmp_path / name).unlink()
        case "rows gone":
            with sqlite3.connect(path) as database:
                database.execute("DROP TABLE records")
            database.close()

    a_journal(tmp_path, 3)

    assert len(runs(tmp_path)) == (3 if harm == "other log" else 8)


def test_where_it_cannot_be_written_it_is_made_in_memory(tmp_path: Path) -> None:
    a_journal(tmp_path, 5)
    (tmp_path / "index.sqlite3").mkdir()

    assert len(runs(tmp_path)) == 5


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    a_journal(tmp_path / "log", 2)
    (tmp_path / "target").write_bytes(b"mine")
    (tmp_path / "log" / "index.sqlite3").symlink_to(tmp_path / "target")

    assert len(runs(tmp_path / "log")) == 2
    assert (tmp_path / "target").read_bytes() == b"mine"


def test_several_readers_and_a_writer_do_not_disturb_each_other(tmp_path: Path) -> None:
    a_journal(tmp_path, 20)

    def read() -> None:
        for _ in range(10):
            assert len(runs(tmp_path)) >= 20

    children = [fork(read), fork(read), fork(lambda: a_journal(tmp_path, 100))]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]

    assert len(runs(tmp_path)) == 120


def test_lines_that_are_no_records_and_odd_characters_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"run":"old","ending":"exited with 0"}\n[]\nnull\n\xff\n{"seq":{}}\n')
    a_journal(tmp_path, 1, command_line="\ud800 \x00 \x1b[2J")

    assert runs(tmp_path)[0] == "old" and runs(tmp_path)[-1] == "r1"


def test_counts(tmp_path: Path) -> None:
    a_journal(tmp_path, 4, agent_id="a1")

    with Index(tmp_path) as index:
        stats = index.stats(Filter())

    assert (stats.records, stats.by_result, stats.by_agent, stats.mean_ms) == (4, {"success": 4}, {"a1": 4}, 1.5)
