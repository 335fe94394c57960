"""A client's settings after we have added ourselves: everything else is there as it was."""

import json
import os
import tomllib
from pathlib import Path

import pytest

from ringfence.agents.settings_files import Change, Scope
from ringfence.agents.settings_files import write_change as write
from ringfence.errors import AlreadyExists, InvalidArgument, InvalidConfig, PermissionDenied
from ringfence.mcp.clients import CLIENTS, Client, Command
from ringfence.mcp.installing import plan

COMMAND = Command("/opt/ring fence/ringfence", ("mcp", "--allow", 'a"b\\c'))
EVERY = [(client, scope) for client in CLIENTS.values() for scope in client.scopes]


@pytest.fixture(autouse=True)
def no_codex_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEX_HOME", raising=False)


def planned(tmp_path: Path, client: Client, scope: Scope, name: str = "ringfence") -> Change:
    return plan(client, scope, name, COMMAND, tmp_path / "project", tmp_path / "home")


def parsed(client: Client, text: str) -> dict[str, object]:
    return tomllib.loads(text) if client.is_toml else json.loads(text)


@pytest.mark.parametrize(("client", "scope"), EVERY, ids=lambda each: getattr(each, "name", each))
def test_a_file_that_is_not_there_is_made_for_its_owner(tmp_path: Path, client: Client, scope: Scope) -> None:
    change = planned(tmp_path, client, scope)

    assert write(change) is None
    assert change.path.stat().st_mode & 0o777 == 0o600
    entry = parsed(client, change.path.read_text())[client.key]["ringfence"]  # type: ignore[index]
    words = entry["command"] if isinstance(entry["command"], list) else [entry["command"], *entry["args"]]
    assert words == COMMAND.words


@pytest.mark.parametrize(("client", "scope"), EVERY, ids=lambda each: getattr(each, "name", each))
def test_what_is_there_stays_and_a_second_time_changes_nothing(tmp_path: Path, client: Client, scope: Scope) -> None:
    path = planned(tmp_path, client, scope).path
    path.parent.mkdir(parents=True)
    old = (
        f'# mine\nmodel = "x"\n\n[{client.key}.other]\ncommand = "o"\n'
        if client.is_toml
        else json.dumps({"ünï": [1, {"b": None}], client.key: {"other": {"command": "o"}}, "last": 1.5}, indent=4)
    )
    path.write_text(old)
    path.chmod(0o640)

    kept = write(planned(tmp_path, client, scope))

    before, after = parsed(client, old), parsed(client, path.read_text())
    assert after[client.key].pop("ringfence")  # type: ignore[attr-defined]
    assert after == before and list(after) == list(before)
    assert kept is not None and kept.read_text() == old
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text().startswith(old if client.is_toml else '{\n    "ünï"')
    assert not planned(tmp_path, client, scope).is_needed


@pytest.mark.parametrize(
    "old",
    ['{\n  // comment\n  "a": 1\n}', '{"a": 1, "a": 2}', '{"mcpServers": []}', "[]", '{"a": 1,}', "{", "\x00"],
    ids=["comment", "twice", "no-object", "list", "comma", "broken", "nul"],
)
def test_what_could_not_be_written_back_is_left_alone_and_the_change_is_said(tmp_path: Path, old: str) -> None:
    path = planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT).path
    path.parent.mkdir(parents=True)
    path.write_text(old)

    with pytest.raises(InvalidConfig, match="by hand"):
        planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT)

    assert path.read_text() == old and [each.name for each in path.parent.iterdir()] == ["mcp.json"]


@pytest.mark.parametrize("old", ["mcp_servers = 3\n", "[broken\n", "mcp_servers = {}\n"])
def test_toml_that_takes_no_further_table_is_left_alone(tmp_path: Path, old: str) -> None:
    path = planned(tmp_path, CLIENTS["codex"], Scope.USER).path
    path.parent.mkdir(parents=True)
    path.write_text(old)

    with pytest.raises(InvalidConfig, match="by hand"):
        planned(tmp_path, CLIENTS["codex"], Scope.USER)


def test_another_server_of_the_name_is_not_replaced(tmp_path: Path) -> None:
    path = planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT).path
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"ringfence": {"command": "mine"}}}')

    with pytest.raises(AlreadyExists, match="--name"):
        planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT)
    assert planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT, "second").is_needed


def test_a_link_stays_a_link_and_a_file_that_changes_meanwhile_is_not_written(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    path = planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT).path
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    change = planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT)

    real.write_text('{"new": 1}')
    with pytest.raises(PermissionDenied, match="meanwhile"):
        write(change)
    write(planned(tmp_path, CLIENTS["cursor"], Scope.PROJECT))

    assert os.path.islink(path) and set(json.loads(real.read_text())) == {"new", "mcpServers"}


def test_names_and_scopes_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="no name"):
        planned(tmp_path, CLIENTS["codex"], Scope.USER, 'a"]\n[b')
    with pytest.raises(InvalidArgument, match="--scope user"):
        planned(tmp_path, CLIENTS["codex"], Scope.PROJECT)
