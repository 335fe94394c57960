"""Whatever goes wrong with a daemon, an image or a container ends in an error that says so; nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.confinement.choose import build_container_view
from ringfence.engines.boxes import helper
from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.docker import host, pending_removals, stage
from ringfence.engines.docker.daemon import Daemon
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.janitor import MANAGER_LABEL, own_name
from ringfence.engines.docker.settings import DockerSettings
from ringfence.errors import InitializationFailed, Internal, InvalidArgument, SpawnFailed
from ringfence.policy.defaults import PROTECTED
from ringfence.values.grant import Grant, Shadowing
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import Exited, LimitHit, Result, Signalled, TimedOut
from ringfence.values.request import Request
from tests.integration.docker_bench import SECONDS, Bench
from tests.soak.gate import Gate
from tests.support import docker
from tests.support.own_docker import OwnDaemon, own_daemon

_MIB = 1024 * 1024


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    yield Bench(workspace, docker.settings())
    assert docker.leftovers() == []


def refusal(settings: DockerSettings, workspace: Path, **grant: Any) -> InitializationFailed:
    async def main() -> None:
        async with asyncio.timeout(SECONDS):
            box = await DockerEngine(settings).open(Grant(workspace=workspace, **grant))
            await box.close()

    with pytest.raises(InitializationFailed) as caught:
        asyncio.run(main())
    return caught.value


# --- the daemon -------------------------------------------------------------------------------------------------------


@contextmanager
def impostor(path: Path, answer: Callable[[socket.socket], None]) -> Iterator[DockerSettings]:
    """Something that is no Docker daemon, at the address of one."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()
    connections: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                connections.append(server.accept()[0])
                answer(connections[-1])
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield DockerSettings(f"unix://{path}", "any")
    finally:
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()
        server.close()


@pytest.mark.parametrize("url", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1"])
def test_where_no_daemon_is_the_error_names_the_address_and_what_to_do(tmp_path: Path, url: str) -> None:
    fault = refusal(DockerSettings(url, "any"), tmp_path)

    assert url in fault.message and "dockerd running" in fault.hint and "native" in fault.hint


def test_a_daemon_that_never_answers_is_given_up_after_the_deadline(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with Daemon(url, call_seconds=0.5) as daemon:
            await daemon.about()

    begin = time.monotonic()
    silent = impostor(tmp_path / "s", lambda connection: None)
    with silent as settings, pytest.raises(InitializationFailed, match=r"within 0\.5 s"):
        asyncio.run(main(settings.url))

    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n{"ApiVersion": "nonsense"}',
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"broken"',
        b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
)
def test_what_is_no_daemon_is_an_error_and_no_crash(tmp_path: Path, answer: bytes) -> None:
    def say(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_RDWR)

    with impostor(tmp_path / "s", say) as settings:
        fault = refusal(settings, tmp_path)

    assert "Docker daemon" in fault.message and fault.hint


def test_a_daemon_that_is_too_old_is_refused_with_what_is_needed(tmp_path: Path) -> None:
    body = b'{"ApiVersion": "1.38", "Version": "18.06"}'

    def say(connection: socket.socket) -> None:
        while connection.recv(65536):
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )

    with impostor(tmp_path / "s", say) as settings:
        fault = refusal(settings, tmp_path)

    assert "1.38" in fault.message and "20.10" in fault.hint


# --- the runtime ------------------------------------------------------------------------------------------------------


@pytest.mark.req("B12")
def test_the_runtime_that_is_asked_for_makes_the_container_and_one_that_is_not_there_none(bench: Bench) -> None:
    known, image = docker.command("info", "--format", "{{.DefaultRuntime}}"), bench.settings.image
    bench.settings = DockerSettings(bench.settings.url, image, known)

    async def work(box: HelperBox) -> str:
        own = docker.command("ps", "--quiet", "--filter", f"label={MANAGER_LABEL}={own_name()}")
        return docker.command("inspect", "--format", "{{.HostConfig.Runtime}}", own)

    assert bench.use(work) == known
    fault = refusal(DockerSettings(bench.settings.url, image, "nowhere"), bench.workspace)
    assert "'nowhere'" in fault.message and known in fault.message


# --- the image --------------------------------------------------------------------------------------------------------


