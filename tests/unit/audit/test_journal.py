"""The journal: open before, closed after, one line each, whatever dies in between and whatever a record holds."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.audit.chain import encode
from ringfence.audit.journal import Journal
from ringfence.audit.pending import still_open
from ringfence.errors import PermissionDenied


def lines(state: Path) -> list[dict[str, Any]]:
    path = state / "journal.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line] if path.exists() else []


def pending(state: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for path in (state / "pending").iterdir() for _, text in still_open(path.read_bytes())]


def in_a_child(work: Any) -> int:
    """Run `work` in a process of its own that dies without a word afterwards; returns its wait status."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@pytest.mark.req("B2", "B9")
def test_the_decision_is_on_disk_before_the_run_and_the_line_after_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path)

    entry = journal.open("r1", {"command": "true", "verdict": "allow"})
    assert [record["run"] for record in pending(tmp_path)] == ["r1"]
    assert lines(tmp_path) == []

    entry.close({"ending": "exited with 0"})
    assert pending(tmp_path) == []
    (line,) = lines(tmp_path)
    assert (line["run"], line["command"], line["verdict"], line["ending"]) == ("r1", "true", "allow", "exited with 0")
    assert (line["seq"], line["event_type"]) == (1, "sandbox_execution")

    journal.close()
    assert list((tmp_path / "pending").iterdir()) == []


def test_the_files_are_for_their_owner_only(tmp_path: Path) -> None:
    state = tmp_path / "state"
    journal = Journal(state)
    journal.open("r1", {}).close({})

    modes = [path.stat().st_mode & 0o777 for path in state.rglob("*") if path.is_file()]
    journal.close()

    assert modes == [0o600] * 3


@pytest.mark.req("B2", "C12")
@pytest.mark.parametrize("what", ["state is a file", "lines are a directory", "lines are a link"])
def test_a_journal_that_cannot_be_written_is_refused_with_a_hint(tmp_path: Path, what: str) -> None:
    state = tmp_path / "state"
    if what == "state is a file":
        state.touch()
    else:
        state.mkdir()
    if what == "lines are a directory":
        (state / "journal.jsonl").mkdir()
    if what == "lines are a link":
        (state / "journal.jsonl").symlink_to(tmp_path / "elsewhere")
    journal = Journal(state)

    with pytest.raises(PermissionDenied, match="nothing is run") as caught:
        journal.open("r1", {})

    journal.close()
    assert "RINGFENCE_STATE_DIR" in caught.value.hint
    assert not (tmp_path / "elsewhere").exists()


def test_the_same_journal_can_be_written_once_nothing_is_in_the_way(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.touch()
    journal = Journal(state)
    with pytest.raises(PermissionDenied):
        journal.open("r1", {})
    state.unlink()

    journal.open("r2", {}).close({})
    journal.close()

    assert [line["run"] for line in lines(state)] == ["r2"]


def test_a_full_disk_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)

    def full(descriptor: int, data: bytes, begin: int) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(PermissionDenied, match="No space left"):
            journal.open("r1", {})
    journal.close()


@pytest.mark.req("B2", "B9")
def test_what_a_dead_process_left_open_is_closed_as_interrupted_once(tmp_path: Path) -> None:
    assert in_a_child(lambda: Journal(tmp_path).open("r1", {"command": "sleep 9"})) == 0
    journal = Journal(tmp_path)

    assert journal.recover() == 1
    assert journal.recover() == 0

    journal.close()
    (line,) = lines(tmp_path)
    assert (line["run"], line["command"], line["ending"]) == ("r1", "sleep 9", "interrupted")
    assert list((tmp_path / "pending").iterdir()) == []


def test_what_a_dead_process_had_closed_is_not_reported_again(tmp_path: Path) -> None:
    def work() -> None:
        journal = Journal(tmp_path)
        still_open = journal.open("r1", {})
        journal.open("r2", {}).close({"ending": "exited with 0"})
        assert still_open

    assert in_a_child(work) == 0
    journal = Journal(tmp_path)
    assert journal.recover() == 1
    journal.close()

    assert [(line["run"], line["ending"]) for line in lines(tmp_path)] == [
        ("r2", "exited with 0"),
        ("r1", "interrupted"),
    ]


