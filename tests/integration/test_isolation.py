"""Risk chooses the wall, with real boxes: what is isolated, what a session does with it, and what is said of it.

Two further guarantees are at hand. `denied_at_open` every machine gives that has the full native wall. `own_kernel`
takes gVisor; where there is none, the refusal is what is tested. A third pair of walls is Landlock alone and
bubblewrap, for an ordinary user.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import ringfence
from ringfence import (
    CommandNotAllowed,
    Guarantee,
    InitializationFailed,
    PolicyEngine,
    PoolConfig,
    Refused,
    Sandbox,
    SandboxBuilder,
    SandboxManager,
    SandboxPool,
    SecurityMode,
)
from ringfence.confinement.choose import confiners
from ringfence.workspace.places import SESSIONS
from tests.integration.stage import SYSTEM_PATH, Place
from tests.support.users import argv_as, ordinary

USUAL = confiners()[0].name
"""The wall that is taken where nothing more is required."""
pytestmark = pytest.mark.req("E2", "D1")

SAFE = "print(sum(range(10)))"
LOW = "import os\nprint(os.getcwd() != '')"
HIGH = "x = 6\nprint(eval('x * 7'))"
RUNSC = os.environ.get("RINGFENCE_RUNSC_PATH", "")
GVISOR = next(confiner for confiner in confiners() if confiner.name == "gvisor").probe()
needs_gvisor = pytest.mark.skipif(not GVISOR.usable, reason=f"{GVISOR.missing}; {GVISOR.hint}")
AT_OPEN = Guarantee.DENIED_AT_OPEN
T = TypeVar("T")


@pytest.fixture(autouse=True)
def workspaces(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    directory = place.top / "workspaces"
    monkeypatch.setenv("RINGFENCE_WORKSPACES_DIR", str(directory))
    if RUNSC:
        monkeypatch.setenv("RINGFENCE_RUNSC_PATH", RUNSC)
    yield
    assert not directory.exists() or set(os.listdir(directory)) <= {SESSIONS}  # whose files stay


def policy(mode: str | None, needs: str = "denied_at_open", more: str = "") -> PolicyEngine:
    lines = [
        f"    isolation_requires: [{needs}]",
        *([f"    security_mode: {mode}"] if mode else []),
        *([f"    {more}"] if more else []),
    ]
    return PolicyEngine.from_text("\n".join(("policies:", "  default:", *lines)) + "\n", "p.yaml")


def managed(work: Callable[[SandboxManager], Awaitable[T]], rules: PolicyEngine, **options: Any) -> T:
    async def whole() -> T:
        async with (
            asyncio.timeout(120),
            SandboxManager(**{"policy_file": rules, "pool_size": 1} | options) as manager,
        ):
            return await work(manager)

    return asyncio.run(whole())


def journal(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place.state / "journal.jsonl").read_text().splitlines()]


def is_isolated(result: ringfence.Result, guarantee: Guarantee = AT_OPEN) -> bool:
    assert result.wall is not None, result.ending
    return guarantee in result.wall.guarantees


# --- one call ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "asked", "apart"),
    [
        ("permissive", None, [False, False, True]),
        ("strict", None, [False, True, True]),
        (None, None, [False, True, True]),
        ("permissive", SecurityMode.STRICT, [False, True, True]),
        ("strict", SecurityMode.PERMISSIVE, [False, True, True]),
        ("permissive", SecurityMode.PERMISSIVE, [False, False, True]),
    ],
)
def test_the_manager_isolates_by_risk_and_by_the_stricter_mode(
    place: Place, said: str | None, asked: SecurityMode | None, apart: list[bool]
) -> None:
    async def work(manager: SandboxManager) -> None:
        for code, isolated in zip((SAFE, LOW, HIGH), apart, strict=True):
            done = await manager.execute_code("python", code)
            assert done.success, done.stderr
            assert is_isolated(done) is isolated, code
            assert done.wall is not None
            assert done.wall.notes[-1].startswith("isolated: " if isolated else "the ordinary wall is enough: ")

    managed(work, policy(said), security_mode=asked)
    assert [record["route"] for record in journal(place)] == ["isolated" if each else "walled" for each in apart]


def test_a_pool_of_somebody_else_is_held_to_the_managers_mode_too(place: Place) -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(120),
            SandboxPool(size=PoolConfig(min_instances=1), policy=policy("permissive")) as pool,
            SandboxManager(security_mode=SecurityMode.STRICT, pool=pool) as strict,
            SandboxManager(security_mode=SecurityMode.PERMISSIVE, pool=pool) as permissive,
        ):
            assert is_isolated(await strict.execute_code("python", LOW))
            assert not is_isolated(await permissive.execute_code("python", LOW))
            assert is_isolated(await strict.execute_code("python", SAFE, session_id="s"))

    asyncio.run(work())


def test_in_one_session_of_two_managers_each_is_judged_by_its_own_mode(place: Place) -> None:
    async def work() -> None:
        async with (
            asyncio.timeout(120),
            SandboxPool(size=PoolConfig(min_instances=1), policy=policy("permissive")) as pool,
            SandboxManager("s", SecurityMode.STRICT, pool=pool) as strict,
            SandboxManager("s", SecurityMode.PERMISSIVE, pool=pool) as permissive,
        ):
            assert not is_isolated(await permissive.execute_code("python", LOW))
            assert is_isolated(await strict.execute_code("python", LOW))
            assert is_isolated(await strict.execute_shell("cat /dev/null"))
            assert not is_isolated(await permissive.execute_code("python", LOW))

    asyncio.run(work())


def test_harmless_code_that_brings_a_file_along_is_isolated_under_strict_because_it_may_load_it(place: Place) -> None:
    files = {"json.py": "import os\nos.system('echo loaded')"}

    async def work(manager: SandboxManager) -> None:
        done = await manager.execute_code("python", "import json", files=files)
        assert done.stdout == "loaded\n" and is_isolated(done)
        assert not is_isolated(await manager.execute_code("python", "import json"))

    managed(work, policy("strict"))


@pytest.mark.parametrize(("language", "harmless"), [(None, "echo x"), ("python", "print('x')")])
def test_variables_of_a_blocking_call_count_for_its_risk(place: Place, language: str | None, harmless: str) -> None:
    def apart(mode: str, **options: Any) -> bool:
        return is_isolated(
            ringfence.run(harmless, language=language, workspace=place.workspace, policy=policy(mode), **options)
        )

    for mode in ("strict", "permissive"):
        assert not apart(mode)
        assert apart(mode, env={"BASH_ENV": "./file"})


def test_commands_and_other_languages_are_routed_as_well(place: Place) -> None:
    async def work(manager: SandboxManager) -> None:
        assert not is_isolated(await manager.execute_shell("echo x"))
        assert is_isolated(await manager.execute_shell("python3 -c 'eval(\"1\")'"))
        assert is_isolated(await manager.execute_code("bash", "bash -c 'echo x'"))
        assert not is_isolated(await manager.execute_code("bash", "echo x"))

    managed(work, policy("permissive"))


def test_boxes_for_isolated_code_are_made_when_it_first_comes_and_wait_from_then_on(place: Place) -> None:
    async def work(manager: SandboxManager) -> None:
        state = manager.pool.state
        isolated = next(name for name in state() if name.startswith("isolated "))
        await manager.execute_code("python", SAFE)
        assert state()[isolated].made == 0
        await manager.execute_code("python", HIGH)
        async with asyncio.timeout(30):
            while state()[isolated].idle < 1:
                await asyncio.sleep(0.02)
        await manager.execute_code("python", HIGH)
        assert state()[isolated].hits == 1

    managed(work, policy("permissive"))


def test_without_the_key_there_is_one_set_of_boxes_and_nothing_is_said(place: Place) -> None:
    async def work(manager: SandboxManager) -> None:
        assert list(manager.pool.state()) == ["code_run shell_exec"]
        done = await manager.execute_code("python", HIGH)
        assert done.success and not is_isolated(done)
        assert done.wall is not None and not any("risk" in note for note in done.wall.notes)

    managed(work, PolicyEngine.from_text("policies: {default: {security_mode: strict}}"))
    assert "route" not in journal(place)[0]


@pytest.mark.parametrize(("mode", "apart"), [("permissive", [False, False, True]), ("strict", [False, True, True])])
def test_a_blocking_call_has_the_wall_that_it_alone_needs(place: Place, mode: str, apart: list[bool]) -> None:
    results = [place.run(code, language="python", policy=policy(mode)) for code in (SAFE, LOW, HIGH)]

    assert [is_isolated(result) for result in results] == apart
    assert all(result.ok for result in results)


# --- sessions ---------------------------------------------------------------------------------------------------------


def test_a_permissive_session_refuses_what_needs_more_than_its_wall_and_loses_nothing(place: Place) -> None:
    async def work(manager: SandboxManager) -> None:
        async def run(code: str) -> ringfence.Result:
            return await manager.execute_code("python", code, session_id="s")

        assert not is_isolated(await run("kept = 41"))
        refused = await run(HIGH)
        assert isinstance(refused.ending, Refused) and refused.stdout == ""
        assert "eval, line 2" in refused.ending.why and "denied at open" in refused.ending.why
        assert refused.ending.rule == "isolation_requires at p.yaml:3"
        shell = await manager.execute_shell("bash -c 'echo x > made'", session_id="s")
        assert isinstance(shell.ending, Refused)
        assert (await run("kept + 1")).results[0].text == "42"
        sandbox = await manager.pool.acquire("s", "shell_exec")
        with pytest.raises(CommandNotAllowed, match="denied at open"):
            await sandbox.start("python3 -m http.server")
        assert "made" not in os.listdir(sandbox.workspace)

    managed(work, policy("permissive"))
    assert [record["result"] for record in journal(place)] == ["success", "refused", "refused", "success", "refused"]


def test_a_permissive_session_that_begins_with_risky_code_is_isolated_with_all_of_its_tools(place: Place) -> None:
    async def work(manager: SandboxManager) -> None:
        first = await manager.execute_code("python", f"{HIGH}\nkept = 41", session_id="s")
        assert is_isolated(first) and first.wall is not None
        assert "the session is isolated: HIGH risk (eval, line 2) under permissive" in first.wall.notes
        later = await manager.execute_code("python", "kept + 1", session_id="s")
        assert is_isolated(later) and later.results[0].text == "42"
        assert is_isolated(await manager.execute_shell("bash -c 'echo x'", session_id="s"))

    managed(work, policy("permissive"))


def test_a_strict_session_is_isolated_from_the_start(place: Place) -> None:
    async def work(manager: SandboxManager) -> None:
        first = await manager.execute_code("python", SAFE, session_id="s")
        assert is_isolated(first) and first.wall is not None
        assert any("riskiest piece" in note for note in first.wall.notes)
        assert is_isolated(await manager.execute_code("python", HIGH, session_id="s"))
        assert is_isolated(await manager.execute_shell("echo x", session_id="s"))

    managed(work, policy("strict"))


@pytest.mark.parametrize("first", ["code_run", "shell_exec"])
def test_tools_that_are_isolated_apart_keep_to_their_own_rules_in_one_session(place: Place, first: str) -> None:
    """The policy isolates code only; whichever tool begins the session, neither gets less, nor the other's wall."""
    rules = PolicyEngine.from_text(
        "policies: {default: {security_mode: strict}, tools: {code_run: {isolation_requires: [denied_at_open]}}}",
        "p.yaml",
    )

    async def work(manager: SandboxManager) -> None:
        for tool in (first, "shell_exec", "code_run"):
            if tool == "code_run":
                assert is_isolated(await manager.execute_code("python", HIGH, session_id="s"))
            else:
                assert not is_isolated(await manager.execute_shell("cat /dev/null", session_id="s"))

    managed(work, rules)


