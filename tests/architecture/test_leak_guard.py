"""The guard around every test sees each kind of thing that can be left behind, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.support.leaks import OF_A_CONTAINER, Snapshot, wait_for_leaks

PARENT_OF_AN_ORPHAN = """
import subprocess
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
print(subprocess.Popen(["sleep", "60"], **quiet).pid)
"""


@contextmanager
def a_child() -> Iterator[str]:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            yield f"process {child.pid} "
        finally:
            child.kill()


@contextmanager
def an_orphan() -> Iterator[str]:
    done = subprocess.run([sys.executable, "-c", PARENT_OF_AN_ORPHAN], capture_output=True, check=True)
    pid = int(done.stdout)
    try:
        yield f"process {pid} "
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextmanager
def a_descriptor() -> Iterator[str]:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        yield f"descriptor {descriptor} -> /dev/null"
    finally:
        os.close(descriptor)


@contextmanager
def a_temporary_file() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="ringfence-") as path:
        yield f"file {path}"


LEFT_BEHIND = [a_child, an_orphan, a_descriptor, a_temporary_file]


@pytest.mark.parametrize("leak", LEFT_BEHIND)
def test_what_is_left_is_named(leak: Callable[[], AbstractContextManager[str]]) -> None:
    before = Snapshot.take()

    with leak() as name:
        (left,) = wait_for_leaks(before, grace_seconds=0)
        assert left.startswith(name)

    assert wait_for_leaks(before) == []


@pytest.mark.root
def test_a_mount_that_is_left_is_named(tmp_path: Path) -> None:
    before = Snapshot.take()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"this machine does not let root mount: {mounted.stderr.strip()}")

    left = wait_for_leaks(before, grace_seconds=0)
    subprocess.run(["umount", str(tmp_path)], check=True)

    assert [line.partition(" on ")[2] for line in left] == [str(tmp_path)]
    assert wait_for_leaks(before) == []


@pytest.mark.root
def test_a_mount_among_the_temporary_files_of_somebody_else_is_not_ours() -> None:
    before = Snapshot.take()
    with tempfile.TemporaryDirectory(dir=os.environ["PYTEST_DEBUG_TEMPROOT"]) as theirs:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "none", theirs], capture_output=True, text=True)
        if mounted.returncode != 0:
            pytest.skip(f"this machine does not let root mount: {mounted.stderr.strip()}")

        left = wait_for_leaks(before, grace_seconds=0)
        subprocess.run(["umount", theirs], check=True)

    assert left == []


@pytest.mark.parametrize(
    ("point", "foreign"),
    [
        (f"/tmp/engine/data/overlay2/{'ab' * 32}/merged", True),
        (f"/srv/docker/containers/{'0f' * 32}/mounts/shm", True),
        ("/tmp/engine/exec/netns/1a2b3c4d", True),
        ("/tmp/ringfence-docker-x/root-0", False),
        ("/tmp/overlay2/mine/merged", False),
    ],
)
def test_what_a_container_engine_mounts_for_its_containers_is_its_own(point: str, foreign: bool) -> None:
    assert (OF_A_CONTAINER.search(point) is not None) is foreign


@pytest.mark.root
@pytest.mark.parametrize(("maker", "noticed"), [(os.getpid(), True), (os.getppid(), False)], ids=["ours", "another's"])
def test_a_cgroup_that_is_left_is_named_if_we_made_it(maker: int, noticed: bool) -> None:
    before = Snapshot.take()
    try:
        cgroup = make_a_cgroup(f"ringfence-{maker}-leak-guard")
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")

    left = wait_for_leaks(before, grace_seconds=0)
    cgroup.rmdir()

    assert left == ([f"cgroup {cgroup}"] if noticed else [])
    assert wait_for_leaks(before) == []


def make_a_cgroup(name: str) -> Path:
    hierarchies = [Path("/sys/fs/cgroup"), *Path("/sys/fs/cgroup").glob("*/")]
    parent = next((path for path in hierarchies if (path / "cgroup.procs").exists()), hierarchies[0])
    cgroup = parent / name
    cgroup.mkdir()
    return cgroup


def test_what_goes_away_by_itself_is_no_leak() -> None:
    before = Snapshot.take()

    with subprocess.Popen(["sleep", "0.2"]):
        began = time.monotonic()
        assert wait_for_leaks(before, grace_seconds=10) == []

    assert time.monotonic() - began < 5


def test_a_test_that_leaks_fails(tmp_path: Path) -> None:
    """The whole way: a pytest of its own, with our conftest, on one test that leaks and one that does not."""
    test = tmp_path / "test_inner.py"
    test.write_text("import os\ndef test_leaks(): os.dup(1)\ndef test_is_clean(): pass\n")
    root = Path(__file__).parents[2]

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *("-p", "no:cacheprovider"),  # the checkout may be somebody else's
            "-p",
            "tests.conftest",
            "-c",
            root / "pyproject.toml",
            "--rootdir",
            root,
            test,
        ],
        cwd=root,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert "2 passed, 1 error" in done.stdout
    assert "the test left behind:\n  descriptor" in done.stdout
