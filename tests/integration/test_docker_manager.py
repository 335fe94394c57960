"""Sessions, pools and executors over containers: what a person has with the native engine, with `docker_url` added."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence import (
    Docker,
    DockerExecutor,
    ExecutionRequest,
    InitializationFailed,
    InvalidArgument,
    Limit,
    LimitHit,
    Limits,
    PolicyEngine,
    PoolConfig,
    Sandbox,
    SandboxManager,
    SandboxPool,
    SandboxType,
)
from ringfence.engines.docker.janitor import MANAGER_LABEL, own_name
from ringfence.engines.docker.settings import DockerSettings
from tests.support import docker

_SECONDS = 90.0


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerSettings]:
    """A daemon and an image, and directories of our own for what a manager keeps."""
    found = docker.settings()
    monkeypatch.setenv("RINGFENCE_DOCKER_IMAGE", found.image)
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RINGFENCE_WORKSPACES_DIR", str(tmp_path / "workspaces"))
    monkeypatch.setenv("RINGFENCE_SANDBOX_CONFIG", str(tmp_path / "none.json"))
    (tmp_path / "none.json").write_text("{}")
    yield found
    assert docker.leftovers() == []


def managed(settings: DockerSettings, work: Callable[[SandboxManager], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with (
            asyncio.timeout(_SECONDS),
            SandboxManager(docker_url=settings.url, pool_size=1, **options) as manager,
        ):
            return await work(manager)

    return asyncio.run(main())


@pytest.mark.req("B1", "B7", "E2", "E4")
def test_sessions_keep_their_state_and_their_files_and_share_neither(settings: DockerSettings) -> None:
    async def work(manager: SandboxManager) -> None:
        await manager.execute_code("python", "x = 41", session_id="a")
        done = await manager.execute_code("python", "open('f', 'w').write('mine'); x + 1", session_id="a")
        assert (done.results[-1].text, done.sandbox_type) == ("42", SandboxType.DOCKER)
        assert (await manager.execute_shell("cat f", session_id="a")).stdout == "mine"
        look = "import os; 'x' in globals(), os.path.exists('f')"
        other = await manager.execute_code("python", look, session_id="b")
        assert other.results[-1].text == "(False, False)"

    managed(settings, work)


@pytest.mark.req("B1", "B2")
def test_files_go_in_and_come_out(settings: DockerSettings) -> None:
    async def work(manager: SandboxManager) -> None:
        done = await manager.execute_shell("tr a-z A-Z < in.txt > out.txt", files={"in.txt": "hello"})
        assert [(file.path, file.data) for file in done.files] == [("out.txt", b"HELLO")]
        assert done.wall is not None and done.wall.name == "docker"

    managed(settings, work)


@pytest.mark.req("B7")
def test_each_call_without_a_session_has_a_container_that_nobody_used(settings: DockerSettings) -> None:
    async def work(manager: SandboxManager) -> None:
        for _ in range(3):
            done = await manager.execute_shell("ls /tmp ~ . | grep mark; touch /tmp/mark ~/mark mark")
            assert done.stdout == ""

    managed(settings, work)


@pytest.mark.req("B7")
def test_a_pool_recovers_from_containers_that_vanish(settings: DockerSettings) -> None:
    async def work(manager: SandboxManager) -> None:
        await manager.execute_shell("true", session_id="a")
        for container in docker_ids():
            docker.command("rm", "--force", container, check=False)
        assert (await manager.execute_shell("echo new")).stdout == "new\n"
        assert (await manager.execute_shell("echo again", session_id="a")).stdout == "again\n"

    managed(settings, work)


def docker_ids() -> list[str]:
    """Those of this process: others may be testing with the same daemon."""
    return docker.command("ps", "--quiet", "--filter", f"label={MANAGER_LABEL}={own_name()}").split()


@pytest.mark.req("B4", "D1")
def test_a_policy_s_engine_is_used_and_its_refusals_hold(settings: DockerSettings, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policies: {default: {engine: docker, denied_commands: [touch]}}\n")
    workspace = tmp_path / "work"
    workspace.mkdir()

    async def main() -> None:
        async with asyncio.timeout(_SECONDS), Sandbox(workspace, policy=policy) as sandbox:
            assert sandbox.name == "docker"
            assert (await sandbox.shell("echo fine")).stdout == "fine\n"
            assert (await sandbox.shell("touch x")).blocked

    asyncio.run(main())
    assert os.listdir(workspace) == []


def test_a_pool_whose_daemon_is_not_there_says_so_at_the_start(settings: DockerSettings) -> None:
    async def main() -> None:
        async with SandboxPool(
            size=PoolConfig(min_instances=1, max_instances=2), engine=Docker(url="unix:///nowhere/docker.sock")
        ):
            pass

    with pytest.raises(InitializationFailed, match="no Docker daemon answers"):
        asyncio.run(main())


# --- one container for each execution ---------------------------------------------------------------------------------


def executed(executor: DockerExecutor, *requests: ExecutionRequest) -> list[Any]:
    async def main() -> list[Any]:
        async with asyncio.timeout(_SECONDS):
            return [await executor.execute(request) for request in requests]

    return asyncio.run(main())


@pytest.mark.req("E7")
def test_an_execution_has_a_container_of_its_own_and_its_files_come_back(settings: DockerSettings) -> None:
    first, second = executed(
        DockerExecutor(),
        ExecutionRequest(code="open('made', 'w').write('x'); print('hello')", files={"given": "y"}),
        ExecutionRequest(command="ls; exit 3"),
    )

    assert (first.stdout, first.sandbox_type, first.success) == ("hello\n", SandboxType.DOCKER, True)
    assert [file.path for file in first.files] == ["made"]
    assert (second.stdout, second.exit_code) == ("", 3)


@pytest.mark.req("E7")
def test_executions_over_a_workspace_share_its_files_and_nothing_else(settings: DockerSettings, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    _, second = executed(
        DockerExecutor(workspace, engine=Docker(url=settings.url, image=settings.image)),
        ExecutionRequest(command="echo kept > file; echo gone > /tmp/file"),
        ExecutionRequest(command="cat file /tmp/file"),
    )

    assert second.stdout == "kept\n" and (workspace / "file").read_text() == "kept\n"


@pytest.mark.req("E7", "B6")
def test_an_execution_has_no_network_and_no_more_memory_than_its_limit(settings: DockerSettings) -> None:
    limits = Limits(memory_bytes=64 * 1024 * 1024)
    network, memory = executed(
        DockerExecutor(limits=limits),
        ExecutionRequest(code="import socket; socket.create_connection(('1.1.1.1', 53), 1)"),
        ExecutionRequest(command="python3 -c 'x = bytearray(200 << 20)'"),
    )

    assert network.exception is not None and network.exception.type == "OSError"
    assert memory.ending == LimitHit(Limit.MEMORY, limits.memory_bytes)


def test_an_executor_keeps_no_state_and_says_so() -> None:
    for wrong in (
        ExecutionRequest(command="true", session_id="a"),
        ExecutionRequest(code="1", context="b"),
        ExecutionRequest(),
        ExecutionRequest(code="1", command="true"),
    ):
        with pytest.raises(InvalidArgument):
            asyncio.run(DockerExecutor().execute(wrong))


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.req("D8")
def test_the_command_line_runs_in_a_container_when_the_environment_says_so(
    settings: DockerSettings, tmp_path: Path
) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    env = {**os.environ, "RINGFENCE_TOOL_ENGINE": "docker", "HOME": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, "-c", "from ringfence.cli.app import main; main()", "run", "--", "echo", "from", "/workspace"],
        cwd=workspace,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (0, "from /workspace\n"), done.stderr


@pytest.mark.req("B12", "D1", "E2")
def test_risky_code_gets_a_kernel_of_its_own_from_the_same_daemon_and_harmless_code_does_not(
    settings: DockerSettings,
) -> None:
    docker.gvisor_settings()
    rules = "policies:\n  default:\n    isolation_requires: [own_kernel]\n    security_mode: permissive\n"

    async def work(manager: SandboxManager) -> list[Any]:
        return [await manager.execute_code("python", code) for code in ("print(6 * 7)", "print(eval('6 * 7'))")]

    done = managed(settings, work, policy_file=PolicyEngine.from_text(rules, "p.yaml"))

    assert [each.stdout for each in done] == ["42\n", "42\n"]
    assert [each.sandbox_type for each in done] == [SandboxType.DOCKER] * 2
    assert [each.wall.name for each in done] == ["docker", "docker-gvisor"]
    assert any("HIGH" in note for note in done[1].wall.notes)
