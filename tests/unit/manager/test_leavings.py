"""A tree that nothing has happened to since a command began is told from one that has to be looked through."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.manager.leftovers import _FEW_ENTRIES, _is_untouched, begin_ns


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_text("x")
    (tmp_path / "link").symlink_to("below")
    return tmp_path


def begun() -> int:
    """The begin of a command, some ticks of the kernel's clock after what was there before."""
    time.sleep(0.03)
    return begin_ns()


def test_a_tree_that_nothing_happened_to_is_untouched(tree: Path) -> None:
    assert _is_untouched(tree, begun())


@pytest.mark.parametrize(
    "change",
    [
        lambda tree: (tree / "below" / "new").write_text(""),
        lambda tree: (tree / "below" / "file").write_text("y"),
        lambda tree: (tree / "below" / "file").chmod(0o755),
        lambda tree: (tree / "below").rename(tree / "moved"),
        lambda tree: (tree / "link").rename(tree / "below" / "link"),
        lambda tree: os.utime(tree / "below" / "file", (1, 1)),
    ],
    ids=["made", "written", "mode", "directory moved", "moved", "times set back"],
)
def test_a_tree_in_which_anything_changed_is_not(tree: Path, change: Callable[[Path], object]) -> None:
    begin = begun()

    change(tree)

    assert not _is_untouched(tree, begin)


def test_what_is_large_closed_or_gone_has_to_be_looked_through(tree: Path) -> None:
    assert not _is_untouched(tree / "nowhere", begun())
    for number in range(_FEW_ENTRIES):
        (tree / f"{number}").touch()
    assert not _is_untouched(tree, begun())