@pytest.fixture
def imported() -> Iterator[Callable[[bytes], str]]:
    names: list[str] = []

    def make(archive: bytes, *options: str) -> str:
        docker.settings()
        name = f"ringfence/test-{os.getpid()}-{len(names)}"
        docker.command("import", *options, "-", name, stdin=archive)
        names.append(name)
        return name

    yield make
    for name in names:
        docker.command("image", "rm", "--force", name)


def test_an_image_that_is_not_there_is_an_error_that_says_how_to_get_it(bench: Bench) -> None:
    fault = refusal(DockerSettings(bench.settings.url, "ringfence/nowhere:1"), bench.workspace)

    assert "ringfence/nowhere:1" in fault.message and "ringfence image build" in fault.hint


def test_an_image_without_a_shell_is_refused(bench: Bench, imported: Callable[[bytes], str]) -> None:
    name = imported(docker.small_image("true"))

    fault = refusal(DockerSettings(bench.settings.url, name), bench.workspace)

    assert "no shell" in fault.message and "ringfence image build" in fault.hint


def test_an_image_without_python_runs_commands_and_says_what_it_lacks_when_asked(
    bench: Bench, imported: Callable[[bytes], str]
) -> None:
    name = imported(docker.small_image("bash", "cat", links={"/bin/sh": "/usr/bin/bash", "/bin/bash": "/usr/bin/bash"}))
    bench.settings = DockerSettings(bench.settings.url, name)

    async def work(box: HelperBox) -> str:
        await box.warm()
        with pytest.raises(SpawnFailed, match="python3"):
            await box.run(Request(code="1", language="python"))
        return (await box.run(Request(command="echo still; cat /etc/passwd | head -c 4"))).stdout

    assert bench.use(work).startswith("still\n")


def test_a_script_of_the_image_that_says_nothing_about_who_runs_it_is_run_by_the_shell(
    bench: Bench, imported: Callable[[bytes], str]
) -> None:
    scripts = {"/usr/bin/plain": "echo plain $1\n", "/usr/bin/marked": "#!/bin/sh\necho marked $1\n"}
    archive = docker.small_image("bash", links={"/bin/sh": "/usr/bin/bash"}, scripts=scripts)
    bench.settings = DockerSettings(bench.settings.url, imported(archive))

    async def work(box: HelperBox) -> list[str]:
        return [(await box.run(Request(command=f"{name} x"))).stdout for name in ("plain", "marked", "/usr/bin/plain")]

    assert bench.use(work) == ["plain x\n", "marked x\n", "plain x\n"]


def test_a_volume_that_an_image_declares_is_memory_of_the_box(bench: Bench, imported: Callable[..., str]) -> None:
    archive = docker.small_image("bash", "ls", links={"/bin/sh": "/usr/bin/bash"})
    bench.settings = DockerSettings(bench.settings.url, imported(archive, "--change", "VOLUME /data"))
    volumes = docker.command("volume", "ls", "--quiet")

    said = bench.run(
        "echo x > /data/file; ls /data; while read -r _ _ _ _ at rest; do test $at = /data && echo $rest; done "
        "< /proc/self/mountinfo"
    ).stdout

    assert said.startswith("file\n") and "tmpfs" in said
    assert docker.command("volume", "ls", "--quiet") == volumes


def test_an_interpreter_of_the_host_that_the_image_lacks_is_refused_with_the_one_it_has(bench: Bench) -> None:
    fault = refusal(bench.settings, bench.workspace, python="/opt/mine/bin/python3")

    assert "/opt/mine/bin/python3" in fault.message and "/usr/bin/python3" in fault.hint


# --- the container, behind our back -----------------------------------------------------------------------------------


def lost(bench: Bench, blow: Callable[[str, HelperBox], object]) -> None:
    """A box that is struck while a command runs tells its caller, and whoever asks, that it is gone."""

    async def work(box: HelperBox) -> None:
        told: list[int] = []
        box.when_lost(lambda: told.append(1))
        running = asyncio.create_task(box.run(Request(command="sleep 60")))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(blow, container_of(box), box)
        with pytest.raises(Internal):
            await asyncio.wait_for(running, 20)
        assert told == [1] and not box.alive and not box.probe()
        with pytest.raises(Internal, match="gone"):
            await box.run(Request(command="true"))

    bench.use(work)


