"""Whatever somebody does to the log afterwards is found, and named."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.audit.chain import GENESIS, encode, read_link, seal
from ringfence.audit.head import Head
from ringfence.audit.journal import Journal
from ringfence.audit.verify import Anchor, Report, verify
from ringfence.policy.audit_settings import AuditSettings
from tests.support.journals import a_journal

pytestmark = pytest.mark.req("B9")

Lines = list[bytes]


def tampered(directory: Path, change: Callable[[Lines], Lines]) -> Report:
    """What verifying says after the current file's lines were changed."""
    path = directory / "journal.jsonl"
    with open(path, "r+b") as file:  # in place: the same inode, as a careful attacker would leave it
        changed = b"".join(change(file.read().splitlines(keepends=True)))
        file.seek(0)
        file.truncate()
        file.write(changed)
    return verify(directory)


def test_an_untouched_log_is_whole(tmp_path: Path) -> None:
    a_journal(tmp_path, 10)

    report = verify(tmp_path)

    assert (report.fault, report.records, report.first_seq, report.last_seq, report.notes) == (None, 10, 1, 10, [])
    last = read_link((tmp_path / "journal.jsonl").read_bytes().splitlines()[-1])
    assert last is not None and report.last_hash == last.hash


def another_digit(digit: bytes) -> bytes:
    return b"1" if digit == b"0" else b"0"


def with_new_hash(line: bytes) -> bytes:
    """A record made anew with a command of the attacker's, and a hash that fits it."""
    record = json.loads(line)
    seq, prev, _ = record.pop("seq"), record.pop("prev"), record.pop("hash")
    return seal(encode(record | {"command": "innocent"}), seq, prev)[0]


def a_chain_made_anew(lines: Lines) -> Lines:
    made, prev = [], GENESIS
    for number, line in enumerate(lines, 1):
        record = json.loads(line)
        for name in ("seq", "prev", "hash"):
            del record[name]
        sealed, prev = seal(encode(record | {"command": "innocent"}), number, prev)
        made.append(sealed)
    return made


