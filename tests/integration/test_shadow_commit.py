"""What a commit does, leaves out and refuses; each attempt was made in a real overlay, and in a copy."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringfence.errors import Busy, InvalidArgument, NotFound, PermissionDenied
from ringfence.values.change import Change, ChangeKind, HunkChoice, Selection
from ringfence.workspace.bases import keep_bases
from ringfence.workspace.commit import commit
from ringfence.workspace.copying import copy_content
from ringfence.workspace.diff import changes
from ringfence.workspace.journal import CommitJournal, CommitPhase, HostWasFaster, Steps
from ringfence.workspace.patch import hunks_of, patch
from ringfence.workspace.recover import recover
from ringfence.workspace.shadow import Shadow, ShadowKind
from ringfence.workspace.shadow_store import ShadowStore
from tests.support.shadows import a_place, as_user, inside, look, mount_memory
from tests.support.users import me

pytestmark = pytest.mark.req("D7")

DENIED = ("**/.env", "**/secret")
PROTECTED = (".git/hooks", ".vscode")
SECRET = b"hunter2"
LONG = b"".join(b"line %d\n" % number for number in range(60))


@dataclass(frozen=True)
class Bench:
    """A project and a shadow of it."""

    project: Path
    store: ShadowStore
    shadow: Shadow

    def inside(self, work: Callable[[], object]) -> None:
        inside(self.shadow, lambda: (work(), None)[1])

    def change(self, path: str) -> Change:
        return next(change for change in changes(self.shadow) if change.path == path)

    def paths(self) -> list[str]:
        return [change.path for change in changes(self.shadow)]


@pytest.fixture(params=list(ShadowKind))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with a_place(me()) as place:
        project = place / "project"
        (project / "src/deep").mkdir(parents=True)
        (project / "src/long.txt").write_bytes(LONG)
        (project / "src/deep/file").write_bytes(b"deep\n")
        (project / "src/deep/.env").write_bytes(SECRET)
        (project / "run.sh").write_bytes(b"#!/bin/sh\n")
        (project / "run.sh").chmod(0o755)
        (project / ".git/hooks").mkdir(parents=True)
        (project / ".git/hooks/pre-commit").write_bytes(b"host\n")
        (project / "vault").mkdir()
        (project / "vault/secret").write_bytes(SECRET)
        os.link(project / "vault/secret", project / "second name")
        (project / "link to secret").symlink_to("vault/secret")
        store = ShadowStore(place / "store")
        yield Bench(project, store, store.new(project, denied=DENIED, protected=PROTECTED, kind=request.param))


def write(path: str, content: bytes) -> Callable[[], object]:
    def work() -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)

    return work


# --- the blacklist ----------------------------------------------------------------------------------------------------


@pytest.mark.req("A3")
def test_what_the_blacklist_hides_is_seen_by_no_name(bench: Bench) -> None:
    def readable() -> list[bytes]:
        found = []
        for directory, _, files in os.walk("."):
            for name in files:
                with suppress(OSError):
                    found.append(Path(directory, name).read_bytes())
        return found

    seen = inside(bench.shadow, readable)

    assert LONG in seen, "the twin: what is not hidden is seen"
    assert SECRET not in seen
    assert SECRET in [path.read_bytes() for path in bench.project.rglob("*") if path.is_file()]


@pytest.mark.req("A3")
def test_hidden_files_are_in_no_diff_and_no_patch_and_survive_the_removal_of_everything(bench: Bench) -> None:
    def remove_everything() -> None:
        for name in os.listdir():
            shutil.rmtree(name) if os.path.isdir(name) and not os.path.islink(name) else os.unlink(name)

    bench.inside(remove_everything)
    found = changes(bench.shadow)
    data = patch(bench.shadow, found).data
    done = commit(bench.shadow, allow_protected=True)

    assert SECRET not in data and LONG.splitlines()[7] in data
    assert not [
        change.path
        for change in found
        if change.path.endswith((".env", "secret", "second name")) and not change.path.startswith("link")
    ]
    assert done.is_done
    kept = {path for path, (kind, _, _) in look(bench.project).items() if kind != "directory"}
    assert kept == {"src/deep/.env", "vault/secret", "second name"}
    assert {refusal.path for refusal in done.refused} == {"src", "src/deep", "vault"}
    assert all("hidden" in refusal.why or "stays" in refusal.why for refusal in done.refused)


@pytest.mark.req("A3")
@pytest.mark.parametrize("path", [".env", "src/deep/.env", "new/secret/below"])
def test_a_blacklisted_name_is_never_committed(bench: Bench, path: str) -> None:
    bench.inside(write(path, b"planted"))
    bench.inside(write("plain", b"planted"))

    done = commit(bench.shadow, allow_protected=True)

    assert "plain" in {change.path for change in done.applied}, "the twin: another name goes through"
    refused = {refusal.path: refusal for refusal in done.refused}
    name = next(name for name in (path, "new/secret") if name in refused)
    assert refused[name].rule in DENIED and not refused[name].allow_by
    assert b"planted" not in [entry[2] for key, entry in look(bench.project).items() if key != "plain"]


def test_a_directory_that_holds_a_hidden_file_is_not_replaced_by_a_file(bench: Bench) -> None:
    bench.inside(lambda: (shutil.rmtree("src/deep"), Path("src/deep").write_bytes(b"x")))

    done = commit(bench.shadow)

    assert (bench.project / "src/deep/.env").read_bytes() == SECRET
    assert "src/deep" in {refusal.path for refusal in done.refused}


# --- protected and held back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "lib/.git/hooks/post-merge", ".VSCODE/tasks.json"])
def test_a_protected_name_is_committed_only_when_asked_for(bench: Bench, path: str) -> None:
    bench.inside(write(path, b"planted"))

    done = commit(bench.shadow)

    (refusal,) = [refusal for refusal in done.refused if refusal.path == path]
    assert refusal.rule.startswith("protected: ") and "allow_protected" in refusal.allow_by
    assert not (bench.project / path).exists() or (bench.project / path).read_bytes() == b"host\n"
    assert path in {change.path for change in commit(bench.shadow, allow_protected=True).applied}
    assert (bench.project / path).read_bytes() == b"planted"


@pytest.mark.parametrize("make", [write("lib/.git", b"gitdir: ../evil\n"), lambda: os.symlink("evil", "src/.git")])
def test_a_file_or_link_that_leads_protected_names_elsewhere_is_protected(
    bench: Bench, make: Callable[[], object]
) -> None:
    bench.inside(make)

    done = commit(bench.shadow)

    assert [refusal.rule for refusal in done.refused] == ["protected: .git/hooks"]
    assert not [path for path in look(bench.project) if path in ("lib/.git", "src/.git")]


def test_another_directory_in_the_projects_place_is_not_touched(bench: Bench) -> None:
    bench.inside(write("a", b"a"))
    bench.project.rename(bench.project.parent / "moved")
    bench.project.mkdir()

    with pytest.raises(PermissionDenied, match="another directory"):
        commit(bench.shadow)
    assert os.listdir(bench.project) == []


def test_a_shadow_that_changes_while_it_is_committed_stops_the_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.inside(write("a", b"seen"))

    def late(source: int, target: int) -> str:
        (bench.shadow.upper / "a").write_bytes(b"swapped")
        return copy_content(source, target)

    monkeypatch.setattr("ringfence.workspace.staging.copy_content", late)
    with pytest.raises(PermissionDenied, match="while it was committed"):
        commit(bench.shadow)
    assert not (bench.project / "a").exists()
    assert [name for name in os.listdir(bench.project) if name.startswith(".ringfence")] == []


def test_what_is_held_back_is_named_with_its_reason_and_the_rest_goes_through(bench: Bench) -> None:
    bench.inside(write("a", b"a"))
    bench.inside(write("ci.yml", b"run: me"))

    done = commit(bench.shadow, held=lambda _, change: "runs on push" if change.path == "ci.yml" else None)

    assert [change.path for change in done.applied] == ["a"]
    assert [(refusal.path, refusal.why) for refusal in done.refused] == [("ci.yml", "runs on push")]


def test_set_uid_bits_are_dropped_and_special_files_stay_out(bench: Bench) -> None:
    def work() -> None:
        Path("tool").write_bytes(b"x")
        Path("tool").chmod(0o6755)
        Path("run.sh").chmod(0o4755)
        os.mkfifo("fifo")
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("socket")

    bench.inside(work)
    done = commit(bench.shadow)

    tree = look(bench.project)
    assert tree["tool"][1] == 0o755 and tree["run.sh"][1] == 0o755
    assert {refusal.path for refusal in done.refused} == {"fifo", "socket"}
    assert "fifo" not in tree and "socket" not in tree


# --- links ------------------------------------------------------------------------------------------------------------


def test_a_commit_follows_no_link_that_the_host_has_on_the_way(bench: Bench) -> None:
    outside = bench.project.parent / "outside"
    outside.mkdir()
    bench.inside(write("src/deep/new", b"x"))
    os.unlink(bench.project / "src/deep/.env")
    shutil.rmtree(bench.project / "src/deep")
    (bench.project / "src/deep").symlink_to(outside)

    done = commit(bench.shadow)

    assert os.listdir(outside) == []
    assert done.applied == ()


def test_a_link_of_the_shadow_is_committed_as_a_link_and_what_is_written_through_it_stays_outside(bench: Bench) -> None:
    target = bench.project.parent / "target"
    target.write_bytes(b"host")
    bench.inside(lambda: (os.unlink("run.sh"), os.symlink(target, "run.sh")))

    assert commit(bench.shadow).is_done
    assert os.readlink(bench.project / "run.sh") == str(target)
    assert target.read_bytes() == b"host"


# --- conflicts --------------------------------------------------------------------------------------------------------


def on_host_change(bench: Bench) -> None:
    (bench.project / "run.sh").write_bytes(b"host\n")


def on_host_remove(bench: Bench) -> None:
    os.unlink(bench.project / "run.sh")


def on_host_make(bench: Bench) -> None:
    (bench.project / "made").write_bytes(b"host\n")


@pytest.mark.parametrize(
    ("in_shadow", "on_host", "path"),
    [
        (write("run.sh", b"agent\n"), on_host_change, "run.sh"),
        (lambda: os.unlink("run.sh"), on_host_change, "run.sh"),
        (lambda: os.chmod("run.sh", 0o700), on_host_change, "run.sh"),
        (lambda: os.rename("run.sh", "moved"), on_host_change, "run.sh"),
        (lambda: os.truncate("run.sh", 3), on_host_remove, "run.sh"),
        (write("made", b"agent\n"), on_host_make, "made"),
        (lambda: os.mkdir("made"), on_host_make, "made"),
    ],
)
def test_what_the_host_changed_too_is_a_conflict_and_nothing_is_applied(
    bench: Bench, in_shadow: Callable[[], object], on_host: Callable[[Bench], None], path: str
) -> None:
    bench.inside(in_shadow)
    bench.inside(write("other", b"fine"))
    on_host(bench)
    before = look(bench.project)

    done = commit(bench.shadow)

    assert [refusal.path for refusal in done.conflicts] in ([path], ["moved"])
    assert done.applied == () and look(bench.project) == before
    rest = commit(bench.shadow, select=Selection(paths=("other",)))
    assert [change.path for change in rest.applied] == ["other"], "the twin: what has no conflict goes through"


def test_what_both_sides_made_the_same_is_no_conflict(bench: Bench) -> None:
    bench.inside(write("run.sh", b"same\n"))
    (bench.project / "run.sh").write_bytes(b"same\n")

    assert changes(bench.shadow) == ()
    assert commit(bench.shadow).is_done


def test_a_file_that_the_host_put_into_a_removed_directory_survives(bench: Bench) -> None:
    bench.inside(lambda: shutil.rmtree(".git"))
    (bench.project / ".git/new").write_bytes(b"host")

    commit(bench.shadow, allow_protected=True)

    assert (bench.project / ".git/new").read_bytes() == b"host"


def test_what_became_different_after_it_was_looked_at_is_a_conflict(bench: Bench) -> None:
    bench.inside(write("run.sh", b"harmless\n"))
    seen = changes(bench.shadow)
    bench.inside(write("run.sh", b"harmful!\n"))

    done = commit(bench.shadow, seen=seen)

    assert [(refusal.path, refusal.rule) for refusal in done.conflicts] == [("run.sh", "seen")]
    assert (bench.project / "run.sh").read_bytes() == b"#!/bin/sh\n"
    assert commit(bench.shadow, seen=changes(bench.shadow)).is_done


def test_a_host_that_is_faster_than_the_last_rename_undoes_the_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.inside(write("a", b"a"))
    bench.inside(write("run.sh", b"agent\n"))
    plain = Steps._put

    def late(self: Steps, step: object) -> None:
        if step.path == "run.sh":  # type: ignore[attr-defined]
            (bench.project / "run.sh").write_bytes(b"host, at the last moment\n")
        plain(self, step)  # type: ignore[arg-type]

    monkeypatch.setattr(Steps, "_put", late)
    done = commit(bench.shadow)

    assert [refusal.path for refusal in done.conflicts] == ["run.sh"]
    assert (bench.project / "run.sh").read_bytes() == b"host, at the last moment\n"
    assert not (bench.project / "a").exists()
    assert [name for name in os.listdir(bench.project) if name.startswith(".ringfence")] == []


# --- merging ----------------------------------------------------------------------------------------------------------


def test_texts_are_merged_if_the_old_one_was_kept(bench: Bench) -> None:
    bench.inside(write("src/long.txt", LONG.replace(b"line 3\n", b"agent\n")))
    assert keep_bases(bench.shadow, changes(bench.shadow)) == 1
    (bench.project / "src/long.txt").write_bytes(LONG.replace(b"line 50\n", b"host\n"))

    assert commit(bench.shadow).conflicts, "the twin: without merging it is a conflict"
    done = commit(bench.shadow, merge=True)

    both = LONG.replace(b"line 3\n", b"agent\n").replace(b"line 50\n", b"host\n")
    assert done.merged == ("src/long.txt",)
    assert (bench.project / "src/long.txt").read_bytes() == both
    assert changes(bench.shadow) == ()
    assert inside(bench.shadow, lambda: Path("src/long.txt").read_bytes()) == both


def test_without_the_old_text_or_in_the_same_lines_nothing_is_merged(bench: Bench) -> None:
    bench.inside(write("src/long.txt", LONG.replace(b"line 3\n", b"agent\n")))
    host = LONG.replace(b"line 3\n", b"host\n")
    (bench.project / "src/long.txt").write_bytes(host)
    keep_bases(bench.shadow, changes(bench.shadow))

    (refusal,) = commit(bench.shadow, merge=True).conflicts

    assert "not kept" in refusal.why
    assert (bench.project / "src/long.txt").read_bytes() == host


# --- choosing ---------------------------------------------------------------------------------------------------------


def test_a_directory_is_chosen_with_everything_below_and_new_parents_come_along(bench: Bench) -> None:
    for path in ("one/two/a", "one/two/b", "one/c", "run.sh"):
        bench.inside(write(path, b"new"))

    done = commit(bench.shadow, select=Selection(paths=("one/two/",)))

    assert {change.path for change in done.applied} == {"one", "one/two", "one/two/a", "one/two/b"}
    assert bench.paths() == ["one/c", "run.sh"]


def test_a_path_at_which_nothing_changed_is_an_error(bench: Bench) -> None:
    bench.inside(write("a", b"a"))

    for path in ("b", "../a", "/a"):
        with pytest.raises(NotFound if path == "b" else InvalidArgument):
            commit(bench.shadow, select=Selection(paths=(path,)))


def test_a_renamed_file_goes_as_one(bench: Bench) -> None:
    bench.inside(lambda: os.rename("src/long.txt", "moved.txt"))
    (change,) = changes(bench.shadow)

    assert (change.kind, change.source, change.path) == (ChangeKind.RENAMED, "src/long.txt", "moved.txt")
    assert commit(bench.shadow, select=Selection(paths=("src",))).is_done
    assert not (bench.project / "src/long.txt").exists()
    assert (bench.project / "moved.txt").read_bytes() == LONG


def test_single_hunks_are_committed_and_the_others_stay_to_be_seen(bench: Bench) -> None:
    wanted = LONG.replace(b"line 3\n", b"first\n").replace(b"line 50\n", b"second\n")
    bench.inside(write("src/long.txt", wanted))
    found = hunks_of(bench.shadow, bench.change("src/long.txt"))
    assert found is not None and len(found.hunks) == 2
    choice = HunkChoice("src/long.txt", found.mark, frozenset({1}))

    assert commit(bench.shadow, select=Selection(paths=(), hunks=(choice,))).is_done

    assert (bench.project / "src/long.txt").read_bytes() == LONG.replace(b"line 50\n", b"second\n")
    assert bench.paths() == ["src/long.txt"]
    again = commit(bench.shadow, select=Selection(paths=(), hunks=(choice,)))
    assert [refusal.path for refusal in again.conflicts] == ["src/long.txt"], "the hunks are others now"
    assert commit(bench.shadow).is_done
    assert (bench.project / "src/long.txt").read_bytes() == wanted and bench.paths() == []


# --- owners and locks -------------------------------------------------------------------------------------------------


@pytest.mark.root
def test_owners_are_kept_and_new_files_belong_to_who_has_the_directory(bench: Bench) -> None:
    os.chown(bench.project / "src", 61240, 61241)
    os.chown(bench.project / "src/long.txt", 61242, 61243)
    shadow = bench.store.new(bench.project, denied=DENIED, kind=ShadowKind.COPY)
    inside(shadow, write("src/long.txt", b"x"))
    inside(shadow, write("src/made/new", b"x"))

    assert commit(shadow).is_done

    def owner(path: str) -> tuple[int, int]:
        status = (bench.project / path).stat()
        return status.st_uid, status.st_gid

    assert owner("src/long.txt") == (61242, 61243)
    assert owner("src/made") == owner("src/made/new") == (61240, 61241)


def test_a_shadow_in_use_is_neither_committed_nor_discarded(bench: Bench) -> None:
    with bench.store.lock(bench.shadow) as lock:
        with pytest.raises(Busy, match="in use"):
            commit(bench.shadow)
        with pytest.raises(Busy, match="in use"):
            bench.store.discard(bench.shadow)
        assert commit(bench.shadow, lock=lock).is_done, "the twin: whoever holds the lock may"
    bench.store.discard(bench.shadow)
    with pytest.raises(NotFound, match="no shadow"):
        bench.store.lock(bench.shadow)


# --- interruptions, one by one ----------------------------------------------------------------------------------------


def everything() -> None:
    """One step of each kind at least."""
    write("new/deep/file", b"new")()
    write("run.sh", b"changed\n")()
    os.chmod("src/long.txt", 0o600)
    os.rename("src/deep/file", "moved")
    shutil.rmtree("vault")
    os.unlink("link to secret")
    os.mkdir("link to secret")
    shutil.rmtree(".git")
    write(".git", b"a file\n")()


def dies_at(shadow: Shadow, number: int, phase: str) -> bool:
    """Commit in a child that ends without a word after so many steps of a phase; whether it came that far."""
    child = os.fork()
    if child == 0:
        plain_apply, plain_undo = Steps.apply, Steps.undo
        left = iter(range(number))

        def tick() -> None:
            if next(left, None) is None:
                os._exit(7)

        def failing(self: Steps, steps: object) -> None:
            plain_apply(self, steps)  # type: ignore[arg-type]
            raise HostWasFaster("run.sh")

        if phase == "apply":
            Steps.apply = lambda self, steps: plain_apply(self, steps, tick)  # type: ignore[method-assign]
        else:
            Steps.apply = failing  # type: ignore[method-assign]
            Steps.undo = lambda self, steps: plain_undo(self, steps, tick)  # type: ignore[method-assign]
        try:
            commit(shadow, allow_protected=True)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("phase", ["apply", "undo"])
def test_a_commit_that_dies_after_any_step_is_settled(bench: Bench, phase: str) -> None:
    bench.inside(everything)
    old = look(bench.project)
    number = 0
    while dies_at(bench.shadow, number, phase):
        number += 1
        with pytest.raises(Busy, match="interrupted"):
            bench.store.lock(bench.shadow)
        if phase == "apply":
            assert CommitJournal.read(bench.shadow).phase is CommitPhase.APPLYING  # type: ignore[union-attr]
            journal = (bench.shadow.directory / "commit.json").read_text()
            (bench.shadow.directory / "commit.json").write_text(journal.replace('"applying"', '"undoing"'))
        (one,) = recover(bench.store)
        assert one.kind.value == "undone" and one.left == () and "run.sh" in one.paths
        assert look(bench.project) == old
    assert number > 10, "there were steps to die at"


@pytest.mark.parametrize("number", range(0, 12, 2))
def test_a_commit_that_dies_after_any_step_can_be_finished(bench: Bench, number: int) -> None:
    bench.inside(everything)
    assert dies_at(bench.shadow, number, "apply")

    (one,) = recover(bench.store)

    assert one.kind.value == "finished" and one.left == () and "run.sh" in one.paths
    assert bench.paths() == ["vault"], "which holds what is hidden"
    assert (bench.project / "run.sh").read_bytes() == b"changed\n"
    assert (bench.project / "moved").read_bytes() == b"deep\n"
    assert (bench.project / ".git").read_bytes() == b"a file\n"
    assert (bench.project / "vault/secret").read_bytes() == SECRET
    assert [name for name in os.listdir(bench.project) if name.startswith(".ringfence")] == []


def test_what_the_host_changed_after_the_interruption_stays_and_the_rest_is_undone(bench: Bench) -> None:
    bench.inside(everything)
    assert dies_at(bench.shadow, 3, "apply")
    (bench.project / "run.sh").write_bytes(b"host, meanwhile\n")

    (one,) = recover(bench.store)

    assert one.kind.value == "undone"
    assert (bench.project / "run.sh").read_bytes() == b"host, meanwhile\n"
    assert (bench.project / "src/deep/file").read_bytes() == b"deep\n"
    assert commit(bench.shadow, allow_protected=True).conflicts


def test_a_journal_whose_staging_is_gone_is_stuck_and_says_so(bench: Bench) -> None:
    bench.inside(everything)
    assert dies_at(bench.shadow, 3, "apply")
    (staging,) = [name for name in os.listdir(bench.project) if name.startswith(".ringfence")]
    shutil.move(bench.project / staging, bench.project.parent / "elsewhere")

    (one,) = recover(bench.store)

    assert one.kind.value == "stuck" and staging in one.left[0]
    shutil.move(bench.project.parent / "elsewhere", bench.project / staging)
    assert recover(bench.store)[0].kind.value in ("finished", "undone")


# --- file systems -----------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that can neither swap two names nor refuse to replace one."""
    monkeypatch.setattr("ringfence.workspace.calls._rename", lambda *_: False)


