"""Boxes in containers of a rootless daemon: what is special about them. The rest is in the suites of the Docker engine.

Needs a daemon of whoever runs the tests, named in RINGFENCE_TEST_ROOTLESS: `scripts/rootless-engine.sh up DIRECTORY`
starts one, `scripts/rootless-engine.sh run DIRECTORY COMMAND...` runs the tests, this file and the other suites, as its
user.
"""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.docker import container, making, verify
from ringfence.engines.docker.connecting import peer
from ringfence.engines.docker.daemon import Daemon
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.facts import docker_facts
from ringfence.engines.docker.identity import rootless_identity
from ringfence.engines.docker.janitor import MANAGER_LABEL, own_name
from ringfence.engines.docker.settings import DockerSettings
from ringfence.errors import InitializationFailed
from ringfence.manager.options import REQUIRED
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import LimitHit
from ringfence.values.request import Request
from tests.integration.docker_bench import Bench

pytestmark = pytest.mark.req("B7", "B8", "D1")

URL = os.environ.get("RINGFENCE_TEST_ROOTLESS", "")
IMAGE = os.environ.get("RINGFENCE_DOCKER_IMAGE") or "ringfence/test"
MIB = 1024 * 1024

needs_rootless = pytest.mark.skipif(
    not URL, reason="no rootless daemon: RINGFENCE_TEST_ROOTLESS is not set (scripts/rootless-engine.sh starts one)"
)


def owner() -> int:
    return os.stat(URL.removeprefix("unix://")).st_uid


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    if not URL:
        pytest.skip("no rootless daemon: RINGFENCE_TEST_ROOTLESS is not set (scripts/rootless-engine.sh starts one)")
    if owner() != os.getuid():
        pytest.skip("the rootless daemon is another user's: use scripts/rootless-engine.sh run")
    workspace = tmp_path / "work"
    workspace.mkdir()
    return Bench(workspace, DockerSettings(URL, IMAGE))


async def first_pid() -> int:
    """The host's number of the first process of our only box."""
    async with Daemon(URL) as daemon:
        (found,) = [name for name, manager in await daemon.labelled(MANAGER_LABEL) if manager == own_name()]
        return await daemon.first_pid(found)


# --- who it is --------------------------------------------------------------------------------------------------------


def test_a_box_is_the_caller_and_neither_inside_nor_outside_root(bench: Bench) -> None:
    async def work(box: HelperBox) -> tuple[str, str, str]:
        said = await box.run(Request(command="id -u; id -g; cat /proc/self/uid_map; echo x > made"))
        pid = await first_pid()
        return said.stdout, Path(f"/proc/{pid}/status").read_text(), Path(f"/proc/{pid}/uid_map").read_text()

    said, status, users = bench.use(work)

    uid = os.getuid()
    assert uid != 0
    assert said.split() == [str(uid), str(os.getgid()), str(uid), "0", "1"]  # 0 is what the daemon calls us
    assert f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n" in status
    assert users.split() == [str(uid), str(uid), "1"]
    assert (bench.workspace / "made").stat().st_uid == uid


def test_the_capability_that_maps_the_uid_is_gone_before_anything_runs(bench: Bench) -> None:
    async def work(box: HelperBox) -> str:
        return Path(f"/proc/{await first_pid()}/status").read_text()

    capabilities = [line.split()[1] for line in bench.use(work).splitlines() if line.startswith("Cap")]

    assert capabilities == ["0" * 16] * 5


@pytest.mark.parametrize("attempt", ["unshare -U true", "unshare -m true", "unshare -r true", "unshare -n true"])
def test_what_let_the_first_process_make_its_namespace_lets_nobody_else(bench: Bench, attempt: str) -> None:
    assert bench.run(f"{attempt} 2>/dev/null && echo possible").stdout == ""


@needs_rootless
@pytest.mark.root
def test_root_is_not_served_by_another_user_s_daemon(tmp_path: Path) -> None:
    with pytest.raises(InitializationFailed, match="not of the user 0"):
        Bench(tmp_path, DockerSettings(URL, IMAGE)).run("true")


def test_a_daemon_that_lends_its_own_network_is_found_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    make = making.container_config

    def soft(plan: Any) -> dict[str, Any]:
        config = make(plan)
        return {**config, "NetworkDisabled": False, "HostConfig": {**config["HostConfig"], "NetworkMode": "host"}}

    monkeypatch.setattr(making, "container_config", soft)

    with pytest.raises(InitializationFailed) as caught:
        bench.run("true")
    if "refuses to start" in caught.value.message:
        pytest.skip("this daemon has no network namespace, and so nothing to lend: it was started with --net=host")
    assert "not as it was ordered" in caught.value.message
    monkeypatch.setattr(verify, "check_namespaces", lambda *_, **__: None)
    with pytest.raises(InitializationFailed, match="a packet could leave it"):
        bench.run("true")


# --- what the image's root, who is the box's own user, could do -------------------------------------------------------