def test_what_a_living_process_holds_open_is_left_alone(tmp_path: Path) -> None:
    living, looking = Journal(tmp_path), Journal(tmp_path)
    entry = living.open("r1", {})

    assert looking.recover() == 0
    assert living.recover() == 0

    entry.close({"ending": "exited with 0"})
    living.close()
    looking.close()
    assert [line["ending"] for line in lines(tmp_path)] == ["exited with 0"]


@pytest.mark.parametrize(
    "left", [b"", b"{", b"[]\n", b"null\n", b'{"run":1}\n{"ru', b"\xff\xfe\n", b"{}\n", b'{"run":[]}\n']
)
def test_a_torn_or_foreign_pending_file_is_no_fault(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "pending").mkdir()
    (tmp_path / "pending" / "1-x").write_bytes(left)
    journal = Journal(tmp_path)

    journal.recover()
    journal.open("r1", {}).close({"ending": "exited with 0"})
    journal.close()

    assert lines(tmp_path)[-1]["run"] == "r1"


def test_a_pending_file_that_was_taken_for_a_dead_writers_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making it and locking it, another process may find it unlocked."""
    journal, other = Journal(tmp_path), Journal(tmp_path)
    lock, times = fcntl.flock, iter([lambda: other.recover()])

    def late(descriptor: int, how: int) -> None:
        if how == fcntl.LOCK_EX:
            next(times, lambda: None)()
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    entry = journal.open("r1", {})

    assert [record["run"] for record in pending(tmp_path)] == ["r1"]
    entry.close({})
    journal.close()
    other.close()


def test_recovery_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "pending").mkdir()
    (tmp_path / "target").write_text('{"run":"forged"}\n')
    (tmp_path / "pending" / "link").symlink_to(tmp_path / "target")
    journal = Journal(tmp_path)

    assert journal.recover() == 0
    journal.close()
    assert (tmp_path / "target").exists()


@pytest.mark.req("B9")
def test_lines_of_two_processes_never_mix(tmp_path: Path) -> None:
    def work(name: str) -> None:
        journal = Journal(tmp_path)
        for number in range(200):
            journal.open(f"{name}{number}", {"command": name * 3000}).close({"ending": "exited with 0"})
        journal.close()

    children = []
    for name in "ab":
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(name)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]

    found = lines(tmp_path)
    assert len(found) == 400
    assert all(set(line["command"]) == {line["run"][0]} for line in found)


def test_a_journal_that_somebody_removed_is_begun_anew_and_says_so(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.open("r1", {}).close({})
    journal.path.rename(tmp_path / "journal.1")
    time.sleep(0.06)  # what is known of the files' names may be that old
    journal.open("r2", {}).close({})
    journal.path.unlink()
    time.sleep(0.06)
    journal.open("r3", {}).close({})
    journal.close()

    damaged, last = lines(tmp_path)
    assert (damaged["event_type"], damaged["seq"], last["run"]) == ("damaged", 4, "r3")
    assert json.loads((tmp_path / "journal.1").read_text())["run"] == "r1"


def test_closing_the_journal_waits_for_the_last_open_entry(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = journal.open("r1", {})
    journal.close()

    entry.close({"ending": "abandoned"})

    assert [line["ending"] for line in lines(tmp_path)] == ["abandoned"]
    assert list((tmp_path / "pending").iterdir()) == []


@settings(max_examples=100)
@given(st.text(st.characters(codec=None)), st.text(st.characters(min_codepoint=0, max_codepoint=0x20)))
def test_a_record_is_one_line_of_ascii_whatever_it_holds(command: str, control: str) -> None:
    data = encode({"command": command + control + "\r\n\x0b\x0c\x85\u2028\u2029\ud800"})

    assert len(data.splitlines()) == 1
    assert data.isascii()
    assert json.loads(data)["command"].startswith(command)