def container_of(box: HelperBox) -> str:
    around: Any = box._inside.around
    return str(around.container)


def test_a_container_that_somebody_removes_is_a_box_that_is_gone(bench: Bench) -> None:
    lost(bench, lambda container, box: docker.command("rm", "--force", container))


def test_a_container_that_somebody_kills_is_a_box_that_is_gone(bench: Bench) -> None:
    lost(bench, lambda container, box: docker.command("kill", container))


def test_a_first_process_that_somebody_kills_is_a_box_that_is_gone(bench: Bench) -> None:
    lost(bench, lambda container, box: os.kill(box._inside.control.first_pid, signal.SIGKILL))


def test_a_container_that_somebody_pauses_does_not_hold_a_call_beyond_its_time(bench: Bench) -> None:
    docker.needs_groups()

    async def work(box: HelperBox) -> Result:
        running = asyncio.create_task(box.run(Request(command="sleep 60", timeout=0.5)))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(docker.command, "pause", container_of(box))
        return await asyncio.wait_for(running, 20)

    assert bench.use(work).ending == TimedOut(0.5)


def test_a_box_that_is_paused_when_it_is_closed_goes_all_the_same(bench: Bench) -> None:
    docker.needs_groups()

    async def work(box: HelperBox) -> None:
        await asyncio.to_thread(docker.command, "pause", container_of(box))
        await asyncio.wait_for(box.close(), 20)

    bench.use(work, protected=PROTECTED)

    assert os.listdir(bench.workspace) == []


