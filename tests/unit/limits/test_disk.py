"""Growth on disk: the wire is everybody's free space, the verdict only what the box itself wrote."""

import os
import time
from pathlib import Path

import pytest

from ringfence.limits import disk
from ringfence.limits.disk import DiskWatch
from ringfence.values.limits import Limit


class Free:
    """What the file system says is free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.space, self.inodes = 1 << 30, 1 << 20
        monkeypatch.setattr(disk, "free_space", lambda path: (self.space, self.inodes))


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Free:
    return Free(monkeypatch)


def _rooted(root: Path) -> tuple[str, int, int]:
    return (str(root), *disk.free_space(str(root)))


def watch(root: Path, *, disk_bytes: int = 1 << 20, files: int = 100) -> DiskWatch:
    return DiskWatch((_rooted(root),), disk_bytes=disk_bytes, files=files, started=time.time())


@pytest.mark.req("B6")
def test_growth_above_the_limit_is_noticed(tmp_path: Path, free: Free) -> None:
    looking = watch(tmp_path)
    (tmp_path / "big").write_bytes(os.urandom(2 << 20))
    free.space -= 2 << 20

    assert looking.exceeded() is Limit.DISK


def test_growth_below_the_limit_is_not(tmp_path: Path, free: Free) -> None:
    looking = watch(tmp_path)
    (tmp_path / "small").write_bytes(os.urandom(1 << 19))
    free.space -= 1 << 19

    assert looking.exceeded() is None


@pytest.mark.req("B6")
def test_too_many_files_are_noticed_also_in_directories_below(tmp_path: Path, free: Free) -> None:
    looking = watch(tmp_path, files=10)
    (tmp_path / "a" / "b").mkdir(parents=True)
    for number in range(10):
        (tmp_path / "a" / "b" / str(number)).touch()
    free.inodes -= 12

    assert looking.exceeded() is Limit.FILES


def test_what_others_write_elsewhere_is_not_held_against_the_box(tmp_path: Path, free: Free) -> None:
    looking = watch(tmp_path)
    free.space -= 500 << 20

    assert looking.exceeded() is None


def test_what_others_free_does_not_hide_what_the_box_takes(tmp_path: Path, free: Free) -> None:
    looking = watch(tmp_path)
    free.space += 500 << 20
    assert looking.exceeded() is None
    (tmp_path / "big").write_bytes(os.urandom(2 << 20))
    free.space -= 2 << 20

    assert looking.exceeded() is Limit.DISK


def test_files_from_before_the_command_do_not_count(tmp_path: Path, free: Free) -> None:
    (tmp_path / "old").write_bytes(os.urandom(2 << 20))
    looking = DiskWatch((_rooted(tmp_path),), disk_bytes=1 << 20, files=100, started=time.time() + 60)
    free.space -= 2 << 20

    assert looking.exceeded() is None


def test_the_walk_does_not_follow_links_out(tmp_path: Path, free: Free) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    (outside / "big").write_bytes(os.urandom(2 << 20))
    (inside / "link").symlink_to(outside)
    looking = watch(inside)
    free.space -= 2 << 20

    assert looking.exceeded() is None


def test_a_directory_that_vanishes_is_no_fault(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    looking = watch(gone)
    gone.rmdir()

    assert looking.exceeded() is None
    assert looking.room_bytes <= 1 << 20
