"""What a command leaves behind that another program would run later is found, disarmed where possible, and said."""

from __future__ import annotations

import pytest

from ringfence import Result
from ringfence.manager.workspaces import Workspaces
from ringfence.values.violation import Severity
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A3", "C7")

HOOK = "git init -q nested; printf '#!/bin/sh\\necho ran > ../../ran\\n' > nested/.git/hooks/post-checkout; "
ARM = "chmod +x nested/.git/hooks/post-checkout"


def left(result: Result) -> set[tuple[str, str]]:
    return {(each.rule, each.target) for each in result.violations if each.rule.startswith("leftover")}


@pytest.mark.parametrize("explain", ["off", "changes", "full"])
def test_a_hook_in_a_new_repository_is_found_and_disarmed(place: Place, explain: str) -> None:
    result = place.run(HOOK + ARM, explain=explain)

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
