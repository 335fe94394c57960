"""What a container sees of the host: every cover under both names of the workspace, nothing that cannot be held."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence.confinement.base import Cover, How, View
from ringfence.engines.docker.mounts import PINS, Mount, Sources, check_place, closed_parents, plan
from ringfence.errors import InitializationFailed

SOURCES = Sources(
    helper="/lib/box",
    control="/stage/control",
    hidden_file="/stage/hidden",
    hidden_directory="/stage/hidden.d",
    texts=(("passwd", "/stage/passwd"),),
)


def a_view(*writable: str, covers: tuple[Cover, ...] = (), readable: tuple[str, ...] = ()) -> View:
    return View(
        uid=1, gid=1, home="/home/agent", system=(), writable=writable, readable=readable, covers=covers, tmp_bytes=1
    )


def by_target(view: View, sources: Sources = SOURCES) -> dict[str, Mount]:
    mounts = plan(view, sources)
    assert len({mount.target for mount in mounts}) == len(mounts)
    return {mount.target: mount for mount in mounts}


def test_the_workspace_shows_under_its_own_name_and_as_workspace(tmp_path: Path) -> None:
    mounts = by_target(a_view(str(tmp_path)))

    for target in (str(tmp_path), "/workspace"):
        assert mounts[target] == Mount(str(tmp_path), target, writable=True, recursive=True)


def test_a_workspace_that_is_called_workspace_shows_once() -> None:
    assert [mount.target for mount in plan(a_view("/workspace"), SOURCES)].count("/workspace") == 1


def test_only_the_first_writable_directory_has_the_second_name(tmp_path: Path) -> None:
    mounts = by_target(a_view(str(tmp_path), "/data"))

    assert mounts["/workspace"].source == str(tmp_path) and mounts["/data"].writable


def test_covers_hold_under_both_names_and_nothing_of_them_can_be_written(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".env").touch()
    (tmp_path / "secrets").mkdir()
    root = str(tmp_path)
    covers = (
        Cover(root, ".env", How.HIDE),
        Cover(root, "secrets", How.HIDE),
        Cover(root, ".git", How.ANCHOR),
        Cover(root, ".git/hooks", How.FREEZE),
    )

    mounts = by_target(a_view(root, covers=covers))

    for top in (root, "/workspace"):
        assert mounts[f"{top}/.env"] == Mount("/stage/hidden", f"{top}/.env")
        assert mounts[f"{top}/secrets"] == Mount("/stage/hidden.d", f"{top}/secrets")
        assert mounts[f"{top}/.git"] == Mount(f"{root}/.git", f"{top}/.git", writable=True)
        assert mounts[f"{top}/.git/hooks"] == Mount(f"{root}/.git/hooks", f"{top}/.git/hooks")


def test_parents_come_before_children(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    covers = (Cover(str(tmp_path), "a/b", How.FREEZE), Cover(str(tmp_path), "a", How.ANCHOR))

    depths = [mount.target.count("/") for mount in plan(a_view(str(tmp_path), covers=covers), SOURCES)]

    assert depths == sorted(depths)


def test_pins_lie_in_a_copy_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()

    mounts = by_target(a_view(str(tmp_path), covers=(Cover(str(tmp_path), "app", How.PIN),)))

    assert mounts[f"{PINS}/0"] == Mount(str(tmp_path), f"{PINS}/0")
    assert mounts[f"{PINS}/0/app"] == Mount(f"{tmp_path}/app", f"{PINS}/0/app")
    assert f"{tmp_path}/app" not in mounts


def test_a_root_that_is_staged_elsewhere_is_mounted_from_there_with_its_covers(tmp_path: Path) -> None:
    staged = tmp_path / "staged"
    staged.mkdir()
    (staged / ".gitconfig").touch()
    sources = Sources("/b", "/c", "/h", "/d", (), roots={"/wsp": str(staged)})

    mounts = by_target(a_view("/wsp", covers=(Cover("/wsp", ".gitconfig", How.FREEZE),)), sources)

    assert mounts["/wsp"].source == str(staged)
    assert mounts["/wsp/.gitconfig"].source == f"{staged}/.gitconfig"


def test_what_is_readable_brings_no_mounts_along_that_could_be_written() -> None:
    mount = by_target(a_view("/wsp", readable=("/data",)))["/data"]

    assert mount.as_json()["ReadOnly"] and mount.as_json()["BindOptions"]["NonRecursive"]


@pytest.mark.parametrize("how", [How.HIDE, How.FREEZE, How.ANCHOR])
def test_a_link_is_refused_because_an_engine_would_follow_it(tmp_path: Path, how: How) -> None:
    (tmp_path / "link").symlink_to("/etc/shadow")

    with pytest.raises(InitializationFailed, match="is a link"):
        plan(a_view(str(tmp_path), covers=(Cover(str(tmp_path), "link", how),)), SOURCES)


def test_a_name_that_has_vanished_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InitializationFailed, match="vanished"):
        plan(a_view(str(tmp_path), covers=(Cover(str(tmp_path), "gone", How.HIDE),)), SOURCES)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InitializationFailed, match="not text"):
        plan(a_view(os.fsdecode(b"/wsp/\xff")), SOURCES)


@pytest.mark.parametrize("place", ["/", "/usr", "/etc", "/tmp", "/proc/1", "/sys/x", "/dev/shm/x", "/run/ringfence/x"])
def test_what_would_cover_the_image_s_own_is_refused(place: str) -> None:
    with pytest.raises(InitializationFailed, match="cannot be shown"):
        check_place(place)


@pytest.mark.parametrize("place", ["/home/me/wsp", "/tmp/wsp", "/usr/local/src/x", "/run/user/1000/x", "/w:x"])
def test_any_other_place_can_be_shown(place: str) -> None:
    check_place(place)


def test_homes_that_images_keep_closed_are_opened_where_something_lies_in_them() -> None:
    assert closed_parents(a_view("/root/wsp", readable=("/home/me/data/x",))) == ("/root", "/home/me")
    assert closed_parents(a_view("/srv/wsp", "/home/agent/wsp")) == ()
    sources = Sources("/b", "/c", "/h", "/d", (), homes={"/root": "/stage/home-0"})
    assert by_target(a_view("/root/wsp"), sources)["/root"] == Mount("/stage/home-0", "/root")