@pytest.fixture
def guarded(bench: Bench) -> Bench:
    """A workspace with something below a directory that has to stay where it is."""
    (bench.workspace / "app").mkdir()
    (bench.workspace / "app" / ".env").write_text("SECRET=hunter2\n")
    return bench


OPEN_PINS = "chmod 700 /run/ringfence/pins 2>/dev/null; cat /run/ringfence/pins/0/app/.env 2>/dev/null"


@pytest.mark.req("A3")
def test_the_second_copy_of_the_workspace_cannot_be_opened_by_its_owner(guarded: Bench) -> None:
    assert guarded.guarded(OPEN_PINS).stdout == ""


def let_pins_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    make = container._memory_file_systems

    def soft(plan: Any) -> dict[str, str]:
        return {place: options.replace("ro,", "rw,", 1) for place, options in make(plan).items()}

    monkeypatch.setattr(container, "_memory_file_systems", soft)


@pytest.mark.req("A3")
def test_a_daemon_that_left_that_copy_writable_is_found_out(guarded: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    let_pins_be_written(monkeypatch)

    with pytest.raises(InitializationFailed, match="/run/ringfence/pins is writable"):
        guarded.guarded(OPEN_PINS)


def test_without_both_guards_the_owner_would_read_what_is_hidden(
    guarded: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_pins_be_written(monkeypatch)
    monkeypatch.setattr(verify, "check_unwritable", lambda *_: None)

    assert guarded.guarded(OPEN_PINS).stdout == "SECRET=hunter2\n"


@pytest.mark.parametrize(
    "attempt",
    [
        *("echo x > /etc/hosts", "echo x > /etc/resolv.conf", "echo x > /etc/hostname", "chmod 777 /etc/shadow"),
        *("echo x > /root/x", "echo x > /dev/x", "rm /dev/null", "echo x > /sys/x", "mknod /dev/mqueue/x p"),
        *("echo x > /run/ringfence/box", "chmod u+w /run/ringfence/box", "echo 1 > /proc/sys/vm/drop_caches"),
    ],
)
def test_files_of_the_image_s_root_cannot_be_changed(bench: Bench, attempt: str) -> None:
    assert bench.run(f"({attempt}) 2>/dev/null && echo possible").stdout == ""


# --- limits without control groups ------------------------------------------------------------------------------------


def test_processes_are_counted_for_each_box_alone(bench: Bench) -> None:
    """All of them are one uid of one daemon: counted together, the second box could start none."""
    limits = Limits(processes=12)
    some = "for i in 1 2 3 4 5 6 7 8; do sleep 2 & done; jobs -p | wc -l; wait"

    async def work() -> list[str]:
        boxes = [await DockerEngine(bench.settings).open(Grant(workspace=bench.workspace, limits=limits)) for _ in "ab"]
        try:
            done = await asyncio.gather(*(box.run(Request(command=some)) for box in boxes))
            return [result.stdout for result in done]
        finally:
            for box in boxes:
                await box.close()

    assert asyncio.run(work()) == ["8\n", "8\n"]


def test_no_box_starts_more_processes_than_it_may(bench: Bench) -> None:
    (bench.workspace / "bomb.py").write_text(
        "import os, signal, sys\n"
        "for made in range(100):\n"
        "    try:\n"
        "        if not os.fork(): signal.pause()\n"
        "    except BlockingIOError:\n"
        "        print(made); break\n"
        "else: print('all')\n"
    )

    assert 0 < int(bench.run("python3 bomb.py", limits=Limits(processes=12)).stdout) <= 12
    assert bench.run("python3 bomb.py", limits=Limits(processes=200)).stdout == "all\n"


def test_memory_is_held_and_the_box_says_how(bench: Bench) -> None:
    limits = Limits(memory_bytes=64 * MIB)

    result = bench.run("x=$(head -c 300M /dev/zero | tr '\\0' x); echo ${#x}", limits=limits)

    assert result.ending == LimitHit(Limit.MEMORY, limits.memory_bytes)
    assert result.wall is not None
    assert any("rootless" in note for note in result.wall.notes)


def test_all_that_a_manager_requires_is_promised(bench: Bench) -> None:
    wall = bench.run("true").wall

    assert wall is not None
    assert wall.guarantees >= REQUIRED and Guarantee.OWN_KERNEL not in wall.guarantees


def test_doctor_offers_it(bench: Bench) -> None:
    fact, *_ = docker_facts({"DOCKER_HOST": URL, "RINGFENCE_DOCKER_IMAGE": IMAGE})

    assert (fact.name, fact.missing) == ("docker", "") and Guarantee.NEVER_ROOT in fact.guarantees


# --- the way in -------------------------------------------------------------------------------------------------------


def test_a_process_that_is_not_the_container_s_first_is_not_let_in(bench: Bench) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, pytest.raises(InitializationFailed, match="somebody else"):
        peer(ours, os.getuid(), "f" * 64, os.getpid())


def test_the_daemon_calls_its_user_0(bench: Bench) -> None:
    who = rootless_identity(URL)

    assert (who.named.uid, who.outside.uid, who.inside.uid) == (0, os.getuid(), os.getuid())
