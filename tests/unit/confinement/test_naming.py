"""Protected names that are not there: held by whoever makes names, where a directory keeps names apart by bytes."""

import fcntl
import os
from pathlib import Path

import pytest

from ringfence.confinement.base import How, Unmade, View
from ringfence.confinement.linux import naming
from ringfence.confinement.linux.inside import landlock_words
from ringfence.confinement.linux.landlock import MAKE, Right
from ringfence.confinement.linux.masks import Masks, find_masks
from ringfence.policy.globs import compiled

pytestmark = pytest.mark.req("B6")

PROTECTED = (".git/hooks", ".git/config", ".git/commondir", ".vscode", ".bashrc")


def found(root: Path, own: tuple[str, ...] = ()) -> Masks:
    masks = find_masks((str(root),), rules=compiled(()), protected=PROTECTED, own=own, names=True)
    masks.close()
    return masks


def a_view(*, writable: tuple[str, ...], named: tuple[str, ...], home: str = "/home/me") -> View:
    return View(uid=1, gid=1, home=home, system=("/usr",), writable=writable, named=named, tmp_bytes=1)


def rights(view: View) -> dict[str, Right]:
    words = landlock_words(view)
    return {words[at + 2]: Right(int(words[at + 1])) for at, word in enumerate(words) if word == "beneath"}


def test_nothing_is_put_into_the_directory(tmp_path: Path) -> None:
    masks = found(tmp_path)

    assert os.listdir(tmp_path) == []
    assert masks.covers == []
    assert {each.below for each in masks.unmade} == {".vscode", ".bashrc"}
    info = tmp_path.stat()
    assert {(each.device, each.inode) for each in masks.unmade} == {(info.st_dev, info.st_ino)}


def test_what_is_there_is_covered_and_not_made_again_either(tmp_path: Path) -> None:
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / ".bashrc").touch()

    masks = found(tmp_path)

    assert {each.below: each.how for each in masks.covers} == {
        ".git": How.ANCHOR,
        ".git/hooks": How.FREEZE,
        ".bashrc": How.FREEZE,
    }
    assert {each.below for each in masks.unmade} == set(PROTECTED)


def test_directories_on_the_way_to_a_missing_name_are_pinned(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)

    masks = found(tmp_path, own=(str(tmp_path / "a/b/sandbox.json"),))

    assert {each.below: each.how for each in masks.covers} == {"a": How.PIN, "a/b": How.PIN}
    assert "a/b/sandbox.json" in {each.below for each in masks.unmade}


def test_a_directory_that_folds_case_gets_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(descriptor: int, request: int, flags: bytearray) -> int:
        flags[:4] = (0x40000000).to_bytes(4, "little")  # as ext4 and tmpfs say it
        return 0

    monkeypatch.setattr(fcntl, "ioctl", answers)

    masks = find_masks((str(tmp_path),), rules=compiled(()), protected=(".bashrc",), names=True)
    try:
        assert masks.unmade == []
        assert os.listdir(tmp_path) == [".bashrc"]
    finally:
        masks.give_up()


def test_a_file_system_that_is_not_known_gets_placeholders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.open(tmp_path, os.O_PATH)
    try:
        assert naming.keeps_names(descriptor)
        monkeypatch.setattr(naming, "_SENSITIVE", frozenset())
        assert not naming.keeps_names(descriptor)
    finally:
        os.close(descriptor)


def test_the_box_makes_names_everywhere_but_where_the_guardian_does() -> None:
    plain = rights(a_view(writable=("/srv/w",), named=()))
    named = rights(a_view(writable=("/srv/w", "/srv/shadow"), named=("/srv/w",)))

    assert plain["/srv/w"] & MAKE == MAKE
    assert named["/srv/w"] & MAKE == 0
    assert named["/srv/w"] & (Right.WRITE_FILE | Right.REMOVE_FILE | Right.MAKE_SOCK | Right.TRUNCATE)
    assert all(named[path] & MAKE == MAKE for path in ("/srv/shadow", "/tmp", "/dev/shm", "/home/me"))


@pytest.mark.parametrize(
    ("workspace", "home", "without"),
    [
        ("/home/me/w", "/home/me", {"/home/me", "/home/me/w"}),
        ("/tmp/w", "/home/me", {"/tmp", "/tmp/w"}),
        ("/home/me", "/home/me", {"/home/me"}),
        ("/home/men", "/home/me", {"/home/men"}),
    ],
)
def test_nor_in_what_of_its_own_such_a_directory_lies_below(workspace: str, home: str, without: set[str]) -> None:
    """A rule of Landlock holds for all below its directory, other mounts included."""
    found = rights(a_view(writable=(workspace,), named=(workspace,), home=home))

    assert {path for path, right in found.items() if right & Right.WRITE_FILE and not right & MAKE} - {
        "/dev",
        "/proc",
    } == without


def test_a_name_knows_its_path() -> None:
    assert Unmade("/w", "a/.x", 1, 2).path == "/w/a/.x"
