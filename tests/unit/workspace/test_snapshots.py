"""Snapshots: what is saved comes back, what did not change is not read again, and damage is found."""

import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.errors import (
    AlreadyExists,
    Damaged,
    InvalidArgument,
    NotADirectory,
    NotFound,
    PathAccessDenied,
    PermissionDenied,
)
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.snapshots import manifest, saving
from ringfence.workspace.snapshots.comparing import Difference, DifferenceKind
from ringfence.workspace.snapshots.objects import Objects
from ringfence.workspace.snapshots.store import SnapshotStore
from ringfence.workspace.snapshots.tree import DirectoryNode

pytestmark = pytest.mark.req("X5")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree/sub/empty").mkdir(parents=True)
    (tmp_path / "tree/sub/empty").chmod(0o755)  # whatever the umask is
    (tmp_path / "tree/a.txt").write_bytes(b"a")
    (tmp_path / "tree/sub/run").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "tree/sub/run").chmod(0o751)
    (tmp_path / "tree/sub/link").symlink_to("../a.txt")
    (tmp_path / "tree/out").symlink_to("/etc/passwd")
    (tmp_path / "tree/zero").touch()
    return tmp_path / "tree"


@pytest.fixture
def store(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "store", durable=False)


def seen(top: Path) -> dict[str, object]:
    """Everything that a snapshot promises to keep."""
    found: dict[str, object] = {".": stat.S_IMODE(top.stat().st_mode)}
    for file in sorted(top.rglob("*")):
        status = file.lstat()
        name = str(file.relative_to(top))
        if file.is_symlink():
            found[name] = ("link", os.readlink(file))
        elif file.is_dir():
            found[name] = ("directory", stat.S_IMODE(status.st_mode))
        elif stat.S_ISREG(status.st_mode):
            found[name] = ("file", stat.S_IMODE(status.st_mode), status.st_mtime_ns, file.read_bytes())
        else:
            found[name] = ("special", stat.S_IFMT(status.st_mode), status.st_rdev)
    return found


def objects_in(store_directory: Path) -> set[str]:
    return {file.parent.name + file.name for file in (store_directory / "objects").glob("*/*")}


def wait_for_the_grain() -> None:
    """Files are remembered once they have been left alone for a moment."""
    time.sleep(0.12)


# --- saving and putting back ------------------------------------------------------------------------------------------


