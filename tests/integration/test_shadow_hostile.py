"""An agent that tries to mislead the diff from inside the mount, or to be more than a diff can hold."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.errors import Damaged
from ringfence.values.change import ChangeKind
from ringfence.workspace.commit import commit
from ringfence.workspace.diff import changes
from ringfence.workspace.patch import patch
from ringfence.workspace.shadow import Shadow, ShadowKind
from ringfence.workspace.shadow_store import ShadowStore
from tests.support.shadows import a_place, as_user, inside, look
from tests.support.users import User, me, ordinary

pytestmark = pytest.mark.req("D7")


@pytest.fixture
def place() -> Iterator[Path]:
    with a_place(me()) as made:
        project = made / "project"
        (project / "dir/sub").mkdir(parents=True)
        (project / "dir/file").write_bytes(b"host\n")
        (project / "dir/sub/file").write_bytes(b"host\n")
        (project / "file").write_bytes(b"host\n")
        yield made


@pytest.fixture
def shadow(place: Path) -> Shadow:
    return ShadowStore(place / "store").new(place / "project", denied=("**/.env",), kind=ShadowKind.OVERLAY)


def paths(shadow: Shadow) -> list[str]:
    return [change.path for change in changes(shadow)]


# --- marks of overlayfs -----------------------------------------------------------------------------------------------


def test_marks_that_are_set_inside_are_not_taken_for_those_of_overlayfs(shadow: Shadow) -> None:
    def forge() -> list[str]:
        refused = []
        marks = ("opaque", "whiteout", "redirect", "metacopy", "origin", "overlay.opaque")
        for path in ("dir", "dir/sub", "file"):
            for mark in marks:
                try:
                    os.setxattr(path, f"user.overlay.{mark}", b"y")
                except OSError:
                    refused.append(mark)  # kernels before 6.7
        return refused

    inside(shadow, forge)

    assert changes(shadow) == ()
    assert inside(shadow, look) == look(shadow.lower)


def test_a_whiteout_cannot_be_made_inside(shadow: Shadow) -> None:
    def forge() -> str:
        try:
            os.mknod("whiteout", stat.S_IFCHR)
        except PermissionError:
            return "refused"
        return "made"

    assert inside(shadow, forge) == "refused"
    assert changes(shadow) == ()


@pytest.mark.parametrize(
    ("mark", "value"), [("redirect", b"/etc"), ("metacopy", b""), ("whiteout", b"y"), ("opaque", b"x"), ("new", b"")]
)
def test_marks_that_are_not_read_here_are_refused_and_not_misread(shadow: Shadow, mark: str, value: bytes) -> None:
    inside(shadow, lambda: (Path("dir/file").write_bytes(b"agent\n"), Path("file").write_bytes(b"agent\n")))
    target = shadow.upper / ("dir" if mark in ("redirect", "opaque") else "file")
    assert paths(shadow) == ["dir/file", "file"]

    os.setxattr(target, f"user.overlay.{mark}", value)

    refused = [change for change in changes(shadow) if change.refused]
    assert [change.path for change in refused] == [target.name] and mark in refused[0].refused
    assert [refusal.path for refusal in commit(shadow).refused] == [target.name]
    assert (shadow.lower / target.name).is_dir() or (shadow.lower / target.name).read_bytes() == b"host\n"


@pytest.mark.root
def test_a_shadow_that_was_mounted_with_other_marks_is_refused_as_a_whole(shadow: Shadow) -> None:
    (shadow.upper / "dir").mkdir()
    os.setxattr(shadow.upper / "dir", "trusted.overlay.opaque", b"y")

    with pytest.raises(Damaged, match="userxattr"):
        changes(shadow)


def test_an_opaque_directory_shows_what_is_gone_with_it(shadow: Shadow) -> None:
    inside(shadow, lambda: (shutil.rmtree("dir"), os.mkdir("dir"), Path("dir/new").write_bytes(b"x")))

    found = {change.path: change.kind for change in changes(shadow)}

    assert os.getxattr(shadow.upper / "dir", "user.overlay.opaque") == b"y"
    assert found == {
        "dir/file": ChangeKind.REMOVED,
        "dir/sub": ChangeKind.REMOVED,
        "dir/sub/file": ChangeKind.REMOVED,
        "dir/new": ChangeKind.ADDED,
    }


# --- names and depth --------------------------------------------------------------------------------------------------

ODD = (b"new\nline", b"\x1b[2J", b"\xff\xfe", b"-rf", b"a b", b'qu"ote\\', "\u202egpj".encode(), b"tab\t")


def test_odd_names_are_committed_as_they_are(shadow: Shadow) -> None:
    def work() -> None:
        for name in ODD:
            Path(os.fsdecode(name)).write_bytes(name)

    inside(shadow, work)

    assert {os.fsencode(path) for path in paths(shadow)} == set(ODD)
    assert commit(shadow).is_done
    assert set(ODD) <= set(os.listdir(os.fsencode(shadow.lower)))


def test_a_tree_deeper_than_any_path_is_refused_and_gone_after_a_discard(place: Path, shadow: Shadow) -> None:
    def dig() -> None:
        for _ in range(3000):
            os.mkdir("ddd")
            os.chdir("ddd")

    inside(shadow, dig)
    found = changes(shadow)

    assert found[-1].refused.startswith("its path is longer")
    assert len(found) < 1100
    ShadowStore(place / "store").discard(shadow)
    assert os.listdir(place / "store") == []


@pytest.mark.parametrize("user", dict.fromkeys([ordinary(), me()]), ids=lambda user: f"uid{user.uid}")
def test_what_closes_itself_to_its_owner_is_refused_or_read_and_can_be_discarded(user: User) -> None:
    def scenario() -> None:
        (place / "project").mkdir()
        store = ShadowStore(place / "store")
        shadow = store.new(place / "project")

        def close() -> None:
            os.makedirs("closed/below")
            Path("file").write_bytes(b"x")
            Path("open").write_bytes(b"x")
            os.chmod("file", 0)
            os.chmod("closed", 0)

        inside(shadow, close)
        refused = {change.path for change in changes(shadow) if change.refused}

        assert refused == (set() if os.geteuid() == 0 else {"closed", "file"})
        assert "open" in {change.path for change in commit(shadow).applied}
        store.discard(shadow)
        assert os.listdir(store.directory) == []

    with a_place(user) as place:
        as_user(user, scenario)


def test_a_large_file_is_named_and_not_shown(shadow: Shadow) -> None:
    inside(shadow, lambda: Path("large").write_bytes(b"x\n" * 1024 * 1024))

    made = patch(shadow, changes(shadow))

    assert made.data == b""
    assert [(refusal.path, refusal.allow_by) for refusal in made.left_out] == [("large", "raise largest_file_bytes")]


@pytest.mark.req("A3")
def test_a_hidden_name_that_was_made_removed_and_made_again_stays_hidden(place: Path) -> None:
    (place / "project/.env").write_bytes(b"SECRET")
    shadow = ShadowStore(place / "store").new(place / "project", denied=("**/.env",))

    def work() -> bool:
        Path(".env").write_bytes(b"mine")
        os.unlink(".env")
        return os.path.exists(".env")

    assert inside(shadow, work) is False
    assert changes(shadow) == ()
    inside(shadow, lambda: os.mkdir(".env"))
    assert inside(shadow, lambda: os.listdir(".env")) == []
    assert [bool(change.refused) for change in changes(shadow)] == [True]
    assert b"SECRET" not in patch(shadow, changes(shadow)).data
