"""The examples of document 001, as they stand but for their imports, and what its names do, with real boxes."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import InvalidArgument, InvalidConfig
from ringfence.audit.verify import verify
from ringfence.compat.managed import (
    WORKSPACE_DIRECTORIES,
    AuditLogger,
    PolicyEngine,
    RiskLevel,
    SandboxConfig,
    SandboxManager,
)
from ringfence.tools.files import FileReadTool, FileWriteTool
from ringfence.tools.searching import SearchTool
from tests.integration.stage import Place
from tests.support.questions import FakeConfirmationService

POLICY = Path(__file__).parents[1] / "corpus" / "sandbox_policy.yaml"
"""The document's own."""


def journal(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place.state / "journal.jsonl").read_text().splitlines()]


@dataclass
class Action:
    tool: str
    params: dict[str, Any] = field(default_factory=dict)


# --- the examples -----------------------------------------------------------------------------------------------------


@pytest.mark.req("B1", "B4")
def test_the_basic_use(place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(POLICY.parent)

    async def example() -> None:
        # 创建沙箱管理器
        manager = SandboxManager(
            # docker_url is left out: there need not be a daemon here; tests/integration/test_docker_manager.py has one
            pool_size=5,
            policy_file="sandbox_policy.yaml",
        )

        # 执行 Python 代码
        result = await manager.execute_code(
            language="python",
            code="""
import math
print(f"Pi = {math.pi}")
result = sum(range(100))
print(f"Sum = {result}")
""",
            timeout=30,
        )

        print(result.stdout)  # "Pi = 3.141592653589793\nSum = 4950\n"
        print(result.exit_code)  # 0
        await manager.pool.wait_ready()
        # The policy treats code and commands differently, so there are two kinds of boxes: five in all.
        assert 4 <= sum(state.idle for state in manager.pool.state().values()) <= 5
        await manager.cleanup()

    asyncio.run(example())
    assert capsys.readouterr().out == "Pi = 3.141592653589793\nSum = 4950\n\n0\n"


@pytest.mark.req("B1", "B2")
def test_shell_commands_with_files(place: Place) -> None:
    async def example() -> tuple[Any, Any]:
        manager = SandboxManager(pool_size=1)
        # 执行 shell 命令
        listed = await manager.execute_shell(
            command="ls -la /workspace/",
            timeout=10,
        )

        # 带输入文件
        result = await manager.execute_shell(
            command="python3 analyze.py data.csv",
            files={
                "analyze.py": b"import sys\nprint(open(sys.argv[1]).readline())\n",
                "data.csv": b"a,b,c\n1,2,3\n",
            },
            timeout=60,
        )
        await manager.cleanup()
        return listed, result

    listed, result = asyncio.run(example())
    for name in WORKSPACE_DIRECTORIES:
        assert name in listed.stdout.split()
    assert result.stdout == "a,b,c\n\n" and result.success


@pytest.mark.req("B1", "E8")
def test_the_act_node_of_an_agent(place: Place) -> None:
    async def example() -> list[Any]:
        manager = SandboxManager(pool_size=1)
        execute_tool = manager.execute_tool

        async def act_node(state: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
            """ACT 节点 - 执行工具"""

            sandbox_manager: SandboxManager = context["sandbox_manager"]
            pending_actions = state["pending_actions"]

            results = []
            for action in pending_actions:
                if action.tool == "code_run":
                    # 使用沙箱执行代码
                    result = await sandbox_manager.execute_code(
                        language=action.params.get("language", "python"),
                        code=action.params["code"],
                        timeout=action.params.get("timeout", 30),
                    )
                elif action.tool == "shell_exec":
                    # 使用沙箱执行命令
                    result = await sandbox_manager.execute_shell(
                        command=action.params["command"],
                        timeout=action.params.get("timeout", 30),
                    )
                else:
                    # 其他工具直接执行
                    result = await execute_tool(action)

                results.append(result)

            return {"tool_results": results}

        actions = [
            Action("code_run", {"code": "print(6 * 7)"}),
            Action("shell_exec", {"command": "echo hi"}),
            Action("file_write", {"path": "data/a.txt", "content": "one\ntwo\n"}),
            Action("file_edit", {"path": "data/a.txt", "old": "two", "new": "three"}),
            Action("file_read", {"path": "data/a.txt"}),
            Action("search", {"pattern": "thr.e"}),
            Action("file_read", {"path": "../../etc/passwd"}),
            Action("file_read", {"path": "missing"}),
        ]
        done = await act_node({"pending_actions": actions}, {"sandbox_manager": manager})
        with pytest.raises(InvalidArgument, match="one of code_run"):
            await execute_tool(Action("system_admin"))
        await manager.cleanup()
        results: list[Any] = done["tool_results"]
        return results

    code, shell, _, edited, read, found, outside, missing = asyncio.run(example())
    assert (code.stdout, shell.stdout) == ("42\n", "hi\n")
    assert edited.success and read.stdout == "one\nthree\n"
    assert found.stdout == "data/a.txt:2: three\n"
    assert outside.blocked and not outside.success
    assert missing.exit_code == 1 and "missing" in missing.stderr and not missing.blocked


# --- what the names do ------------------------------------------------------------------------------------------------


@pytest.mark.req("B2", "B7")
def test_the_nine_steps_one_by_one(place: Place) -> None:
    async def work() -> None:
        async with SandboxManager(pool_size=1) as manager:
            pool = manager.pool_manager
            sandbox = await pool.acquire_sandbox()
            await sandbox.prepare_workspace({"code/main.py": b"open('output/made', 'w').write('x'); print('ran')"})
            with pytest.raises(InvalidArgument):
                sandbox.collect_results()
            await sandbox.execute(command="python3 code/main.py", timeout=30)
            result = sandbox.collect_results()
            assert result.stdout == "ran\n"
            assert [file.path for file in result.files] == ["output/made"] and result.files[0].data == b"x"
            workspace = sandbox.sandbox.workspace
            pool.release_sandbox(sandbox)
            another = await pool.acquire_sandbox()
            assert another.sandbox.workspace != workspace
            pool.release_sandbox(another)

    asyncio.run(work())


@pytest.mark.req("B9")
def test_records_of_ones_own_go_into_the_chained_journal(place: Place) -> None:
    place.run("true")
    with AuditLogger() as audit:
        audit.log(event_type="deployment", agent_id="agent_456", note="token=ghp_" + "a" * 36)
        with pytest.raises(InvalidArgument, match="recorded by who runs them"):
            audit.log(event_type="sandbox_execution", tool="code_run")
        kinds = [record["event_type"] for record in audit.records()]

    assert kinds == ["sandbox_execution", "deployment"]
    mine = journal(place)[-1]
    assert mine["agent_id"] == "agent_456" and "ghp_a" not in json.dumps(mine)
    assert verify(place.state).fault is None


@pytest.mark.req("B3")
@pytest.mark.parametrize("risk", RiskLevel)
@pytest.mark.parametrize("enabled", [True, False])
def test_the_risk_level_decides_who_does_it(place: Place, risk: RiskLevel, enabled: bool) -> None:
    policy = PolicyEngine.from_text(
        f"policies: {{tools: {{file_read: {{risk_level: {risk}, sandbox_enabled: {str(enabled).lower()}}}}}}}", "p.yaml"
    )

    async def work(service: Any = None) -> Any:
        manager = ringfence.SandboxManager("s", policy_file=policy, pool_size=1, confirmation_service=service)
        async with manager:
            await manager.execute_shell("echo content > file")
            return await FileReadTool(manager).execute("file")

    done = asyncio.run(work())
    if risk is RiskLevel.CRITICAL:
        assert done.blocked and "nobody to ask" in str(done.ending)
        service = FakeConfirmationService(ringfence.Choice.YES)
        done = asyncio.run(work(service))
        assert len(service.asked) == 1
    assert done.stdout == "content\n"
    assert (done.wall is None) is (risk is RiskLevel.LOW and not enabled)  # else it was done in the box


@pytest.mark.req("B4", "B9")
def test_the_documents_policy_holds_for_its_file_tools_and_they_are_recorded(place: Place) -> None:
    async def work() -> dict[str, Any]:
        manager = ringfence.SandboxManager("s", policy_file=POLICY, pool_size=1)
        async with manager:
            written = await FileWriteTool(manager).execute("notes/a.txt", "a secret word")
            with ringfence.AgentWorkspace("s") as workspace:
                workspace.write_file("server.key", "a secret key")
            read = FileReadTool(manager)
            return {
                "write": written,
                "read": await read.execute("/workspace/notes/a.txt"),
                "key": await read.execute("server.key"),
                "env": await read.execute("/workspace/.env"),
                "out": await read.execute("/etc/hostname"),
                "search": await SearchTool(manager).execute("secret"),
            }

    done = asyncio.run(work())
    assert done["write"].success and done["read"].stdout == "a secret word"
    for name in ("key", "env", "out"):
        assert done[name].blocked, name
    assert "denied_paths" in str(done["key"].ending) or "*.key" in str(done["key"].ending)
    assert "notes/a.txt:1: a secret word" in done["search"].stdout, done["search"].ending
    records = [record for record in journal(place) if record.get("tool") in ("file_read", "file_write", "search")]
    assert [record["result"] for record in records if record["tool"] == "file_read"].count("refused") == 3


@pytest.mark.req("B3", "B4")
def test_a_role_that_may_not_use_a_tool_is_refused(place: Place) -> None:
    async def work() -> Any:
        manager = ringfence.SandboxManager("s", policy_file=POLICY, role="data_analyst", pool_size=1)
        async with manager:
            return await FileWriteTool(manager).execute("a", "b")

    done = asyncio.run(work())
    assert done.blocked and "data_analyst" in str(done.ending)


@pytest.mark.req("B7", "B8")
def test_the_documents_variables_size_the_pool_and_bound_executions(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "SANDBOX_POOL_SIZE": "3",
        "SANDBOX_MAX_MEMORY": "256m",
        "SANDBOX_MAX_CPU": "1.0",
        "SANDBOX_NETWORK": "none",
    }.items():
        monkeypatch.setenv(name, value)

    async def work() -> Any:
        async with SandboxManager() as manager:
            await manager.pool.wait_ready()
            kept = sum(state.idle for state in manager.pool.state().values())
            done = await manager.execute_code("python", "x = bytearray(512 << 20)")
            return kept, done

    kept, done = asyncio.run(work())
    assert kept == 3
    assert not done.success
    assert SandboxConfig.from_environment() == SandboxConfig(pool_size=3, max_memory=256 << 20, max_cpu=1.0)
    monkeypatch.setenv("SANDBOX_NETWORK", "bridge")
    with pytest.raises(InvalidConfig, match="SANDBOX_NETWORK"):
        SandboxManager()
    assert os.environ["SANDBOX_MAX_MEMORY"] == "256m"