@pytest.mark.req("B7")
def test_a_box_that_is_frozen_while_its_daemon_hangs_holds_nobody_up_and_goes_when_it_answers(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker.needs_groups()
    monkeypatch.setattr("ringfence.engines.boxes.ending._DEATH_SECONDS", 1.0)
    monkeypatch.setattr("ringfence.engines.docker.host._REMOVE_SECONDS", 1.0)

    async def main() -> int:
        async with Gate(tmp_path / "gate", bench.settings.url) as gate:
            engine = DockerEngine(DockerSettings(gate.url, bench.settings.image))
            box = await engine.open(Grant(workspace=bench.workspace))
            await asyncio.to_thread(docker.command, "pause", container_of(box))
            gate.hang()
            async with asyncio.timeout(20):
                assert (await box.run(Request(command="true", timeout=0.5))).ending == TimedOut(0.5)
                assert not box.alive
                await box.close()
            gate.open()
            await (await engine.open(Grant(workspace=bench.workspace))).close()
            while host._frozen:
                await asyncio.sleep(0.02)
            return box._inside.control.first_pid

    assert not os.path.exists(f"/proc/{asyncio.run(main())}")


def test_a_daemon_that_hangs_does_not_hold_up_the_end_of_a_box(bench: Bench, tmp_path: Path) -> None:
    async def work(box: HelperBox) -> int:
        around: Any = box._inside.around
        with impostor(tmp_path / "s", lambda connection: None) as hanging:
            around._url = hanging.url
            await asyncio.wait_for(box.close(), 15)
        return box._inside.control.first_pid

    pid = bench.use(work, protected=PROTECTED)

    assert not os.path.exists(f"/proc/{pid}") and os.listdir(bench.workspace) == []
    deadline = time.monotonic() + 10
    while docker.leftovers() and time.monotonic() < deadline:  # the real daemon removes it by itself
        time.sleep(0.05)


def test_a_box_that_is_cancelled_while_it_is_made_leaves_nothing(bench: Bench) -> None:
    async def main(seconds: float) -> None:
        opening = asyncio.create_task(
            DockerEngine(bench.settings).open(Grant(workspace=bench.workspace, protected=PROTECTED))
        )
        await asyncio.sleep(seconds)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()

    bench.run("true")  # the image is known from now on
    for seconds in (0.0, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2):
        asyncio.run(main(seconds))
        assert docker.leftovers() == [] and os.listdir(bench.workspace) == []


def test_a_box_that_is_made_when_its_maker_is_cancelled_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run("true")
    leave = Daemon.__aexit__

    async def cancelled(daemon: Daemon, *fault: Any) -> None:
        opening = asyncio.current_task()
        assert opening is not None and fault == (None, None, None)
        monkeypatch.setattr(Daemon, "__aexit__", leave)
        opening.cancel()
        await leave(daemon, *fault)

    async def main() -> None:
        before = set(os.listdir("/proc/self/fd"))
        with pytest.raises(asyncio.CancelledError):
            await DockerEngine(bench.settings).open(Grant(workspace=bench.workspace, protected=PROTECTED))
        assert set(os.listdir("/proc/self/fd")) == before

    monkeypatch.setattr(Daemon, "__aexit__", cancelled)
    asyncio.run(main())

    assert docker.leftovers() == [] and os.listdir(bench.workspace) == []


def test_a_stage_is_taken_down_to_its_end_also_if_whoever_does_it_is_cancelled(tmp_path: Path) -> None:
    async def main() -> int | None:
        prepared = build_container_view(
            Grant(workspace=tmp_path), home="/home/agent", uid=os.getuid(), gid=os.getgid(), own_kernel=False
        )
        try:
            built = await stage.build(prepared, None, "{}", is_carried=False)
        finally:
            prepared.close()
        taking = asyncio.create_task(built.take_down())
        await asyncio.sleep(0)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        return built._guardian.returncode

    assert asyncio.run(main()) == 0


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("B6", "C9")
def test_too_much_memory_is_told_from_any_other_kill(bench: Bench) -> None:
    async def work(box: HelperBox) -> list[Result]:
        commands = ("kill -9 $$", "python3 -c 'x = bytearray(200 << 20)'", "echo fine")
        return [await box.run(Request(command=command)) for command in commands]

    killed, greedy, after = bench.use(work, limits=Limits(memory_bytes=64 * _MIB))

    assert killed.ending == Signalled(9)
    assert greedy.ending == LimitHit(Limit.MEMORY, 64 * _MIB)
    assert after.stdout == "fine\n"


def test_memory_within_the_limit_is_no_fault(bench: Bench) -> None:
    greedy = bench.run("python3 -c 'x = bytearray(200 << 20); print(len(x))'", limits=Limits(memory_bytes=400 * _MIB))

    assert greedy.stdout == f"{200 << 20}\n" and greedy.usage.peak_memory_bytes > 200 << 20


@pytest.mark.req("B6", "C9")
def test_processes_are_bounded_and_the_box_lives_on(bench: Bench) -> None:
    async def work(box: HelperBox) -> tuple[int, Result]:
        bomb = "for i in $(seq 100); do sleep 5 & done 2>/dev/null; jobs -r | wc -l"
        started = await box.run(Request(command=bomb, timeout=10))
        return int(started.stdout or 0), await box.run(Request(command="echo fine"))

    started, after = bench.use(work, limits=Limits(processes=20))

    assert started < 20 and after.stdout == "fine\n"


@pytest.mark.req("B6", "C9")
def test_growth_of_the_workspace_is_bounded(bench: Bench) -> None:
    result = bench.run("head -c 200M /dev/zero > big; sleep 5", limits=Limits(disk_bytes=20 * _MIB))

    assert result.ending == LimitHit(Limit.DISK, 20 * _MIB)


@pytest.mark.req("B6")
def test_a_share_of_a_core_is_all_that_a_box_gets_however_many_ask(bench: Bench) -> None:
    docker.needs_groups()
    busy = "for i in 1 2; do timeout 2 bash -c 'while :; do :; done' & done; wait"

    held, free = bench.run(busy, cores=0.1), bench.run(busy)

    assert held.usage.cpu_seconds < free.usage.cpu_seconds / 2
    assert held.usage.cpu_seconds < 0.1 * held.usage.wall_seconds + 0.2


@pytest.mark.req("B6", "C9")
def test_cpu_time_is_bounded(bench: Bench) -> None:
    result = bench.run("while :; do :; done", limits=Limits(cpu_seconds=1, wall_seconds=30))

    assert result.ending == LimitHit(Limit.CPU, 1)


def test_less_memory_than_docker_takes_is_an_error_that_says_how_much_it_takes(bench: Bench) -> None:
    with pytest.raises(InvalidArgument, match="6MB"):
        bench.run("true", limits=Limits(memory_bytes=_MIB))


# --- odd names --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a:b", "a,b", "a b", "ro:rw", "ä 漢", "it's", 'a"b', "a\\b", "a\nb", "-x", "a=b", "$HOME", "%s"]
)
def test_a_workspace_may_have_any_name_that_is_text(tmp_path: Path, name: str) -> None:
    workspace = tmp_path / name
    workspace.mkdir()
    (workspace / ".env").write_text("SECRET=1\n")

    result = Bench(workspace, docker.settings()).guarded("pwd; cat .env; echo x > file")

    assert result.stdout == f"{workspace}\n"
    assert (workspace / "file").read_text() == "x\n"