@pytest.mark.usefixtures("plain_renames")
def test_where_names_cannot_be_swapped_a_commit_is_the_same(bench: Bench) -> None:
    bench.inside(everything)

    assert commit(bench.shadow, allow_protected=True).is_done

    assert (bench.project / "run.sh").read_bytes() == b"changed\n"
    assert (bench.project / ".git").read_bytes() == b"a file\n"
    assert (bench.project / "link to secret").is_dir() and not (bench.project / "link to secret").is_symlink()
    assert bench.paths() == ["vault"]


@pytest.mark.usefixtures("plain_renames")
def test_where_names_cannot_be_swapped_a_commit_that_dies_is_undone_all_the_same(bench: Bench) -> None:
    bench.inside(everything)
    old = look(bench.project)
    number = 0
    while dies_at(bench.shadow, number, "undo"):
        number += 1
        assert recover(bench.store)[0].kind.value == "undone"
        assert look(bench.project) == old
    assert number > 10


@pytest.mark.root
def test_a_full_disk_is_met_before_anything_is_touched(bench: Bench) -> None:
    def scenario() -> None:
        small = bench.project.parent / "small"
        small.mkdir()
        mount_memory(small, "256k")
        (small / "a").write_bytes(b"host")
        shadow = bench.store.new(small, kind=bench.shadow.kind)
        (shadow.upper / "a").write_bytes(b"agent")
        (shadow.upper / "large").write_bytes(os.urandom(512 * 1024))
        before = look(small)

        with pytest.raises(PermissionDenied, match=r"as it was.*No space"):
            commit(shadow)
        assert look(small) == before
        assert recover(bench.store) == ()
        assert [change.path for change in commit(shadow, select=Selection(paths=("a",))).applied] == ["a"]

    as_user(me(), scenario)


@pytest.mark.root
def test_nothing_is_committed_to_what_is_mounted_in_the_project(bench: Bench) -> None:
    bench.inside(write("src/deep/new", b"x"))
    bench.inside(write("plain", b"x"))

    def scenario() -> None:
        mount_memory(bench.project / "src/deep", "256k")
        done = commit(bench.shadow)

        assert "plain" in {change.path for change in done.applied}
        assert {refusal.rule for refusal in done.refused} == {"one file system"}
        assert os.listdir(bench.project / "src/deep") == []

    as_user(me(), scenario)
