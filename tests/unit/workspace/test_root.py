"""The file API beyond the corpus: content, rules, kinds, owners, and that both resolvers agree."""

import errno
import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import (
    AlreadyExists,
    Busy,
    Closed,
    FileError,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotFound,
    PathAccessDenied,
    PathTraversalError,
    PermissionDenied,
)
from ringfence.workspace import beneath
from ringfence.workspace.beneath import Resolver, by_kernel, by_walk, choose_resolver
from ringfence.workspace.root import NodeType, PathText, WorkspaceRoot

pytestmark = pytest.mark.req("C2", "E3")

SECRET = b"outside"


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret.txt").write_bytes(SECRET)
    (tmp_path / "ws/sub").mkdir(parents=True)
    (tmp_path / "ws/a.txt").write_bytes(b"a")
    (tmp_path / "ws/sub/b.txt").write_bytes(b"b")
    return tmp_path / "ws"


@pytest.fixture(params=[by_kernel, by_walk], ids=["openat2", "walk"])
def resolver(request: pytest.FixtureRequest) -> Resolver:
    chosen: Resolver = request.param
    if chosen is by_kernel and not kernel_has_openat2():
        pytest.skip("this kernel has no openat2")
    return chosen


@pytest.fixture
def root(ws: Path, resolver: Resolver) -> Iterator[WorkspaceRoot]:
    with WorkspaceRoot(ws, resolver=resolver) as opened:
        yield opened


def kernel_has_openat2() -> bool:
    descriptor = os.open("/", os.O_PATH)
    try:
        return choose_resolver(descriptor) is by_kernel
    finally:
        os.close(descriptor)


def names_in(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


# --- paths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["sub/b.txt", b"sub/b.txt", Path("sub/b.txt"), "/workspace/sub/b.txt", "//workspace/./sub/b.txt"]
)
def test_a_path_may_be_text_bytes_or_path_and_start_with_the_alias(root: WorkspaceRoot, path: PathText) -> None:
    assert root.read(path) == b"b"


@pytest.mark.parametrize(
    "path", ["/workspace2/a.txt", "/workspac/a.txt", "/workspace/../out/secret.txt", "/workspace/../../etc/passwd"]
)
def test_the_alias_is_compared_by_whole_names(root: WorkspaceRoot, path: str) -> None:
    with pytest.raises(PathTraversalError) as caught:
        root.read(path)
    assert caught.value.path == path


def test_a_name_that_is_no_utf8_can_be_written_listed_and_read(root: WorkspaceRoot) -> None:
    root.write(b"\xff\xfe", b"x")

    assert "\udcff\udcfe" in [entry.name for entry in root.list(".")]
    assert root.read("\udcff\udcfe") == root.read(b"\xff\xfe") == b"x"


@pytest.mark.parametrize("path", ["", "\0", "a\0b", "x" * 4096, "y" * 256, "\ud800"], ids=repr)
def test_a_path_that_makes_no_sense_is_invalid_for_every_method(root: WorkspaceRoot, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: root.read(path),
        lambda: root.write(path, b""),
        lambda: root.append(path, b""),
        lambda: root.list(path),
        lambda: root.stat(path),
        lambda: root.delete(path),
        lambda: root.make_dir(path),
        lambda: root.resolve_dir(path),
        lambda: root.move(path, "new"),
        lambda: root.move("a.txt", path),
    ]
    for call in calls:
        with pytest.raises(FileError if path == "y" * 256 else InvalidArgument):
            call()


@pytest.mark.parametrize(
    "path", ["..", "../out", "../out/secret.txt", "/etc/passwd", "link/secret.txt", "sub/../../out/x"]
)
def test_no_method_follows_a_path_out(root: WorkspaceRoot, ws: Path, path: str) -> None:
    (ws / "link").symlink_to("../out")
    calls: list[Callable[[], object]] = [
        lambda: root.read(path),
        lambda: root.write(path, b"new"),
        lambda: root.append(path, b"new"),
        lambda: root.list(path),
        lambda: root.stat(path),
        lambda: root.delete(path, recursive=True),
        lambda: root.make_dir(path + "/made"),
        lambda: root.resolve_dir(path),
        lambda: root.move(path, "new"),
        lambda: root.move("a.txt", path),
    ]
    for call in calls:
        with pytest.raises(PathTraversalError) as caught:
            call()
        assert caught.value.path in (path, path + "/made")
    assert names_in(ws.parent / "out") == ["secret.txt"]
    assert (ws.parent / "out/secret.txt").read_bytes() == SECRET
    assert names_in(ws) == ["a.txt", "link", "sub"]


