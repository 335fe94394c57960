"""Boxes over shadows: whatever an agent does, the project stays as it is until somebody commits."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import InitializationFailed, InvalidArgument, Sandbox
from ringfence.errors import Busy
from ringfence.manager.assemble import RingfenceWarning
from ringfence.manager.workspaces import Shadow, ShadowKind, Workspaces
from ringfence.values.change import ChangeKind, Selection
from tests.integration.stage import SECRET, Place

pytestmark = pytest.mark.req("D7")


@pytest.fixture
def workspaces(place: Place) -> Iterator[Workspaces]:
    with Workspaces() as opened:
        yield opened


@pytest.fixture(params=list(ShadowKind))
def shadow(request: pytest.FixtureRequest, project: Place, workspaces: Workspaces) -> Shadow:
    return workspaces.new(project.workspace, kind=request.param)


@pytest.fixture
def project(repository: Place) -> Place:
    (repository.workspace / "src").mkdir()
    (repository.workspace / "src" / "main.py").write_text("print('old')\n")
    (repository.workspace / "notes.txt").write_text("notes\n")
    (repository.workspace / ".env").write_text(SECRET)
    return repository


def fingerprint(root: Path) -> dict[str, tuple[int, int, str]]:
    """Mode, time and content of everything."""
    found = {}
    for at, dirs, files in os.walk(root):
        for name in (*dirs, *files):
            path = Path(at, name)
            info = path.lstat()
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
            found[str(path.relative_to(root))] = (info.st_mode, info.st_mtime_ns, content)
    return found


_WORK = (
    "echo \"print('new')\" > src/main.py; rm notes.txt; mkdir made; echo x > made/x; mv src/main.py src/app.py; "
    "ln -s app.py src/link; chmod 700 made; echo hook > .git/hooks/pre-commit; cat src/app.py"
)


@pytest.mark.parametrize("wall", ["bwrap", "unshare"])
def test_the_project_is_untouched_whatever_is_done_in_its_shadow(
    project: Place, workspaces: Workspaces, shadow: Shadow, wall: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", wall)
    before = fingerprint(project.workspace)

    result = project.run(_WORK, shadow=shadow)

    assert (result.stdout, result.stderr) == ("print('new')\n", "")
    assert result.wall is not None and result.wall.name == wall
    assert fingerprint(project.workspace) == before
    assert {change.path for change in workspaces.changes(shadow)} >= {"made/x", "notes.txt", "src/link"}


def test_what_is_blacklisted_is_not_there(project: Place, shadow: Shadow) -> None:
    result = project.run("cat .env; ls -A", shadow=shadow)

    assert SECRET not in result.stdout
    assert ".env" not in result.stdout.split()


def test_the_next_box_goes_on_where_the_last_one_ended(project: Place, shadow: Shadow) -> None:
    project.run("echo one > made; rm notes.txt", shadow=shadow)

    result = project.run(
        "cat made; ls notes.txt; echo two >> made; echo again > notes.txt; cat made notes.txt", shadow=shadow
    )

    assert result.stdout == "one\none\ntwo\nagain\n"


def test_two_boxes_cannot_change_one_shadow(project: Place, workspaces: Workspaces, shadow: Shadow) -> None:
    async def work() -> None:
        async with Sandbox(project.workspace, shadow=shadow) as first:
            await first.shell("true")
            with pytest.raises(Busy, match="in use"):
                async with Sandbox(project.workspace, shadow=shadow) as second:
                    await second.shell("true")
            with pytest.raises(Busy, match="in use"):
                workspaces.commit(shadow)
            with pytest.raises(Busy, match="in use"):
                workspaces.discard(shadow)

    asyncio.run(work())
    workspaces.discard(shadow)


def test_the_file_api_sees_and_changes_the_shadow(project: Place, workspaces: Workspaces, shadow: Shadow) -> None:
    async def work() -> tuple[bytes, str]:
        async with Sandbox(project.workspace, shadow=shadow) as box:
            await box.shell("echo inside > notes.txt")
            await box.write_file("made.txt", "by the api\n")
            await box.files.mkdir("only/inside", parents=True)
            done = await box.shell("pwd; ls ../../made.txt", cwd="only/inside")
            assert done.stdout == f"{project.workspace}/only/inside\n../../made.txt\n"
            return await box.read_file("notes.txt"), (await box.shell("cat made.txt; stat -c %U made.txt")).stdout

    read, shown = asyncio.run(work())

    assert read == b"inside\n"
    assert shown == "by the api\nagent\n"
    assert (project.workspace / "notes.txt").read_text() == "notes\n"
    assert not (project.workspace / "made.txt").exists()


@pytest.mark.req("B9")
def test_a_commit_carries_over_what_was_chosen_and_is_in_the_journal(
    project: Place, workspaces: Workspaces, shadow: Shadow
) -> None:
    project.run(_WORK, shadow=shadow)

    done = workspaces.commit(shadow, select=Selection(paths=("made", "src")))

    assert done.is_done
    assert (project.workspace / "made" / "x").read_text() == "x\n"
    assert (project.workspace / "src" / "app.py").read_text() == "print('new')\n"
    assert (project.workspace / "notes.txt").exists()
    owner = project.workspace.stat()
    made = (project.workspace / "made" / "x").stat()
    assert (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid)
    recorded = "".join(file.read_text() for file in project.state.rglob("*.jsonl"))
    assert f"commit of shadow {shadow.id}" in recorded and "made/x" in recorded


def test_hooks_are_held_back_unless_somebody_says_so(project: Place, workspaces: Workspaces, shadow: Shadow) -> None:
    project.run("echo hook > .git/hooks/pre-commit; echo x > plain", shadow=shadow)

    held = workspaces.commit(shadow)
    hook = project.workspace / ".git" / "hooks" / "pre-commit"
    assert [refusal.path for refusal in held.refused] == [".git/hooks/pre-commit"]
    assert (project.workspace / "plain").exists() and not hook.exists()

    workspaces.commit(shadow, allow_protected=True)
    assert hook.read_text() == "hook\n"


def test_a_blacklisted_file_made_in_a_shadow_never_reaches_the_project(
    project: Place, workspaces: Workspaces, shadow: Shadow
) -> None:
    (project.workspace / ".env").unlink()
    project.run("echo evil > .envrc; echo evil > src/.env", shadow=shadow, trace="off")

    workspaces.commit(shadow, allow_protected=True)

    assert not (project.workspace / ".envrc").exists()
    assert not (project.workspace / "src" / ".env").exists()


def test_the_host_s_own_change_is_a_conflict(project: Place, workspaces: Workspaces, shadow: Shadow) -> None:
    project.run("echo agent > notes.txt; echo x > other", shadow=shadow)
    (project.workspace / "notes.txt").write_text("a person\n")

    done = workspaces.commit(shadow)

    assert [refusal.path for refusal in done.conflicts] == ["notes.txt"]
    assert (project.workspace / "notes.txt").read_text() == "a person\n"
    assert not (project.workspace / "other").exists()


def test_a_shadow_of_another_project_is_refused(project: Place, place: Place, shadow: Shadow) -> None:
    other = place.home / "other"
    other.mkdir()

    with pytest.raises(InvalidArgument, match="not of"):
        project.run("true", workspace=other, shadow=shadow)


def test_a_shadow_that_shows_what_is_hidden_now_is_refused(project: Place, shadow: Shadow) -> None:
    with pytest.raises(InvalidArgument, match="blacklist"):
        project.run("true", shadow=shadow, deny=["**/*.pem"])


def test_strict_and_shadow_go_together(project: Place, workspaces: Workspaces, shadow: Shadow) -> None:
    result = project.run(
        "echo changed > notes.txt; cat notes.txt; echo x > .env; cat src/main.py", shadow=shadow, mediate_opens=True
    )

    assert result.stdout == "changed\nprint('old')\n"
    assert (project.workspace / "notes.txt").read_text() == "notes\n"
    assert [change.kind for change in workspaces.changes(shadow)] == [ChangeKind.CHANGED]


# --- kept in memory, with a size ------------------------------------------------------------------------------------


@pytest.fixture
def overlay(project: Place, workspaces: Workspaces) -> Shadow:
    return workspaces.new(project.workspace, kind=ShadowKind.OVERLAY)


def test_a_size_bounds_what_a_shadow_takes(project: Place, workspaces: Workspaces, overlay: Shadow) -> None:
    line = "head -c 20000000 /dev/zero > big; stat -c %s big"
    bounded = project.run(line, shadow=overlay, shadow_bytes=8 << 20)
    size = next(change.new.size_bytes for change in workspaces.changes(overlay) if change.new)
    free = project.run(line, shadow=overlay)

    assert int(bounded.stdout) <= 8 << 20 and "No space left" in bounded.stderr
    assert size == int(bounded.stdout)
    assert int(free.stdout) == 20_000_000


def test_what_was_done_in_memory_is_kept_when_the_box_goes(
    project: Place, workspaces: Workspaces, overlay: Shadow
) -> None:
    before = fingerprint(project.workspace)
    project.run("echo on disk > first; mkdir both; echo 1 > both/one; rm src/main.py", shadow=overlay)

    seen = project.run(_WORK.replace("src/main.py", "first") + "; rm -r both; mkdir both; echo 2 > both/two; ls both",
                       shadow=overlay, shadow_bytes=64 << 20)  # fmt: skip
    later = project.run("cat src/app.py made/x both/*; ls both src; ls notes.txt", shadow=overlay)

    assert seen.stdout == "print('new')\ntwo\n"
    assert later.stdout == "print('new')\nx\n2\nboth:\ntwo\n\nsrc:\napp.py\nlink\n"
    assert "notes.txt" in later.stderr
    assert fingerprint(project.workspace) == before
    assert workspaces.commit(overlay, allow_protected=True).is_done
    assert (project.workspace / "both" / "two").read_text() == "2\n"
    assert not (project.workspace / "notes.txt").exists()


def test_an_agent_finds_no_way_to_the_memory_itself(project: Place, overlay: Shadow) -> None:
    look = "ls -R /run /sys; for each in /proc/[0-9]*/fd/*; do readlink $each; done; exit 0"
    result = project.run(look, shadow=overlay, shadow_bytes=8 << 20)

    assert "upper" not in result.stdout and "memory" not in result.stdout


def test_a_closed_file_is_kept_as_it_was(project: Place, workspaces: Workspaces, overlay: Shadow) -> None:
    project.run("echo x > closed; mkdir d; echo y > d/z; chmod 000 closed d", shadow=overlay, shadow_bytes=8 << 20)

    modes = {change.path: change.new.mode for change in workspaces.changes(overlay) if change.new}
    assert (modes["closed"], modes["d"]) == (0, 0)


def test_a_copy_takes_no_size(project: Place, workspaces: Workspaces) -> None:
    copy = workspaces.new(project.workspace, kind=ShadowKind.COPY)

    with pytest.raises(InvalidArgument, match="copy"):
        project.run("true", shadow=copy, shadow_bytes=1 << 20)


def test_without_a_wall_a_shadow_is_refused_and_not_forgotten(
    project: Place, overlay: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "none")
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX_REQUIRED", "0")

    with pytest.warns(RingfenceWarning), pytest.raises(InitializationFailed, match="nothing runs without a wall"):
        project.run("echo spoiled > notes.txt", shadow=overlay)

    assert (project.workspace / "notes.txt").read_text() == "notes\n"
