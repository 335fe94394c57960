"""The store: what is made, what is hidden, what a copy holds, and which states are not believed."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from pathlib import Path

import pytest

from ringfence.errors import Damaged, InitializationFailed, InvalidArgument, NotADirectory, PermissionDenied
from ringfence.policy.globs import PathRules
from ringfence.workspace import shadow_store as shadows
from ringfence.workspace.copying import Progress, copy_content, digest_of, read_manifest
from ringfence.workspace.mounted import file_system, why_not_lower, why_not_upper
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.scan import TreeOwner, scan, unmapped
from ringfence.workspace.shadow import STATE_FILE, Shadow, ShadowKind
from ringfence.workspace.shadow_store import ShadowStore
from ringfence.workspace.tree import Tree

pytestmark = pytest.mark.req("D7")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    top = tmp_path / "project"
    (top / "dir").mkdir(parents=True)
    (top / "dir/file").write_bytes(b"content")
    return top


@pytest.fixture
def store(tmp_path: Path) -> ShadowStore:
    return ShadowStore(tmp_path / "store")


# --- making -----------------------------------------------------------------------------------------------------------


def test_the_store_is_its_owners_alone(tmp_path: Path) -> None:
    assert stat.S_IMODE(ShadowStore(tmp_path / "a/b").directory.stat().st_mode) == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    with pytest.raises(PermissionDenied, match="open to others"):
        ShadowStore(tmp_path / "open")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PermissionDenied):
        ShadowStore(tmp_path / "file")


def test_a_shadow_is_found_again_as_it_was_made(store: ShadowStore, project: Path) -> None:
    made = [store.new(project, denied=("**/.env",), protected=(".git/hooks",), name=name) for name in ("one", "")]

    assert set(store.list()) == set(made) and store.broken() == ()
    assert store.open(made[0].id) == made[0]
    assert made[0].name == "one" and made[0].lower == project and made[0].kind is ShadowKind.OVERLAY
    assert sorted(os.listdir(made[0].directory)) == ["lock", STATE_FILE, "upper", "work"]


def test_the_upper_directory_looks_like_the_project(store: ShadowStore, project: Path) -> None:
    project.chmod(0o750)

    shadow = store.new(project)

    assert stat.S_IMODE(shadow.upper.stat().st_mode) == 0o750
    assert shadow.upper.stat().st_uid == project.stat().st_uid


def test_what_the_host_does_after_the_birth_is_later_by_the_clock(store: ShadowStore, project: Path) -> None:
    for _ in range(5):
        shadow = store.new(project)
        (project / "dir/file").write_bytes(b"other")
        assert (project / "dir/file").stat().st_ctime_ns > shadow.born_ns


@pytest.mark.parametrize("bad", ["/", "missing", "store", "store/below", "."])
def test_some_directories_have_no_shadow(store: ShadowStore, tmp_path: Path, bad: str) -> None:
    (store.directory / "below").mkdir()
    lower = bad if bad == "/" else tmp_path / bad

    with pytest.raises(NotADirectory if bad == "missing" else InvalidArgument):
        store.new(lower)
    assert store.list() == ()


@pytest.mark.parametrize("name", ["a\nb", " a", "x" * 101, "\x1b[2J"])
def test_a_name_is_short_and_printable(store: ShadowStore, project: Path, name: str) -> None:
    with pytest.raises(InvalidArgument):
        store.new(project, name=name)


def test_what_a_killed_process_left_is_removed_by_the_next(store: ShadowStore, project: Path) -> None:
    shadow = store.new(project)
    for name in (".new-6741a2b3-00000000", ".gone-6741a2b3-00000001"):
        (store.directory / name / "work/work").mkdir(parents=True)
        (store.directory / name / "work/work").chmod(0)
        os.utime(store.directory / name, (0, 0))
    (store.directory / ".new-6741a2b3-00000002").mkdir()

    ShadowStore(store.directory)

    assert sorted(os.listdir(store.directory)) == [".new-6741a2b3-00000002", shadow.id], "one is being made just now"


def test_a_shadow_that_cannot_be_made_leaves_nothing(
    store: ShadowStore, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadows, "_hide", lambda shadow: os.mkdir("/proc/no"))

    with pytest.raises(PermissionDenied):
        store.new(project)
    assert os.listdir(store.directory) == []


# --- state ------------------------------------------------------------------------------------------------------------


def spoil(shadow: Shadow, **fields: object) -> None:
    path = shadow.directory / STATE_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"version": 2},
        {"id": "6741a2b3-00000000"},
        {"lower": "relative"},
        {"lower": "/"},
        {"lower": "/a/../etc"},
        {"lower": 7},
        {"kind": "magic"},
        {"born_ns": "soon"},
        {"born_ns": -1},
        {"born_ns": True},
        {"denied": "**/.env"},
        {"denied": ["~/.ssh"]},
        {"protected": [".."]},
        {"hidden": [["../x", "rule"]]},
        {"hidden": [["/x", "rule"]]},
        {"hidden": ["x"]},
        {"name": "\x1b[2J"},
    ],
)
def test_a_state_that_makes_no_sense_is_refused_with_its_place(
    store: ShadowStore, project: Path, fields: dict[str, object]
) -> None:
    shadow = store.new(project)
    spoil(shadow, **fields)

    with pytest.raises(Damaged, match=STATE_FILE):
        store.open(shadow.id)
    assert store.list() == () and [number for number, _ in store.broken()] == [shadow.id]
    store.discard_broken(shadow.id)
    assert os.listdir(store.directory) == []


def test_a_state_file_that_is_a_link_a_fifo_or_no_json_is_refused(store: ShadowStore, project: Path) -> None:
    shadow = store.new(project)
    state = shadow.directory / STATE_FILE
    text = state.read_text()
    state.unlink()
    state.symlink_to("/etc/passwd")
    with pytest.raises(Damaged):
        store.open(shadow.id)
    state.unlink()
    os.mkfifo(state)
    with pytest.raises(Damaged):
        store.open(shadow.id)
    state.unlink()
    state.write_text(text[:-5])
    with pytest.raises(Damaged):
        store.open(shadow.id)
    state.write_text(text)
    assert store.open(shadow.id) == shadow, "the twin: as it was, it is believed"


@pytest.mark.parametrize("number", ["", "..", "../x", "6741a2b3", "6741A2B3-00000000", "6741a2b3-0000000\n"])
def test_an_id_is_no_path(store: ShadowStore, number: str) -> None:
    with pytest.raises(InvalidArgument):
        store.open(number)


# --- hiding -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("A3")
def test_hidden_are_names_globs_places_targets_of_links_second_names_and_sockets(project: Path) -> None:
    for path in ("a/.env", "b/keys/id_rsa", "c/place", "d/real", "tree/.env/inner"):
        (project / path).parent.mkdir(parents=True, exist_ok=True)
        (project / path).write_bytes(b"x")
    (project / "e").mkdir()
    (project / "e/.env").symlink_to("../d/real")
    (project / "points to one").symlink_to("a/.env")
    (project / "up").mkdir()
    (project / "up/.env").symlink_to("..")
    os.link(project / "a/.env", project / "b/plain")
    os.link(project / "tree/.env/inner", project / "b/other")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(project / "socket"))

    found = scan(str(project), PathRules(("**/.env", "/**/keys/id_*", f"{project}/c/place")))

    assert {path for path, _ in found.hidden} == {
        "a/.env",
        "b/keys/id_rsa",
        "c/place",
        "d/real",
        "e/.env",
        "tree/.env",
        "up/.env",
        "b/plain",
        "b/other",
        "socket",
    }


@pytest.mark.req("A3")
def test_hidden_paths_become_whiteouts_below_directories_like_the_hosts(store: ShadowStore, project: Path) -> None:
    (project / "dir").chmod(0o555)
    (project / "dir").chmod(0o755)
    (project / "dir/.env").write_bytes(b"x")
    (project / "dir").chmod(0o555)

    shadow = store.new(project, denied=("**/.env",))
    (project / "dir").chmod(0o755)

    status = os.lstat(shadow.upper / "dir/.env")
    assert stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
    assert stat.S_IMODE((shadow.upper / "dir").stat().st_mode) == 0o555
    store.discard(shadow)


def test_somebody_elses_file_is_found_with_its_owner(project: Path) -> None:
    uid, gid = os.geteuid(), os.getegid()

    assert unmapped(str(project), uid, gid) is None
    found = unmapped(str(project), uid + 1, gid)
    assert found is not None and found.owner == TreeOwner(uid, gid) and found.count == 2


# --- kinds ------------------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_a_project_with_files_of_others_is_copied_and_says_why(store: ShadowStore, project: Path) -> None:
    os.chown(project / "dir/file", 61234, 61234)

    shadow = store.new(project)

    assert shadow.kind is ShadowKind.COPY and "'dir/file' belongs to 61234:61234" in shadow.why
    assert (shadow.upper / "dir/file").stat().st_uid == project.stat().st_uid
    with pytest.raises(InitializationFailed, match="belongs to 61234"):
        store.new(project, kind=ShadowKind.OVERLAY)


KINDS = ["ext4", "fuse.sshfs", "tmpfs", "overlay"]


def test_file_systems_are_told_by_the_longest_mount_point(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 1 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / /mnt/a\\040b rw shared:1 - fuse.sshfs x rw\n"
        "3 1 0:8 / /mnt rw - tmpfs x rw\n4 1 0:7 / /over rw - ext4 x rw\n5 4 0:6 / /over rw - overlay x rw\n"
    )

    def kind(path: str) -> str:
        return file_system(path, str(table))

    assert [kind(path) for path in ("/x", "/mnt/a b/c", "/mnt/ab", "/over/x")] == [
        "ext4",
        "fuse.sshfs",
        "tmpfs",
        "overlay",
    ]
    assert why_not_lower("fuse.sshfs") and why_not_lower("vfat") and why_not_lower("overlay")
    assert not why_not_lower("ext4") and not why_not_upper("tmpfs") and why_not_upper("nfs4") and why_not_upper("")


def test_a_copy_holds_files_links_modes_and_times_and_names_what_it_left_out(store: ShadowStore, project: Path) -> None:
    (project / "run").write_bytes(b"#!")
    (project / "run").chmod(0o751)
    os.utime(project / "run", ns=(10**18, 10**18))
    (project / "link").symlink_to("/etc/passwd")
    (project / "closed").mkdir()
    (project / "closed").chmod(0o500)
    (project / ".env").write_bytes(b"SECRET")
    os.mkfifo(project / "fifo")
    told: list[Progress] = []

    shadow = store.new(project, denied=("**/.env",), kind=ShadowKind.COPY, progress=told.append)

    assert sorted(os.listdir(shadow.upper)) == ["closed", "dir", "link", "run"]
    assert (shadow.upper / "run").stat().st_mtime_ns == 10**18
    assert stat.S_IMODE((shadow.upper / "run").stat().st_mode) == 0o751
    assert stat.S_IMODE((shadow.upper / "closed").stat().st_mode) == 0o500
    assert os.readlink(shadow.upper / "link") == "/etc/passwd"
    assert shadow.left_out == (("fifo", "neither a file, a directory nor a link"),)
    assert shadow.why == "asked for" and told[-1].files == 2
    assert read_manifest(shadow.directory)["dir/file"].size_bytes == 7
    (project / "closed").chmod(0o700)


def test_holes_stay_holes(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with open(source, "wb") as file:
        file.seek(8 * 1024 * 1024)
        file.write(b"data")
        file.truncate(16 * 1024 * 1024)
    with open(source, "rb") as reading, open(target, "wb") as writing:
        digest = copy_content(reading.fileno(), writing.fileno())

    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks <= source.stat().st_blocks + 8 < 8 * 1024 * 1024 / 512
    with open(source, "rb") as file:
        assert digest_of(file.fileno()) == digest


@pytest.mark.parametrize("spoiled", ["[]", '{"a": 1}', '{"a": [1,2,3,4,5,6,7,8,9,10]}', "{"])
def test_a_manifest_that_makes_no_sense_is_refused(store: ShadowStore, project: Path, spoiled: str) -> None:
    shadow = store.new(project, kind=ShadowKind.COPY)
    (shadow.directory / "manifest.json").write_text(spoiled)

    with pytest.raises(Damaged, match=r"manifest\.json"):
        read_manifest(shadow.directory)


# --- trees ------------------------------------------------------------------------------------------------------------


def test_no_step_of_a_path_follows_a_link(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/file").write_bytes(b"outside")
    (tmp_path / "top/real").mkdir(parents=True)
    (tmp_path / "top/real/file").write_bytes(b"inside")
    (tmp_path / "top/link").symlink_to(tmp_path / "out")
    (tmp_path / "top/real/link").symlink_to(tmp_path / "out/file")

    with Tree(tmp_path / "top") as tree:
        assert tree.read("real/file") == b"inside", "the twin"
        assert tree.status("link/file") is None
        for path in ("link/file", "real/link"):
            with pytest.raises(OSError):
                tree.read(path)


def test_descriptors_of_a_wide_tree_are_given_back(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}/a/b").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))

    with Tree(tmp_path) as tree:
        for number in range(300):
            assert tree.names(f"{number}/a") == ["b"]
        assert len(os.listdir("/proc/self/fd")) - before < 140
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_removal_follows_no_link_and_opens_what_is_closed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"x")
    (tmp_path / "tree/closed/below").mkdir(parents=True)
    (tmp_path / "tree/link").symlink_to(kept)
    (tmp_path / "tree/closed").chmod(0)

    remove_tree(tmp_path / "tree")

    assert sorted(os.listdir(tmp_path)) == ["kept"] and os.listdir(kept) == ["file"]


def test_making_waits_no_longer_than_the_clock(store: ShadowStore, project: Path) -> None:
    begin = time.perf_counter()
    for _ in range(10):
        store.new(project)

    assert time.perf_counter() - begin < 10