def test_messages_never_carry_control_characters(root: WorkspaceRoot) -> None:
    for path in ("no\nsuch\x1b[2J", "../x\n\x1b", "nul\0\n"):
        with pytest.raises((InvalidArgument, NotFound, PathAccessDenied)) as caught:
            root.read(path)
        assert not {"\n", "\x1b", "\0"} & set(str(caught.value))


def test_a_missing_file_is_told_from_a_forbidden_one_by_its_cause(root: WorkspaceRoot) -> None:
    with pytest.raises(NotFound, match="no such file") as caught:
        root.read("missing")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_dots_after_a_link_mean_the_real_parent(root: WorkspaceRoot, ws: Path) -> None:
    (ws / "sub/deep").mkdir()
    (ws / "s").symlink_to("sub/deep")

    assert root.read("s/../b.txt") == b"b"
    assert root.read("s/../../a.txt") == b"a"


# --- the root ---------------------------------------------------------------------------------------------------------


def test_the_root_may_be_given_relative_to_the_working_directory(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ws.parent)
    with WorkspaceRoot("./ws") as root:
        monkeypatch.chdir("/")
        assert root.read("a.txt") == root.read(ws / "a.txt") == b"a"


def test_the_root_follows_its_directory_when_that_is_renamed(root: WorkspaceRoot, ws: Path) -> None:
    ws.rename(ws.with_name("elsewhere"))

    assert root.read("a.txt") == b"a"
    assert root.resolve_dir("sub") == ws.with_name("elsewhere") / "sub"


@pytest.mark.parametrize("path", ["/", "/..", "missing", "a.txt", "", "x\0"])
def test_what_is_no_directory_of_its_own_cannot_be_the_root(
    ws: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ws)
    with pytest.raises((InvalidArgument, NotFound, NotADirectory)):
        WorkspaceRoot(path)