def test_a_name_that_is_no_text_is_refused_and_not_mistaken_for_another(tmp_path: Path) -> None:
    docker.settings()
    workspace = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    workspace.mkdir()

    fault = refusal(docker.settings(), workspace)

    assert "not text" in fault.message and "native" in fault.hint


def test_a_link_that_would_have_to_be_protected_is_refused_and_nothing_is_left(bench: Bench) -> None:
    (bench.workspace / ".vscode").symlink_to("elsewhere")

    fault = refusal(bench.settings, bench.workspace, protected=PROTECTED)

    assert ".vscode is a link" in fault.message and "native" in fault.hint
    assert os.listdir(bench.workspace) == [".vscode"]


def test_without_our_helper_nothing_is_made(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "_NATIVE", "/nowhere/ringfence-box")

    fault = refusal(bench.settings, bench.workspace, protected=PROTECTED)

    assert "helper is missing" in fault.message and os.listdir(bench.workspace) == []


@pytest.mark.parametrize("place", ["/usr", "/etc", "/proc/self", "/run/ringfence/x"])
def test_a_workspace_that_would_cover_the_image_s_own_is_refused(place: str) -> None:
    docker.settings()
    if not os.path.isdir(place):
        pytest.skip(f"there is no {place} here")

    assert "cannot be shown" in refusal(docker.settings(), Path(os.path.realpath(place))).message


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"mediate_opens": True}, "mediate_opens"),
        ({"shadow": Shadowing(Path("/nowhere"), is_copy=False)}, "shadow"),
        ({"requires": frozenset({Guarantee.DENIED_AT_OPEN})}, "denied at open"),
    ],
)
def test_what_is_asked_and_would_not_be_held_is_refused(bench: Bench, asked: dict[str, Any], said: str) -> None:
    fault = refusal(bench.settings, bench.workspace, **asked)

    assert said in fault.message and "native" in fault.hint


def test_a_guarantee_that_containers_do_not_give_is_refused_by_name(bench: Bench) -> None:
    usual = replace(bench.settings, runtime="runc")  # the daemon may have another that gives it

    fault = refusal(usual, bench.workspace, requires=frozenset({Guarantee.OWN_KERNEL}))

    assert "a kernel of its own is required" in fault.message and "'runc'" in fault.message


# --- those who die ----------------------------------------------------------------------------------------------------