CASES: dict[str, tuple[Callable[[Lines], Lines], int | None, int | None, str]] = {
    # what is done: the lines afterwards, the line and the record that is named, what is said
    "edited": (lambda ls: [*ls[:4], ls[4].replace(b"echo 5", b"echo 6"), *ls[5:]], 5, 5, "edited"),
    "edited by a blank": (lambda ls: [*ls[:4], ls[4].replace(b"echo 5", b"echo  5"), *ls[5:]], 5, 5, "edited"),
    "hash edited": (lambda ls: [*ls[:4], ls[4][:-4] + another_digit(ls[4][-4:-3]) + b'"}\n', *ls[5:]], 5, 5, "edited"),
    "edited with a new hash": (lambda ls: [*ls[:4], with_new_hash(ls[4]), *ls[5:]], 6, 6, "does not follow"),
    "removed": (lambda ls: [*ls[:4], *ls[5:]], 5, 6, "record 5 is missing"),
    "two removed": (lambda ls: [*ls[:4], *ls[6:]], 5, 7, "records 5 to 6 are missing"),
    "first removed": (lambda ls: ls[1:], 1, 2, "records 1 to 1 are missing"),
    "swapped": (lambda ls: [*ls[:3], ls[4], ls[3], *ls[5:]], 4, 5, "record 4 comes later"),
    "inserted again": (lambda ls: [*ls[:6], ls[2], *ls[6:]], 7, 3, "out of order"),
    "inserted foreign": (lambda ls: [*ls[:6], b'{"command":"x"}\n', *ls[6:]], 7, None, "inserted"),
    "inserted empty": (lambda ls: [*ls[:6], b"\n", *ls[6:]], 7, None, "inserted"),
    "inserted with a hash": (lambda ls: [*ls[:6], with_new_hash(ls[6]), *ls[6:]], 8, 7, "out of order"),
    "tail cut": (lambda ls: ls[:7], None, None, "tail was cut: the last record is 7, but the head knows of record 10"),
    "tail cut within a line": (lambda ls: [*ls[:7], ls[7][:30]], 8, None, "incomplete line"),
    "all cut": (lambda ls: [], None, None, "tail was cut"),
    "last edited": (lambda ls: [*ls[:9], ls[9].replace(b"echo 10", b"echo 11")], 10, 10, "edited"),
    "last edited with a new hash": (lambda ls: [*ls[:9], with_new_hash(ls[9])], 10, 10, "anchored"),
    "made anew": (a_chain_made_anew, 10, 10, "anchored"),
    "emptied line": (lambda ls: [*ls[:4], b"\0" * len(ls[4][:-1]) + b"\n", *ls[5:]], 5, None, "inserted"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_was_done_to_the_log_is_named_with_its_place(tmp_path: Path, name: str) -> None:
    change, line, seq, says = CASES[name]
    a_journal(tmp_path, 10)

    fault = tampered(tmp_path, change).fault

    assert fault is not None and says in fault.what
    assert (fault.line, fault.seq) == (line, seq)
    assert fault.file == "journal.jsonl"


@pytest.mark.parametrize("name", CASES)
def test_it_is_still_found_after_somebody_has_written_on(tmp_path: Path, name: str) -> None:
    change, *_ = CASES[name]
    a_journal(tmp_path, 10)
    tampered(tmp_path, change)

    a_journal(tmp_path, 3)

    assert not verify(tmp_path).ok


def test_a_missing_head_is_found_now_and_after_the_next_writer_made_one(tmp_path: Path) -> None:
    a_journal(tmp_path, 10)
    (tmp_path / "head").unlink()
    assert "head is gone" in str(verify(tmp_path).fault)

    a_journal(tmp_path, 1)

    fault = verify(tmp_path).fault
    assert fault is not None and fault.seq == 11 and "may have been cut" in fault.what


def test_a_head_that_is_not_whole_is_found(tmp_path: Path) -> None:
    a_journal(tmp_path, 3)
    head = (tmp_path / "head").read_bytes()
    (tmp_path / "head").write_bytes(head.replace(b" 3 ", b" 2 ", 1))
    assert Head.decode((tmp_path / "head").read_bytes()) is None

    assert "not whole" in str(verify(tmp_path).fault)


def test_a_tail_cut_together_with_the_head_is_found_by_an_anchor_kept_elsewhere(tmp_path: Path) -> None:
    a_journal(tmp_path / "log", 10)
    shutil.copytree(tmp_path / "log", tmp_path / "set back")
    a_journal(tmp_path / "log", 5)
    kept = verify(tmp_path / "log")
    anchor = Anchor(kept.last_seq, kept.last_hash)

    assert verify(tmp_path / "set back").ok
    assert "anchor knows of record 15" in str(verify(tmp_path / "set back", anchors=(anchor,)).fault)
    assert verify(tmp_path / "log", anchors=(anchor,)).ok
    assert "anchored" in str(verify(tmp_path / "log", anchors=(Anchor(3, "0" * 64),)).fault)


def test_a_copy_of_the_directory_is_whole_and_can_be_written(tmp_path: Path) -> None:
    a_journal(tmp_path / "one", 3)
    shutil.copytree(tmp_path / "one", tmp_path / "two")

    a_journal(tmp_path / "two", 3)

    assert (verify(tmp_path / "two").fault, verify(tmp_path / "two").records) == (None, 6)


# --- files ------------------------------------------------------------------------------------------------------------

SMALL = AuditSettings(max_bytes=2000)


def test_the_chain_goes_on_from_file_to_file(tmp_path: Path) -> None:
    a_journal(tmp_path, 50, SMALL)

    report = verify(tmp_path)

    assert (report.fault, report.records) == (None, 50)
    assert report.files > 5
    names = sorted(path.name for path in tmp_path.glob("journal*"))
    assert names[:2] == ["journal-000001.jsonl", "journal-000002.jsonl"] and names[-1] == "journal.jsonl"
    assert all(path.stat().st_size <= 2000 for path in tmp_path.glob("journal*"))


def test_two_writers_follow_each_other_over_a_rotation(tmp_path: Path) -> None:
    one, two = Journal(tmp_path, SMALL), Journal(tmp_path, SMALL)
    for number in range(40):
        (one, two)[number % 2].open(f"r{number}", {"command": "x" * 100}).close({"result": "success"})
    one.close()
    two.close()

    assert (verify(tmp_path).fault, verify(tmp_path).records) == (None, 40)


@pytest.mark.parametrize("gone", ["journal-000001.jsonl", "journal-000003.jsonl"])
def test_a_file_that_is_gone_is_missed(tmp_path: Path, gone: str) -> None:
    a_journal(tmp_path, 50, SMALL)
    (tmp_path / gone).unlink()

    assert "missing" in str(verify(tmp_path).fault)


def test_removing_the_oldest_files_on_purpose_can_be_said(tmp_path: Path) -> None:
    a_journal(tmp_path, 50, SMALL)
    (tmp_path / "journal-000001.jsonl").unlink()

    report = verify(tmp_path, from_oldest=True)

    assert report.ok and report.first_seq > 1
    assert any("older files are not there" in note for note in report.notes)
    (tmp_path / "journal-000003.jsonl").unlink()
    assert not verify(tmp_path, from_oldest=True).ok


@pytest.mark.parametrize("new_file", [False, True])
def test_a_rotation_that_a_crash_cut_short_is_finished(tmp_path: Path, new_file: bool) -> None:
    a_journal(tmp_path, 3)
    (tmp_path / "journal.jsonl").rename(tmp_path / "journal-000001.jsonl")
    if new_file:
        (tmp_path / "journal.jsonl").touch()

    a_journal(tmp_path, 2)

    report = verify(tmp_path)
    assert (report.fault, report.records, report.files) == (None, 5, 2)


def test_a_file_in_the_way_of_rotation_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "journal-000001.jsonl").mkdir()
    journal = Journal(tmp_path, SMALL)
    for number in range(20):
        journal.open(f"r{number}", {"command": "x" * 100}).close({"result": "success"})
    journal.close()

    assert (tmp_path / "journal-000001.jsonl").is_dir()
    assert (tmp_path / "journal-000002.jsonl").is_file()


# --- torn lines and old journals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [b"{", b'{"seq":4,"prev":"00', b"\xff" * 5000])
def test_half_a_line_is_moved_aside_and_said(tmp_path: Path, left: bytes) -> None:
    a_journal(tmp_path, 3)
    with open(tmp_path / "journal.jsonl", "ab") as file:
        file.write(left)
    assert "incomplete line" in str(verify(tmp_path).fault)

    journal = Journal(tmp_path)
    journal.recover()
    notes = journal.take_notes()
    journal.close()

    report = verify(tmp_path)
    assert (report.fault, report.records, report.repairs) == (None, 4, 1)
    assert "moved aside" in notes[0]
    (torn,) = tmp_path.glob("torn-*")
    assert torn.read_bytes() == left


def test_a_record_that_was_written_before_its_writer_died_is_taken_in(tmp_path: Path) -> None:
    a_journal(tmp_path, 2)
    before = (tmp_path / "head").read_bytes()
    a_journal(tmp_path, 2)
    (tmp_path / "head").write_bytes(before)
    assert any("died before it wrote the head" in note for note in verify(tmp_path).notes)

    a_journal(tmp_path, 1)

    assert (verify(tmp_path).fault, verify(tmp_path).records, verify(tmp_path).notes) == (None, 5, [])


def test_an_old_journal_is_kept_and_the_chain_begins_after_it(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"run":"old1"}\n{"run":"old2"}\n')
    assert (verify(tmp_path).ok, verify(tmp_path).unchained) == (True, 2)

    a_journal(tmp_path, 3)

    report = verify(tmp_path)
    assert (report.fault, report.unchained, report.records, report.first_seq) == (None, 2, 4, 1)
    assert "nothing proves" in report.notes[0]
    fault = tampered(tmp_path, lambda lines: [lines[0].replace(b"old1", b"new1"), *lines[1:]]).fault
    assert fault is not None and "before the chain" in fault.what


def test_no_journal_is_no_whole_journal(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verify(tmp_path)
    Journal(tmp_path).recover()
    with pytest.raises(FileNotFoundError):
        verify(tmp_path)


# --- signatures -------------------------------------------------------------------------------------------------------


class TestSigned:
    @pytest.fixture(autouse=True)
    def keys(self, tmp_path: Path) -> None:
        pytest.importorskip("cryptography", reason="needs the extra `sign`")
        from ringfence.audit.signing import make_keys

        self.public = make_keys(tmp_path / "key")
        self.other = make_keys(tmp_path / "other")
        self.settings = AuditSettings(key=str(tmp_path / "key"), checkpoint_records=10)

    def check(self, directory: Path, *keys: Path) -> Report:
        from ringfence.audit.signing import Verifier

        return verify(directory, keys=Verifier(keys or (self.public,)))

    def test_checkpoints_are_written_and_hold(self, tmp_path: Path) -> None:
        a_journal(tmp_path, 35, self.settings)

        report = self.check(tmp_path)

        assert (report.fault, report.records) == (None, 35 + report.checkpoints)
        assert report.checkpoints >= 3 and report.signed_seq > 30
        assert self.check(tmp_path, self.other, self.public).ok
        assert any("were not checked" in note for note in verify(tmp_path).notes)

    def test_a_chain_made_anew_with_its_head_is_found_by_the_key_alone(self, tmp_path: Path) -> None:
        a_journal(tmp_path, 35, self.settings)
        path = tmp_path / "journal.jsonl"
        made = a_chain_made_anew(path.read_bytes().splitlines(keepends=True))
        path.write_bytes(b"".join(made))
        head = Head.decode((tmp_path / "head").read_bytes())
        last = read_link(made[-1])
        assert head is not None and last is not None
        forged = head._replace(hash=last.hash, size=path.stat().st_size, inode=os.stat(path).st_ino)
        (tmp_path / "head").write_bytes(forged.encode())

        assert verify(tmp_path).ok, "the twin: without the key it passes"
        assert "does not match" in str(self.check(tmp_path).fault)

    def test_another_key_and_no_checkpoint_are_faults(self, tmp_path: Path) -> None:
        a_journal(tmp_path / "signed", 12, self.settings)
        a_journal(tmp_path / "plain", 12)

        assert "none of the given ones" in str(self.check(tmp_path / "signed", self.other).fault)
        assert "no signed checkpoint" in str(self.check(tmp_path / "plain").fault)
