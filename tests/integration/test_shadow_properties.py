"""Whatever is done in a shadow: committing makes the host the same, discarding leaves it as it was, a patch says it."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

from ringfence.values.paths import is_below
from ringfence.workspace.commit import commit
from ringfence.workspace.diff import changes
from ringfence.workspace.patch import patch
from ringfence.workspace.shadow import ShadowKind
from ringfence.workspace.shadow_store import ShadowStore
from tests.support.shadows import Look, a_place, as_user, inside, look
from tests.support.users import User, me, ordinary

pytestmark = pytest.mark.req("D7")

EXAMPLES = int(os.environ.get("RINGFENCE_EXAMPLES", "20"))  # `make soak` takes many more

Operation = tuple[str, str, str, bytes, int]

NAMES = ("a", "b", "dir", "dir/a", "dir/sub", "dir/sub/a", "new", "new/a", "dir two", 'dir two/\u00e9\n"')
TEXTS = (b"", b"one\ntwo\n", b"one\ntwo", b"one\n" * 30 + b"x\n" + b"one\n" * 30, b"\0binary\xff" * 40, b"\xff\xfe\n")
OPERATIONS = (
    "write",
    "write",
    "append",
    "truncate",
    "unlink",
    "unlink",
    "rename",
    "rename",
    "mkdir",
    "rmdir",
    "remove tree",
    "symlink",
    "link",
    "chmod",
    "replace by file",
    "replace by directory",
)
FILE_MODES = (0o600, 0o644, 0o755, 0o444)
DIRECTORY_MODES = (0o700, 0o755, 0o500)

operations = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.sampled_from(NAMES),
        st.sampled_from(NAMES),
        st.sampled_from(TEXTS),
        st.integers(0, 5),
    ),
    max_size=12,
)


def make_project(top: Path) -> None:
    (top / "dir/sub").mkdir(parents=True)
    (top / "a").write_bytes(b"one\ntwo\nthree\n")
    (top / "b").write_bytes(b"\0\1\2 binary")
    (top / "dir/a").write_bytes(b"one\n" * 60)
    (top / "dir/sub/a").write_bytes(b"no newline at the end")
    (top / "dir/link").symlink_to("../a")
    (top / "dir two").mkdir()
    (top / "dir two/run").write_bytes(b"#!/bin/sh\n")
    (top / "dir two/run").chmod(0o755)
    os.link(top / "a", top / "dir two/second name")


def do(steps: list[Operation]) -> None:
    """Carry the operations out as far as they make sense, in the directory that this process is in."""
    for name, path, other, text, number in steps:
        try:
            _do(name, path, other, text, number)
        except OSError:
            continue


def _do(name: str, path: str, other: str, text: bytes, number: int) -> None:
    match name:
        case "write":
            Path(path).write_bytes(text)
        case "append":
            with open(path, "ab") as file:
                file.write(text)
        case "truncate":
            os.truncate(path, number)
        case "unlink":
            os.unlink(path)
        case "rename":
            if is_below(os.path.realpath(other), os.path.realpath(path)):
                raise OSError(errno.EINVAL, "into itself, perhaps by a link: shutil would copy for ever")
            shutil.move(path, other)  # as `mv`: a directory of the host's is copied and removed
        case "mkdir":
            os.mkdir(path)
        case "rmdir":
            os.rmdir(path)
        case "remove tree":
            shutil.rmtree(path)
        case "symlink":
            os.symlink(other, path)
        case "link":
            os.link(path, other, follow_symlinks=False)
        case "chmod":
            modes = DIRECTORY_MODES if os.path.isdir(path) else FILE_MODES
            os.chmod(path, modes[number % len(modes)])
        case "replace by file":
            shutil.rmtree(path)
            Path(path).write_bytes(text)
        case "replace by directory":
            os.unlink(path)
            os.mkdir(path)
            Path(path, "a").write_bytes(text)


def states(top: Path) -> dict[str, tuple[int, ...]]:
    """What nobody can change without being noticed."""
    found: dict[str, tuple[int, ...]] = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files, "."):
            status = os.lstat(os.path.join(directory, name))
            found[os.path.join(directory, name)] = (
                status.st_ino,
                status.st_ctime_ns,
                status.st_mtime_ns,
                status.st_size,
                status.st_mode,
                status.st_nlink,
            )
    return found


def as_git_has_it(tree: Look) -> dict[str, tuple[str, bytes]]:
    kinds = {"link": "link", "file": "plain"}
    return {
        path: ("run" if kind == "file" and mode & 0o100 else kinds[kind], content)
        for path, (kind, mode, content) in tree.items()
        if kind in kinds
    }


def git_apply(data: bytes, directory: Path) -> None:
    if not data:
        return
    done = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"],
        cwd=directory,
        input=data,
        capture_output=True,
        env={"PATH": os.defpath, "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(directory), "GIT_CEILING_DIRECTORIES": "/"},
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace") + data.decode(errors="replace")


WHO = pytest.mark.parametrize("user", dict.fromkeys([ordinary(), me()]), ids=lambda user: f"uid{user.uid}")
KINDS = pytest.mark.parametrize("kind", list(ShadowKind))
FEW = settings(
    max_examples=EXAMPLES,
    # Without the phase that explains: it runs a failing example for minutes.
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow],
)


# A new directory that hides what the host had there, closed by its mode.
CLOSED_AND_OPAQUE: list[Operation] = [("replace by directory", "a", "a", b"", 0), ("chmod", "a", "a", b"", 2)]


@WHO
@KINDS
@given(steps=operations, more=operations)
@example(steps=[], more=CLOSED_AND_OPAQUE)
@FEW
def test_a_commit_makes_the_host_what_the_shadow_shows(
    user: User, kind: ShadowKind, steps: list[Operation], more: list[Operation]
) -> None:
    def scenario() -> int:
        make_project(project)
        shadow = ShadowStore(place / "store").new(project, kind=kind)
        for part in (steps, more):  # the shadow goes on being used
            shown = inside(shadow, lambda part=part: (do(part), look())[1])
            done = commit(shadow)

            assert done.is_done and done.refused == (), done
            assert look(project) == shown
            assert changes(shadow) == ()
            assert inside(shadow, look) == shown
            assert not [name for name in os.listdir(project) if name.startswith(".ringfence")]
        return len(done.applied)

    with a_place(user) as place:
        project = place / "project"
        event(f"{as_user(user, scenario)} changes")


@WHO
@KINDS
@given(steps=operations)
@FEW
def test_a_discard_leaves_the_host_as_it_was(user: User, kind: ShadowKind, steps: list[Operation]) -> None:
    def scenario() -> None:
        make_project(project)
        before = states(project)
        store = ShadowStore(place / "store")
        shadow = store.new(project, kind=kind)
        inside(shadow, lambda: do(steps))
        changes(shadow)

        store.discard(shadow)

        assert states(project) == before
        assert os.listdir(store.directory) == []

    with a_place(user) as place:
        project = place / "project"
        as_user(user, scenario)


@WHO
@given(steps=operations)
@FEW
def test_git_apply_of_the_patch_makes_the_same_tree(user: User, steps: list[Operation]) -> None:
    def scenario() -> None:
        make_project(project)
        shadow = ShadowStore(place / "store").new(project)
        shown = inside(shadow, lambda: (do(steps), look())[1])
        found = patch(shadow, changes(shadow))
        copy = place / "copy"
        shutil.copytree(project, copy, symlinks=True)

        git_apply(found.data, copy)

        assert as_git_has_it(look(copy)) == as_git_has_it(shown)

    with a_place(user) as place:
        project = place / "project"
        as_user(user, scenario)
