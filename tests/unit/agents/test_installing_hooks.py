"""The change to a client's settings that makes it call the hook."""

import json
from pathlib import Path

import pytest

from ringfence.agents.hooks.dialects import DIALECTS
from ringfence.agents.hooks.installing import FILES, plan_hook
from ringfence.agents.settings_files import Scope, write_change
from ringfence.errors import AlreadyExists, InvalidConfig

COMMAND = ("/opt/ringfence", "hook", "x", "--allow", "pip")


def test_every_dialect_can_be_installed() -> None:
    assert set(FILES) == set(DIALECTS)


@pytest.mark.parametrize("client", FILES)
def test_it_is_added_once_and_fails_closed(client: str, tmp_path: Path) -> None:
    change = plan_hook(client, None, COMMAND, tmp_path, tmp_path)
    write_change(change)
    written = json.loads(change.path.read_text())

    for event in FILES[client].events:
        text = json.dumps(written["hooks"][event])
        assert "/opt/ringfence hook x --allow pip || exit 2" in text
    assert not plan_hook(client, None, COMMAND, tmp_path, tmp_path).is_needed
    with pytest.raises(AlreadyExists):
        plan_hook(client, None, ("/opt/ringfence", "hook", "x"), tmp_path, tmp_path)


def test_nothing_of_the_file_is_lost(tmp_path: Path) -> None:
    path = tmp_path / ".claude/settings.json"
    path.parent.mkdir()
    before = {"model": "x", "hooks": {"PreToolUse": [{"matcher": "Edit", "hooks": []}], "Stop": [1]}}
    path.write_text(json.dumps(before))

    write_change(plan_hook("claude-code", Scope.PROJECT, COMMAND, tmp_path, tmp_path))

    after = json.loads(path.read_text())
    assert after["model"] == "x" and after["hooks"]["Stop"] == [1]
    assert after["hooks"]["PreToolUse"][0] == before["hooks"]["PreToolUse"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    "text", ["// comment\n{}", "[]", '{"hooks": []}', '{"hooks": {"PreToolUse": {}}}', '{"a":1,"a":2}']
)
def test_a_file_that_cannot_be_kept_is_not_written(text: str, tmp_path: Path) -> None:
    path = tmp_path / ".claude/settings.json"
    path.parent.mkdir()
    path.write_text(text)

    with pytest.raises(InvalidConfig) as found:
        plan_hook("claude-code", Scope.PROJECT, COMMAND, tmp_path, tmp_path)
    assert "by hand" in found.value.hint and path.read_text() == text
