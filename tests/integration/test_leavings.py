"""What a command leaves behind that another program would run later is found, disarmed where possible, and said."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress

import pytest

from ringfence import Result, Sandbox
from ringfence.audit.violations import ViolationStore
from ringfence.errors import Internal
from ringfence.manager.workspaces import Workspaces
from ringfence.values.change import Committed
from ringfence.values.violation import Severity
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A3", "C7")

HOOK = "git init -q nested; printf '#!/bin/sh\\necho ran > ../../ran\\n' > nested/.git/hooks/post-checkout; "
ARM = "chmod +x nested/.git/hooks/post-checkout"


def left(result: Result) -> set[tuple[str, str]]:
    return {(each.rule, each.target) for each in result.violations if each.rule.startswith("leftover")}


@pytest.mark.parametrize("trace", ["off", "changes", "full"])
def test_a_hook_in_a_new_repository_is_found_and_disarmed(place: Place, trace: str) -> None:
    result = place.run(HOOK + ARM, trace=trace)

    hook = place.workspace / "nested" / ".git" / "hooks" / "post-checkout"
    assert left(result) == {("leftover git-hook", "nested/.git/hooks/post-checkout")}
    assert result.violations[-1].severity is Severity.HIGH
    assert "disarmed" in str(result.violations[-1])
    assert not hook.exists() and hook.with_name("post-checkout.disarmed").exists()
    assert result.ok and not result.blocked


def test_a_hook_that_was_made_elsewhere_and_moved_there_is_found(place: Place) -> None:
    line = "mkdir -p x/hooks x/objects x/refs; echo > x/HEAD; echo evil > x/hooks/pre-push; mkdir repo; mv x repo/.git"

    assert ("leftover git-hook", "repo/.git/hooks/pre-push") in left(place.run(line))
    assert not (place.workspace / "repo" / ".git" / "hooks" / "pre-push").exists()


@pytest.mark.parametrize(
    ("line", "rule", "target"),
    [
        ("mkdir -p sub/.vscode; echo {} > sub/.vscode/tasks.json", "editor-settings", "sub/.vscode"),
        ("mkdir -p .github/workflows; echo > .github/workflows/ci.yml", "ci-workflow", ".github/workflows"),
        ("git init -q n; git -C n config core.fsmonitor ./evil", "git-config", "n/.git/config"),
        ("mkdir sub; echo > sub/.mcp.json", "agent-settings", "sub/.mcp.json"),
    ],
)
def test_settings_that_other_tools_obey_are_found(place: Place, line: str, rule: str, target: str) -> None:
    assert (f"leftover {rule}", target) in left(place.run(line))


def test_ordinary_work_leaves_nothing(repository: Place) -> None:
    work = "mkdir -p src; echo x > src/a.py; git init -q new; git -C new status; git add src; git commit -qm two"

    assert left(repository.run(work)) == set()


def test_a_commit_holds_back_what_would_be_run(place: Place) -> None:
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        place.run(HOOK + "echo plain > plain", shadow=shadow)

        held = workspaces.commit(shadow)

        names = [refusal.path for refusal in held.refused]
        assert "nested/.git/hooks/post-checkout" in names
        assert (place.workspace / "plain").exists()
        assert not (place.workspace / "nested" / ".git" / "hooks" / "post-checkout").exists()
        workspaces.commit(shadow, allow_protected=True)
        assert (place.workspace / "nested" / ".git" / "hooks" / "post-checkout").exists()


# --- what was there before --------------------------------------------------------------------------------------------

HOOKS_OF_A_PERSON = (
    "mkdir -p nested sub/.vscode; git init -q nested; "
    "for d in . nested; do printf '#!/bin/sh\\nexit 1\\n' > $d/.git/hooks/pre-commit; "
    "chmod +x $d/.git/hooks/pre-commit; done"
)
TOUCHES = [
    "mkdir .git",
    "git init",
    "mkdir -p .git/hooks",
    "chmod -R u+w .",
    "find . -exec touch {} +",
    "mv .git g; mv .git/hooks h; rm -rf .git/hooks nested/.git/hooks",
    "git init nested; mkdir -p nested/.git/hooks; chmod 700 .git nested/.git nested",
    "cd nested && git -c user.name=a -c user.email=b commit -n --allow-empty -m x",
]


@pytest.mark.parametrize("trace", ["off", "changes"])
@pytest.mark.parametrize("line", TOUCHES)
def test_the_hooks_of_a_person_keep_their_names(repository: Place, line: str, trace: str) -> None:
    assert repository.host(HOOKS_OF_A_PERSON).returncode == 0
    time.sleep(0.03)

    result = repository.run(f"{line}; true", trace=trace)

    assert result.ok and left(result) == set()
    for directory in (".", "nested"):
        hooks = repository.workspace / directory / ".git/hooks"
        assert [path.name for path in hooks.glob("*") if not path.name.endswith(".sample")] == ["pre-commit"]
    done = repository.host("git -c user.name=a -c user.email=b commit --allow-empty -m x")
    assert done.returncode == 1, "the hook that refuses still does"


@pytest.mark.parametrize("trace", ["off", "changes"])
def test_what_was_only_tried_is_not_said_to_be_left_behind(repository: Place, trace: str) -> None:
    line = "mkdir .vscode .idea .claude; touch .mcp.json .bashrc; echo x > .git/config; true"
    assert left(repository.run(line, trace=trace)) == set()


# --- what goes on -----------------------------------------------------------------------------------------------------

PLANT = "git init -q {0}; printf '#!/bin/sh\\n' > {0}/.git/hooks/post-checkout; chmod +x {0}/.git/hooks/post-checkout"
THREAD = """
import subprocess, threading, time
def later():
    time.sleep(0.3)
    subprocess.run({!r}, shell=True)
