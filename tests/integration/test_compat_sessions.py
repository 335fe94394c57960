"""The examples of document 004, as they stand but for their imports, and what its names do, with real boxes."""
# ruff: noqa: RUF003  the document's own comments, in its own characters

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import DevelopmentOnlyWarning, InvalidArgument
from ringfence.compat.sessions import (
    AgentWorkspace,
    AIOSandboxPool,
    AutoApproveConfirmationService,
    DockerSimpleSandbox,
    ExecutionRequest,
    PathTraversalError,
    PoolConfig,
    RiskLevel,
    RunCodeTool,
    SandboxManager,
    SandboxType,
    SecurityMode,
    SessionState,
    UnifiedRiskPolicy,
)
from tests.integration.stage import Place

# --- the examples -----------------------------------------------------------------------------------------------------


@pytest.mark.req("E1")
def test_the_single_entry(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    async def example() -> None:
        # 创建管理器
        manager = SandboxManager(
            session_id="session_123",
            security_mode=SecurityMode.STRICT,  # 生产环境
        )

        # 执行代码
        result = await manager.execute(ExecutionRequest(code="print('Hello')", language="python"))

        print(result.success, result.stdout)
        await manager.cleanup()

    asyncio.run(example())
    assert capsys.readouterr().out == "True Hello\n\n"


@pytest.mark.req("E2")
def test_risk_is_assessed_and_the_sandbox_decided(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    # 风险评估（用于提示）
    risk = UnifiedRiskPolicy.assess("import os", "python")
    print(risk.level, risk.detected_patterns)

    # 安全决策（真正的边界）
    sandbox_type = UnifiedRiskPolicy.get_required_sandbox(
        risk,
        mode=SecurityMode.STRICT,  # 非 SAFE 代码强制 Docker
    )

    assert risk.level is RiskLevel.LOW and risk.detected_patterns == ["import os"]
    assert "import os" in capsys.readouterr().out
    assert sandbox_type is SandboxType.NATIVE


@pytest.mark.req("E3")
def test_the_workspace_writes_reads_and_refuses_to_leave(place: Place) -> None:
    workspace = AgentWorkspace("session_123")

    # 安全的文件操作
    workspace.write_file("output/result.txt", "Hello")
    content = workspace.read_file("output/result.txt")

    assert content == "Hello"
    # 路径遍历攻击会被阻止
    with pytest.raises(PathTraversalError):
        workspace.write_file("../../etc/passwd", "hack")  # 抛出 PathTraversalError
    with pytest.raises(PathTraversalError):
        workspace.read_file("/etc/passwd")
    workspace.close()


@pytest.mark.req("E4")
def test_the_pool_hands_out_by_session(place: Place) -> None:
    async def example() -> None:
        request = ExecutionRequest(code="print('Hello')", language="python")
        pool = AIOSandboxPool(config=PoolConfig(max_instances=10, min_instances=2))
        await pool.start()

        # 获取实例（自动绑定到 session）
        sandbox = await pool.acquire("session_123")
        assert pool.session_state("session_123") is SessionState.BUSY
        assert pool.session_state("another") is SessionState.IDLE
        result = await sandbox.execute(request)
        await pool.release("session_123")

        assert result.stdout == "Hello\n" and result.success
        assert pool.session_state("session_123") is SessionState.IDLE
        await pool.stop()

    asyncio.run(example())


@pytest.mark.req("E6")
def test_the_confirmation_service_is_part_of_the_manager(place: Place) -> None:
    async def example() -> Any:
        # 开发环境：自动批准
        with pytest.warns(DevelopmentOnlyWarning):
            confirmation = AutoApproveConfirmationService()

        # 集成到 SandboxManager
        manager = SandboxManager(session_id="session_123", confirmation_service=confirmation)
        result = await manager.execute(ExecutionRequest(code="import os; os.system('echo asked')"))
        await manager.cleanup()
        return result

    result = asyncio.run(example())
    assert "asked" in result.stdout


@pytest.mark.req("E8")
def test_the_run_code_tool(place: Place) -> None:
    async def example() -> Any:
        manager = SandboxManager("session_123")
        run_code = RunCodeTool(manager)

        result = await run_code.execute(code="print('Hello')", language="python", timeout=30)
        await run_code.execute(code="x = 6", language="python")
        kept = await run_code.execute("x * 7")
        await manager.cleanup()
        return result, kept

    result, kept = asyncio.run(example())
    assert result.stdout == "Hello\n" and result.sandbox_type is SandboxType.NATIVE
    assert kept.results[0].text == "42"


@pytest.mark.req("E1")
def test_the_basic_use(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    async def execute_code() -> None:
        manager = SandboxManager(session_id="user_session_123", security_mode=SecurityMode.STRICT)

        result = await manager.execute(
            ExecutionRequest(code="import pandas as pd; print(pd.__version__)", language="python", timeout=30)
        )

        if result.success:
            print(f"输出: {result.stdout}")
            print(f"使用的 Sandbox: {result.sandbox_type.value}")
        else:
            print(f"错误: {result.error}")

        await manager.cleanup()

    asyncio.run(execute_code())
    said = capsys.readouterr().out
    assert said.startswith("输出: ") or "No module named 'pandas'" in said


@pytest.mark.req("E1", "E6")
def test_the_use_with_a_confirmation_service(place: Place) -> None:
    async def example() -> Any:
        with pytest.warns(DevelopmentOnlyWarning):
            manager = SandboxManager(
                session_id="session_123",
                confirmation_service=AutoApproveConfirmationService(),  # 开发模式
                security_mode=SecurityMode.PERMISSIVE,
            )
        done = await manager.execute(ExecutionRequest(code="print(1)"))
        await manager.cleanup()
        return done

    assert asyncio.run(example()).stdout == "1\n"


@pytest.mark.req("E1", "E4")
def test_the_use_of_the_pool(place: Place) -> None:
    async def example() -> Any:
        pool = AIOSandboxPool()
        await pool.start()

        manager = SandboxManager(
            session_id="session_123",
            aio_pool=pool,  # 使用池化的 AIO Sandbox
        )

        # ... 执行代码 ...
        done = await manager.execute(ExecutionRequest(code="print(2)"))

        await pool.stop()
        return done

    assert asyncio.run(example()).stdout == "2\n"


# --- what the names do ------------------------------------------------------------------------------------------------


@pytest.mark.req("E2")
def test_swapped_arguments_are_an_error() -> None:
    with pytest.raises(InvalidArgument, match="the code comes first"):
        UnifiedRiskPolicy.assess("python", "import os")


@pytest.mark.req("E2")
@pytest.mark.parametrize("mode", SecurityMode)
@pytest.mark.parametrize("code", ["print(1 + 1)", "import os; os.listdir('.')", "import subprocess"])
def test_the_sandbox_that_is_said_is_the_one_that_runs_it(place: Place, mode: SecurityMode, code: str) -> None:
    async def run() -> Any:
        manager = SandboxManager(security_mode=mode)
        try:
            return await manager.execute(ExecutionRequest(code=code))
        finally:
            await manager.cleanup()

    said = UnifiedRiskPolicy.get_required_sandbox(UnifiedRiskPolicy.assess(code, "python"), mode)

    assert asyncio.run(run()).sandbox_type is said


@pytest.mark.req("E3", "E4")
@pytest.mark.parametrize("first", ["workspace", "box"])
def test_a_sessions_boxes_work_in_its_workspace(place: Place, first: str) -> None:
    """The document's seventh problem: one place for files, whoever writes them, before, while and after."""

    async def work() -> None:
        workspace = AgentWorkspace("session_123") if first == "workspace" else None
        async with SandboxManager("session_123", pool_size=1) as manager:
            await manager.execute(ExecutionRequest(command="mkdir -p output; echo inside > output/a.txt"))
            workspace = workspace or AgentWorkspace("session_123")
            assert workspace.read_file("output/a.txt") == "inside\n"
            workspace.write_file("data/b.txt", "outside")
            seen = await manager.execute(ExecutionRequest(code="print(open('data/b.txt').read())"))
            assert seen.stdout == "outside\n"
            seen = await manager.execute(ExecutionRequest(command="cat /workspace/data/b.txt"))
            assert seen.stdout == "outside"
        # The session is over; its files are not, by the same names.
        workspace.write_file("data/c.txt", "afterwards")
        workspace.close()
        with AgentWorkspace("session_123") as again:
            assert again.read_file("output/a.txt") == "inside\n"
            assert again.read_file("data/c.txt") == "afterwards"
        async with SandboxManager("session_123", pool_size=1) as manager:
            seen = await manager.execute(ExecutionRequest(command="cat output/a.txt data/c.txt"))
            assert seen.stdout == "inside\nafterwards"

    asyncio.run(work())
    sessions = place.home / ".ringfence" / "workspaces" / "sessions"
    assert [each.name for each in sessions.iterdir()] == ["session_123"]
    assert not (sessions / "session_123").is_symlink()


@pytest.mark.req("E3", "E4")
def test_a_sessions_files_can_be_removed_with_it_and_an_empty_workspace_is_not_kept(place: Place) -> None:
    async def work() -> None:
        async with AIOSandboxPool(PoolConfig(min_instances=1)) as pool:
            for session in ("empty", "removed"):
                await pool.acquire(session)
            sandbox = await pool.acquire("removed")
            await sandbox.shell("echo x > file")
            await pool.release("empty")
            await pool.release("removed", remove_files=True)

    asyncio.run(work())
    assert os.listdir(place.home / ".ringfence" / "workspaces" / "sessions") == []


@pytest.mark.req("E3")
def test_one_session_runs_in_one_pool_at_a_time(place: Place) -> None:
    async def work() -> None:
        async with (
            AIOSandboxPool(PoolConfig(min_instances=1)) as one,
            AIOSandboxPool(PoolConfig(min_instances=1)) as two,
        ):
            await (await one.acquire("s")).shell("true")
            with pytest.raises(ringfence.Busy, match="'s'"):
                await (await two.acquire("s")).shell("true")
            await one.release("s")
            await (await two.acquire("s")).shell("true")

    asyncio.run(work())


@pytest.mark.req("E3")
def test_files_of_a_process_that_died_are_there_under_the_sessions_name(place: Place, ringfence_process: Any) -> None:
    child = ringfence_process(
        "import asyncio\n"
        "from ringfence import SandboxManager\n"
        "async def main():\n"
        "    async with SandboxManager('s', pool_size=1) as manager:\n"
        "        await manager.execute_shell('echo kept > file')\n"
        "        print('written', flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    assert child.stdout.readline() == "written\n"
    child.kill()
    child.wait()

    async def look() -> str:
        async with SandboxManager("s", pool_size=1) as manager:
            return (await manager.execute_shell("cat file")).stdout

    assert asyncio.run(look()) == "kept\n"


@pytest.mark.req("E4")
def test_a_session_whose_name_no_file_can_have_works_all_the_same(place: Place) -> None:
    async def work() -> str:
        async with SandboxManager("user:1/é", pool_size=1) as manager:
            await manager.execute_shell("echo x > file")
            return (await manager.execute_shell("cat file")).stdout

    assert asyncio.run(work()) == "x\n"


@pytest.mark.req("E7")
def test_the_docker_sandbox_says_what_is_missing_without_a_daemon(place: Place, tmp_path: Path) -> None:
    sandbox = DockerSimpleSandbox(engine=ringfence.Docker(url=f"unix://{tmp_path}/no.sock"))

    with pytest.raises(ringfence.InitializationFailed, match=r"no\.sock"):
        asyncio.run(sandbox.execute(ExecutionRequest(code="print(1)")))
