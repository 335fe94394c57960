"""Podman's socket as the Docker daemon: boxes are made, hold what they promise, and leave nothing behind.

A service of our own is started, apart from any other on the machine, with a small image of this machine's programs. The
tests of the Docker engine run against a Podman as well, if DOCKER_HOST names its socket and it has the image.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.docker.daemon import Daemon
from ringfence.engines.docker.janitor import MANAGER_LABEL
from ringfence.engines.docker.settings import DockerSettings
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import LimitHit
from ringfence.values.request import Request
from tests.integration.docker_bench import Bench
from tests.support import docker

# Alone: whenever Podman is asked for its version it searches all packages of the machine, and has ten seconds for it.
pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.req("B6", "E7")]

_START_SECONDS = 30.0
_IMAGE = "ringfence/podman-test"
_PROGRAMS = ("bash", "cat", "ls", "head", "id", "grep", "mv", "mkdir", "tr", "wc")


@pytest.fixture(scope="module")
def podman() -> Iterator[DockerSettings]:
    if os.geteuid() != 0:
        pytest.skip("only root can start a Podman that maps no users")
    program, runtime = shutil.which("podman"), shutil.which("runc", path="/usr/sbin:/usr/bin") or shutil.which("crun")
    if program is None or runtime is None:
        pytest.skip("podman is not installed, or no runc or crun")
    groups_before = _groups()
    home = Path(tempfile.mkdtemp(prefix="podman-", dir="/tmp"))  # it takes no more than fifty characters
    settings = DockerSettings(f"unix://{home}/podman.sock", _IMAGE)
    own = [
        *(program, "--root", f"{home}/root", "--runroot", f"{home}/run", "--tmpdir", f"{home}/tmp"),
        *("--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", runtime),
        # Or it mounts its store over itself now and then, which would count as left behind.
        *("--storage-driver", "overlay", "--storage-opt", "overlay.skip_mount_home=true"),
    ]
    with open(home / "log", "wb") as log:
        service = subprocess.Popen(
            [*own, "system", "service", "--time=0", settings.url],
            cwd=home,  # where it notes that a container ran out of memory
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        if not _wait_for(home / "podman.sock", service):
            pytest.fail(f"podman does not start here: {(home / 'log').read_text()[-300:]}")
        links = {"/bin/sh": "/usr/bin/bash", "/bin/bash": "/usr/bin/bash"}
        archive = docker.small_image(*_PROGRAMS, links=links)
        subprocess.run([*own, "import", "-", _IMAGE], input=archive, capture_output=True, timeout=60, check=True)
        yield settings
    finally:
        service.terminate()
        service.wait()
        shutil.rmtree(home)
        for group in sorted(_groups() - groups_before, reverse=True):
            with suppress(OSError):  # somebody else's Podman has begun to use it
                group.rmdir()


def _groups() -> set[Path]:
    """Podman's control groups, which it leaves for the next time."""
    tops = [*Path("/sys/fs/cgroup").glob("libpod_parent"), *Path("/sys/fs/cgroup").glob("*/libpod_parent")]
    return {path for top in tops for path in (top, *top.rglob("*")) if path.is_dir()}


def _wait_for(path: Path, service: subprocess.Popen[bytes]) -> bool:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and service.poll() is None:
        if path.exists():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def bench(tmp_path: Path, podman: DockerSettings) -> Iterator[Bench]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    yield Bench(workspace, podman)
    assert _containers(podman) == ()


def _containers(settings: DockerSettings) -> tuple[tuple[str, str], ...]:
    async def ask() -> tuple[tuple[str, str], ...]:
        async with Daemon(settings.url) as daemon:
            return await daemon.labelled(MANAGER_LABEL)

    return asyncio.run(ask())


def test_a_box_keeps_its_shell_and_writes_as_the_workspace_s_owner(bench: Bench) -> None:
    async def work(box: HelperBox) -> str:
        await box.run(Request(command="echo kept > file; echo gone > /tmp/file"))
        return (await box.run(Request(command="cat file /tmp/file $HOME/nothing 2>/dev/null; pwd"))).stdout

    assert bench.use(work) == f"kept\ngone\n{bench.workspace}\n"
    owner, made = bench.workspace.stat(), (bench.workspace / "file").stat()
    assert (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid)


