"""A call by way of a keeper is the same as one without: what it prints, how it ends, what is recorded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.keepers import Stage, is_handed_over, is_running, wait_for

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("keeper"))


@pytest.fixture
def kept(stage: Stage) -> Iterator[Stage]:
    """With a keeper that runs, and that is gone afterwards."""
    stage.start()
    yield stage
    stage.stop()


CALLS = [
    ("--version",),
    ("--help",),
    ("run", "--help"),
    ("run", "echo out; echo err >&2; exit 7"),
    ("run", "kill -9 $$"),
    ("run", "--", "/no/such/program"),
    ("run", "--timeout", "0.2s", "sleep 30"),
    ("run", "--language", "python", "6 * 7"),
    ("run", "--no-such-option"),
    ("no-such-command",),
    ("run", "--policy", "no-such-file", "true"),
    ("check", "rm -rf /"),
    ("run", "pwd; umask; ls -a; env | sort"),
]


def test_every_call_says_and_ends_as_without(kept: Stage) -> None:
    for words in CALLS:
        before = kept.calls()
        with_keeper = kept.call(*words)
        assert kept.calls() == before + 1, f"{words}: it did not go to the keeper"
        without = kept.call(*words, keeper=False)
        assert (with_keeper.returncode, with_keeper.stdout) == (without.returncode, without.stdout), words
        assert _plain(with_keeper.stderr) == _plain(without.stderr), words


def test_the_journal_has_the_same_records(kept: Stage) -> None:
    policy = kept.project / "policy.yaml"
    policy.write_text("policies:\n  default: {max_memory: 1GB, denied_commands: [curl]}\n")
    for words in (("run", "echo one; exit 3"), ("run", "--policy", "policy.yaml", "curl x"), ("run", "cat ~/.ssh/key")):
        before = len(kept.records())
        kept.call(*words)
        kept.call(*words, keeper=False)
        *_, with_keeper, without = kept.records()
        assert len(kept.records()) == before + 2, words
        assert _shape(with_keeper) == _shape(without), words
    policy.unlink()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_ends_it_as_without(kept: Stage, number: signal.Signals) -> None:
    endings = []
    for keeper in (True, False):
        length = f"6{int(number)}{int(keeper)}.5"
        with kept.popen("run", f"echo begun; exec sleep {length}", keeper=keeper, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begun\n"
            assert is_handed_over(process) == keeper
            process.send_signal(number)
            endings.append(process.wait(60))
        wait_for(lambda length=length: not is_running(("sleep", length)))

    assert endings[0] == endings[1]


def test_signals_that_the_caller_ignores_are_ignored(kept: Stage) -> None:
    for keeper in (True, False):
        process = kept.popen(
            "run",
            "echo begun; sleep 1; echo done",
            keeper=keeper,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
        )
        with process:
            assert process.stdout is not None and process.stdout.readline() == b"begun\n"
            process.send_signal(signal.SIGHUP)
            assert process.stdout.read() == b"done\n" and process.wait(60) == 0


def test_what_is_piped_in_comes_out(kept: Stage) -> None:
    data = os.urandom(300_000).hex().encode()
    done = kept.call("run", "-i", "cat; echo end >&2", input=data)

    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"end\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_without(kept: Stage, closed: str) -> None:
    line = f'"$0" run "echo out; echo err >&2; exit 5" {closed}'
    ended = [
        subprocess.run(
            ["sh", "-c", line, str(kept.front)],
            cwd=kept.project,
            env=kept.env | {"RINGFENCE_KEEPER": keeper},
            capture_output=True,
            timeout=60,
            check=False,
        )
        for keeper in ("on", "off")
    ]

    assert ended[0].returncode == 5
    assert [(each.returncode, each.stdout, each.stderr) for each in ended[:1]] == [
        (each.returncode, each.stdout, each.stderr) for each in ended[1:]
    ]


def test_output_that_cannot_be_written_is_the_same_fault(kept: Stage) -> None:
    ended = []
    for keeper in (True, False):
        with open("/dev/full", "wb") as full:
            done = kept.call("--help", keeper=keeper, stdout=full)
        ended.append((done.returncode, done.stderr.splitlines()[-2:]))

    assert ended[0] == ended[1] and ended[0][0] != 0


def test_directory_umask_and_variables_are_the_callers(kept: Stage) -> None:
    elsewhere = kept.top / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    made = elsewhere / "policy.yaml"
    modes = set()
    for keeper in (True, False):
        done = kept.call(
            "run", "-e", "COLOUR", "pwd; echo $COLOUR", keeper=keeper, cwd=elsewhere, env={"COLOUR": f"blue {keeper}"}
        )
        assert done.stdout.decode().split("\n")[:2] == [str(elsewhere), f"blue {keeper}"]
        for umask in (0o022, 0o027):
            assert kept.call("init", keeper=keeper, cwd=elsewhere, umask=umask).returncode == 0
            modes.add((umask, made.stat().st_mode))
            made.unlink()
    assert len(modes) == 2, "one for each umask"


def test_descriptors_besides_the_first_three_come_along(kept: Stage) -> None:
    """`--policy <(...)`: a shell opens it, and names it by its number."""
    reading, writing = os.pipe()
    os.write(writing, b"policies:\n  default: {denied_commands: [curl]}\n")
    os.close(writing)
    before = kept.calls()
    done = kept.call("run", "--policy", f"/dev/fd/{reading}", "curl x", pass_fds=(reading,))
    os.close(reading)

    assert kept.calls() == before + 1
    assert done.returncode == 122, done.stderr


def test_a_caller_without_a_locale_is_served_too(stage: Stage) -> None:
    """The interpreter then sets a variable by itself, which a child has as well."""
    env = {name: value for name, value in stage.env.items() if name != "LANG"}
    bare = Stage.__new__(Stage)
    bare.top, bare.front, bare.env = stage.top, stage.front, env
    bare.start()
    before = bare.calls()
    words = ("run", "-e", "LC_CTYPE", "echo $LC_CTYPE")
    said = [bare.call(*words, keeper=keeper).stdout for keeper in (True, False)]
    after = bare.calls()
    bare.stop()

    assert said[0] == said[1] != b"" and after == before + 1


def test_nothing_of_a_caller_stays_in_the_keeper(stage: Stage) -> None:
    pid = stage.start()
    secret = os.urandom(16).hex()
    done = stage.call("run", "-e", "TOKEN_OF_MINE", f"echo {secret[::-1]}", env={"TOKEN_OF_MINE": secret})
    memory = _memory(pid)
    stage.stop()

    assert done.returncode == 0
    assert b"RFCALL2" in memory, "what is there can be found"
    assert secret.encode() not in memory and secret[::-1].encode() not in memory


def test_a_keeper_comes_by_itself_and_only_where_it_is_wanted(stage: Stage) -> None:
    for env in (
        {"RINGFENCE_KEEPER": "off"},
        {"RINGFENCE_KEEPER": "", "CI": "true"},
        {"XDG_RUNTIME_DIR": "/nonexistent"},
    ):
        assert stage.call("--version", env=env).returncode == 0
        assert not list(stage.places.glob("*")) or not stage.status()
    assert not stage.status()

    pid = stage.start(env={"RINGFENCE_KEEPER": ""})
    assert [each["pid"] for each in stage.status()] == [pid]
    stage.stop()
    assert not stage.status()


def _plain(text: bytes) -> bytes:
    """Without what differs from run to run: ids, times, sizes."""
    return re.sub(rb"[0-9a-f]{8,}|\d+(\.\d+)?", b"#", text)


def _shape(record: Any) -> Any:
    """A record without what differs from run to run."""
    if isinstance(record, dict):
        return {name: _shape(value) for name, value in record.items()}
    if isinstance(record, list):
        return [_shape(value) for value in record]
    return re.sub(r"[0-9a-f]{8,}|\d+(\.\d+)?", "#", str(record))


def _memory(pid: int) -> bytes:
    """Everything that the process has written to."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            area, flags = line.split()[:2]
            if flags.startswith("rw"):
                first, last = (int(part, 16) for part in area.split("-"))
                memory.seek(first)
                found.append(memory.read(last - first))
    return b"".join(found)
