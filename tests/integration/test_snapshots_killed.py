"""A snapshot store whose writers are killed at any moment: it is whole, and what was saved before comes back."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringfence.sync import SnapshotStore

pytestmark = pytest.mark.req("X5")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree/sub").mkdir(parents=True)
    for number in range(100):
        (tmp_path / f"tree/sub/kept{number}").write_bytes(os.urandom(500))
    return tmp_path / "tree"


def contents(top: Path) -> dict[str, bytes]:
    return {str(file.relative_to(top)): file.read_bytes() for file in top.rglob("*") if file.is_file()}


WORKER = """
import os, sys
from pathlib import Path
from ringfence.sync import SnapshotStore
tree, store = Path(sys.argv[1]), SnapshotStore(sys.argv[2], durable=False)
print("ready", flush=True)
sys.stdin.readline()
number = 0
while True:
    number += 1
    (tree / f"file{number % 30}").write_bytes(os.urandom(2000))
    store.save(tree, f"t{os.getpid()}-{number}")
    if number % 3 == 0:
        store.delete(f"t{os.getpid()}-{number - 1}")
"""
KILLS = 50


def test_a_store_is_whole_after_its_writer_was_killed_at_any_moment(tree: Path, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store", durable=False)
    store.save(tree, "kept")
    before = contents(tree)
    killed_within = 0
    for number in range(KILLS):
        with subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tree), str(tmp_path / "store")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as worker:
            assert worker.stdout is not None and worker.stdout.readline() == b"ready\n"
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
            worker.stdin.flush()
            time.sleep(0.002 + (number * 37 % 50) / 1000)
            worker.send_signal(signal.SIGKILL)
        killed_within += bool(os.listdir(tmp_path / "store/tmp"))
        assert store.verify() == {}
        assert "kept" in [one.name for one in store.list()]
        if number % 10 == 9:
            store.fork("kept", tmp_path / "fork")
            assert contents(tmp_path / "fork") == before
            subprocess.run(["rm", "-rf", tmp_path / "fork"], check=True)
            for one in store.list():
                if one.name != "kept":
                    store.delete(one.name)
    assert killed_within > 0, "no kill hit a save"
    store.collect_garbage()
    assert os.listdir(tmp_path / "store/tmp") == []


def test_the_lock_of_a_killed_process_is_free(tree: Path, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store", durable=False)
    program = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path / "store/lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with (tmp_path / "store/lock").open("w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        holder.kill()
    store.save(tree, "one")