def test_a_closed_root_does_nothing_more(ws: Path) -> None:
    root = WorkspaceRoot(ws)
    root.close()
    root.close()

    with pytest.raises(Closed, match="closed"):
        root.read("a.txt")
    assert "closed" in repr(root)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_without_openat2_the_walk_is_chosen(ws: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(root: int, path: bytes, flags: int = 0) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(beneath, "by_kernel", refuse)
    with WorkspaceRoot(ws) as root:
        assert root.read("sub/../a.txt") == b"a"
        with pytest.raises(PathTraversalError):
            root.read("../out/secret.txt")


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_file_of_exactly_the_limit_is_read_and_one_byte_more_is_not(root: WorkspaceRoot, ws: Path) -> None:
    (ws / "f").write_bytes(b"12345")

    assert root.read("f", limit_bytes=5) == b"12345"
    with pytest.raises(PathAccessDenied, match="larger than 4 bytes"):
        root.read("f", limit_bytes=4)


def test_special_files_are_refused_at_once(root: WorkspaceRoot, ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(ws / "fifo")
    monkeypatch.chdir(ws)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("sock")
        for name, kind in (("fifo", "a fifo"), ("sock", "a socket"), ("sub", "a directory")):
            for call in (root.read, lambda path: root.write(path, b"x"), lambda path: root.append(path, b"x")):
                with pytest.raises(IsADirectory if name == "sub" else PathAccessDenied, match=f"is {kind}"):
                    call(name)
    assert stat.S_ISFIFO((ws / "fifo").stat().st_mode)


@pytest.mark.root
def test_a_device_is_refused_without_being_opened(root: WorkspaceRoot, ws: Path) -> None:
    os.mknod(ws / "dev", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    for call in (root.read, lambda path: root.write(path, b"x"), lambda path: root.append(path, b"x")):
        with pytest.raises(PathAccessDenied, match="is a device"):
            call("dev")


def test_a_leased_file_is_an_error_and_not_a_wait(root: WorkspaceRoot, ws: Path) -> None:
    with (ws / "a.txt").open("r+b") as held:
        try:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.skip(f"this file system has no leases: {error}")
        fcntl.fcntl(held, fcntl.F_SETSIG, 23)  # SIGURG, which is ignored by default; SIGIO would end us
        with pytest.raises(Busy, match="another process"):
            root.read("a.txt")
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    assert root.read("a.txt") == b"a"


def test_hard_links_are_refused_unless_allowed(root: WorkspaceRoot, ws: Path) -> None:
    os.link(ws.parent / "out/secret.txt", ws / "h")

    with pytest.raises(PathAccessDenied, match="hard links"):
        root.read("h")
    with WorkspaceRoot(ws, allow_hard_links=True) as lenient:
        assert lenient.read("h") == SECRET
        with pytest.raises(PathAccessDenied, match="would change too"):
            lenient.append("h", b"more")
    root.write("h", b"new")
    assert (ws.parent / "out/secret.txt").read_bytes() == SECRET
    assert root.read("h") == b"new"


def test_what_the_system_refuses_is_permission_denied(ws: Path) -> None:
    def refuse(root: int, path: bytes, flags: int = 0) -> int:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    with (
        WorkspaceRoot(ws, resolver=refuse) as root,
        pytest.raises(PermissionDenied, match=r"'a\.txt': Permission denied"),
    ):
        root.read("a.txt")


# --- writing ----------------------------------------------------------------------------------------------------------


def test_write_replaces_at_once_and_leaves_no_temporary_file(root: WorkspaceRoot, ws: Path) -> None:
    with (ws / "a.txt").open("rb") as reader:
        root.write("a.txt", b"new")
        assert reader.read() == b"a"
    assert root.read("a.txt") == b"new"
    assert names_in(ws) == ["a.txt", "sub"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    root: WorkspaceRoot, ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_full(descriptor: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", disk_full)
        with pytest.raises(FileError, match="No space"):
            root.write("a.txt", b"new")
    assert root.read("a.txt") == b"a"
    assert names_in(ws) == ["a.txt", "sub"]


def test_modes_are_kept_or_set_and_never_set_uid(root: WorkspaceRoot, ws: Path) -> None:
    (ws / "a.txt").chmod(0o4751)
    root.write("a.txt", b"new")
    root.write("run", b"#!", mode=0o6755)
    (ws / "log").touch()
    (ws / "log").chmod(0o4744)
    root.append("log", b"x")

    modes = {name: stat.S_IMODE((ws / name).stat().st_mode) for name in ("a.txt", "run", "log")}
    assert modes == {"a.txt": 0o751, "run": 0o755, "log": 0o744}


def test_writing_to_a_link_that_stays_inside_changes_its_target(root: WorkspaceRoot, ws: Path) -> None:
    (ws / "sub/up").symlink_to("../a.txt")
    (ws / "fresh").symlink_to("sub/new.txt")
    root.write("sub/up", b"through")
    root.append("sub/up", b"!")
    root.write("fresh", b"made")

    assert (ws / "a.txt").read_bytes() == b"through!"
    assert (ws / "sub/new.txt").read_bytes() == b"made"
    assert (ws / "sub/up").is_symlink() and (ws / "fresh").is_symlink()


@pytest.mark.parametrize(
    "target", ["../out/secret.txt", "../out/new", "/etc/ringfence-new", "..", "sub/../../out/secret.txt"]
)
def test_writing_to_a_link_that_leads_out_is_refused(root: WorkspaceRoot, ws: Path, target: str) -> None:
    (ws / "l").symlink_to(target)
    for call in (root.write, root.append):
        with pytest.raises(PathAccessDenied):
            call("l", b"new")
    assert names_in(ws.parent / "out") == ["secret.txt"]
    assert (ws.parent / "out/secret.txt").read_bytes() == SECRET


def test_links_in_a_circle_end(root: WorkspaceRoot, ws: Path) -> None:
    (ws / "x").symlink_to("y")
    (ws / "y").symlink_to("x")
    for call in (root.read, lambda path: root.write(path, b"")):
        with pytest.raises(FileError, match="circle"):
            call("x")


def test_parents_are_made_only_if_asked_and_never_for_a_path_that_leaves(root: WorkspaceRoot, ws: Path) -> None:
    with pytest.raises(NotFound):
        root.write("p/q/f", b"x", make_parents=False)
    with pytest.raises(PathTraversalError):
        root.write("p/../../out/f", b"x")
    with pytest.raises(NotFound):
        root.write("p/../q/f", b"x")
    assert names_in(ws) == ["a.txt", "sub"]

    root.write("p/q/f", b"x")
    assert (ws / "p/q/f").read_bytes() == b"x"


def test_deep_directories_work_and_are_removed_in_parts(root: WorkspaceRoot) -> None:
    deep = "d/" * 300 + "f"
    root.write(deep, b"deep")

    assert root.read(deep) == b"deep"
    with pytest.raises(PathAccessDenied, match="deeper"):
        root.delete("d", recursive=True)
    for depth in (150, 1):
        root.delete("/".join("d" * depth), recursive=True)


@pytest.mark.root
def test_what_root_makes_belongs_to_the_owner_of_the_workspace(root: WorkspaceRoot, ws: Path) -> None:
    os.chown(ws, 61234, 61235)
    os.chown(ws / "a.txt", 61236, 61237)
    root.write("new/dir/f", b"")
    root.write("a.txt", b"")

    owners = [
        ((ws / name).stat().st_uid, (ws / name).stat().st_gid) for name in ("new", "new/dir", "new/dir/f", "a.txt")
    ]
    assert owners == [(61234, 61235)] * 3 + [(61236, 61237)]


# --- listing, moving, deleting ----------------------------------------------------------------------------------------


def test_list_and_stat_show_links_as_links(root: WorkspaceRoot, ws: Path) -> None:
    (ws / "l").symlink_to("../out/secret.txt")

    assert [(e.name, e.kind, e.size_bytes) for e in root.list() if e.kind is not NodeType.DIRECTORY] == [
        ("a.txt", NodeType.FILE, 1),
        ("l", NodeType.LINK, len("../out/secret.txt")),
    ]
    assert root.stat("l").kind is NodeType.LINK
    assert root.stat("sub").kind is NodeType.DIRECTORY
    assert root.stat("sub/b.txt").size_bytes == 1


def test_a_directory_of_too_many_entries_is_refused(root: WorkspaceRoot) -> None:
    assert len(root.list(limit_entries=2)) == 2
    with pytest.raises(PathAccessDenied, match="more than 1 entries"):
        root.list(limit_entries=1)


def test_delete_removes_links_and_not_their_targets(root: WorkspaceRoot, ws: Path) -> None:
    (ws / "sub/l").symlink_to("../../out")
    (ws / "l").symlink_to("../out/secret.txt")
    root.delete("l")
    with pytest.raises(FileError, match="not empty"):
        root.delete("sub")
    root.delete("sub/", recursive=True)

    assert names_in(ws) == ["a.txt"]
    assert names_in(ws.parent / "out") == ["secret.txt"]


@pytest.mark.parametrize("path", [".", "sub/..", "/workspace", "./"])
def test_the_workspace_itself_cannot_be_removed_or_moved(root: WorkspaceRoot, ws: Path, path: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: root.delete(path, recursive=True),
        lambda: root.move(path, "x"),
        lambda: root.write(path, b""),
    ]
    for call in calls:
        with pytest.raises(PathAccessDenied):
            call()
    assert names_in(ws) == ["a.txt", "sub"]


def test_move_renames_and_never_replaces(root: WorkspaceRoot, ws: Path) -> None:
    root.move("a.txt", "new/place.txt")
    with pytest.raises(AlreadyExists, match="already"):
        root.move("new/place.txt", "sub/b.txt")

    assert root.read("new/place.txt") == b"a"
    assert root.read("sub/b.txt") == b"b"


# --- rules ------------------------------------------------------------------------------------------------------------


def deny_env(path: str) -> str | None:
    return "**/.env" if os.path.basename(path) == ".env" else None


@pytest.fixture
def ruled(ws: Path, resolver: Resolver) -> Iterator[WorkspaceRoot]:
    (ws / ".env").write_bytes(b"TOKEN")
    (ws / ".git/hooks").mkdir(parents=True)
    (ws / ".git/hooks/sample").write_bytes(b"hook")
    (ws / "lib/.git/hooks").mkdir(parents=True)
    with WorkspaceRoot(ws, denied=deny_env, protected=(".git/hooks", ".vscode", "/top"), resolver=resolver) as opened:
        yield opened


@pytest.mark.parametrize("path", [".env", "./sub/../.env", "/workspace/.env", "alias", "dir/.env", "sub/to-env"])
def test_a_denied_file_is_denied_by_every_way_to_it(ruled: WorkspaceRoot, ws: Path, path: str) -> None:
    (ws / "alias").symlink_to(".env")
    (ws / "dir").symlink_to(".")
    (ws / "sub/to-env").symlink_to("../alias")
    calls: list[Callable[[], object]] = [
        lambda: ruled.read(path),
        lambda: ruled.write(path, b""),
        lambda: ruled.append(path, b""),
    ]
    for call in calls:
        with pytest.raises(PathAccessDenied) as caught:
            call()
        assert (caught.value.rule, caught.value.path) == ("**/.env", path)
    assert ".env" not in [entry.name for entry in ruled.list()]
    assert (ws / ".env").read_bytes() == b"TOKEN"


def test_a_rule_on_a_directory_denies_what_lies_below(ws: Path) -> None:
    with WorkspaceRoot(ws, denied=lambda path: "sub" if path == str(ws / "sub") else None) as root:
        for call in (lambda: root.read("sub/b.txt"), lambda: root.make_dir("sub"), lambda: root.write("sub/n/m", b"")):
            with pytest.raises(PathAccessDenied, match="rule: sub"):
                call()
    assert names_in(ws / "sub") == ["b.txt"]


def test_a_denied_file_that_is_removed_while_it_is_opened_stays_denied(ws: Path) -> None:
    """The kernel then calls it `.env (deleted)`, which no rule would match."""
    (ws / ".env").write_bytes(b"old")
    (ws / "real (deleted)").write_bytes(b"fine")

    def replace_after_opening(root: int, path: bytes, flags: int = 0) -> int:
        descriptor = by_walk(root, path, flags)
        if path == b"link":
            (ws / ".env.new").write_bytes(b"new")
            (ws / ".env.new").rename(ws / ".env")
        return descriptor

    (ws / "link").symlink_to(".env")
    with WorkspaceRoot(ws, denied=deny_env, resolver=replace_after_opening) as root:
        with pytest.raises(PathAccessDenied, match="keeps changing"):
            root.read("link")
        assert root.read("real (deleted)") == b"fine"


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/new",
        ".GIT/Hooks/x",
        "lib/.git/hooks/x",
        "to-hooks/x",
        "top",
        "top/x",
        ".vscode",
        ".vscode/tasks.json",
        "a/b/.vscode/x",
        ".git",
    ],
)
def test_protected_names_cannot_be_changed_by_any_method(ruled: WorkspaceRoot, ws: Path, path: str) -> None:
    (ws / "to-hooks").symlink_to(".git/hooks")
    calls: list[Callable[[], object]] = [
        lambda: ruled.write(path, b"evil"),
        lambda: ruled.append(path, b"evil"),
        lambda: ruled.move("a.txt", path),
        lambda: ruled.delete(path, recursive=True) if path == ".git" else ruled.make_dir(path),
    ]
    for call in calls:
        with pytest.raises(PathAccessDenied) as caught:
            call()
        assert caught.value.rule in (".git/hooks", ".vscode", "/top")
    assert names_in(ws / ".git/hooks") == ["sample"]


@pytest.mark.parametrize("path", [".git/hooks", ".git/hooks/sample"])
def test_what_is_protected_can_be_read_and_not_removed(ruled: WorkspaceRoot, ws: Path, path: str) -> None:
    with pytest.raises(PathAccessDenied, match="protected"):
        ruled.delete(path, recursive=True)
    with pytest.raises(PathAccessDenied, match="protected"):
        ruled.move(path, "away")
    assert ruled.read(".git/hooks/sample") == b"hook"


@pytest.mark.parametrize(
    "path", [".gitignore", "git/hooks/x", ".git/HEAD", "sub/top", ".vscode2/x", "hooks", "x.vscode"]
)
def test_names_that_only_look_protected_can_be_written(ruled: WorkspaceRoot, path: str) -> None:
    ruled.write(path, b"fine")
    assert ruled.read(path) == b"fine"


def test_a_protected_name_cannot_be_moved_into_place_or_away_with_its_directory(ruled: WorkspaceRoot, ws: Path) -> None:
    ruled.write("kit/hooks/post-checkout", b"evil")
    for source, target in (("kit", ".git2/.git"), ("kit", "sub/.git"), ("lib", "lib2"), (".git", "g")):
        with pytest.raises(PathAccessDenied):
            ruled.move(source, target)
    with pytest.raises(PathAccessDenied):
        ruled.delete("lib", recursive=True)
    assert (ws / "lib/.git/hooks").is_dir()
    ruled.move("kit", "kit2")


def test_the_target_of_a_protected_link_is_protected_too(ruled: WorkspaceRoot, ws: Path) -> None:
    (ws / "tools/editor").mkdir(parents=True)
    (ws / ".vscode").symlink_to("tools/editor")
    for path in (".vscode/tasks.json", "tools/editor/tasks.json"):
        with pytest.raises(PathAccessDenied, match=r"\.vscode"):
            ruled.write(path, b"evil")
    with pytest.raises(PathAccessDenied):
        ruled.delete("tools", recursive=True)
    ruled.write("tools/other", b"fine")


@pytest.mark.parametrize("entry", ["", "/", "../x", "a/**/b", "x\0"])
def test_an_entry_that_protects_nothing_is_invalid(ws: Path, entry: str) -> None:
    with pytest.raises(InvalidArgument):
        WorkspaceRoot(ws, protected=(entry,))


@pytest.mark.parametrize(("entry", "path"), [("Keep.TXT", "sub/keep.txt"), ("keep", "KEEP/x"), ("Straße", "STRASSE")])
def test_letter_case_does_not_matter_for_what_is_protected(ws: Path, entry: str, path: str) -> None:
    with WorkspaceRoot(ws, protected=(entry,)) as root, pytest.raises(PathAccessDenied):
        root.write(path, b"")


def test_a_star_in_a_protected_name_stays_within_the_name(ws: Path) -> None:
    with WorkspaceRoot(ws, protected=("**/.git/config*",)) as root:
        with pytest.raises(PathAccessDenied):
            root.write("x/.git/config.worktree", b"")
        root.write(".git/x/config.worktree", b"")


# --- both resolvers ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c", "l", "m"])
PATHS = st.lists(st.one_of(NAMES, st.sampled_from(["..", ".", ""])), min_size=1, max_size=7).map("/".join)


def answer(resolver: Resolver, root: int, path: bytes, flags: int) -> tuple[int, int] | int | None:
    try:
        descriptor = resolver(root, path, flags)
    except OSError as error:
        return error.errno
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_dev, status.st_ino


def _is_inside(top: Path, path: Path) -> bool:
    """Whether something made at `path` would lie below `top`: a generated link may lead out, even to `/`."""
    return path.parent.is_dir() and path.parent.resolve().is_relative_to(top.resolve())


@pytest.mark.skipif(not kernel_has_openat2(), reason="this kernel has no openat2")
@settings(max_examples=80, deadline=None, database=None)
@given(
    directories=st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=5),
    files=st.lists(PATHS, max_size=4),
    links=st.lists(st.tuples(PATHS, PATHS), max_size=6),
    asked=st.lists(PATHS, min_size=1, max_size=12),
    flags=st.sampled_from([0, os.O_NOFOLLOW, os.O_DIRECTORY, os.O_DIRECTORY | os.O_NOFOLLOW]),
)
def test_the_walk_answers_as_the_kernel_does(
    directories: list[str], files: list[str], links: list[tuple[str, str]], asked: list[str], flags: int
) -> None:
    with tempfile.TemporaryDirectory() as top:
        ws = Path(top, "a", "b")
        ws.mkdir(parents=True)
        for place in directories:
            (ws / place).mkdir(parents=True, exist_ok=True)
        inside = [place for place in files if ".." not in place.split("/") and not place.startswith("/")]
        for place in inside:
            if _is_inside(ws, ws / place) and not (ws / place).exists():
                (ws / place).touch()
        for place, target in links:
            if ".." not in place.split("/") and not place.startswith("/") and target:
                parent = ws / place
                if _is_inside(ws, parent) and not parent.is_symlink() and not parent.exists():
                    parent.symlink_to(target)
        root = os.open(ws, os.O_PATH)
        try:
            for path in filter(None, asked):
                raw = path.lstrip("/").encode() or b"."
                assert answer(by_walk, root, raw, flags) == answer(by_kernel, root, raw, flags), raw
        finally:
            os.close(root)