def test_a_sandbox_is_a_session_whose_first_call_chooses(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        assert box.wall is None, "what runs in it is not known yet"
        assert not is_isolated(await box.python("kept = 1"))
        assert isinstance((await box.python(HIGH)).ending, Refused)
        assert (await box.python("kept")).results[0].text == "1"

    async def strict(box: Sandbox) -> None:
        await box.open()
        assert box.wall is not None and AT_OPEN in box.wall.guarantees

    place.in_box(work, policy=policy("permissive"))
    place.in_box(strict, policy=policy("strict"))
    place.in_box(strict, policy=policy("permissive"), security_mode=SecurityMode.STRICT)


def test_what_a_builder_builds_is_isolated_alike(place: Place) -> None:
    async def work() -> None:
        builder = SandboxBuilder().working_dir(place.workspace).isolate([AT_OPEN]).security_mode("permissive")
        async with builder.build() as box:
            assert is_isolated(await box.python(HIGH))

    asyncio.run(work())


# --- what no wall gives -----------------------------------------------------------------------------------------------


@pytest.mark.req("B12")
def test_what_no_wall_gives_is_an_error_for_risky_code_only_and_nothing_is_left_of_it(place: Place) -> None:
    """No wall with a kernel of its own holds the blacklist at open, whatever is installed."""

    async def work(manager: SandboxManager) -> None:
        for session in (None, "s"):
            with pytest.raises(InitializationFailed) as caught:
                await manager.execute_code("python", HIGH, session_id=session)
            assert "isolated: HIGH risk (eval, line 2) under permissive" in caught.value.message
            assert "bwrap: lacks own kernel" in caught.value.message and caught.value.hint
            assert manager.sessions() == ()
        assert (await manager.execute_code("python", SAFE)).success
        assert (await manager.execute_code("python", SAFE, session_id="s")).success, "the name is free again"

    async def strict(manager: SandboxManager) -> None:
        assert (await manager.execute_code("python", SAFE)).success
        with pytest.raises(InitializationFailed, match="riskiest piece"):
            await manager.execute_code("python", SAFE, session_id="s")

    managed(work, policy("permissive", "own_kernel, denied_at_open"))
    managed(strict, policy("strict", "own_kernel, denied_at_open"))


# --- a kernel of its own ----------------------------------------------------------------------------------------------


def command_line(place: Place, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": SYSTEM_PATH, "HOME": str(place.home), "PYTHONPATH": os.pathsep.join(sys.path), **env}
    return subprocess.run(
        [sys.executable, "-m", "ringfence.cli.app", *words],
        cwd=place.workspace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def own_kernel(place: Place) -> Path:
    file = place.top / "policy.yaml"
    file.write_text("policies:\n  default:\n    security_mode: permissive\n    isolation_requires: [own_kernel]\n")
    return file


@pytest.mark.req("B12")
def test_without_gvisor_risky_code_does_not_run_and_the_rest_does(place: Place, own_kernel: Path) -> None:
    def run(command: str) -> subprocess.CompletedProcess[str]:
        words = ("run", "--policy", str(own_kernel), "--verbose", "--", command)
        return command_line(place, *words, RINGFENCE_RUNSC_PATH="/nonexistent")

    risky, harmless = run("bash -c 'echo ran > made; echo ran'"), run("echo fine")

    assert (risky.returncode, risky.stdout) == (125, "") and not (place.workspace / "made").exists()
    assert "isolated: HIGH risk (bash, line 1) under permissive" in risky.stderr
    assert "bwrap: lacks own kernel" in risky.stderr and "gvisor: " in risky.stderr and "hint: " in risky.stderr
    assert (harmless.returncode, harmless.stdout) == (0, "fine\n")
    assert "the ordinary wall is enough: SAFE risk under permissive" in harmless.stderr
    refused, ran = journal(place)
    assert (refused["route"], refused["result"], refused["error_code"]) == (
        "isolated",
        "fault",
        "initialization_failed",
    )
    assert (ran["route"], ran["result"]) == ("walled", "success")


@pytest.mark.req("B12")
@needs_gvisor
def test_with_gvisor_risky_code_meets_another_kernel_than_harmless_code(place: Place, own_kernel: Path) -> None:
    def run(command: str) -> subprocess.CompletedProcess[str]:
        env = {"RINGFENCE_RUNSC_PATH": RUNSC} if RUNSC else {}
        return command_line(place, "run", "--policy", str(own_kernel), "--verbose", "--", command, **env)

    risky, harmless = run("bash -c 'uname -r'"), run("uname -r")

    assert harmless.stdout.strip() == os.uname().release and f"wall: {USUAL}" in harmless.stderr
    assert risky.returncode == 0 and risky.stdout.strip() not in ("", os.uname().release)
    assert "wall: gvisor" in risky.stderr and "isolated: HIGH risk (bash, line 1) under permissive" in risky.stderr


@pytest.mark.req("B12")
@needs_gvisor
def test_a_manager_has_both_kernels_at_once(place: Place) -> None:
    look = "import platform\nprint(platform.release())"

    async def work(manager: SandboxManager) -> None:
        async def release(code: str, session: str | None = None) -> tuple[str, str]:
            done = await manager.execute_code("python", code, session_id=session)
            assert done.wall is not None, done.error
            return done.wall.name, done.stdout.strip().splitlines()[-1]

        harmless, risky = await asyncio.gather(release(look), release(f"eval('1')\n{look}"))
        assert harmless == (USUAL, os.uname().release)
        assert risky[0] == "gvisor" and risky[1] != os.uname().release
        assert await release(f"eval('1')\n{look}", "s") == risky
        assert await release(look, "s") == risky, "a session has one wall"
        assert (await release(look, "t"))[0] == USUAL
        assert isinstance((await manager.execute_code("python", HIGH, session_id="t")).ending, Refused)

    managed(work, policy("permissive", "own_kernel"))


@pytest.mark.req("B12")
@needs_gvisor
def test_an_engine_that_cannot_isolate_is_an_error_unless_the_policy_names_one_that_can(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "bwrap")

    with pytest.raises(InitializationFailed, match=r"HIGH risk \(eval, line 2\).*lacks own kernel"):
        place.run(HIGH, language="python", policy=policy("permissive", "own_kernel"))
    stands_in = policy("permissive", "own_kernel", "alternatives: [native]")
    done = place.run(HIGH, language="python", policy=stands_in)
    assert done.ok and done.wall is not None and done.wall.name == "gvisor"
    assert any("as the policy allows" in note for note in done.wall.notes)
    harmless = place.run(SAFE, language="python", policy=stands_in)
    assert harmless.wall is not None and harmless.wall.name == "bwrap"


# --- Landlock alone, and bubblewrap for what is risky -----------------------------------------------------------------

PROGRAM = """
import asyncio, json, os, sys
import ringfence
from ringfence import Guarantee, PolicyEngine, Sandbox

SAFE, HIGH = "print(1)", "print(eval('1'))"
rules = "policies: {default: {security_mode: permissive, isolation_requires: [host_names_hidden]%s}}"
weak = frozenset({Guarantee.HOST_FILES_HIDDEN, Guarantee.NETWORK_OFF})

async def main():
    os.mkdir(sys.argv[1])
    said = []
    for more in ("", ", alternatives: [native]"):
        for code in (SAFE, HIGH):
            try:
                policy = PolicyEngine.from_text(rules % more, "p.yaml")
                async with Sandbox.for_one_call(sys.argv[1], requires=weak, policy=policy) as box:
                    said.append((await box.python(code)).wall.name)
            except ringfence.InitializationFailed as fault:
                said.append(fault.message)
    print(json.dumps(said))

asyncio.run(main())
"""


def test_a_weak_wall_for_harmless_code_is_never_that_of_risky_code() -> None:
    """As an ordinary user: root cannot use Landlock alone."""
    user = ordinary()
    with tempfile.TemporaryDirectory(prefix="ringfence-isolation-") as top:
        os.chown(top, user.uid, user.gid)
        env = {
            "PATH": SYSTEM_PATH,
            "HOME": top,
            "TMPDIR": top,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "RINGFENCE_PROCESS_SANDBOX": "landlock",
        }
        argv = argv_as(user, [sys.executable, "-c", PROGRAM, f"{top}/project"])
        done = subprocess.run(argv, env=env, cwd="/", capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    safe, refused, again, stands_in = json.loads(done.stdout)
    assert (safe, again, stands_in) == ("landlock", "landlock", "unshare")
    assert "HIGH risk (eval, line 1)" in refused and "landlock: lacks host names hidden" in refused