threading.Thread(target=later).start()
"""


def _journal_of(place: Place) -> str:
    return "".join(path.read_text() for path in place.home.rglob("*.jsonl"))


@pytest.mark.parametrize("trace", ["off", "changes"])
def test_what_a_thread_writes_after_the_last_call_is_looked_at_when_the_box_is_closed(place: Place, trace: str) -> None:
    async def work(box: Sandbox) -> ViolationStore:
        result = await box.python(THREAD.format(PLANT.format("late")))
        assert left(result) == set()
        await asyncio.sleep(1.2)
        return box.violations

    store = place.in_box(work, trace=trace)

    hook = place.workspace / "late/.git/hooks/post-checkout"
    assert [kept.violation.rule for kept in store.query()] == ["leftover git-hook"]
    assert not hook.exists() and hook.with_name("post-checkout.disarmed").exists()
    assert '"event_type":"sandbox_closed"' in _journal_of(place).replace('": "', '":"')


@pytest.mark.parametrize("trace", ["off", "changes"])
def test_what_a_process_in_the_background_writes_is_looked_at(place: Place, trace: str) -> None:
    async def work(box: Sandbox) -> tuple[Result, ViolationStore]:
        await box.start(f"sleep 0.2; {PLANT.format('one')}; sleep 60")
        await asyncio.sleep(1.0)
        between = await box.shell("true")
        await box.start(f"{PLANT.format('two')}; sleep 60")
        await asyncio.sleep(0.8)
        return between, box.violations

    _, store = place.in_box(work, trace=trace)

    targets = {kept.violation.target for kept in store.query()}
    assert targets == {f"{name}/.git/hooks/post-checkout" for name in ("one", "two")}
    assert not list(place.workspace.glob("*/.git/hooks/post-checkout"))


def test_a_file_that_is_held_open_is_looked_at_again(place: Place) -> None:
    async def work(box: Sandbox) -> tuple[Result, Result]:
        first = await box.python(
            "import subprocess; subprocess.run('git init -q n', shell=True); f = open('n/.git/config', 'a')"
        )
        return first, await box.python("f.write('[core]\\nfsmonitor = ./evil\\n'); f.flush()")

    first, second = place.in_box(work)

    assert left(first) == set()
    assert left(second) == {("leftover git-config", "n/.git/config")}


# --- ways to a file that no record names ------------------------------------------------------------------------------

EVIL = "[core]\\n\\tfsmonitor = ./evil\\n"
CONFIG = {("leftover git-config", "n/.git/config")}
MOVED = {("leftover git-config", "m/.git/config")}
KEPT = "import os, subprocess; subprocess.run('git init -q n', shell=True); f = open('n/.git/config', 'a'); "
WRITES = f"f.write('{EVIL}'); f.flush()"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("git init -q n; ln n/.git/config foo", f"printf '{EVIL}' >> foo; rm foo", CONFIG),
        ("git init -q n; ln n/.git/config foo", f"mv n m; printf '{EVIL}' >> foo; rm foo", MOVED),
        (
            "mkdir p; echo save-exact=true > p/.npmrc; ln p/.npmrc q",
            "echo script-shell=/tmp/evil > q; rm q",
            {("leftover tool-settings", "p/.npmrc")},
        ),
    ],
    ids=["alias", "alias and renamed", "npmrc"],
)
def test_what_is_written_through_another_link_is_found(
    place: Place, first: str, second: str, expected: set[tuple[str, str]]
) -> None:
    async def work(box: Sandbox) -> list[set[tuple[str, str]]]:
        return [left(await box.shell(line)) for line in (first, second, "true")]

    assert place.in_box(work) == [set(), expected, set()]


@pytest.mark.parametrize(
    "lines", [[KEPT + "os.rename('n', 'm')", WRITES], [KEPT, "os.rename('n', 'm')", WRITES]], ids=["at once", "later"]
)
def test_what_is_written_by_a_descriptor_after_its_directory_was_renamed_is_found(
    place: Place, lines: list[str]
) -> None:
    async def work(box: Sandbox) -> list[set[tuple[str, str]]]:
        return [left(await box.python(line)) for line in lines]

    assert place.in_box(work) == [*([set()] * (len(lines) - 1)), MOVED]


def test_what_a_process_in_the_background_writes_by_a_descriptor_is_in_the_next_result(place: Place) -> None:
    async def work(box: Sandbox) -> Result:
        await box.shell("git init -q n")
        await box.start(f"exec 5>>n/.git/config; sleep 0.3; printf '{EVIL}' >&5; touch done; sleep 60")
        while not (place.workspace / "done").exists():
            await asyncio.sleep(0.02)
        return await box.shell("true")

    assert left(place.in_box(work)) == CONFIG


@pytest.mark.parametrize("is_last", [False, True])
def test_what_no_record_names_is_found_in_a_repository_that_was_made_before(place: Place, is_last: bool) -> None:
    """A thread that changes the path of a call while it is looked at: here somebody whom nobody looks at does it."""
    hook = place.workspace / "n/.git/hooks/pre-commit"

    async def work(box: Sandbox) -> tuple[ViolationStore, set[tuple[str, str]]]:
        await box.shell("git init -q n")
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\n")
        hook.chmod(0o755)
        return box.violations, set() if is_last else left(await box.shell("true"))

    store, of_the_call = place.in_box(work)

    assert [kept.violation.target for kept in store.query()] == ["n/.git/hooks/pre-commit"]
    assert of_the_call == (set() if is_last else {("leftover git-hook", "n/.git/hooks/pre-commit")})
    assert not hook.exists() and hook.with_name("pre-commit.disarmed").exists()


def test_work_in_a_repository_that_was_made_before_leaves_nothing(place: Place) -> None:
    async def work(box: Sandbox) -> list[set[tuple[str, str]]]:
        commit = "git -c user.name=a -c user.email=b commit -q --allow-empty -m x"
        lines = ["git init -q n", f"cd n; {commit}; git config user.name A; git branch b", "mv n m; rm -rf m", "true"]
        return [left(await box.shell(line)) for line in lines]

    assert place.in_box(work) == [set()] * 4


@pytest.mark.parametrize("trace", ["off", "changes"])
def test_a_call_that_is_called_off_is_looked_at(place: Place, trace: str) -> None:
    async def work(box: Sandbox) -> ViolationStore:
        run = asyncio.ensure_future(box.shell(f"{PLANT.format('n')}; touch ready; sleep 60"))
        while not (place.workspace / "ready").exists():
            await asyncio.sleep(0.02)
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        return box.violations

    store = place.in_box(work, trace=trace)

    assert [kept.violation.rule for kept in store.query()] == ["leftover git-hook"]
    assert not (place.workspace / "n/.git/hooks/post-checkout").exists()
    assert "leftover git-hook" in _journal_of(place)


@pytest.mark.parametrize("trace", ["off", "changes"])
def test_a_call_whose_box_is_lost_is_looked_at(place: Place, trace: str) -> None:
    async def work(box: Sandbox) -> tuple[Internal, ViolationStore]:
        native = (await box.lend()).box
        run = asyncio.ensure_future(box.shell(f"{PLANT.format('n')}; touch ready; sleep 60"))
        while not (place.workspace / "ready").exists():
            await asyncio.sleep(0.02)
        os.kill(native._inside.control.first_pid, signal.SIGKILL)  # type: ignore[attr-defined]  # there is no public way
        with pytest.raises(Internal) as raised:
            await run
        return raised.value, box.violations

    fault, store = place.in_box(work, trace=trace)

    assert [kept.violation.rule for kept in store.query()] == ["leftover git-hook"]
    assert [each.rule for each in fault.violations] == ["leftover git-hook"]
    assert not (place.workspace / "n/.git/hooks/post-checkout").exists()


def test_further_writable_directories_are_looked_at_beside_a_shadow(place: Place) -> None:
    more = place.home / "more"
    more.mkdir()
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        result = place.run(
            f"cd {more}; {PLANT.format('n')}; cd {place.workspace}; {PLANT.format('m')}", shadow=shadow, write=[more]
        )
    assert left(result) == {("leftover git-hook", "n/.git/hooks/post-checkout")}
    assert not (more / "n/.git/hooks/post-checkout").exists()


# --- shadows ----------------------------------------------------------------------------------------------------------

BARE = "git init -q --bare kit; git -C kit config core.fsmonitor ./evil; printf '#!/bin/sh\\n' > kit/hooks/pre-receive"
"""A repository that is called nothing of git's."""


