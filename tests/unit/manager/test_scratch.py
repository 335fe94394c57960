"""Workspaces of our own making: private, gone when they are removed, whatever was made in them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ringfence.errors import PermissionDenied
from ringfence.manager import scratch
from ringfence.manager.scratch import Scratch, remove_tree, scratch_directory


def test_the_directory_is_the_one_that_is_named_or_below_home() -> None:
    assert scratch_directory({}, "/home/a") == Path("/home/a/.ringfence/workspaces")
    assert scratch_directory({"RINGFENCE_WORKSPACES_DIR": ""}, "/home/a") == Path("/home/a/.ringfence/workspaces")
    assert scratch_directory({"RINGFENCE_WORKSPACES_DIR": "/srv/w"}, "/home/a") == Path("/srv/w")


def test_a_workspace_is_new_empty_and_nobody_elses(tmp_path: Path) -> None:
    made = Scratch(tmp_path / "not" / "there yet")
    one, two = made.make(), made.make()

    assert one != two and os.listdir(one) == []
    for path in (one, one.parent, one.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    (two / "file").write_text("x")
    assert made.remove_empty(one) and not made.remove_empty(two)
    assert made.remove_empty(one), "gone is as good"
    made.remove(two)
    made.remove(two)
    assert os.listdir(one.parent) == []
    made.make()
    made.close()
    made.close()
    assert os.listdir(tmp_path / "not" / "there yet") == []


def test_where_nothing_can_be_made_the_error_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(PermissionDenied, match="RINGFENCE_WORKSPACES_DIR"):
        Scratch(tmp_path / "file" / "below")


# --- removing ---------------------------------------------------------------------------------------------------------


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    tree = tmp_path / "tree"
    (tree / "a").mkdir(parents=True)
    (tree / "to directory").symlink_to(kept)
    (tree / "a" / "up").symlink_to("../..")
    (tree / "loop").symlink_to("loop")
    (tree / "a" / "hard").hardlink_to(kept / "file")

    remove_tree(tree)

    assert os.listdir(tmp_path) == ["kept"] and (kept / "file").read_text() == "x"


def test_what_has_no_permissions_is_removed_too(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "b" / "file").write_text("x")
    for path in ("a/b/file", "a/b", "a"):
        (tree / path).chmod(0)

    remove_tree(tree)

    assert not tree.exists()


def test_no_depth_is_too_deep_and_no_name_too_odd(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    here = os.open(tree, os.O_RDONLY)
    for n in range(1100):  # deeper than Python recurses, and together longer than a path may be
        name = "d" * 10
        os.mkdir(name, dir_fd=here)
        if n % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        below = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    for name in (b"\xff\xfe", b"new\nline", b"-rf", b" "):
        os.mkdir(os.fsencode(tree) + b"/" + name)

    remove_tree(tree)

    assert not tree.exists()


def test_pipes_and_sockets_do_not_hold_it_up(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    os.mkfifo(tree / "pipe")
    (tree / "wide").mkdir()
    for n in range(300):
        (tree / "wide" / str(n)).touch()

    remove_tree(tree)

    assert not tree.exists()


def test_what_is_left_of_another_workspace_is_not_touched(tmp_path: Path) -> None:
    made = Scratch(tmp_path)
    one, two = made.make(), made.make()
    (two / "file").write_text("x")

    made.remove(one)

    assert (two / "file").exists()
    made.close()


# --- what others left -------------------------------------------------------------------------------------------------

LEAVE = """
import os, sys
from pathlib import Path
from ringfence.manager.scratch import Scratch
workspace = Scratch(Path(sys.argv[1])).make()
(workspace / "file").write_text("x")
print(workspace, flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    source = os.path.dirname(os.path.dirname(os.path.dirname(scratch.__file__)))
    line = [sys.executable, "-c", LEAVE, str(tmp_path)]
    env = {"PYTHONPATH": source}
    with subprocess.Popen(line, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().strip())
        Scratch(tmp_path).close()
        assert (theirs / "file").exists(), "it lives"
        other.communicate("\n", timeout=20)

    assert (theirs / "file").exists()
    Scratch(tmp_path).close()
    assert os.listdir(tmp_path) == []


def test_what_does_not_belong_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("x")
    (tmp_path / "link").symlink_to("/etc")

    Scratch(tmp_path).close()

    assert sorted(os.listdir(tmp_path)) == ["a file", "link"]


def test_many_who_begin_at_once_do_not_take_each_others_for_abandoned(tmp_path: Path) -> None:
    """A new directory is not locked yet when it appears."""

    def begin(_: int) -> Path:
        made = Scratch(tmp_path)
        try:
            return made.make()
        finally:
            made.close()

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(begin, range(150)))) == 150
    assert os.listdir(tmp_path) == []
