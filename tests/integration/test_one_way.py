"""One way through, with real boxes: the same options everywhere, judged by tool, decided before a box is opened."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import (
    Exited,
    InvalidArgument,
    Limits,
    PolicyEngine,
    PoolConfig,
    PoolExhausted,
    Refused,
    Sandbox,
    SandboxManager,
    SandboxOptions,
    SandboxPool,
    TimedOut,
    Timeout,
)
from ringfence.manager.workspaces import Workspaces
from ringfence.policy import decide as decide_module
from ringfence.policy import isolation as isolation_module
from tests.integration.stage import Place
from tests.integration.test_command_line import ringfence as command_line

SLOW = "sleep 1.2; echo done"


def policy(text: str) -> PolicyEngine:
    return PolicyEngine.from_text(text, "p.yaml")


def journal(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place.state / "journal.jsonl").read_text().splitlines()]


@pytest.fixture
def at_terminal(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "workspace" / "a.pem").write_text("secret")
    (tmp_path / "workspace" / "b.txt").write_text("shown")
    yield tmp_path


# --- the command line makes a shadow with the options of its run ------------------------------------------------------


@pytest.mark.req("D7", "X3")
def test_a_shadow_hides_what_deny_says(at_terminal: Path) -> None:
    done = command_line(at_terminal, "run", "--shadow", "--deny", "**/*.pem", "cat b.txt a.pem; echo x > made")

    assert done.stdout == b"shown" and b"secret" not in done.stdout + done.stderr, done.stderr
    assert b"made" in done.stderr and not (at_terminal / "workspace" / "made").exists()


@pytest.mark.req("D7", "X3")
def test_a_shadow_hides_what_the_configuration_says(at_terminal: Path) -> None:
    config = at_terminal / "sandbox.json"
    config.write_text('{"filesystem": {"blacklist": ["**/*.pem"]}}')

    done = command_line(at_terminal, "run", "--shadow", "--config", str(config), "cat b.txt a.pem")

    assert done.stdout == b"shown" and b"secret" not in done.stdout + done.stderr, done.stderr


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.req("B6", "C9")
def test_a_callers_timeout_raises_the_default_and_the_configured_time(place: Place) -> None:
    config = place.top / "sandbox.json"
    config.write_text('{"limits": {"wall": "1s"}}')

    assert isinstance(ringfence.run(SLOW, workspace=place.workspace, config=config).ending, TimedOut)
    assert place.run(SLOW, config=config, timeout=10).stdout == "done\n"
    assert place.run("import time; time.sleep(1.2); 42", language="python", config=config, timeout=10).results


@pytest.mark.req("B6", "C9")
def test_a_policys_time_and_the_callers_own_limits_cap_it_and_the_ending_says_so(place: Place) -> None:
    rules = policy("policies:\n  default:\n    max_execution_time: 1s\n")
    for options, cap in (
        ({"policy": rules}, "limits.wall at p.yaml:3"),
        ({"limits": Limits(wall_seconds=1)}, "limits.wall_seconds of the caller"),
    ):
        result = place.run(SLOW, timeout=10, **options)

        assert result.ending == TimedOut(1.0, cap) and cap in str(result.ending)
        with pytest.raises(Timeout) as caught:
            result.check()
        assert cap in caught.value.hint and "longer timeout" not in caught.value.hint
    short = place.run(SLOW, timeout=0.5, policy=rules)
    assert short.ending == TimedOut(0.5)
    with pytest.raises(Timeout, match=r"0\.5") as caught:
        short.check()
    assert "longer timeout" in caught.value.hint


def test_the_cpu_time_that_nobody_gave_rises_with_the_timeout(place: Place) -> None:
    config = place.top / "sandbox.json"
    config.write_text('{"limits": {"wall": "0.4s"}}')
    burn = "import time; end = time.process_time() + 1.5\nwhile time.process_time() < end: pass\nprint('burnt')"

    assert place.run(["/usr/bin/python3", "-c", burn], config=config, timeout=20).stdout == "burnt\n"


# --- directories ------------------------------------------------------------------------------------------------------


@pytest.mark.req("B1", "X2")
@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "import os; print(os.getcwd())"), ("bash", "pwd"), ("python", "print(open('f').read())")],
)
def test_code_runs_in_the_directory_that_is_asked_for(place: Place, language: str, code: str) -> None:
    (place.workspace / "sub").mkdir()
    (place.workspace / "sub" / "f").write_text(f"{place.workspace}/sub")

    assert place.run(code, language=language, cwd="sub").stdout == f"{place.workspace}/sub\n"


def test_an_interpreter_goes_back_after_a_call_in_another_directory(place: Place) -> None:
    (place.workspace / "sub").mkdir()

    async def work(box: Sandbox) -> list[str]:
        code = "import os; print(os.getcwd())"
        return [(await box.python(code, cwd=cwd)).stdout.strip() for cwd in (None, "sub", None)]

    top = str(place.workspace)
    assert place.in_box(work) == [top, f"{top}/sub", top]


# --- one options value for every door ---------------------------------------------------------------------------------


@pytest.mark.req("B1")
def test_a_manager_takes_limits_and_variables_and_the_lightest_wall_has_them_too(place: Place) -> None:
    options = SandboxOptions(limits=Limits(wall_seconds=1), env={"COLOUR": "blue"})

    async def main() -> None:
        async with SandboxManager(options=options, pool_size=1) as manager:
            assert (await manager.execute_shell("echo $COLOUR")).stdout == "blue\n"
            assert isinstance((await manager.execute_shell(SLOW)).ending, TimedOut)
        async with SandboxManager(None, ringfence.SecurityMode.PERMISSIVE, options=options, pool_size=1) as light:
            done = await light.execute_code("python", "while True: pass")
            assert isinstance(done.ending, TimedOut) and done.sandbox_type == "subprocess"

    asyncio.run(main())


def test_a_manager_takes_what_a_pool_takes(place: Place) -> None:
    size = PoolConfig(min_instances=1, max_instances=1, acquire_timeout_seconds=0.2)

    async def main() -> None:
        async with SandboxManager(size=size, tools=["shell_exec"], directories=["data"]) as manager:
            assert manager.pool.size is size
            assert (await manager.execute_shell("ls")).stdout == "data\n"
            with pytest.raises(InvalidArgument, match="keeps no boxes for 'code_run'"):
                await manager.execute_code("python", "1")
            held = await manager.pool.take("shell_exec")
            with pytest.raises(PoolExhausted, match=r"within 0.2 s"):
                await manager.execute_shell("true")
            manager.pool.discard(held)

    asyncio.run(main())
    with pytest.raises(InvalidArgument, match="size says how many"):
        SandboxManager(size=size, pool_size=1)
    with pytest.raises(InvalidArgument, match="a pool has its own size"):
        SandboxManager(size=size, pool=SandboxPool())


@pytest.mark.req("B4")
def test_code_is_judged_as_code_and_a_command_as_a_command_unless_a_tool_is_named(place: Place) -> None:
    rules = policy("policies: {tools: {code_run: {denied_commands: [uname]}, shell_exec: {denied_commands: [id]}}}")
    code = "import subprocess; subprocess.run(['uname'])"

    async def work(box: Sandbox) -> list[bool]:
        calls = (box.shell("id"), box.shell("uname"), box.python(code), box.code("bash", "id"), box.python("1"))
        return [isinstance((await call).ending, Refused) for call in calls]

    assert place.in_box(work, policy=rules) == [True, False, True, False, False]
    tools = [record["tool"] for record in journal(place)]
    assert tools == ["shell_exec", "shell_exec", "code_run", "code_run", "code_run"]
    assert place.in_box(work, policy=rules, tool="shell_exec") == [True, False, False, True, False]


@pytest.mark.req("A3", "B4")
def test_tools_that_a_policy_grants_differently_have_boxes_of_their_own_over_one_workspace(place: Place) -> None:
    (place.workspace / "a.key").write_text("key")
    rules = policy("policies: {tools: {shell_exec: {denied_paths: ['**/*.key']}}}")

    async def work(box: Sandbox) -> None:
        assert (await box.python("print(open('a.key').read()); open('made', 'w').write('by code')")).stdout == "key\n"
        shown = await box.shell("cat made; cat a*")
        assert "by code" in shown.stdout and "key" not in shown.stdout
        assert (await box.python("kept = 1")).ok and (await box.python("kept")).results[0].text == "1"
        assert box.contexts() == (("python", "main"),)

    place.in_box(work, policy=rules)
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace, policy=rules)
        try:

            async def shadowed(box: Sandbox) -> None:
                assert (await box.shell("ls")).ok
                with pytest.raises(InvalidArgument, match="differently"):
                    await box.python("1")

            place.in_box(shadowed, policy=rules, shadow=shadow)
        finally:
            workspaces.discard(shadow)


# --- decide, then acquire ---------------------------------------------------------------------------------------------

DENIES = "policies: {default: {denied_commands: [id]}}"


@pytest.mark.req("B2")
def test_what_is_refused_opens_no_box(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        assert isinstance((await box.shell("id")).ending, Refused) and not box.is_active
        with pytest.raises(ringfence.CommandNotAllowed):
            await box.start("id")
        assert not box.is_active
        assert (await box.shell("true")).ending == Exited(0) and box.is_active

    place.in_box(work, policy=policy(DENIES))


@pytest.mark.req("B2", "B7", "E4")
def test_what_is_refused_takes_no_box_from_a_pool_nor_begins_a_session(place: Place) -> None:
    async def main() -> None:
        async with SandboxManager(policy_file=policy(DENIES), pool_size=1) as manager:
            await manager.pool.wait_ready()

            def taken() -> int:
                return sum(state.hits + state.misses for state in manager.pool.state().values())

            for session in (None, "s"):
                refused = await manager.execute_shell("id", {"f": b"x"}, session_id=session)
                assert isinstance(refused.ending, Refused)
                assert taken() == 0 and manager.sessions() == ()
            assert (await manager.execute_shell("cat f", {"f": b"x"}, session_id="s")).stdout == "x"
            assert taken() == 1 and [session.id for session in manager.sessions()] == ["s"]
            assert isinstance((await manager.execute_shell("id", session_id="s")).ending, Refused)

    asyncio.run(main())
    assert [record["verdict"] for record in journal(place)] == ["deny", "deny", "allow", "deny"]


def test_the_record_of_a_call_names_the_workspace_that_it_ran_in(place: Place) -> None:
    async def main() -> str:
        async with SandboxManager(pool_size=1) as manager:
            return (await manager.execute_shell("pwd")).stdout.strip()

    where = asyncio.run(main())
    (record,) = journal(place)
    assert (record["workspace"], record["cwd"]) == (where, where)


@pytest.mark.req("E2")
def test_the_risk_of_a_call_is_assessed_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (
        "policies: {default: {security_mode: permissive, isolation_requires: [denied_at_open], "
        "approvals: {ask_for: {risks: [critical]}}}}"
    )
    counted: list[str] = []
    real = isolation_module.assess

    def assess(language: str, code: str, *parts: Any, **named: Any) -> Any:
        counted.append(code)
        return real(language, code, *parts, **named)

    monkeypatch.setattr(isolation_module, "assess", assess)
    assert not hasattr(decide_module, "assess")

    async def main() -> None:
        pool = SandboxPool(size=PoolConfig(min_instances=1), policy=policy(rules))
        async with pool, SandboxManager(pool=pool) as manager:
            assert (await manager.execute_code("python", "print(1)")).ok
            assert (await manager.execute_code("python", "print(2)", session_id="s")).ok

    asyncio.run(main())
    assert counted == ["print(1)", "print(2)"]


def test_a_session_is_idle_acquiring_and_busy(place: Place) -> None:
    async def main() -> list[str]:
        async with SandboxPool(size=PoolConfig(min_instances=0, max_instances=2)) as pool:
            seen = [pool.session_state("s")]
            acquiring = asyncio.ensure_future(pool.acquire("s"))
            deadline = time.monotonic() + 20
            while not acquiring.done() and time.monotonic() < deadline:
                await asyncio.sleep(0.001)
                seen.append(pool.session_state("s"))
            await acquiring
            seen.append(pool.session_state("s"))
            await pool.release("s")
            seen.append(pool.session_state("s"))
            return [*dict.fromkeys(seen), seen[-1]]

    assert asyncio.run(main()) == ["idle", "acquiring", "busy", "idle"]
