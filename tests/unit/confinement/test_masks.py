"""Covers: what is hidden, frozen and anchored in a workspace, and the placeholders of names that are not there."""

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.confinement.base import How
from ringfence.confinement.linux.masks import Masks, find_masks, is_placeholder
from ringfence.errors import Busy, PermissionDenied
from ringfence.policy.globs import compiled


class Workspace:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._open: list[Masks] = []

    def add(self, name: str, text: str = "x") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def repository(self, name: str = ".git") -> Path:
        git = self.root / name
        (git / "hooks").mkdir(parents=True)
        (git / "config").write_text("[core]\n")
        return git

    def masks(self, *denied: str, protected: tuple[str, ...] = ()) -> Masks:
        made = find_masks((str(self.root),), rules=compiled(denied), protected=protected)
        self._open.append(made)
        return made

    def covers(self, *denied: str, protected: tuple[str, ...] = ()) -> dict[str, How]:
        return {cover.below: cover.how for cover in self.masks(*denied, protected=protected).covers}

    def close(self) -> None:
        for made in self._open:
            made.close()


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Workspace]:
    (tmp_path / "work").mkdir()
    made = Workspace(tmp_path / "work")
    yield made
    made.close()


@pytest.mark.req("A3")
def test_blacklisted_names_are_hidden_wherever_they_lie_and_are_not_without_the_rule(work: Workspace) -> None:
    for name in (".env", "a/b/.env", "a/secrets.json", "a/env", ".environment"):
        work.add(name)

    hidden = {name for name, how in work.covers("**/.env", "**/secrets.json").items() if how is How.HIDE}

    assert hidden == {".env", "a/b/.env", "a/secrets.json"}
    assert work.covers() == {}


@pytest.mark.req("A3")
def test_blacklisted_names_in_a_git_directory_are_hidden_too(work: Workspace) -> None:
    work.repository("sub/.git")
    for name in ("sub/.git/secrets.json", "sub/.git/info/.env", "sub/.git/objects/ab/secrets.json"):
        work.add(name)

    covers = work.covers("**/.env", "**/secrets.json", "**/.git/config", protected=(".git/config", ".git/hooks"))

    hidden = {name for name, how in covers.items() if how is How.HIDE}
    assert hidden == {"sub/.git/secrets.json", "sub/.git/info/.env", "sub/.git/config"}, "objects are git's own data"
    assert covers["sub/.git/hooks"] is How.FREEZE and covers["sub/.git"] is How.ANCHOR


@pytest.mark.req("A3")
def test_a_hidden_directory_is_hidden_whole(work: Workspace) -> None:
    work.add(".env/deep/.env")

    assert work.covers("**/.env") == {".env": How.HIDE}


@pytest.mark.req("A3")
def test_a_row_with_a_path_or_a_star_is_matched_too(work: Workspace) -> None:
    work.add("keys/a.pem")
    work.add("vault")

    covers = work.covers("**/*.pem", str(work.root / "vault"))

    assert (covers["keys/a.pem"], covers["vault"]) == (How.HIDE, How.HIDE)


@pytest.mark.parametrize("name", ["new\nline", "quo'te\"", "st*r", "--bind", "\udcff\udcfe", "[x]"])
def test_names_of_any_bytes_are_covered_under_that_very_name(work: Workspace, name: str) -> None:
    work.add(f"{name}/.env")

    assert work.covers("**/.env")[f"{name}/.env"] is How.HIDE


@pytest.mark.req("A5")
def test_a_socket_of_the_host_is_hidden_and_a_plain_file_is_not(
    work: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work.root)
    work.add("plain")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("agent.sock")

        assert work.covers() == {"agent.sock": How.HIDE}


@pytest.mark.req("A3")
def test_a_link_to_something_hidden_leads_to_what_is_hidden(work: Workspace) -> None:
    work.add(".env")
    (work.root / "innocent").symlink_to(".env")

    assert work.covers("**/.env") == {".env": How.HIDE}


def test_a_git_directory_is_anchored_and_what_is_protected_in_it_frozen(work: Workspace) -> None:
    work.repository()

    covers = work.covers(protected=(".git/hooks", ".git/config"))

    assert covers == {".git": How.ANCHOR, ".git/hooks": How.FREEZE, ".git/config": How.FREEZE}


def test_a_nested_repository_is_protected_like_the_outer_one(work: Workspace) -> None:
    work.repository()
    work.repository("vendor/lib/.git")

    covers = work.covers(protected=(".git/hooks",))

    assert (covers[".git/hooks"], covers["vendor/lib/.git/hooks"]) == (How.FREEZE, How.FREEZE)
    assert covers["vendor/lib/.git"] is How.ANCHOR
    assert (covers["vendor"], covers["vendor/lib"]) == (How.PIN, How.PIN)


def test_a_git_file_is_frozen_because_it_points_to_a_git_directory(work: Workspace) -> None:
    work.add("tree/.git", "gitdir: /elsewhere\n")

    assert work.covers()["tree/.git"] is How.FREEZE


def test_without_a_repository_nothing_of_git_is_made(work: Workspace) -> None:
    assert work.covers(protected=(".git/hooks",)) == {}
    assert os.listdir(work.root) == []