def test_it_is_nobody_important_behind_our_filter(bench: Bench) -> None:
    said = bench.run("id -u; grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status").stdout.split()

    assert int(said[0]) != 0
    assert said[1:] == [
        *("CapPrm:", "0000000000000000", "CapEff:", "0000000000000000", "CapBnd:", "0000000000000000"),
        *("NoNewPrivs:", "1", "Seccomp:", "2"),
    ]


def test_what_is_not_the_box_s_own_cannot_be_written(bench: Bench) -> None:
    places = "/x /usr/x /etc/passwd /run/x /run/ringfence/box /dev/x"
    attempt = f"for place in {places} {bench.workspace}/x; do (echo x > $place) 2>/dev/null && echo $place; done"

    assert bench.run(attempt).stdout == f"{bench.workspace}/x\n"


def test_devices_and_control_groups_of_the_host_are_not_there(bench: Bench) -> None:
    assert bench.run("ls -A /sys | wc -l; cat /proc/keys /proc/timer_list | wc -c").stdout == "0\n0\n"


def test_what_may_be_written_beside_the_workspace_has_a_size(bench: Bench) -> None:
    fill = (
        "for place in /tmp /var/tmp /dev/shm $HOME; do head -c 4M /dev/zero > $place/a && echo fits; "
        "head -c 8M /dev/zero 2>/dev/null > $place/b || echo full; done"
    )

    assert bench.run(fill, limits=Limits(tmp_bytes=8 * 1024 * 1024)).stdout == "fits\nfull\n" * 4


@pytest.mark.req("A3")
def test_what_is_protected_can_be_neither_read_nor_changed_nor_moved(bench: Bench) -> None:
    (bench.workspace / ".git").mkdir()
    (bench.workspace / ".git" / "config").write_text("[core]\n")
    (bench.workspace / ".env").write_text("SECRET=hunter2\n")
    attempts = ("cat .env", "echo x > .env", "mv .env e", "echo x > .git/config", "mv .git g", "mkdir .claude")

    tried = "; ".join(f"({attempt}) 2>/dev/null && echo possible" for attempt in attempts)

    assert bench.guarded(tried).stdout == ""
    assert sorted(os.listdir(bench.workspace)) == [".env", ".git"]
    assert bench.run("mv .env e && cat e").stdout == "SECRET=hunter2\n"  # with the guard off


@pytest.mark.parametrize("name", ["a,rw", 'a"b', "a\nb"])
def test_a_name_that_podman_would_read_as_more_than_a_path_is_refused(bench: Bench, name: str) -> None:
    (bench.workspace / name).mkdir()
    (bench.workspace / name / ".env").write_text("SECRET=hunter2\n")

    with pytest.raises(InitializationFailed, match="cannot be shown in a container of Podman"):
        bench.guarded("true")


def test_memory_is_held_by_podman_and_the_box_says_so(bench: Bench) -> None:
    limits = Limits(memory_bytes=64 * 1024 * 1024)

    result = bench.run("x=$(head -c 200M /dev/zero | tr '\\0' x); echo ${#x}", limits=limits)

    assert result.ending == LimitHit(Limit.MEMORY, limits.memory_bytes)


def test_no_packet_can_leave_and_only_what_is_held_is_promised(bench: Bench) -> None:
    result = bench.run("cat /proc/net/route | wc -l; (: < /dev/tcp/1.1.1.1/53) 2>/dev/null || echo refused")

    assert result.stdout == "1\nrefused\n"  # the heading, and no route
    assert result.wall is not None
    assert Guarantee.NETWORK_OFF in result.wall.guarantees and Guarantee.OWN_KERNEL not in result.wall.guarantees
    assert any(note.startswith("Podman ") for note in result.wall.notes)


def test_an_image_that_podman_does_not_have_is_an_error_that_says_how_to_get_it(bench: Bench) -> None:
    bench.settings = DockerSettings(bench.settings.url, "ringfence/nowhere:1")

    with pytest.raises(InitializationFailed, match="ringfence/nowhere:1"):
        bench.run("true")