def test_a_fork_is_equal_and_a_restore_makes_equal_again(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    before = seen(tree)
    saved = store.save(tree, "one")
    store.fork("one", tmp_path / "fork")
    (tree / "a.txt").write_bytes(b"changed")
    (tree / "sub/new/deep").mkdir(parents=True)
    (tree / "sub/run").unlink()
    (tree / "sub/run").mkdir()
    (tree / "sub/empty").rmdir()
    (tree / "zero").chmod(0o600)
    assert store.restore("one", tree) is None

    assert (saved.files, saved.total_bytes, saved.left_out) == (3, 11, ())
    assert seen(tmp_path / "fork") == seen(tree) == before
    assert sorted(os.listdir(tmp_path)) == ["fork", "store", "tree"]


def test_in_place_the_directory_stays_and_what_did_not_change_is_not_written(tree: Path, store: SnapshotStore) -> None:
    wait_for_the_grain()
    before = seen(tree)
    store.save(tree, "one")
    inodes = {name: (tree / name).stat().st_ino for name in (".", "sub", "sub/run", "a.txt")}
    (tree / "a.txt").write_bytes(b"changed")
    (tree / "sub/more/deep").mkdir(parents=True)
    (tree / "sub/more/deep/f").write_bytes(b"x")
    (tree / "zero").unlink()
    (tree / "zero").symlink_to("a.txt")
    (tree / "out").unlink()
    (tree / "out").symlink_to("elsewhere")
    store.restore("one", tree, in_place=True)

    assert seen(tree) == before
    after = {name: (tree / name).stat().st_ino for name in inodes}
    assert {name for name in inodes if after[name] != inodes[name]} == {"a.txt"}


def test_restoring_makes_a_directory_that_is_not_there(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    store.save(tree, "one")
    store.restore("one", tmp_path / "new")
    assert seen(tmp_path / "new") == seen(tree)


def test_set_uid_is_not_given_back(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    (tree / "a.txt").chmod(0o6755)
    (tree / "sub").chmod(0o3775)
    store.save(tree, "one")
    store.fork("one", tmp_path / "fork")
    store.restore("one", tree, in_place=True)

    for top in (tmp_path / "fork", tree):
        assert stat.S_IMODE((top / "a.txt").stat().st_mode) == 0o755
        assert stat.S_IMODE((top / "sub").stat().st_mode) == 0o775


def test_holes_stay_holes_and_cost_nothing(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    with (tree / "sparse").open("wb") as file:
        file.seek(1 << 40)
        file.write(b"end")
        file.truncate(1 << 41)
    saved = store.save(tree, "one")
    store.fork("one", tmp_path / "fork")

    assert saved.new_bytes < 100_000
    copy = (tmp_path / "fork/sparse").stat()
    assert (copy.st_size, copy.st_blocks * 512 < 1_000_000) == (1 << 41, True)
    with (tmp_path / "fork/sparse").open("rb") as file:
        file.seek(1 << 40)
        assert file.read(4) == b"end\0"


def test_a_change_in_a_large_file_costs_a_piece_of_it(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    (tree / "large").write_bytes(os.urandom(5 * saving.PIECE_BYTES + 17))
    first = store.save(tree, "one")
    with (tree / "large").open("r+b") as file:
        file.seek(2 * saving.PIECE_BYTES + 5)
        file.write(b"changed")
    second = store.save(tree, "two")
    store.fork("two", tmp_path / "fork")

    assert first.new_bytes > 5 * saving.PIECE_BYTES
    assert saving.PIECE_BYTES <= second.new_bytes < saving.PIECE_BYTES + 10_000
    assert (tmp_path / "fork/large").read_bytes() == (tree / "large").read_bytes()


def test_special_files_are_left_out_and_named(
    tree: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tree / "sub/fifo")
    monkeypatch.chdir(tree)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("sock")
        os.mknod(tree / "gone", stat.S_IFCHR, 0)
        saved = store.save(tree, "one")

    left = {item.path: item.why for item in saved.left_out}
    assert left == {"sub/fifo": "is a fifo", "sock": "is a socket", "gone": "is a device"}
    assert store.get("one") == saved


def test_the_upper_directory_of_an_overlay_can_be_put_back(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    os.mknod(tree / "gone", stat.S_IFCHR, 0)
    os.setxattr(tree / "sub", "user.overlay.opaque", b"y")
    os.setxattr(tree / "a.txt", "user.overlay.origin", b"")
    os.setxattr(tree / "a.txt", "user.other", b"x")
    store.save(tree, "one", overlay=True)
    (tree / "gone").unlink()
    os.removexattr(tree / "sub", "user.overlay.opaque")
    os.setxattr(tree / "sub/empty", "user.overlay.opaque", b"y")
    store.fork("one", tmp_path / "fork")
    store.restore("one", tree, in_place=True)

    for top in (tmp_path / "fork", tree):
        status = (top / "gone").lstat()
        assert (stat.S_ISCHR(status.st_mode), status.st_rdev) == (True, 0)
        assert os.getxattr(top / "sub", "user.overlay.opaque") == b"y"
        assert os.getxattr(top / "a.txt", "user.overlay.origin") == b""
        assert os.listxattr(top / "a.txt") == ["user.overlay.origin"]
        assert os.listxattr(top / "sub/empty") == []


@pytest.mark.root
def test_what_root_restores_belongs_to_the_owner_of_the_directory(
    tree: Path, store: SnapshotStore, tmp_path: Path
) -> None:
    store.save(tree, "one")
    os.chown(tree, 61234, 61235)
    store.restore("one", tree)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 61236, 61237)
    store.fork("one", tmp_path / "theirs/fork")

    for top, owner in ((tree, (61234, 61235)), (tmp_path / "theirs/fork", (61236, 61237))):
        owners = {(file.lstat().st_uid, file.lstat().st_gid) for file in (top, *top.rglob("*"))}
        assert owners == {owner}


def test_directories_that_nobody_may_write_come_back(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    (tree / "sub").chmod(0o555)
    before = seen(tree)
    store.save(tree, "one")
    store.restore("one", tree)
    store.restore("one", tree, in_place=True)
    assert seen(tree) == before
    (tree / "sub").chmod(0o755)


def test_what_cannot_be_read_is_named(tree: Path, store: SnapshotStore) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    (tree / "a.txt").chmod(0)
    (tree / "sub").chmod(0)
    try:
        saved = store.save(tree, "one")
    finally:
        (tree / "sub").chmod(0o755)
    assert {item.path for item in saved.left_out} == {"a.txt", "sub"}


# --- hostile trees ----------------------------------------------------------------------------------------------------


def test_deep_trees_and_odd_names_come_back(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"\x1b[2J", b"-rf", b" ", b"x" * 255):
        Path(os.fsdecode(os.path.join(os.fsencode(tree), name))).write_bytes(name)
    deep = os.open(tree, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=deep)
        child = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = child
    os.mkdir("bottom", dir_fd=deep)
    os.close(deep)
    store.save(tree, "one")
    store.fork("one", tmp_path / "fork")
    store.save(tmp_path / "fork", "two")

    assert store.diff("one", "two") == ()
    assert sorted(os.listdir(os.fsencode(tmp_path / "fork"))) == sorted(os.listdir(os.fsencode(tree)))
    remove_tree(tree)
    remove_tree(tmp_path / "fork")


def test_what_lies_deeper_than_any_path_is_named(tree: Path, store: SnapshotStore) -> None:
    deep = os.open(tree, os.O_RDONLY)
    for _ in range(2100):
        os.mkdir("d", dir_fd=deep)
        child = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = child
    os.close(deep)
    saved = store.save(tree, "one")
    assert [item.why for item in saved.left_out] == ["is nested deeper than 2048 directories"]
    remove_tree(tree)


def test_a_file_that_keeps_changing_is_left_out_and_named(
    tree: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Objects.put
    calls: list[int] = []

    def put_and_append(objects: Objects, data: bytes) -> str:
        if data.startswith(b"log"):
            calls.append(len(data))
            with (tree / "log").open("ab") as file:
                file.write(b".")
        return real(objects, data)

    (tree / "log").write_bytes(b"log")
    monkeypatch.setattr(Objects, "put", put_and_append)
    saved = store.save(tree, "one")

    assert [(item.path, item.why) for item in saved.left_out] == [("log", "kept changing while it was read")]
    assert calls == [3, 4, 5]


def test_a_file_that_changes_once_is_read_again(
    tree: Path, store: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Objects.put

    def put_and_change(objects: Objects, data: bytes) -> str:
        if data == b"old":
            (tree / "f").write_bytes(b"new")
        return real(objects, data)

    (tree / "f").write_bytes(b"old")
    monkeypatch.setattr(Objects, "put", put_and_change)
    assert store.save(tree, "one").left_out == ()
    store.fork("one", tmp_path / "fork")
    assert (tmp_path / "fork/f").read_bytes() == b"new"


def test_a_tree_of_too_many_entries_is_refused(tree: Path, store: SnapshotStore) -> None:
    with pytest.raises(PathAccessDenied, match="raise limit_entries"):
        store.save(tree, "one", limit_entries=3)
    assert store.list() == ()


def test_a_restore_in_place_cannot_be_led_out_by_links(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside").chmod(0o711)
    (tmp_path / "outside/kept").write_bytes(b"kept")
    store.save(tree, "one")
    (tree / "sub/run").unlink()
    (tree / "sub/run").symlink_to(tmp_path / "outside/kept")
    (tree / "sub/empty").rmdir()
    (tree / "sub/empty").symlink_to(tmp_path / "outside")
    (tree / "more").mkdir()
    (tree / "more/link").symlink_to(tmp_path / "outside")
    store.restore("one", tree, in_place=True)

    assert (tmp_path / "outside/kept").read_bytes() == b"kept"
    assert stat.S_IMODE((tmp_path / "outside").stat().st_mode) == 0o711
    assert (tree / "sub/empty").is_dir() and not (tree / "sub/empty").is_symlink()


# --- cost -------------------------------------------------------------------------------------------------------------


def test_what_did_not_change_is_not_read_again(
    tree: Path, store: SnapshotStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_the_grain()
    store.save(tree, "one")
    (tree / "zero").write_bytes(b"now something")
    opened: list[object] = []
    real = os.pread

    def pread(descriptor: int, length: int, offset: int) -> bytes:
        opened.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        return real(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    second = store.save(tree, "two")
    assert opened == ["zero"]
    assert second.new_bytes < 2000
    assert store.diff("one", "two") == (Difference("zero", DifferenceKind.CONTENT),)


def test_a_file_that_was_just_written_is_not_believed_to_be_the_same(tree: Path, store: SnapshotStore) -> None:
    """Two writes within one tick of the clock, same size: the times do not tell them apart."""
    (tree / "f").write_bytes(b"one")
    store.save(tree, "one")
    status = (tree / "f").stat()
    descriptor = os.open(tree / "f", os.O_WRONLY)
    os.write(descriptor, b"two")
    os.close(descriptor)
    os.utime(tree / "f", ns=(status.st_mtime_ns, status.st_mtime_ns))
    store.save(tree, "two")
    assert store.diff("one", "two") == (Difference("f", DifferenceKind.CONTENT),)


def test_what_is_the_same_is_kept_once(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    for number in range(20):
        (tree / f"copy{number}").write_bytes(b"the same content" * 100)
    first = store.save(tree, "one")
    again = store.save(tree, "two")

    assert first.new_bytes < 5000
    assert again.new_bytes == 0
    assert store.get("two").root == store.get("one").root


def test_what_was_remembered_is_looked_for_after_objects_were_removed(
    tree: Path, store: SnapshotStore, tmp_path: Path
) -> None:
    wait_for_the_grain()
    store.save(tree, "one")
    store.delete("one")
    assert objects_in(tmp_path / "store") == set()
    store.save(tree, "two")
    assert store.verify() == {}
    store.fork("two", tmp_path / "fork")
    assert seen(tmp_path / "fork") == seen(tree)


def test_progress_is_told(tree: Path, store: SnapshotStore) -> None:
    for number in range(600):
        (tree / f"n{number}").write_bytes(b"%d" % number)
    told: list[tuple[int, int]] = []
    store.save(tree, "one", progress=lambda files, new: told.append((files, new)))
    assert [files for files, _ in told] == [256, 512, 603]
    assert told[0][1] < told[1][1] <= told[2][1]


# --- looking ----------------------------------------------------------------------------------------------------------


def test_a_diff_says_what_became_of_each_path(tree: Path, store: SnapshotStore) -> None:
    store.save(tree, "one")
    (tree / "a.txt").write_bytes(b"other")
    (tree / "zero").unlink()
    (tree / "sub/run").chmod(0o700)
    (tree / "sub/link").unlink()
    (tree / "sub/link").symlink_to("elsewhere")
    (tree / "out").unlink()
    (tree / "out").mkdir()
    (tree / "out/inner").touch()
    (tree / "sub/empty").chmod(0o700)
    os.utime(tree / "sub/run", (1, 1))
    store.save(tree, "two", parent="one")

    assert [(change.path, str(change.kind)) for change in store.diff("one", "two")] == [
        ("a.txt", "content"),
        ("out", "kind"),
        ("out/inner", "added"),
        ("sub/empty", "mode"),
        ("sub/link", "content"),
        ("sub/run", "mode"),
        ("zero", "removed"),
    ]
    assert [one.parent for one in store.list()] == [None, "one"]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".json", "x" * 200, "a\n"])
def test_a_name_that_is_no_plain_one_is_refused_by_every_method(tree: Path, store: SnapshotStore, name: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.save(tree, name),
        lambda: store.restore(name, tree),
        lambda: store.delete(name),
        lambda: store.get(name),
        lambda: store.diff(name, name),
        lambda: store.verify(name),
    ]
    for call in calls:
        with pytest.raises(InvalidArgument, match="name of a snapshot"):
            call()


def test_mistakes_are_told_from_faults(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    store.save(tree, "one")
    with pytest.raises(AlreadyExists, match="already"):
        store.save(tree, "one")
    with pytest.raises(NotFound, match=r"no snapshot 'two' \(there are: one\)"):
        store.restore("two", tree)
    with pytest.raises(NotFound, match="no snapshot"):
        store.save(tree, "two", parent="zero")
    with pytest.raises((NotFound, NotADirectory), match="not a directory"):
        store.save(tree / "a.txt", "two")
    with pytest.raises(AlreadyExists, match="already"):
        store.fork("one", tree)
    with pytest.raises(NotFound, match="no such directory"):
        store.restore("one", tmp_path / "no/where")
    (tmp_path / "file").touch()
    with pytest.raises((NotFound, NotADirectory), match="not a directory"):
        store.restore("one", tmp_path / "file")
    with pytest.raises(PermissionDenied):
        SnapshotStore(tmp_path / "file")
    with pytest.raises(InvalidArgument, match="store itself"):
        store.save(tmp_path, "two")
    assert sorted(os.listdir(tmp_path)) == ["file", "store", "tree"]


def test_only_the_owner_can_look_into_the_store(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    store.save(tree, "one")
    for file in (tmp_path / "store", *(tmp_path / "store").rglob("*")):
        assert file.stat().st_mode & 0o077 == 0, file


# --- damage -----------------------------------------------------------------------------------------------------------


def damage(file: Path, how: str) -> None:
    if how == "gone":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    else:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)


@pytest.mark.parametrize("how", ["gone", "empty", "flipped"])
def test_damage_is_found_and_nothing_is_restored_from_it(
    tree: Path, store: SnapshotStore, tmp_path: Path, how: str
) -> None:
    before = seen(tree)
    store.save(tree, "one")
    objects = sorted((tmp_path / "store/objects").glob("*/*"))
    kept = {file: file.read_bytes() for file in objects}
    for file in (file for file in objects if kept[file]):
        damage(file, how)
        assert set(store.verify()) == {"one"}
        for call in (lambda: store.restore("one", tree), lambda: store.fork("one", tmp_path / "fork")):
            with pytest.raises(Damaged, match="damaged"):
                call()
        assert seen(tree) == before
        file.write_bytes(kept[file])
    assert store.verify() == {}
    assert sorted(os.listdir(tmp_path)) == ["store", "tree"]


@pytest.mark.parametrize("how", ["empty", "flipped"])
def test_a_damaged_manifest_is_named_and_stops_the_removal_of_objects(
    tree: Path, store: SnapshotStore, tmp_path: Path, how: str
) -> None:
    store.save(tree, "one")
    (tree / "a.txt").write_bytes(b"two")
    store.save(tree, "two")
    before = objects_in(tmp_path / "store")
    damage(tmp_path / "store/snapshots/one.json", how)

    assert set(store.verify()) == {"one"}
    with pytest.raises(Damaged):
        store.delete("two")
    assert objects_in(tmp_path / "store") == before
    store.delete("one")
    assert store.list() == () and objects_in(tmp_path / "store") == set()


def test_a_damaged_cache_is_as_good_as_none(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    wait_for_the_grain()
    store.save(tree, "one")
    for content in (b"", b"{", b'{"generation": 0, "files": {"a.txt": [1]}}', b"[]", b"\xff"):
        for file in (tmp_path / "store/cache").iterdir():
            file.write_bytes(content)
        assert store.save(tree, f"s{content.hex()[:9]}").root == store.get("one").root


def test_a_tree_whose_names_lead_out_is_never_restored(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    """Whoever can write to the store can do worse; a fault in it must not."""
    store.save(tree, "one")
    for name in ("../evil", "..", ".", "a/b", "", "x\\u0000y"):
        objects = Objects(tmp_path / "store")
        digest = objects.put(f'[["{name}","l","x"]]'.encode())
        forged = manifest.Snapshot("bad", None, 0.0, 0, 0, 0, (), 0, False, DirectoryNode(0o755, digest))
        (tmp_path / "store/snapshots/bad.json").write_bytes(manifest.encode(forged))
        with pytest.raises(Damaged, match="damaged"):
            store.fork("bad", tmp_path / "fork")
    assert sorted(os.listdir(tmp_path)) == ["store", "tree"]


# --- garbage ----------------------------------------------------------------------------------------------------------


def test_a_removal_takes_what_no_other_snapshot_needs(tree: Path, store: SnapshotStore, tmp_path: Path) -> None:
    store.save(tree, "one")
    needed = objects_in(tmp_path / "store")
    (tree / "big").write_bytes(b"x" * 100_000)
    store.save(tree, "two")
    (tmp_path / "store/tmp/1-left").write_bytes(b"by a killed process")
    freed = store.delete("two")

    assert freed.objects == 2 and freed.total_bytes > 100_000
    assert objects_in(tmp_path / "store") == needed
    assert os.listdir(tmp_path / "store/tmp") == []
    assert store.collect_garbage().objects == 0
    with pytest.raises(NotFound, match="no snapshot"):
        store.delete("two")


def test_a_removal_waits_for_a_save_that_is_under_way(
    tree: Path, store: SnapshotStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects that a save has put are not named by anything yet: a removal in between would take them."""
    store.save(tree, "old")
    (tree / "new").write_bytes(b"new content")
    written, go_on = threading.Event(), threading.Event()
    real = Objects.put

    def put_and_wait(objects: Objects, data: bytes) -> str:
        digest = real(objects, data)
        if data == b"new content":
            written.set()
            assert go_on.wait(10)
        return digest

    monkeypatch.setattr(Objects, "put", put_and_wait)
    saving_thread = threading.Thread(target=lambda: store.save(tree, "new"))
    removing_thread = threading.Thread(target=lambda: store.delete("old"))
    saving_thread.start()
    assert written.wait(10)
    removing_thread.start()
    removing_thread.join(0.3)
    assert removing_thread.is_alive()
    go_on.set()
    saving_thread.join()
    removing_thread.join()

    assert [one.name for one in store.list()] == ["new"]
    assert store.verify() == {}


def test_many_who_save_and_remove_at_once_leave_a_whole_store(tree: Path, store: SnapshotStore) -> None:
    faults: list[BaseException] = []

    def work(who: int) -> None:
        try:
            for number in range(6):
                store.save(tree, f"w{who}-{number}")
                if number % 2:
                    store.delete(f"w{who}-{number - 1}")
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert len(store.list()) == 12 and store.verify() == {}


# --- anything ---------------------------------------------------------------------------------------------------------

NAMES = (
    st.binary(min_size=1, max_size=12)
    .filter(lambda name: b"/" not in name and b"\0" not in name)
    .filter(lambda name: name not in (b".", b".."))
)
FILES = st.tuples(st.just("file"), st.binary(max_size=200), st.sampled_from([0o644, 0o755, 0o600, 0o400]))
HOLES = st.tuples(st.just("hole"), st.binary(max_size=20), st.integers(0, 100_000))
LINKS = st.tuples(st.just("link"), st.binary(min_size=1, max_size=20).filter(lambda to: b"\0" not in to), st.just(0))
LEAVES = st.one_of(FILES, HOLES, LINKS)
TREES = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=4),
    lambda inner: st.dictionaries(NAMES, st.one_of(LEAVES, inner), max_size=4),
    max_leaves=12,
)


def build(top: bytes, tree: dict[bytes, object]) -> None:
    os.mkdir(top)
    for name, what in tree.items():
        path = os.path.join(top, name)
        if isinstance(what, dict):
            build(path, what)
            continue
        assert isinstance(what, tuple)
        kind, data, number = what
        if kind == "link":
            os.symlink(data, path)
            continue
        with open(path, "wb") as file:
            if kind == "hole":
                file.seek(number)
            file.write(data)
            if kind == "hole":
                file.truncate(number * 2 + len(data))
        if kind == "file":
            os.chmod(path, number)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(one=TREES, two=TREES)
def test_whatever_is_saved_comes_back_equal(one: dict[bytes, object], two: dict[bytes, object]) -> None:
    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        build(os.fsencode(top / "one"), one)
        build(os.fsencode(top / "two"), two)
        store = SnapshotStore(top / "store", durable=False)
        store.save(top / "one", "one")
        store.save(top / "two", "two")
        store.fork("one", top / "fork")
        assert seen(top / "fork") == seen(top / "one")
        store.restore("two", top / "fork", in_place=True)
        assert seen(top / "fork") == seen(top / "two")
        store.restore("one", top / "fork")
        assert seen(top / "fork") == seen(top / "one")
        store.save(top / "fork", "again")
        assert store.diff("one", "again") == () and store.verify() == {}
        assert (store.diff("one", "two") == ()) == (
            {name: what[:2] + what[3:] if isinstance(what, tuple) else what for name, what in seen(top / "one").items()}
            == {
                name: what[:2] + what[3:] if isinstance(what, tuple) else what
                for name, what in seen(top / "two").items()
            }
        )
