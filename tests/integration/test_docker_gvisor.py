"""Boxes in containers with a kernel of their own: real gVisor by a real daemon, and one that only claims to be such."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.docker import verify
from ringfence.engines.docker.daemon import Daemon
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.facts import docker_facts
from ringfence.engines.docker.mounts import Mount
from ringfence.engines.docker.settings import DockerSettings
from ringfence.errors import InitializationFailed, Internal, RingfenceError
from ringfence.policy.defaults import PROTECTED
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited
from ringfence.values.request import Request
from tests.support import docker

OWN_KERNEL = frozenset({Guarantee.OWN_KERNEL})


def use(settings: DockerSettings, workspace: Path, work: Callable[[HelperBox], Awaitable[Any]], **grant: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            box = await DockerEngine(settings).open(Grant(workspace=workspace, **grant))
            try:
                return await work(box)
            finally:
                await box.close()

    return asyncio.run(main())


def run(workspace: Path, command: str, **grant: Any) -> Any:
    return use(docker.gvisor_settings(), workspace, lambda box: box.run(Request(command=command)), **grant)


@pytest.mark.req("B12", "D1")
def test_a_kernel_of_its_own_is_given_where_it_is_required_and_the_wall_says_by_what(tmp_path: Path) -> None:
    docker.gvisor_settings()

    result = use(
        docker.settings(),
        tmp_path,
        lambda box: box.run(Request(command="cat /proc/sys/kernel/random/boot_id; id -u")),
        requires=OWN_KERNEL,
    )
    boot, uid = result.stdout.split()

    assert boot != Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert uid != "0"
    assert result.wall.name == "docker-gvisor" and Guarantee.OWN_KERNEL in result.wall.guarantees
    assert any("runsc" in note for note in result.wall.notes)


@pytest.mark.req("B12")
def test_a_runtime_that_only_claims_a_kernel_of_its_own_is_found_out_and_nothing_is_left(tmp_path: Path) -> None:
    chosen = docker.settings()
    if "krun" not in docker.runtimes():
        pytest.skip("this daemon was not started by scripts/docker-engine.sh")

    with pytest.raises(InitializationFailed, match="runs containers on the host's"):
        use(DockerSettings(chosen.url, chosen.image, "krun"), tmp_path, lambda box: asyncio.sleep(0))

    assert docker.leftovers() == []


@pytest.mark.req("B12", "A4")
def test_files_that_it_makes_belong_to_the_workspace_s_owner(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        "mkdir d && echo x > d/f && ln -s f d/l && mv d/f d/g && chmod 600 d/g && cat d/g && stat -c %U d/g",
    )
    made = map(os.lstat, (tmp_path / "d", tmp_path / "d/g", tmp_path / "d/l"))

    assert result.stdout == "x\nagent\n", result.stderr
    assert {(info.st_uid, info.st_gid) for info in made} == {(os.getuid(), os.getgid())}


@pytest.mark.req("A10", "B12")
@pytest.mark.parametrize(
    "attack",
    [
        "echo evil > .git/hooks/pre-commit",
        "mv .git .git-old && cp -r .git-old .git && echo evil > .git/hooks/pre-commit",
        "mv .git/hooks .git/old; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
        "echo evil >> .git/config",
        "rm -rf .git/hooks; mkdir -p .git/hooks && echo evil > .git/hooks/pre-commit",
    ],
)
def test_what_is_protected_stays_as_it_is(tmp_path: Path, attack: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env={"PATH": os.environ["PATH"]}, timeout=20)
    (tmp_path / ".env").write_text("hunter2")
    config = (tmp_path / ".git/config").read_bytes()

    result = run(
        tmp_path,
        f"{attack}; cat .env; git status -s; echo done > file",
        protected=PROTECTED,
        denied=("**/.env",),
    )

    assert "evil" not in "".join(path.read_text(errors="replace") for path in (tmp_path / ".git/hooks").iterdir())
    assert (tmp_path / ".git/config").read_bytes() == config
    assert "hunter2" not in result.stdout
    assert (tmp_path / "file").read_text() == "done\n"


@pytest.mark.req("A10", "B12")
def test_a_box_in_a_part_of_another_s_workspace_reaches_no_placeholder_of_the_rest(tmp_path: Path) -> None:
    part = tmp_path / "part"
    part.mkdir()
    fill = "for f in .git/*; do [ -s $f ] || { chmod 644 $f; echo evil > $f; }; done"

    async def attack(inner: HelperBox) -> None:
        await inner.run(Request(command="git init -q . && rm -rf .git/hooks .git/config", cwd=part / "new"))
        outer = await DockerEngine(docker.gvisor_settings()).open(Grant(workspace=tmp_path, protected=PROTECTED))
        try:
            await inner.run(Request(command=fill, cwd=part / "new"))
        finally:
            await outer.close()

    (part / "new").mkdir()
    use(docker.gvisor_settings(), part, attack, protected=PROTECTED)

    assert "evil" in (part / "new/.git/hooks").read_text()  # it may: the repository is its own
    assert sorted(os.listdir(tmp_path)) == ["part"]


@pytest.mark.req("A3", "B7", "B12")
def test_a_pipe_by_a_name_that_is_hidden_holds_nobody_up_and_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "part").mkdir()
    os.mkfifo(tmp_path / "part/.env", 0o666)
    started = time.monotonic()

    result = run(tmp_path, "cat part/.env; echo x > part/.env; echo on", denied=("**/.env",), protected=PROTECTED)

    assert result.stdout == "on\n" and result.stderr.count("not permitted") == 2
    assert time.monotonic() - started < 15


@pytest.mark.req("A10", "B12")
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.mknod(path, stat.S_IFSOCK)], ids=["pipe", "socket"])
def test_a_pipe_or_socket_where_a_protected_file_may_come_is_refused(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / ".bashrc")

    with pytest.raises(InitializationFailed, match=r"\.bashrc is not a plain file"):
        run(tmp_path, "rm .bashrc; echo evil > .bashrc", protected=PROTECTED)

    assert os.listdir(tmp_path) == [".bashrc"] and docker.leftovers() == []


@pytest.mark.req("A3", "B12")
@pytest.mark.parametrize(("count", "fits"), [(50, True), (80, False)])
def test_more_to_hide_than_gvisor_bears_is_refused_in_so_many_words(tmp_path: Path, count: int, *, fits: bool) -> None:
    for index in range(count):
        (tmp_path / f"part-{index}").mkdir()
        (tmp_path / f"part-{index}/.env").write_text("hunter2")

    def look() -> Any:
        return run(tmp_path, "cat */.env; echo on", denied=("**/.env",), protected=PROTECTED)

    if fits:
        assert look().stdout == "on\n"
    else:
        with pytest.raises(InitializationFailed, match="gVisor supports at most 230"):
            look()
    assert not (tmp_path / ".bashrc").exists()


@pytest.mark.req("A4", "B12")
def test_there_is_no_network_and_nothing_of_the_host_s_kernel(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 2)\" 2>&1 | tail -1;"
        " ls -a /run/ringfence; mount -t tmpfs x /mnt 2>&1; unshare -U true 2>&1 | head -1",
    )

    assert "No route to host" in result.stdout
    assert "control" not in result.stdout
    assert "denied" in result.stdout or "permitted" in result.stdout


@pytest.mark.req("B6", "B12")
def test_more_memory_than_is_granted_ends_the_command_and_the_machine_keeps_its_own(tmp_path: Path) -> None:
    started = time.monotonic()

    async def work(box: HelperBox) -> Any:
        assert (await box.run(Request(command="echo lives"))).stdout == "lives\n"
        try:
            return await box.run(Request(argv=("python3", "-c", "x = bytearray(b'x') * (1 << 30); print(len(x))")))
        except Internal:  # the whole kernel of the box went, and with it the box: said in SECURITY.md
            return None

    result = use(docker.gvisor_settings(), tmp_path, work, limits=Limits(memory_bytes=200 << 20, wall_seconds=30))

    assert result is None or result.ending != Exited(0)
    assert time.monotonic() - started < 60


@pytest.mark.req("B7", "B12")
@pytest.mark.parametrize("how", ["kill", "pause", "rm", "relay"])
def test_a_box_that_is_ended_behind_our_back_answers_and_leaves_nothing(tmp_path: Path, how: str) -> None:
    async def work(box: HelperBox) -> None:
        container = box._inside.around.container  # type: ignore[attr-defined]
        call = asyncio.ensure_future(box.run(Request(command="sleep 50")))
        await asyncio.sleep(0.5)
        match how:
            case "kill":
                docker.command("kill", container)
            case "pause":
                docker.command("pause", container)
            case "rm":
                docker.command("rm", "--force", container)
            case "relay":
                os.kill(box._inside.control.first_pid, signal.SIGKILL)
        try:
            result = await asyncio.wait_for(call, 20)
        except RingfenceError:
            return
        assert result.ending != Exited(0)

    use(docker.gvisor_settings(), tmp_path, work, limits=Limits(wall_seconds=3))
    assert docker.leftovers() == []


@pytest.mark.req("B12")
def test_what_is_mounted_somewhere_else_than_was_ordered_is_found_out(tmp_path: Path) -> None:
    chosen = docker.gvisor_settings()
    shown, other = tmp_path / "shown", tmp_path / "other"
    shown.mkdir()
    other.mkdir()
    name = f"ringfence-test-{os.getpid()}"
    line = ("--runtime", "runsc", "--network", "none", "-v", f"{shown}:/place", chosen.image, "sleep", "60")
    container = docker.command("run", "--detach", "--rm", "--name", name, *line)

    async def look(*mounts: Mount) -> None:
        async with Daemon(chosen.url) as daemon:
            verify.prove_gvisor(await daemon.first_pid(container), container, verify.expected(mounts))

    try:
        asyncio.run(look(Mount(str(shown), "/place", writable=True)))
        with pytest.raises(InitializationFailed, match="/place shows"):
            asyncio.run(look(Mount(str(other), "/place", writable=True)))
        with pytest.raises(InitializationFailed, match="/place is mounted, which nobody asked for"):
            asyncio.run(look())
    finally:
        docker.command("rm", "--force", name)


@pytest.mark.req("B12", "D5")
def test_doctor_tries_a_runtime_out_before_it_says_that_there_is_a_kernel(tmp_path: Path) -> None:
    docker.gvisor_settings()
    facts = {fact.name: fact for fact in docker_facts(docker.environment())}

    assert not facts["docker"].missing and not facts["docker-gvisor"].missing
    assert Guarantee.OWN_KERNEL in facts["docker-gvisor"].guarantees
    assert Guarantee.OWN_KERNEL not in facts["docker"].guarantees | facts["docker-microvm"].guarantees
    assert "krun" in facts["docker-microvm"].missing
    assert docker.leftovers() == []
