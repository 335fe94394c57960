"""A commit that is killed at any moment is finished or undone by the next recovery, never a mixture; it says which."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from ringfence.values.change import RecoveryKind
from ringfence.workspace.commit import commit
from ringfence.workspace.diff import changes
from ringfence.workspace.recover import recover
from ringfence.workspace.shadow import STATE_FILE, Shadow, ShadowStore
from tests.support.shadows import Look, a_place, as_user, inside, look
from tests.support.users import me, ordinary

pytestmark = pytest.mark.req("D7")

FILES = 1000
KILLS = 100


def make_project(top: Path) -> None:
    for number in range(FILES):
        path = top / f"d{number % 20}/f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"old %d\n" % number)


def change_everything() -> Look:
    """A thousand files: most are written, some go, some come, one directory becomes a file and one the other way."""
    for number in range(FILES):
        path = Path(f"d{number % 20}/f{number}")
        if number % 10 == 3:
            path.unlink()
        elif number % 10 == 4:
            path.rename(path.with_name(f"moved{number}"))
        elif number % 10 == 5:
            path.chmod(0o600)
        else:
            path.write_bytes(b"new %d\n" % number)
    for path in Path("d19").iterdir():
        path.unlink()
    Path("d19").rmdir()
    Path("d19").write_bytes(b"a file now")
    Path("made/deep").mkdir(parents=True)
    Path("made/deep/file").write_bytes(b"x")
    return look()


def killed_commit(shadow: Shadow, after_seconds: float) -> bool:
    """Commit in a child that is killed; whether it was still alive then."""
    child = os.fork()
    if child == 0:
        try:
            commit(shadow)
        finally:
            os._exit(0)
    time.sleep(after_seconds)
    ended, _ = os.waitpid(child, os.WNOHANG)
    if ended:
        return False
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def never_changed_by_the_host(shadow: Shadow) -> None:
    """The project is put back for each kill, which must not look like a change: the shadow is born in the future."""
    state = shadow.directory / STATE_FILE
    state.write_text(state.read_text().replace(f'"born_ns":{shadow.born_ns}', f'"born_ns":{2**62}'))


def copy_tree(source: Path, target: Path) -> None:
    """Into a directory that is there and empty; `cp` keeps whiteouts and attributes."""
    assert os.spawnlp(os.P_WAIT, "cp", "cp", "-a", f"{source}/.", str(target)) == 0


@pytest.mark.parametrize("user", dict.fromkeys([ordinary(), me()]), ids=lambda user: f"uid{user.uid}")
def test_a_commit_of_a_thousand_files_killed_anywhere_is_old_or_new_afterwards(user: object) -> None:
    kills = KILLS // 2  # for each of two users

    def scenario() -> dict[str, int]:
        dice = random.Random(os.getpid())
        project = place / "project"
        make_project(project)
        store = ShadowStore(place / "store")
        shadow = store.new(project)
        new = inside(shadow, change_everything)
        old = look(project)
        never_changed_by_the_host(shadow)
        shadow = store.open(shadow.id)
        (shadow.work / "work").chmod(0o700)  # overlayfs closes it, and `cp` could not enter
        for name in ("project", "store"):
            (place / f"kept {name}").mkdir()
            copy_tree(place / name, place / f"kept {name}")
        begin = time.perf_counter()
        assert commit(shadow).is_done
        whole_seconds = time.perf_counter() - begin
        assert look(project) == new
        said = {"finished": 0, "undone": 0, "not killed": 0}
        for _ in range(kills):
            for name in ("project", "store"):
                assert os.spawnlp(os.P_WAIT, "find", "find", str(place / name), "-mindepth", "1", "-delete") == 0
                copy_tree(place / f"kept {name}", place / name)
            if not killed_commit(shadow, dice.random() * whole_seconds * 1.2):
                said["not killed"] += 1
            recovered = recover(store)
            now = look(project)
            assert now in (old, new), "a mixture"
            if recovered:
                (one,) = recovered
                assert now == (new if one.kind is RecoveryKind.FINISHED else old)
                assert one.left == ()
                said[one.kind.value] += 1
            assert recover(store) == ()
            assert changes(shadow) == () if now == new else len(changes(shadow)) > FILES / 2
        return said

    with a_place(user) as place:
        said = as_user(user, scenario)
    assert said["finished"] and said["undone"], said
