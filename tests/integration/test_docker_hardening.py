"""A box in a container, seen from inside: what an agent would try first, against a real daemon."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.docker.daemon import Daemon
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited
from ringfence.values.request import Request
from tests.integration.docker_bench import Bench
from tests.support import docker

pytestmark = pytest.mark.req("B6", "E7")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    workspace = tmp_path / "work"
    workspace.mkdir()
    return Bench(workspace, docker.settings())


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


# --- network ----------------------------------------------------------------------------------------------------------


def test_the_host_s_loopback_cannot_be_reached_and_its_own_can(bench: Bench, listener: int) -> None:
    reach = f"(: < /dev/tcp/127.0.0.1/{listener}) 2>/dev/null && echo reached || echo refused"
    assert subprocess.run(["bash", "-c", reach], capture_output=True, text=True).stdout == "reached\n"

    own = (
        "import socket; s = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(s.getsockname()); print('own loopback')"
    )
    said = bench.run(f'{reach}; python3 -c "{own}"; ls /sys/class/net 2>&1 | wc -l; cat /proc/net/route | wc -l').stdout

    assert said.splitlines()[:2] == ["refused", "own loopback"]
    assert said.splitlines()[-1] == "1"  # the heading, and no route


def test_no_socket_of_the_daemon_is_there_and_the_control_socket_answers_nobody(bench: Bench) -> None:
    ask = (
        "import socket, os; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "try:\n s.connect('/run/ringfence/control'); print('connected')\n"
        "except OSError as fault: print(type(fault).__name__)"
    )
    bench.workspace.joinpath("ask.py").write_text(ask)

    said = bench.run("ls /run/docker.sock /var/run/docker.sock 2>/dev/null; python3 ask.py").stdout

    assert said == "ConnectionRefusedError\n"


# --- rights -----------------------------------------------------------------------------------------------------------


def test_it_is_nobody_important_and_cannot_become_so(bench: Bench) -> None:
    said = bench.run("id -u; grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status").stdout.split()

    assert int(said[0]) != 0
    assert said[1:] == [
        *("CapPrm:", "0000000000000000", "CapEff:", "0000000000000000", "CapBnd:", "0000000000000000"),
        *("NoNewPrivs:", "1", "Seccomp:", "2"),
    ]


@pytest.mark.parametrize(
    "attempt",
    [
        "mount -t tmpfs none /tmp",
        "umount /etc/passwd",
        "mknod /tmp/disk b 8 0",
        "unshare -U true",
        "unshare -n true",
        "chroot / true",
        "echo x > /proc/sys/kernel/core_pattern",
        "echo b > /proc/sysrq-trigger",
        "chmod u+s script",
        "cat /proc/1/mem",
        "ls /proc/1/fd/",
        "ls /run/ringfence/pins",
        "dmesg",
    ],
)
def test_what_needs_privileges_fails(bench: Bench, attempt: str) -> None:
    (bench.workspace / "script").write_text("")
    (bench.workspace / "script").chmod(0o777)

    result = bench.guarded(f"{attempt} >/dev/null 2>&1 && echo possible")

    assert result.stdout == ""
    assert not (bench.workspace / "script").stat().st_mode & stat.S_ISUID


def test_its_first_process_can_be_neither_killed_nor_stopped_from_inside(bench: Bench) -> None:
    async def work(box: HelperBox) -> str:
        for signal in ("KILL", "STOP", "TERM", "INT"):
            await box.run(Request(command=f"kill -{signal} 1"))
        return (await box.run(Request(command="echo lives"))).stdout

    assert bench.use(work) == "lives\n"


def test_the_kernel_s_devices_and_the_host_s_are_not_there(bench: Bench) -> None:
    said = bench.run("ls /dev; ls /sys | wc -l").stdout.split()

    assert said[-1] == "0"
    assert set(said[:-1]) <= {
        *("core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm"),
        *("stderr", "stdin", "stdout", "tty", "urandom", "zero", "console"),
    }


def test_processes_of_the_host_are_not_there(bench: Bench) -> None:
    said = bench.run("for p in /proc/[0-9]*; do echo ${p#/proc/}; done").stdout.split()

    assert "1" in said and str(os.getpid()) not in said and len(said) < 10


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["/x", "/usr/x", "/etc/x", "/etc/passwd", "/root/x", "/run/ringfence/box", "/var/x"])
def test_the_image_cannot_be_written(bench: Bench, place: str) -> None:
    assert bench.run(f"echo x 2>/dev/null > {place}").ending != Exited(0)


@pytest.mark.parametrize("place", ["/tmp", "/var/tmp", "/dev/shm", "$HOME"])
def test_what_may_be_written_beside_the_workspace_is_small_and_gone_afterwards(bench: Bench, place: str) -> None:
    limits = Limits(tmp_bytes=8 * 1024 * 1024)
    fill = f"head -c 4M /dev/zero > {place}/a && echo fits; head -c 8M /dev/zero 2>/dev/null > {place}/b || echo full"

    assert bench.run(fill, limits=limits).stdout == "fits\nfull\n"
    assert bench.run(f"ls -d {place}/[ab]").stdout == ""


def test_the_host_s_files_are_not_there_and_the_workspace_is_under_both_its_names(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    (bench.workspace / "file").write_text("mine\n")

    said = bench.run(f"cat {secret} 2>/dev/null; cat {bench.workspace}/file /workspace/file; ls {tmp_path}").stdout

    assert said == "mine\nmine\nwork\n"


@pytest.mark.root
def test_a_workspace_in_root_s_home_is_reached_and_the_rest_of_that_home_is_not_there() -> None:
    settings = docker.settings()
    home = Path(tempfile.mkdtemp(prefix="ringfence-test-", dir="/root"))
    try:
        workspace, data = home / "deep" / "work", home / "deep" / "data"
        workspace.mkdir(parents=True)
        data.write_text("read me\n")
        (home / "secret").write_text("hunter2")

        look = f"pwd; cat {data}; echo x > file; ls -A /root {home} {home}/deep; echo x > /root/x"
        said = Bench(workspace, settings).run(look, readable=(data,))

        assert said.stdout.split() == [
            *(str(workspace), "read", "me", "/root:", home.name, f"{home}:", "deep"),
            *(f"{home}/deep:", "data", "work"),
        ]
        assert (workspace / "file").read_text() == "x\n" and sorted(os.listdir(home / "deep")) == ["data", "work"]
    finally:
        shutil.rmtree(home)


def test_what_is_granted_for_reading_can_be_read_and_not_written(bench: Bench, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    (data / "file").write_text("read me\n")
    (data / ".env").write_text("SECRET=1\n")

    said = bench.guarded(f"cat {data}/file; cat {data}/.env; echo x > {data}/new; rm {data}/file", readable=(data,))

    assert said.stdout == "read me\n" and sorted(os.listdir(data)) == [".env", "file"]


def test_what_it_writes_belongs_to_the_workspace_s_owner(bench: Bench) -> None:
    bench.run("echo x > made; mkdir d; echo y > d/made")

    owner = bench.workspace.stat()
    for name in ("made", "d", "d/made"):
        info = (bench.workspace / name).stat()
        assert (info.st_uid, info.st_gid) == (owner.st_uid, owner.st_gid)


# --- what is protected in the workspace -------------------------------------------------------------------------------


@pytest.fixture
def repository(bench: Bench) -> Bench:
    work = bench.workspace
    (work / "app" / "inner").mkdir(parents=True)
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / ".git" / "hooks" / "pre-commit").write_text("#!/bin/sh\n")
    (work / ".git" / "config").write_text("[core]\n")
    (work / ".env").write_text("SECRET=hunter2\n")
    (work / "app" / "inner" / ".env").write_text("SECRET=hunter2\n")
    (work / "app" / "file").write_text("plain\n")
    for path in (work, *work.rglob("*")):
        path.chmod(0o777)
    return bench


@pytest.mark.req("A3")
@pytest.mark.parametrize("top", ["", "/workspace/"])
@pytest.mark.parametrize(
    "attempt",
    [
        "cat {}.env",
        "cat {}app/inner/.env",
        "echo x > {}.env",
        "mv {}.env {}e",
        "rm -f {}.env && ! test -e {}.env",
        "echo x > {}.git/hooks/pre-commit",
        "echo x > {}.git/config",
        "echo x > {}.git/hooks/new",
        "mv {}.git {}g",
        "mv {}app {}b",
        "mv {}app/inner {}app/i",
        "echo x > {}.vscode",
        "mkdir {}.claude",
        "ln {}.env {}hard",
        "ln -s /etc {}.husky",
    ],
)
def test_what_is_protected_can_be_neither_read_nor_changed_nor_moved(repository: Bench, attempt: str, top: str) -> None:
    result = repository.guarded(f"{attempt.replace('{}', top)} 2>/dev/null && echo possible")

    assert result.stdout == ""
    assert (repository.workspace / ".env").read_text() == "SECRET=hunter2\n"
    assert (repository.workspace / ".git" / "config").read_text() == "[core]\n"


def test_what_is_not_protected_can_be_changed_and_moved(repository: Bench) -> None:
    work = "echo x > new; mv app/file app/inner/file; mv app/inner/file moved; mkdir .git/objects; echo x > .git/HEAD"

    assert repository.guarded(f"{work}; echo done").stdout == "done\n"
    assert sorted(os.listdir(repository.workspace)) == [".env", ".git", "app", "moved", "new"]


@pytest.mark.req("A3")
def test_a_name_that_is_swapped_before_the_daemon_looks_is_found_out_before_anything_runs(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another box on the same workspace would do that: the daemon, which is root, follows its link."""
    outside, inside = tmp_path / "outside", bench.workspace / "conf"
    for directory, text in ((outside, "hunter2\n"), (inside, "mine\n")):
        directory.mkdir()
        (directory / "settings").write_text(text)
    start = Daemon.start
    swaps = True

    async def swapped(self: Daemon, container: str) -> None:
        if swaps:
            inside.rename(bench.workspace / "aside")
            inside.symlink_to(outside)
        try:
            await start(self, container)
        finally:
            if swaps:
                inside.unlink()
                (bench.workspace / "aside").rename(inside)

    monkeypatch.setattr(Daemon, "start", swapped)
    with pytest.raises(InitializationFailed, match="not as it was ordered"):
        bench.run("cat conf/settings", protected=("conf/settings",))
    swaps = False
    assert bench.run("cat conf/settings", protected=("conf/settings",)).stdout == "mine\n"