def test_a_protected_file_is_frozen_as_it_is(work: Workspace) -> None:
    path = work.add(".vscode/tasks.json")

    assert work.covers(protected=(".vscode",)) == {".vscode": How.FREEZE}
    assert path.read_text() == "x"


def test_a_protected_link_freezes_what_it_leads_to(work: Workspace) -> None:
    work.add("settings/tasks.json")
    (work.root / ".vscode").symlink_to("settings")

    assert work.covers(protected=(".vscode",))["settings"] is How.FREEZE


def test_a_protected_link_into_something_hidden_covers_nothing_below_it(work: Workspace) -> None:
    """It could not be found there any more, and no box would start in this workspace."""
    work.add(".env/deep/x")
    (work.root / ".vscode").symlink_to(".env/deep")

    assert not [name for name in work.covers("**/.env", protected=(".vscode",)) if name.startswith(".env/")]


def test_parents_come_before_children(work: Workspace) -> None:
    work.repository("a/b/c/.git")
    work.add("a/.env")
    names = [cover.below for cover in work.masks("**/.env", protected=(".git/hooks", ".vscode")).covers]

    for number, name in enumerate(names):
        assert not any(name.startswith(f"{later}/") for later in names[number + 1 :])


def test_a_directory_that_we_may_not_list_is_hidden_whole(work: Workspace) -> None:
    """Its owner, who is the one in the box, could open it there."""
    if os.geteuid() == 0:
        pytest.skip("root lists everything")
    locked = work.root / "locked"
    locked.mkdir(mode=0)

    assert work.covers() == {"locked": How.HIDE}
    locked.chmod(0o700)
    assert work.covers() == {}


# --- placeholders -----------------------------------------------------------------------------------------------------


def test_a_name_that_is_not_there_gets_a_placeholder_that_is_hidden(work: Workspace) -> None:
    masks = work.masks(protected=(".vscode", ".bashrc"))

    assert {(cover.below, cover.how) for cover in masks.covers} == {(".vscode", How.HIDE), (".bashrc", How.HIDE)}
    assert masks.shared[0].placeholders == [".vscode", ".bashrc"]
    for name in (".vscode", ".bashrc"):
        info = os.lstat(work.root / name)
        assert stat.S_ISSOCK(info.st_mode) and is_placeholder(info)


@pytest.mark.req("A3", "B12")
def test_placeholders_that_are_files_share_nothing_so_that_writing_into_one_writes_into_no_other(
    work: Workspace,
) -> None:
    work.repository()
    (work.root / ".git/config").unlink()
    names = (".bashrc", ".mcp.json", ".git/config")

    find_masks((str(work.root),), rules=compiled(()), protected=names, as_files=True).close()

    assert all(is_placeholder(os.lstat(work.root / name)) for name in names)
    assert len({os.lstat(work.root / name).st_ino for name in names}) == len(names)


@pytest.mark.req("B12", "B7")
def test_sockets_that_a_dead_box_left_give_way_to_files_and_those_of_a_living_one_do_not(work: Workspace) -> None:
    names = (".bashrc", ".vscode")

    def kinds() -> set[int]:
        find_masks((str(work.root),), rules=compiled(()), protected=names, as_files=True).close()
        return {stat.S_IFMT(os.lstat(work.root / name).st_mode) for name in names}

    living = work.masks(protected=names)
    assert kinds() == {stat.S_IFSOCK}
    living.close()
    assert kinds() == {stat.S_IFREG}


def test_what_a_dead_box_left_is_recognised_and_not_frozen_as_if_it_were_a_person_s(work: Workspace) -> None:
    work.masks(protected=(".vscode",)).close()

    masks = work.masks(protected=(".vscode",))

    assert [(cover.below, cover.how) for cover in masks.covers] == [(".vscode", How.HIDE)]
    assert masks.shared[0].placeholders == [".vscode"]


def test_an_empty_file_of_a_person_is_no_placeholder(work: Workspace) -> None:
    work.add(".bashrc", "")

    masks = work.masks(protected=(".bashrc",))

    assert [(cover.below, cover.how) for cover in masks.covers] == [(".bashrc", How.FREEZE)]
    assert masks.shared[0].placeholders == []


def test_two_boxes_share_placeholders_and_each_holds_a_lock(work: Workspace) -> None:
    first, second = work.masks(protected=(".vscode",)), work.masks(protected=(".vscode",))

    assert first.shared[0].placeholders == second.shared[0].placeholders == [".vscode"]
    descriptor = os.open(work.root, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        first.close()
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        second.close()
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


def test_a_workspace_that_somebody_holds_locked_is_refused_after_a_while(
    work: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringfence.confinement.linux.masks._LOCK_SECONDS", 0.02)
    descriptor = os.open(work.root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="locked"):
            work.masks()
    finally:
        os.close(descriptor)


def test_a_workspace_that_we_may_not_write_is_refused_and_no_lock_is_left(work: Workspace) -> None:
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    work.root.chmod(0o555)

    with pytest.raises(PermissionDenied, match="cannot protect"):
        work.masks(protected=(".vscode",))
    work.root.chmod(0o755)
    assert work.covers(protected=(".vscode",))
