"""The sandbox and its kin over a fake engine: one box, many commands, checks that agree with the grant."""

import asyncio
import os
import warnings
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import BashTool, Output, Result, Sandbox, SandboxExecutor, Verdict
from ringfence.errors import CommandNotAllowed, InitializationFailed, InvalidConfig, PathAccessDenied, PermissionDenied
from ringfence.manager import assemble as assembling
from ringfence.manager import parts as module
from ringfence.manager.assemble import RingfenceWarning, assemble
from ringfence.manager.blocking import wait_for
from ringfence.manager.configuring import home_directory, load_config, state_directory
from ringfence.manager.options import Docker, SandboxOptions
from ringfence.values.grant import Grant
from ringfence.values.outcome import Exited, Refused
from tests.support.fakes import FakeBox, FakeEngine


class Desk:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "project"
        self.work.mkdir(parents=True)
        self.engine = FakeEngine()

    def use(self, work: Callable[[Sandbox], Coroutine[Any, Any, Any]], **options: Any) -> Any:
        async def main() -> Any:
            async with Sandbox(self.work, **options) as sandbox:
                return await work(sandbox)

        return asyncio.run(main())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(tmp_path / "home")
    for name in list(os.environ):
        if name.startswith(("RINGFENCE_", "SYNAPSE_", "OPENAGENTIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(desk.home))
    monkeypatch.setattr(module, "assemble", lambda *a, **k: replace(assemble(*a, **k), engine=desk.engine))
    return desk


@pytest.mark.req("C2")
def test_one_box_serves_many_commands_and_is_gone_at_the_end(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> list[str]:
        assert not sandbox.is_active, "nothing has to run yet"
        return [(await sandbox.shell(f"echo {number}")).stdout for number in range(3)]

    assert desk.use(work) == ["0\n", "1\n", "2\n"]
    (box,) = desk.engine.boxes
    assert len(box.ran) == 3
    assert not box.alive


def test_a_lost_box_is_replaced_by_a_new_one(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> str:
        await sandbox.open()
        await desk.engine.boxes[0].close()
        return (await sandbox.shell("echo again")).stdout

    assert desk.use(work) == "again\n"
    assert len(desk.engine.boxes) == 2


def test_a_closed_sandbox_takes_no_command(desk: Desk) -> None:
    async def main() -> None:
        sandbox = Sandbox(desk.work)
        async with sandbox:
            pass
        with pytest.raises(RuntimeError, match="closed"):
            await sandbox.shell("echo x")

    asyncio.run(main())


@pytest.mark.req("X2")
def test_a_stream_yields_every_piece_and_then_the_result(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> list[Output | Result]:
        return [piece async for piece in sandbox.stream("echo one; echo two >&2; exit 4")]

    *pieces, result = desk.use(work)

    assert [(piece.stream.value, piece.data) for piece in pieces] == [("stdout", b"one\n"), ("stderr", b"two\n")]
    assert result.ending == Exited(4)


def test_a_stream_that_is_left_early_ends_its_command(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> None:
        pieces = sandbox.stream("echo one; sleep 60")
        async for _ in pieces:
            break
        await pieces.aclose()  # type: ignore[attr-defined]
        assert (await asyncio.wait_for(sandbox.shell("echo next"), 5)).stdout == "next\n"

    desk.use(work)


@pytest.mark.req("C2", "A3", "A4")
@pytest.mark.parametrize(
    ("path", "write", "verdict"),
    [
        ("file", False, Verdict.ALLOW),
        ("file", True, Verdict.ALLOW),
        ("/workspace/file", True, Verdict.ALLOW),
        (".git/config", False, Verdict.ALLOW),
        (".git/config", True, Verdict.DENY),
        (".vscode/tasks.json", True, Verdict.DENY),
        (".env", False, Verdict.DENY),
        ("a/b/.env", False, Verdict.DENY),
        ("a/../.env", False, Verdict.DENY),
        ("../outside", False, Verdict.DENY),
        ("/etc/shadow", False, Verdict.DENY),
        ("{home}/.ssh/id", False, Verdict.DENY),
        ("{home}/shared/x", False, Verdict.ALLOW),
        ("{home}/shared/x", True, Verdict.DENY),
        ("leads-out", False, Verdict.DENY),
        ("leads-to-env", False, Verdict.DENY),
    ],
)
def test_a_path_is_judged_as_the_wall_would(desk: Desk, path: str, write: bool, verdict: Verdict) -> None:
    (desk.home / "shared").mkdir()
    (desk.work / "leads-out").symlink_to(desk.home)
    (desk.work / "leads-to-env").symlink_to(".env")
    sandbox = Sandbox(desk.work, read=[desk.home / "shared"])

    reason = sandbox.check_path(path.format(home=desk.home), write=write)

    assert reason.verdict is verdict
    assert reason.rule and reason.why


@pytest.mark.req("C2", "A5")
def test_the_network_is_off_and_nothing_turns_it_on(desk: Desk) -> None:
    (desk.home / "on.json").write_text('{"network": {"allowNetwork": true}}')
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RingfenceWarning)
        sandbox = Sandbox(desk.work, config=desk.home / "on.json")

    assert sandbox.check_network("example.org", 443).verdict is Verdict.DENY
    assert sandbox.notes


@pytest.mark.req("C2")
def test_a_command_is_judged_without_being_run(desk: Desk) -> None:
    sandbox = Sandbox(desk.work)

    assert sandbox.check_command("echo x").verdict is Verdict.ALLOW
    assert sandbox.check_command(" ").verdict is Verdict.DENY
    assert desk.engine.boxes == []


@pytest.mark.req("C2", "A3")
def test_files_go_in_and_out_by_their_path_inside_and_hidden_ones_do_not(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> None:
        await sandbox.write_file("a/b", "text")

        assert await sandbox.read_file("a/b") == await sandbox.files.read("/workspace/a/b") == b"text"
        for name in (".env", ".git/config", "sub/.git/hooks/x", "/etc/shadow"):
            with pytest.raises(PathAccessDenied, match="rule: "):
                await sandbox.write_file(name, b"x")
        with sandbox.host_files() as files:
            assert files.read("a/b") == b"text"

    desk.use(work)


@pytest.mark.req("A7", "A8")
def test_the_executor_and_the_tool_say_what_happened_and_the_next_command_runs(desk: Desk) -> None:
    async def main() -> None:
        executor = SandboxExecutor()
        done = await executor.run("echo hi; exit 3", desk.work)
        assert (done.stdout, done.exit_code, done.blocked, done.blocked_reason) == ("hi\n", 3, False, None)
        with pytest.raises(CommandNotAllowed):
            await executor.run("", desk.work)
        tool = await BashTool(executor).execute("echo again", desk.work)
        assert (tool.stdout, tool.stderr, tool.exit_code) == ("again\n", "", 0)

    asyncio.run(main())


def test_a_directory_outside_is_a_quiet_refusal(desk: Desk) -> None:
    result = desk.use(lambda sandbox: sandbox.shell("pwd", cwd=desk.home.parent))

    assert isinstance(result.ending, Refused)


@pytest.mark.req("C12")
def test_nothing_runs_without_a_journal(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.home / "file").touch()
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(desk.home / "file"))

    with pytest.raises(PermissionDenied):
        desk.use(lambda sandbox: sandbox.shell("echo x"))

    assert [box.ran for box in desk.engine.boxes] in ([], [[]])


def test_the_state_is_there_before_a_box_is_made_so_that_it_can_be_hidden_in_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = desk.work / "state"
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(state))
    seen: list[bool] = []
    opening = desk.engine.open

    async def looking(grant: Grant) -> FakeBox:
        seen.append(state.is_dir())
        return await opening(grant)

    monkeypatch.setattr(desk.engine, "open", looking)
    desk.use(lambda sandbox: sandbox.shell("echo x"))

    assert seen == [True]


# --- the blocking twin ------------------------------------------------------------------------------------------------


def test_run_takes_a_line_for_the_shell_or_a_program_with_its_arguments(desk: Desk) -> None:
    assert ringfence.run("echo a; echo b", workspace=desk.work).stdout == "a\nb\n"
    assert ringfence.run(["echo", "a; echo b"], workspace=desk.work).stdout == "a; echo b\n"


def test_run_works_where_an_event_loop_is_already_running(desk: Desk) -> None:
    async def notebook() -> str:
        return ringfence.run("echo x", workspace=desk.work).stdout

    assert asyncio.run(notebook()) == "x\n"


def test_a_fault_in_another_thread_reaches_the_caller() -> None:
    async def fail() -> None:
        raise LookupError("mine")

    async def notebook() -> None:
        wait_for(fail())

    with pytest.raises(LookupError, match="mine"):
        asyncio.run(notebook())


# --- assembling -------------------------------------------------------------------------------------------------------


def environ(desk: Desk, **more: str) -> dict[str, str]:
    return {"HOME": str(desk.home), "PATH": "/usr/bin"} | more


@pytest.mark.req("A1", "D8")
@pytest.mark.parametrize("required", [{}, {"RINGFENCE_PROCESS_SANDBOX_REQUIRED": "0"}])
@pytest.mark.parametrize("docker", [None, Docker()])
@pytest.mark.filterwarnings("ignore:RINGFENCE_PROCESS_SANDBOX_REQUIRED=0 has no effect")
def test_a_sandbox_that_is_switched_off_runs_nothing(
    desk: Desk, required: dict[str, str], docker: Docker | None
) -> None:
    off = environ(desk, RINGFENCE_SANDBOX_ENABLED="0", **required)

    with pytest.raises(InitializationFailed, match="switched off by RINGFENCE_SANDBOX_ENABLED, and nothing runs"):
        assemble(SandboxOptions(workspace=desk.work, engine=docker), environ=off)
    assert assemble(SandboxOptions(workspace=desk.work), environ=environ(desk)).engine.name == "native"


@pytest.mark.req("A1")
def test_a_file_that_switches_the_sandbox_off_is_named(desk: Desk) -> None:
    file = desk.home / "sandbox.json"
    file.write_text('{"enabled": false}')

    with pytest.raises(InitializationFailed, match=f"switched off by {file}"):
        assemble(SandboxOptions(workspace=desk.work, config=file), environ=environ(desk))


@pytest.mark.req("D8")
@pytest.mark.filterwarnings("ignore:RINGFENCE_PROCESS_SANDBOX_REQUIRED=0 has no effect")
def test_no_adapter_means_containers_or_nothing(desk: Desk) -> None:
    for required in ({}, {"RINGFENCE_PROCESS_SANDBOX_REQUIRED": "0"}):
        none = environ(desk, RINGFENCE_PROCESS_SANDBOX="none", **required)
        with pytest.raises(InitializationFailed, match="'none', and nothing runs without a wall"):
            assemble(SandboxOptions(workspace=desk.work), environ=none)
        assert assemble(SandboxOptions(workspace=desk.work, engine=Docker()), environ=none).engine.name == "docker"


@pytest.mark.req("D8")
@pytest.mark.parametrize("engine", ["subprocess", "aio"])
def test_an_engine_that_is_not_there_is_an_error_and_not_another_engine(desk: Desk, engine: str) -> None:
    with pytest.raises(InvalidConfig, match="not there yet"):
        assemble(SandboxOptions(workspace=desk.work), environ=environ(desk, RINGFENCE_TOOL_ENGINE=engine))


@pytest.mark.req("B1", "D1", "D8")
def test_docker_is_used_where_the_environment_the_caller_or_the_policy_says_so(desk: Desk, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policies: {default: {engine: docker}}\n")
    plain = environ(desk)

    by_variable = assemble(SandboxOptions(workspace=desk.work), environ=environ(desk, RINGFENCE_TOOL_ENGINE="docker"))
    by_caller = assemble(SandboxOptions(workspace=desk.work, engine=Docker(url="tcp://127.0.0.1:2375")), environ=plain)
    by_policy = assemble(SandboxOptions(workspace=desk.work, policy=policy), environ=plain)

    assert [made.engine.name for made in (by_variable, by_caller, by_policy)] == ["docker"] * 3
    assert assemble(SandboxOptions(workspace=desk.work), environ=plain).engine.name == "native"


def test_a_policy_s_engine_is_not_changed_by_who_asks_for_docker(desk: Desk, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policies: {default: {engine: native}}\n")
    asked = Docker(url="unix:///run/docker.sock")

    with pytest.raises(InvalidConfig, match="'native' has to be used"):
        assemble(SandboxOptions(workspace=desk.work, policy=policy, engine=asked), environ=environ(desk))
    settings = environ(desk, RINGFENCE_TOOL_ENGINE="docker")
    assert assemble(SandboxOptions(workspace=desk.work, policy=policy), environ=settings).engine.name == "native"


@pytest.mark.parametrize("url", ["docker.sock", "ssh://host", "unix://", "npipe:////./pipe/docker_engine"])
def test_an_address_that_no_daemon_can_have_is_refused_and_says_what_one_looks_like(desk: Desk, url: str) -> None:
    with pytest.raises(InvalidConfig, match="unix:///path"):
        assemble(SandboxOptions(workspace=desk.work, engine=Docker(url=url)), environ=environ(desk))


@pytest.mark.req("D8")
def test_read_only_binds_of_the_environment_become_readable(desk: Desk) -> None:
    (desk.home / "data").mkdir()
    made = assemble(
        SandboxOptions(workspace=desk.work), environ=environ(desk, RINGFENCE_BWRAP_RO_BINDS=f"{desk.home}/data")
    )

    assert made.grant.readable == (desk.home / "data",)


def test_the_environment_of_the_caller_is_not_in_the_grant(desk: Desk) -> None:
    made = assemble(SandboxOptions(workspace=desk.work), environ=environ(desk, TOKEN="hunter2", LANG="C"))

    assert "hunter2" not in str(made.grant)
    assert dict(made.grant.env)["LANG"] == "C"


@pytest.mark.req("A1", "A2")
def test_a_named_file_that_is_not_there_is_an_error_and_a_default_one_is_not(desk: Desk) -> None:
    with pytest.raises(InvalidConfig, match="no such file"):
        load_config(environ(desk), str(desk.home), desk.home / "gone.json")
    assert load_config(environ(desk), str(desk.home)).enabled


@pytest.mark.req("A2")
@pytest.mark.parametrize("data", [b"\xff\xfe", b"{", b" " * (1024 * 1024 + 1)])
def test_a_broken_file_warns_and_protects_as_the_defaults_do(desk: Desk, data: bytes) -> None:
    (desk.home / "broken.json").write_bytes(data)

    config = load_config(environ(desk), str(desk.home), desk.home / "broken.json")

    assert config.warnings and "broken.json" in config.warnings[0]
    assert config.enabled and not config.allow_read_outside


def test_the_state_lies_in_the_home_or_where_the_environment_says() -> None:
    assert state_directory({}, "/h") == Path("/h/.ringfence/state")
    assert state_directory({"RINGFENCE_STATE_DIR": "/s"}, "/h") == Path("/s")


def test_a_home_that_is_no_absolute_path_is_an_error() -> None:
    with pytest.raises(InvalidConfig, match="home"):
        home_directory({"HOME": "relative"})
    assert home_directory({"HOME": "/h/"}) == "/h"
    assert assembling.RingfenceWarning is ringfence.RingfenceWarning