def test_git_works_in_a_workspace_with_covers(repository: Bench) -> None:
    subprocess.run(["rm", "-rf", str(repository.workspace / ".git")], check=True)
    init = ["git", "init", "--quiet", "--initial-branch=main", str(repository.workspace)]
    subprocess.run(init, check=True, env={"PATH": os.defpath, "GIT_CONFIG_GLOBAL": "/dev/null"})

    git = "git -c user.name=me -c user.email=me@x -c safe.directory='*'"
    result = repository.guarded(f"{git} add --all && {git} commit --quiet --message=one && {git} ls-files")

    assert (result.stdout, result.stderr) == ("app/file\n", "")


def test_placeholders_are_gone_when_the_box_is(bench: Bench) -> None:
    seen = bench.guarded("ls -A | wc -l")

    assert int(seen.stdout) > 10
    assert os.listdir(bench.workspace) == []


def test_only_what_is_held_is_promised(bench: Bench) -> None:
    wall = bench.run("true").wall

    assert wall is not None
    assert Guarantee.OWN_KERNEL not in wall.guarantees
    assert {Guarantee.NETWORK_OFF, Guarantee.NEVER_ROOT, Guarantee.PROTECTED_PATHS} <= wall.guarantees
    assert any("not explained" in note for note in wall.notes)
