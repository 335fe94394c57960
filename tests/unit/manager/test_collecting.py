"""Files that a run made: which they are, and that no workspace misleads, holds up or overruns whoever looks."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ringfence.manager import collecting
from ringfence.manager.collecting import collect, is_untouched, now_ns
from ringfence.values.outcome import OutputFile


def tick() -> None:
    """Wait until file times that are taken now differ from those before; the coarse clock may be a tick behind them."""
    for _ in range(3):
        before = now_ns()
        while now_ns() == before:
            time.sleep(0.001)


def names(found: tuple[OutputFile, ...]) -> list[str]:
    return [file.path for file in found]


def test_what_was_there_before_is_not_listed_and_what_changed_is(tmp_path: Path) -> None:
    for name in ("old", "changed", "replaced"):
        (tmp_path / name).write_text("before")
    tick()
    begin = now_ns()
    (tmp_path / "changed").write_text("after")
    (tmp_path / "new").write_bytes(b"\x00\xff")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").write_text("")
    os.rename(tmp_path / "new", tmp_path / "replaced")

    found = collect(tmp_path, begin, {})

    assert {file.path: (file.size_bytes, file.data) for file in found} == {
        "changed": (5, b"after"),
        "replaced": (2, b"\x00\xff"),
        "deep/er/file": (0, b""),
    }


def test_what_we_wrote_ourselves_is_listed_only_if_it_was_changed_again(tmp_path: Path) -> None:
    begin = now_ns()
    for name in ("kept", "changed"):
        (tmp_path / name).write_text("ours")
    skip = {name: os.lstat(tmp_path / name).st_ctime_ns for name in ("kept", "changed")}
    tick()
    (tmp_path / "changed").write_text("theirs")

    assert names(collect(tmp_path, begin, skip)) == ["changed"]


def test_a_time_that_was_set_back_does_not_hide_a_file(tmp_path: Path) -> None:
    tick()
    begin = now_ns()
    (tmp_path / "file").write_text("x")
    os.utime(tmp_path / "file", (0, 0))
    os.utime(tmp_path, (0, 0))

    assert names(collect(tmp_path, begin, {})) == ["file"]
    assert not is_untouched(tmp_path, begin)


def test_a_directory_in_which_nothing_was_made_is_untouched(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    tick()
    begin = now_ns()
    assert is_untouched(tmp_path, begin)
    (tmp_path / "new").touch()
    assert not is_untouched(tmp_path, begin)


def test_nothing_is_followed_and_only_plain_files_are_read(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    work = tmp_path / "work"
    work.mkdir()
    (work / "to file").symlink_to(outside / "secret")
    (work / "to directory").symlink_to(outside)
    (work / "loop").symlink_to("loop")
    os.mkfifo(work / "pipe")

    assert collect(work, 0, {}) == ()


def test_contents_are_read_as_far_as_there_is_room_and_the_rest_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "_BYTES_MAX", 10)
    for name, size in (("a", 4), ("b", 7), ("c", 6), ("d", 1)):
        (tmp_path / name).write_bytes(b"x" * size)

    found = {file.path: (file.size_bytes, file.data is not None) for file in collect(tmp_path, 0, {})}

    assert found == {"a": (4, True), "b": (7, False), "c": (6, True), "d": (1, False)}


def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_FILES_MAX", 5)
    for n in range(20):
        (tmp_path / f"{n:02}").touch()

    assert names(collect(tmp_path, 0, {})) == ["00", "01", "02", "03", "04"]


def test_a_sparse_file_of_any_size_costs_nothing(tmp_path: Path) -> None:
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(1 << 40)

    assert collect(tmp_path, 0, {}) == (OutputFile("huge", 1 << 40, None),)


def test_what_may_not_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut" / "file").write_text("x")
    (tmp_path / "open").write_text("x")
    (tmp_path / "shut").chmod(0)
    try:
        found = names(collect(tmp_path, 0, {}))
    finally:
        (tmp_path / "shut").chmod(0o700)

    assert found == (["open", "shut/file"] if os.geteuid() == 0 else ["open"])
    assert collect(tmp_path / "gone", 0, {}) == ()


def test_no_depth_and_no_name_is_too_much(tmp_path: Path) -> None:
    (tmp_path / "top").touch()
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).touch()
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d" * 10, dir_fd=here)
        below = os.open("d" * 10, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    before = len(os.listdir("/proc/self/fd"))

    found = names(collect(tmp_path, 0, {}))

    assert found[:2] == ["top", "\udcff"]
    assert len(os.listdir("/proc/self/fd")) == before
    from ringfence.manager.scratch import remove_tree

    remove_tree(tmp_path / ("d" * 10))
