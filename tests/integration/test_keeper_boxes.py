"""A call that finds a box made ahead is the same as one without a keeper; and what becomes of boxes that wait."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_keeper import _plain, _shape
from tests.support.keepers import Stage, a_copy, is_alive, is_running, kill, wait_for

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def kept() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="k-") as top:
        made = Stage(Path(top))
        (made.project / "policy.yaml").write_text("policies:\n  default: {max_memory: 1GB, denied_commands: [curl]}\n")
        (made.project / ".env").write_text("secret")
        made.start()
        yield made
        made.stop()


CALLS = [
    ("run", "echo out; echo err >&2; exit 7"),
    ("run", "kill -9 $$"),
    ("run", "--", "printf", "%s.", "a b", "c"),
    ("run", "cat .env; touch /etc/x .git; ls -a; pwd; umask; env | sort; tty; cat"),
    ("run", "--policy", "policy.yaml", "--", "echo allowed"),
    ("run", "head -c 3000000 /dev/zero | tr '\\0' x"),
    ("run", "--output", "1MB", "head -c 3000000 /dev/zero"),
    ("run", "--timeout", "0.3s", "sleep 30"),
    ("run", "--memory", "64MB", "head -c 300000000 /dev/zero | tail"),
    ("run", "--read-only", "touch here || echo refused"),
    ("run", "-e", "COLOUR=blue", "-v", "echo $COLOUR; sleep 100 & sleep 0.5; disown"),
    ("run", "--language", "python", "import os; print(os.getcwd()); 6 * 7"),
    ("run", "--json", "echo one; cat ~/.ssh/id_rsa"),
]


def _last_record(stage: Stage) -> Any:
    """Programs by name: those of a pipeline start in any order."""
    record = stage.records()[-1]
    return _shape(record | {"programs": sorted(record.get("programs") or ())})


def _said(done: subprocess.CompletedProcess[bytes], words: tuple[str, ...]) -> Any:
    out = _shape(json.loads(done.stdout)) if "--json" in words else done.stdout
    return done.returncode, out, _plain(done.stderr)


def test_a_call_in_a_box_made_ahead_says_ends_and_records_as_without(kept: Stage) -> None:
    for words in CALLS:
        in_box, its_record = kept.call_in_box(*words), _last_record(kept)
        without = kept.call(*words, keeper=False)
        assert _said(in_box, words) == _said(without, words), words
        assert its_record == _last_record(kept), words


def test_a_refused_call_does_not_use_the_box_and_is_refused_as_without(kept: Stage) -> None:
    options = ("run", "--policy", "policy.yaml", "--")
    for command, code in (("curl x", 122), ("no-such-program-at-all", 127)):
        kept.call_until_a_box_waits(*options, "true")
        words = (*options, command)
        refused, its_record = kept.call(*words), _last_record(kept)
        without = kept.call(*words, keeper=False)
        assert without.returncode == code
        assert _said(refused, words) == _said(without, words)
        assert its_record == _last_record(kept)


def _input_and_signals_reach_a_call_in_a_box_made_ahead(kept: Stage) -> None:
    data = os.urandom(200_000).hex().encode()
    kept.call_until_a_box_waits("run", "-i", "cat", input=b"")
    assert kept.call("run", "-i", "cat; exit 4", input=data).stdout == data
    for keeper in (True, False):
        kept.call_until_a_box_waits("run", "true")
        with kept.popen("run", "echo begun; exec sleep 81.5", keeper=keeper, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == -signal.SIGTERM
        wait_for(lambda: not is_running(("sleep", "81.5")))


def _descriptors_with_high_numbers_find_the_box_too(kept: Stage) -> None:
    reading, writing = os.pipe()
    done = [kept.call_in_box("run", "true", pass_fds=(reading, writing)) for _ in range(2)]
    os.close(writing)
    assert os.read(reading, 1) == b"", "nobody has kept the other end open"
    os.close(reading)

    assert [each.returncode for each in done] == [0, 0]


def _time_counts_from_the_call_on(kept: Stage) -> None:
    options = ("run", "--timeout", "2s", "--")
    kept.call_until_a_box_waits(*options, "true")
    time.sleep(2.2)
    before = kept.boxes_taken()

    assert kept.call(*options, "sleep 0.3; echo done").stdout == b"done\n"
    assert kept.boxes_taken() == before + 1


def _what_has_appeared_since_is_seen_and_hidden(kept: Stage) -> None:
    kept.call_until_a_box_waits("run", "ls -A; cat late/.env")
    (kept.project / "late").mkdir()
    (kept.project / "late" / ".env").write_text("late secret")
    done, without = (kept.call("run", "ls -A; cat late/.env", keeper=keeper) for keeper in (True, False))

    assert b"late\n" in done.stdout and b"secret" not in done.stdout
    assert _said(done, ()) == _said(without, ())


def _a_policy_that_has_changed_since_is_obeyed(kept: Stage) -> None:
    policy = kept.project / "other.yaml"
    policy.write_text("policies:\n  default: {denied_commands: [curl]}\n")
    words = ("run", "--policy", "other.yaml", "--", "date +x")
    assert kept.call(*words).returncode == 0
    wait_for(kept.boxes)
    policy.write_text("policies:\n  default: {denied_commands: [date]}\n")

    assert kept.call(*words).returncode == 122


def test_it_is_the_call_that_counts_and_the_moment_in_which_it_is_made(kept: Stage) -> None:
    """One keeper for all of these: to start and stop one takes longer than they do."""
    _input_and_signals_reach_a_call_in_a_box_made_ahead(kept)
    _descriptors_with_high_numbers_find_the_box_too(kept)
    _time_counts_from_the_call_on(kept)
    _what_has_appeared_since_is_seen_and_hidden(kept)
    _a_policy_that_has_changed_since_is_obeyed(kept)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="k-") as top:
        made = Stage(Path(top))
        yield made
        made.stop()


def with_settings(stage: Stage, **said: str) -> None:
    stage.env |= {f"RINGFENCE_KEEPER_{name}": value for name, value in said.items()}


def _waiting_child(keeper: int) -> int:
    """The one whose box waits: it has children of its own."""
    for pid in map(int, Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()):
        if Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            return pid
    raise AssertionError("no box waits")


def _below(pid: int) -> list[int]:
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [pid, *(deeper for each in children for deeper in _below(each))]


def _box_that_waits(stage: Stage, keeper: int, **more: Any) -> list[int]:
    """Its processes. It does not wait for long, so a busy machine may have to be asked twice."""

    def look() -> list[int]:
        stage.call_until_a_box_waits("run", "true", **more)
        with contextlib.suppress(AssertionError, FileNotFoundError, ProcessLookupError):
            return _below(_waiting_child(keeper))
        return []

    found: list[int] = wait_for(look)
    return found


def test_boxes_that_wait_go_in_time_and_are_few(stage: Stage) -> None:
    with_settings(stage, BOX_SECONDS="2.5", BOXES="1")
    pid = stage.start()
    first = _box_that_waits(stage, pid)
    assert stage.status()[0]["box_seconds"] == 2.5
    elsewhere = stage.top / "elsewhere"
    elsewhere.mkdir()
    stage.call("run", "true", cwd=elsewhere)
    wait_for(lambda: not any(map(is_alive, first)))
    second = _box_that_waits(stage, pid, cwd=elsewhere)
    assert stage.boxes() <= 1, "the second has taken the place of the first"

    wait_for(lambda: not any(map(is_alive, second)))
    wait_for(lambda: stage.boxes() == 0)
    with_settings(stage, BOXES="0")
    stage.stop()
    stage.start()
    for _ in range(3):
        assert stage.call("run", "true").returncode == 0
    assert stage.boxes() == 0 and stage.boxes_taken() == 0


def test_a_keeper_that_is_killed_takes_the_box_that_waits_along(stage: Stage) -> None:
    pid = stage.start()
    stage.call_until_a_box_waits("run", "true")
    everybody = _below(_waiting_child(pid))
    assert len(everybody) >= 3
    kill(pid)

    wait_for(lambda: not any(map(is_alive, everybody)))
    done = stage.call("run", "echo plain")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"plain\n", b"")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_is_killed_or_stopped_while_its_box_waits_is_not_used(
    stage: Stage, number: signal.Signals
) -> None:
    pid = stage.start()
    stage.call_until_a_box_waits("run", "true")
    child = _waiting_child(pid)
    everybody = _below(child)
    kill(child, number)
    done = stage.call("run", "echo well")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"well\n", b"")
    wait_for(lambda: not any(map(is_alive, everybody)))


def test_a_caller_that_is_killed_takes_a_box_made_ahead_along(stage: Stage) -> None:
    stage.start()
    stage.call_until_a_box_waits("run", "true")
    with stage.popen("run", "echo begun; sleep 82.5", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        assert stage.boxes_taken() == 1
        process.kill()
        process.wait(60)
        wait_for(lambda: not is_running(("sleep", "82.5")))


def test_a_box_of_an_old_version_is_not_used(tmp_path: Path) -> None:
    stage = Stage(tmp_path, front=a_copy(tmp_path))
    pid = stage.start()
    stage.call_until_a_box_waits("run", "true")
    for file in (tmp_path / "lib" / "ringfence" / "values").glob("outcome.py"):
        file.write_text(file.read_text() + "\nREFUSED_CODE = 99\n")

    def said() -> tuple[int, bytes]:
        done = stage.call("run", "echo new")
        return done.returncode, done.stdout

    assert said() == (0, b"new\n")
    wait_for(lambda: said() == (0, b"new\n") and not is_alive(pid))
    stage.stop()


@pytest.mark.parametrize("others", [7, 8])
def test_there_are_eight_keepers_at_the_most(stage: Stage, others: int) -> None:
    stage.places.mkdir(mode=0o700)
    locks = [os.open(stage.places / f"{number:016x}.lock", os.O_RDWR | os.O_CREAT, 0o600) for number in range(others)]
    for lock in locks:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert stage.call("--version").returncode == 0
    files = len(list(stage.places.glob("*.lock")))
    for lock in locks:
        os.close(lock)

    assert files == (8 if others == 7 else others)
    if others == 7:
        wait_for(stage.status)


def test_many_callers_at_once_find_boxes_or_do_without(stage: Stage) -> None:
    stage.start()
    for _ in range(3):
        running = [stage.popen("run", f"echo {number}", stdout=subprocess.PIPE) for number in range(12)]
        said = [process.communicate(timeout=100)[0] for process in running]
        assert said == [f"{number}\n".encode() for number in range(12)]
    wait_for(stage.boxes)

    assert stage.boxes() == 1, "they are all of one kind"
    assert stage.boxes_taken() >= 1
