"""A commit that is killed at any moment is finished or undone by the next recovery, never a mixture; it says which."""

from __future__ import annotations

import os
import random
import signal
import stat
import time
from collections import Counter
from pathlib import Path

import pytest

from ringfence.values.change import RecoveryKind
from ringfence.workspace.commit import commit
from ringfence.workspace.diff import changes
from ringfence.workspace.recover import recover
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.shadow_store import ShadowStore
from tests.support.shadows import Look, a_place, as_user, look
from tests.support.users import User, me, ordinary

pytestmark = pytest.mark.req("D7")

FILES = 1000
KILLS = 50
"""For each of two users."""


def path_of(number: int) -> str:
    return f"d{number % 20}/f{number}"


def make_project(top: Path) -> None:
    for number in range(FILES):
        (top / path_of(number)).parent.mkdir(parents=True, exist_ok=True)
        (top / path_of(number)).write_bytes(b"at first\n")
    (top / "swapped").write_bytes(b"a file")


def work_in(shadow: Shadow, number: int) -> Look:
    """Leave a thousand changes in `upper` as overlayfs would, other ones each time; returns what a box would see."""
    seen = look(shadow.lower)
    for name in os.listdir(shadow.upper):
        place = shadow.upper / name
        remove_tree(place) if place.is_dir() else place.unlink()
    for directory in range(20):
        (shadow.upper / f"d{directory}").mkdir()
    for file in range(FILES):
        path = path_of(file)
        place = shadow.upper / path
        if file % 10 == 3 and number % 2:
            os.mknod(place, stat.S_IFCHR)
            seen.pop(path, None)
        else:
            mode = 0o600 if file % 10 == 5 and number % 2 else 0o644
            content = b"same\n" if file % 10 == 5 else b"version %d\n" % number
            place.write_bytes(content)
            place.chmod(mode)
            seen[path] = ("file", mode, content)
    swap(shadow, seen, is_directory=bool(number % 2))
    return seen


def swap(shadow: Shadow, seen: Look, *, is_directory: bool) -> None:
    """A file becomes a directory, and back."""
    for path in [path for path in seen if path.startswith("swapped")]:
        del seen[path]
    place = shadow.upper / "swapped"
    if is_directory:
        (place / "deep").mkdir(parents=True)
        (place / "deep/file").write_bytes(b"x")
        seen |= {"swapped": ("directory", 0o755, b""), "swapped/deep": ("directory", 0o755, b"")}
        seen["swapped/deep/file"] = ("file", 0o644, b"x")
    else:
        place.write_bytes(b"a file")
        seen["swapped"] = ("file", 0o644, b"a file")


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


def kill_many(place: Path) -> Counter[str]:
    os.umask(0o022)
    dice = random.Random(os.getpid())
    project = place / "project"
    make_project(project)
    store = ShadowStore(place / "store")
    shadow = store.new(project)
    new = work_in(shadow, 0)
    begin = time.perf_counter()
    assert commit(shadow).is_done and look(project) == new
    whole_seconds = time.perf_counter() - begin
    said: Counter[str] = Counter()
    version, old = 1, new
    new = work_in(shadow, version)
    for _ in range(4 * KILLS):
        if said["killed"] >= KILLS and said["finished"] and said["undone"]:
            break
        is_killed = killed_commit(shadow, dice.random() * whole_seconds)
        said["killed"] += is_killed
        # Over before it was killed: the machine is quicker than it was, so aim a little earlier; else a little later.
        whole_seconds *= 1.02 if is_killed else 0.9
        recovered = recover(store)
        now = look(project)
        assert now in (old, new), "a mixture"
        for one in recovered:
            assert one.left == () and len(one.paths) > FILES / 2
            assert now == (new if one.kind is RecoveryKind.FINISHED else old), one.kind
            said[one.kind.value] += 1
        assert recover(store) == ()
        if now == new:
            assert changes(shadow) == ()
            version, old = version + 1, new
            new = work_in(shadow, version)
    return said


@pytest.mark.timeout(600)
@pytest.mark.parametrize("user", dict.fromkeys([ordinary(), me()]), ids=lambda user: f"uid{user.uid}")
def test_a_commit_of_a_thousand_files_killed_anywhere_is_old_or_new_afterwards(user: User) -> None:
    with a_place(user) as place:
        said = as_user(user, lambda: kill_many(place))

    assert said["finished"] and said["undone"] and said["killed"] >= KILLS, said
