"""Processes that die, disks that are full, directories that cannot be written: nothing runs unrecorded."""

import json
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ringfence.audit.journal import Journal
from ringfence.audit.verify import verify
from ringfence.errors import PermissionDenied
from ringfence.policy.audit_settings import AuditSettings
from tests.support.journals import a_journal, fork

pytestmark = pytest.mark.req("B9")
_UP = b"up\n"


def records(state: Path) -> list[dict[str, Any]]:
    found = []
    for path in (*sorted(state.glob("journal-*.jsonl")), state / "journal.jsonl"):
        found += [json.loads(line) for line in path.read_bytes().splitlines()]
    return found


def test_writers_that_are_killed_at_random_points_lose_nothing_that_was_said_to_be_written(tmp_path: Path) -> None:
    """200 deaths. A writer says through a pipe what it opened and what it closed; all of it has to be there."""
    state = tmp_path / "state"
    settings = AuditSettings(max_bytes=300_000)
    chance = random.Random(5)
    opened: set[str] = set()
    closed: set[str] = set()
    for death in range(100):
        readers = []
        children = []
        for name in "ab":
            reader, writer = os.pipe()

            def work(death: int = death, name: str = name, writer: int = writer) -> None:
                os.write(writer, _UP)
                journal = Journal(state, settings)
                journal.recover()
                number = 0
                while True:
                    run = f"{death}{name}{number}"
                    entry = journal.open(run, {"command": name * (number % 7 * 1500)})
                    os.write(writer, b"o%b\n" % run.encode())
                    entry.close({"result": "success"})
                    os.write(writer, b"c%b\n" % run.encode())
                    number += 1

            children.append(fork(work))
            os.close(writer)
            readers.append(reader)
        for reader in readers:  # its time runs from when it does: a busy machine may take longer than that to start it
            assert os.read(reader, len(_UP)) == _UP
        time.sleep(chance.uniform(0.002, 0.02))
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            assert os.waitpid(child, 0)[1] == signal.SIGKILL
        for reader in readers:
            with open(reader, "rb") as said:
                for line in said.read().decode().splitlines():
                    (opened if line[0] == "o" else closed).add(line[1:])

    journal = Journal(state, settings)
    journal.recover()
    journal.close()

    report = verify(state)
    found = [record for record in records(state) if record["event_type"] == "sandbox_execution"]
    by_run = {record["run"]: record["result"] for record in found}
    assert report.fault is None
    assert len(by_run) == len(found), "a run has two records"
    assert opened - by_run.keys() == set(), "something ran unrecorded"
    assert {run for run in closed if by_run[run] != "success"} == set()
    assert list((state / "pending").iterdir()) == []
    assert len(closed) > 200 and "interrupted" in by_run.values()


def test_two_writers_at_once_make_one_chain(tmp_path: Path) -> None:
    def work() -> None:
        a_journal(tmp_path, 400, AuditSettings(max_bytes=100_000))

    children = [fork(work), fork(work)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]

    assert (verify(tmp_path).fault, verify(tmp_path).records) == (None, 800)


def test_a_fork_of_a_writer_writes_for_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = journal.open("parent", {})

    def work() -> None:
        for number in range(50):
            journal.open(f"c{number}", {}).close({"result": "success"})
        journal.close()

    child = fork(work)
    for number in range(50):
        journal.open(f"p{number}", {}).close({"result": "success"})
    assert os.waitpid(child, 0)[1] == 0
    entry.close({"result": "success"})
    journal.close()

    assert (verify(tmp_path).fault, verify(tmp_path).records) == (None, 101)
    assert list((tmp_path / "pending").iterdir()) == []


# --- no room ----------------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_on_a_full_disk_nothing_is_opened_and_what_was_open_is_closed_once_there_is_room(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", tmp_path], check=False)
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        journal = Journal(tmp_path / "state")
        entry = journal.open("early", {"command": "x" * 2000})
        ballast = tmp_path / "ballast"
        with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"\0" * 4096)
        time.sleep(0.06)  # what is known of the disk may be that old

        with pytest.raises(PermissionDenied, match="No space left"):
            entry.close({"result": "success"} | {str(number): "y" * 100 for number in range(100)})
        with pytest.raises(PermissionDenied, match="nothing is run"):
            journal.open("late", {})
        ballast.unlink()

        journal.open("later", {}).close({"result": "success"})
        journal.close()
        assert [record["run"] for record in records(tmp_path / "state")] == ["early", "later"]
        assert verify(tmp_path / "state").ok
        assert list((tmp_path / "state" / "pending").iterdir()) == []
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_line_that_does_not_fit_leaves_nothing_of_itself(tmp_path: Path) -> None:
    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
        journal = Journal(tmp_path)
        number = 0
        try:
            while True:
                journal.open(f"r{number}", {"command": "x" * 900}).close({"result": "success"})
                number += 1
        except PermissionDenied:
            pass
        try:
            journal.open("more", {})
        except PermissionDenied:
            os._exit(7)

    assert os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]) == 7
    whole = len(records(tmp_path))
    assert verify(tmp_path).ok

    journal = Journal(tmp_path)
    assert journal.recover() == 1
    journal.close()

    assert [record["result"] for record in records(tmp_path)] == ["success"] * whole + ["interrupted"]
    assert (verify(tmp_path).ok, verify(tmp_path).repairs) == (True, 0)


def test_in_a_directory_that_cannot_be_written_nothing_is_opened(tmp_path: Path) -> None:
    state = tmp_path / "state"
    a_journal(state, 1)
    tmp_path.chmod(0o755)
    for path in (state, state / "pending"):
        path.chmod(0o555)
    for path in (state / "journal.jsonl", state / "head"):
        path.chmod(0o444)

    def work() -> None:
        for parent in tmp_path.parents:
            if parent.stat().st_uid == os.geteuid() and os.geteuid() == 0 and not parent.stat().st_mode & 0o001:
                parent.chmod(0o711)
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        try:
            Journal(state).open("r2", {})
        except PermissionDenied as fault:
            os._exit(7 if "nothing is run" in fault.message else 8)

    assert os.waitstatus_to_exitcode(os.waitpid(fork(work), 0)[1]) == 7
    for path in (state, state / "pending"):
        path.chmod(0o700)


def test_a_lock_that_somebody_keeps_is_an_error_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr("ringfence.audit.log._LOCK_SECONDS", 0.05)
    a_journal(tmp_path, 1)
    journal = Journal(tmp_path)
    with open(tmp_path / "head", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(PermissionDenied, match="holds it locked"):
            journal.open("r2", {})

    journal.open("r3", {}).close({"result": "success"})
    journal.close()
    assert verify(tmp_path).ok
