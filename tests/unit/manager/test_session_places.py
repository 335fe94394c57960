"""Where the files of named sessions lie, while a session runs, when it is over, and when its process has died."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence.errors import Busy
from ringfence.manager import session_places
from ringfence.manager.scratch import Scratch
from ringfence.manager.session_places import SessionPlaces
from ringfence.workspace.places import SESSIONS, make_session_directory

pytestmark = pytest.mark.req("E3")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "1-00000000" / "aa"
    made.mkdir(parents=True)
    (made / "file").write_text("x")
    return made


def test_a_name_leads_to_the_workspace_and_the_files_stay_under_it(tmp_path: Path, workspace: Path) -> None:
    places = SessionPlaces(tmp_path)
    assert places.existing("s") is None
    places.lead("s", workspace)

    assert make_session_directory("s", {"RINGFENCE_WORKSPACES_DIR": str(tmp_path)}, "/") == workspace
    with pytest.raises(Busy, match="'s'"):
        places.existing("s")
    held = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)  # whoever has it open has it still
    assert places.settle("s", workspace)

    assert not workspace.exists() and places.existing("s") == tmp_path / SESSIONS / "s"
    assert (tmp_path / SESSIONS / "s" / "file").read_text() == "x"
    assert os.listdir(held) == ["file"]
    os.close(held)


def test_only_what_the_name_leads_to_is_settled_or_forgotten(tmp_path: Path, workspace: Path) -> None:
    places = SessionPlaces(tmp_path)
    places.lead("s", workspace)
    other = workspace.with_name("bb")
    other.mkdir()

    assert not places.settle("s", other)
    places.forget("s", other)
    assert (tmp_path / SESSIONS / "s").is_symlink()
    places.forget("s", workspace)
    assert places.existing("s") is None and (workspace / "file").exists()


def test_a_file_system_that_cannot_exchange_is_no_loss(
    tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(one: object, other: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(session_places, "exchange", refuse)
    places = SessionPlaces(tmp_path)
    places.lead("s", workspace)

    assert places.settle("s", workspace)
    assert (tmp_path / SESSIONS / "s" / "file").read_text() == "x"


def test_a_name_that_leads_nowhere_is_free_again(tmp_path: Path) -> None:
    places = SessionPlaces(tmp_path)
    places.lead("s", tmp_path / "gone")

    assert places.existing("s") is None
    assert os.listdir(tmp_path / SESSIONS) == []


def test_odd_names_have_no_place(tmp_path: Path, workspace: Path) -> None:
    places = SessionPlaces(tmp_path)
    places.lead("../x", workspace)

    assert places.existing("../x") is None and not places.settle("../x", workspace)
    assert not (tmp_path / SESSIONS).exists() and (workspace / "file").exists()


def test_what_a_dead_process_left_is_settled_before_it_is_removed(tmp_path: Path, workspace: Path) -> None:
    SessionPlaces(tmp_path).lead("s", workspace)  # the process `1-00000000` holds no lock: it is dead

    Scratch(tmp_path).close()

    assert os.listdir(tmp_path) == [SESSIONS]
    assert (tmp_path / SESSIONS / "s" / "file").read_text() == "x"


def test_a_workspace_with_directories_in_it_is_empty_if_they_are(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, ("code", "data"))
    one, two = scratch.make(), scratch.make()
    assert sorted(os.listdir(one)) == ["code", "data"]
    (two / "data" / "x").write_text("")

    assert scratch.remove_empty(one) and not scratch.remove_empty(two)
    scratch.close()