_MANAGER = """
import asyncio, os, sys
from pathlib import Path
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.settings import DockerSettings
from ringfence.policy.defaults import PROTECTED
from ringfence.values.grant import Grant, Shadowing
from ringfence.values.request import Request

async def main():
    grant = Grant(workspace=Path(sys.argv[3]), protected=PROTECTED)
    box = await DockerEngine(DockerSettings(sys.argv[1], sys.argv[2])).open(grant)
    await box.start(Request(command="while :; do echo x > alive; sleep 0.05; done"))
    while not (grant.workspace / "alive").exists():
        await asyncio.sleep(0.01)
    print(box._inside.around.container, box._inside.control.first_pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def test_when_the_manager_is_killed_the_container_the_placeholders_and_the_stage_go(
    bench: Bench, tmp_path: Path
) -> None:
    stage = tmp_path / "tmp"
    stage.mkdir()
    line = [sys.executable, "-c", _MANAGER, bench.settings.url, bench.settings.image, str(bench.workspace)]
    env = {**os.environ, "TMPDIR": str(stage)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=env, text=True) as manager:
        assert manager.stdout is not None
        container, first_pid = manager.stdout.readline().split()
        assert len(os.listdir(bench.workspace)) > 10 and os.listdir(stage)
        manager.kill()

    deadline = time.monotonic() + 20
    while os.listdir(stage) or os.path.exists(f"/proc/{first_pid}") or container in dict(docker.labelled()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert os.listdir(bench.workspace) == ["alive"]


@pytest.mark.req("B7")
def test_what_a_dead_manager_made_and_never_started_is_removed_and_what_a_living_one_made_is_not(bench: Bench) -> None:
    dead = " ".join((*own_name().split(" ")[:-2], "999999999", "1"))
    foreign = "another-boot pid:[1] 1 1"

    def create(manager: str) -> str:
        return docker.command("create", "--label", f"{MANAGER_LABEL}={manager}", bench.settings.image, "true")

    orphan, own, elsewhere = create(dead), create(own_name()), create(foreign)
    try:
        bench.run("true")
        left = dict(docker.labelled())
        assert orphan not in left and own in left and elsewhere in left
    finally:
        docker.command("rm", "--force", orphan, own, elsewhere, check=False)


@pytest.mark.req("B7")
def test_what_could_not_be_removed_is_removed_with_the_next_box(bench: Bench) -> None:
    orphan = docker.command("create", "--label", f"{MANAGER_LABEL}={own_name()}", bench.settings.image, "true")
    bench.run("true")
    assert orphan in dict(docker.labelled())  # one of our own that nobody gave up stays

    pending_removals.owe(bench.settings.url, orphan)
    bench.run("true")

    assert orphan not in dict(docker.labelled()) and pending_removals.owed_to(bench.settings.url) == ()


@pytest.mark.req("B7")
def test_containers_that_cannot_be_removed_hold_up_one_connection_for_one_deadline_and_the_next_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.engines.docker.daemon._REMOVE_SECONDS", 0.5)

    async def seconds(url: str) -> float:
        begin = time.monotonic()
        async with Daemon(url):
            pass
        return time.monotonic() - begin

    async def twice(url: str) -> tuple[float, float]:
        return await seconds(url), await seconds(url)

    with impostor(tmp_path / "s", lambda connection: None) as hanging:
        for name in "abcd":
            pending_removals.owe(hanging.url, name)
        first, second = asyncio.run(twice(hanging.url))

    assert 0.5 <= first < 1.5 and second < 0.4


def test_a_daemon_that_hangs_is_given_up_after_one_deadline_by_all_who_wait(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.engines.docker.daemon._IN_ALL_SECONDS", 1.0)

    async def main(settings: DockerSettings) -> list[object]:
        engine, grant = DockerEngine(settings), Grant(workspace=bench.workspace)
        return await asyncio.gather(*(engine.open(grant) for _ in range(20)), return_exceptions=True)

    begin = time.monotonic()
    with impostor(tmp_path / "s", lambda connection: None) as hanging:
        outcomes = asyncio.run(main(hanging))

    assert {type(outcome) for outcome in outcomes} == {InitializationFailed}
    assert time.monotonic() - begin < 5


@pytest.fixture
def daemon() -> Iterator[OwnDaemon]:
    docker.settings()  # where there is no Docker at all, there is none to mistreat
    with own_daemon() as started:
        yield started


@pytest.mark.root
def test_boxes_outlive_a_daemon_that_is_killed_and_new_ones_are_made_when_it_is_back(
    daemon: OwnDaemon, tmp_path: Path
) -> None:
    async def main() -> None:
        engine, grant = DockerEngine(daemon.settings), Grant(workspace=tmp_path)
        box = await engine.open(grant)
        try:
            daemon.kill()
            assert (await box.run(Request(command="echo without a daemon"))).stdout == "without a daemon\n"
            with pytest.raises(InitializationFailed, match="no Docker daemon"):
                await engine.open(grant)
        finally:
            await box.close()
        await asyncio.to_thread(daemon.do, "up")
        again = await engine.open(grant)
        try:
            assert (await again.run(Request(command="exit 3"))).ending == Exited(3)
        finally:
            await again.close()

    asyncio.run(main())


@pytest.mark.root
def test_a_daemon_whose_disk_is_full_says_so_and_goes_on_when_there_is_room(daemon: OwnDaemon, tmp_path: Path) -> None:
    bench = Bench(tmp_path, daemon.settings)
    assert bench.run("echo before").stdout == "before\n"
    filler = daemon.home / "data" / "filler"
    with suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(4096))

    fault = refusal(daemon.settings, tmp_path, protected=PROTECTED)

    assert "no space left" in fault.message and "make room" in fault.hint
    assert os.listdir(tmp_path) == []
    filler.unlink()
    assert bench.run("echo after").stdout == "after\n"
