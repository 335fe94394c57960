"""`AgentWorkspace`: where it lies, text and bytes, limits, globs, and the rules that hold without being asked for."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence import AgentWorkspace
from ringfence.errors import Busy, InvalidArgument, PathAccessDenied, PathTraversalError, PermissionDenied
from ringfence.manager.scratch import Scratch
from ringfence.workspace.beneath import Resolver, by_kernel, by_walk

pytestmark = pytest.mark.req("E3")


@pytest.fixture(params=[by_kernel, by_walk], ids=["openat2", "walk"])
def resolver(request: pytest.FixtureRequest) -> Resolver:
    chosen: Resolver = request.param
    return chosen


@pytest.fixture
def files(tmp_path: Path, resolver: Resolver) -> Iterator[AgentWorkspace]:
    (tmp_path / "ws").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret.txt").write_bytes(b"outside")
    with AgentWorkspace("s1", root=tmp_path / "ws", limit_bytes=1000, resolver=resolver) as opened:
        yield opened


def test_the_names_of_the_design_document_do_the_same(files: AgentWorkspace) -> None:
    files.write_file("output/result.txt", "Hello")

    assert files.read_file("output/result.txt") == "Hello"
    with pytest.raises(PathTraversalError):
        files.write_file("../../etc/passwd", "hack")


# --- where it lies ----------------------------------------------------------------------------------------------------


@pytest.fixture
def workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RINGFENCE_WORKSPACES_DIR", str(tmp_path / "workspaces"))
    return tmp_path / "workspaces"


def test_a_session_finds_its_files_again_and_another_one_does_not(workspaces: Path) -> None:
    with AgentWorkspace("session_123") as first:
        first.write("output/result.txt", "Hello")
    with AgentWorkspace("session_123") as again, AgentWorkspace("session_124") as other:
        assert again.read_text("/workspace/output/result.txt") == "Hello"
        assert other.list() == ()
    assert (workspaces / "sessions/session_123").stat().st_mode & 0o077 == 0


def test_who_cleans_up_after_dead_processes_leaves_named_sessions_alone(workspaces: Path) -> None:
    with AgentWorkspace("kept") as files:
        files.write("a.txt", b"a")
    (workspaces / "1-0123abcd/left").mkdir(parents=True)
    scratch = Scratch(workspaces)
    try:
        assert not (workspaces / "1-0123abcd").exists()
    finally:
        scratch.close()
    with AgentWorkspace("kept") as files:
        assert files.read("a.txt") == b"a"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\0", "-x", ".hidden", "x" * 129, "ä", "a\n"])
def test_an_id_that_is_no_plain_name_is_refused(workspaces: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="id of a session"):
        AgentWorkspace(name)
    assert not workspaces.exists() or os.listdir(workspaces / "sessions") == []


def test_a_directory_that_cannot_be_made_is_an_error_that_says_how_to_choose_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("RINGFENCE_WORKSPACES_DIR", str(tmp_path / "file"))
    with pytest.raises(PermissionDenied, match="RINGFENCE_WORKSPACES_DIR"):
        AgentWorkspace("s")


# --- text, bytes, limits ----------------------------------------------------------------------------------------------


def test_text_and_bytes_go_in_and_out(files: AgentWorkspace) -> None:
    files.write("t", "zażółć\n")
    files.append("t", "gęślą")
    files.write_text("latin", "Füße", encoding="latin-1")

    assert files.read("t") == "zażółć\ngęślą".encode()
    assert files.read_text("t") == "zażółć\ngęślą"
    assert files.read_text("latin", encoding="latin-1") == "Füße"


def test_what_is_no_text_says_where_it_stops_being_one(files: AgentWorkspace) -> None:
    files.write("b", b"abc\xff")
    with pytest.raises(InvalidArgument, match="byte 3 is 0xff"):
        files.read_text("b")
    with pytest.raises(InvalidArgument, match="ascii cannot hold"):
        files.write_text("b", "ä", encoding="ascii")
    with pytest.raises(InvalidArgument, match="unpaired surrogate at 1"):
        files.write("b", "x\ud800")
    assert files.read("b") == b"abc\xff"


def test_a_limit_names_itself_and_how_to_raise_it(files: AgentWorkspace) -> None:
    files.write("f", b"x" * 1000)
    calls: list[Callable[[], object]] = [
        lambda: files.write("g", b"x" * 1001),
        lambda: files.append("f", "x" * 1001),
        lambda: files.read("f", limit_bytes=999),
    ]
    for call in calls:
        with pytest.raises(PathAccessDenied, match="raise limit_bytes") as caught:
            call()
        assert caught.value.rule == "limit_bytes"
    assert not files.exists("g")


def test_exists_tells_missing_from_forbidden(files: AgentWorkspace, tmp_path: Path) -> None:
    files.write("a", b"")
    (tmp_path / "ws/dangling").symlink_to("nowhere")
    (tmp_path / "ws/out").symlink_to("../out")

    seen = [files.exists(path) for path in ("a", "dangling", "out", "b", "a/b", "no/where")]
    assert seen == [True, True, True, False, False, False]
    for path in ("../out/secret.txt", "out/secret.txt", "/etc/passwd"):
        with pytest.raises(PathTraversalError):
            files.exists(path)


# --- rules that hold without being asked for --------------------------------------------------------------------------


@pytest.mark.req("A3")
@pytest.mark.parametrize("path", [".env", "deep/er/.env.local", ".envrc", "x/credentials.json", "sub/.env/x"])
def test_the_built_in_blacklist_holds(files: AgentWorkspace, tmp_path: Path, path: str) -> None:
    file = tmp_path / "ws" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"TOKEN")
    (tmp_path / "ws/other").symlink_to(path)
    for call in (files.read, lambda name: files.write(name, b"x"), lambda name: files.move(name, "y"), files.delete):
        with pytest.raises(PathAccessDenied, match="is denied"):
            call(path)
    with pytest.raises(PathAccessDenied, match="is denied"):
        files.read("other")
    assert path not in files.glob("**")
    assert file.read_bytes() == b"TOKEN"


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "sub/.git/config", ".vscode/tasks.json", ".bashrc"])
def test_the_built_in_protected_names_hold(files: AgentWorkspace, tmp_path: Path, path: str) -> None:
    with pytest.raises(PathAccessDenied, match="protected"):
        files.write(path, b"evil")
    assert not (tmp_path / "ws" / path).exists()


# --- globs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(files: AgentWorkspace, tmp_path: Path) -> AgentWorkspace:
    for path in ("a.py", "b.txt", ".hidden.py", "src/c.py", "src/deep/d.py", "src/deep/e.txt", "we[ir]d/*.py"):
        files.write(path, b"")
    (tmp_path / "ws/link").symlink_to("src")
    (tmp_path / "ws/out").symlink_to("../out")
    return files


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", [".hidden.py", "a.py"]),
        ("**/*.py", [".hidden.py", "a.py", "src/c.py", "src/deep/d.py", "we[ir]d/*.py"]),
        ("src/**", ["src", "src/c.py", "src/deep", "src/deep/d.py", "src/deep/e.txt"]),
        ("src/*", ["src/c.py", "src/deep"]),
        ("**/deep/*.txt", ["src/deep/e.txt"]),
        ("**/**/e.txt", ["src/deep/e.txt"]),
        ("/workspace/src/*.py", ["src/c.py"]),
        ("./[ab].*", ["a.py", "b.txt"]),
        ("we[[]ir]d/[*].py", ["we[ir]d/*.py"]),
        ("link/*", []),
        ("out/*", []),
        ("*/secret.txt", []),
        ("nothing", []),
    ],
)
def test_a_glob_finds_what_it_says_and_enters_no_link(tree: AgentWorkspace, pattern: str, found: list[str]) -> None:
    assert [path for path in tree.glob(pattern) if path] == found


@pytest.mark.parametrize("pattern", ["../*", "src/../../out/*", "/etc/*", "**/../../out/*"])
def test_a_glob_that_climbs_is_refused(tree: AgentWorkspace, pattern: str) -> None:
    with pytest.raises(PathTraversalError):
        tree.glob(pattern)


def test_a_glob_looks_at_so_much_and_no_more(tree: AgentWorkspace) -> None:
    with pytest.raises(PathAccessDenied, match="raise limit_entries"):
        tree.glob("**/*.py", limit_entries=5)
    assert tree.glob("a.py", limit_entries=100) == ("a.py",)


NAMES = st.sampled_from(["a", "b", "ab", ".c", "d.py"])


@settings(max_examples=60)
@given(
    paths=st.lists(st.lists(NAMES, min_size=1, max_size=4), max_size=8),
    pattern=st.lists(st.sampled_from(["a", "*", "**", "?", "*b", "[ad]*", ".c"]), min_size=1, max_size=4),
)
def test_globs_agree_with_those_of_pathlib(paths: list[list[str]], pattern: list[str]) -> None:
    with tempfile.TemporaryDirectory() as top:
        for path in paths:
            Path(top, *path).mkdir(parents=True, exist_ok=True)
        written = "/".join(pattern)
        # pathlib before 3.13 lets a final ** match directories only; here there is nothing else
        expected = {str(found.relative_to(top)) for found in Path(top).glob(written)} - {"."}
        with AgentWorkspace("s", root=top) as files:
            assert set(files.glob(written)) == expected


def test_a_directory_that_is_moved_while_a_glob_is_in_it_ends_it(tmp_path: Path) -> None:
    (tmp_path / "ws/a/b/c").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()

    def move_away(path: str) -> None:
        if path.endswith("/a/b/c"):
            (tmp_path / "ws/a/b").rename(tmp_path / "elsewhere/b")

    with (
        AgentWorkspace("s", root=tmp_path / "ws", denied=move_away) as files,
        pytest.raises(Busy, match="changed by another process"),
    ):
        files.glob("**")