def held(committed: Committed) -> set[str]:
    return {refusal.path for refusal in committed.refused if refusal.rule == "held back"}


def test_a_commit_holds_back_what_git_would_run_in_a_bare_directory(place: Place) -> None:
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        place.run(BARE, shadow=shadow)
        assert held(workspaces.commit(shadow)) == {"kit/config", "kit/hooks/pre-receive"}
        # the rest is the project's now, and no longer in the shadow: what is left is still held back
        assert held(workspaces.commit(shadow)) == {"kit/config", "kit/hooks/pre-receive"}


def test_a_commit_in_two_steps_makes_no_repository_of_what_the_project_has(place: Place) -> None:
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        place.run(f"{BARE}; mv kit/HEAD head", shadow=shadow)
        assert held(workspaces.commit(shadow)) == set()  # without HEAD it is no repository
        assert (place.workspace / "kit/hooks/pre-receive").exists()

        place.run("mv head kit/HEAD", shadow=shadow)
        assert held(workspaces.commit(shadow)) == {"kit/HEAD"}
        assert not (place.workspace / "kit/HEAD").exists()


def test_a_commit_sees_a_directory_that_is_gits_by_project_and_shadow_together(place: Place) -> None:
    assert place.host("git init -q --bare kit; rm kit/HEAD kit/hooks/*").returncode == 0
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        line = "echo 'ref: refs/heads/main' > kit/HEAD; printf '#!/bin/sh\\n' > kit/hooks/update; ln -s / kit/modules"
        place.run(line, shadow=shadow)
        assert held(workspaces.commit(shadow)) == {"kit/hooks/update", "kit/modules"}


def test_a_commit_lets_a_harmless_repository_through(place: Place) -> None:
    with Workspaces() as workspaces:
        shadow = workspaces.new(place.workspace)
        place.run("git init -q --bare kit; rm kit/hooks/*; git -C kit config user.name A", shadow=shadow)
        committed = workspaces.commit(shadow)
        assert committed.refused == () and (place.workspace / "kit/config").exists()
