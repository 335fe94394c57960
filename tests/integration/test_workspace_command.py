"""`ringfence run --shadow`, `ringfence workspace` and `ringfence shell` as a person uses them."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from tests.integration.stage import Place

pytestmark = pytest.mark.req("D7", "X3")

RINGFENCE = (sys.executable, "-m", "ringfence.cli.app")


def ringfence(place: Place, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RINGFENCE, *words],
        cwd=place.workspace,
        env=_environment(place),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _environment(place: Place) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(place.home), "PYTHONPATH": os.pathsep.join(sys.path)}


def made_shadow(place: Place, line: str) -> str:
    """A shadow in which something was done; its id."""
    done = ringfence(place, "run", "--shadow", line)
    assert done.returncode == 0, done.stderr
    (shadow,) = json.loads(ringfence(place, "workspace", "list", "--json").stdout)
    return str(shadow["id"])


@pytest.fixture
def project(place: Place) -> Place:
    lines = "".join(f"line {number}\n" for number in range(40))
    (place.workspace / "text").write_text(lines)
    return place


def test_a_run_on_a_shadow_shows_what_changed_and_how_to_go_on(project: Place) -> None:
    done = ringfence(project, "run", "--shadow", "echo made > new; rm text; exit 3")

    assert done.returncode == 3
    for word in ("+ new", "- text", "workspace commit", "workspace discard", "workspace diff"):
        assert word in done.stderr
    assert project.names() == {"text"}


def test_a_run_that_changes_nothing_leaves_no_shadow(project: Place) -> None:
    done = ringfence(project, "run", "--shadow", "cat text > /dev/null")

    assert "nothing was changed" in done.stderr
    assert json.loads(ringfence(project, "workspace", "list", "--json").stdout) == []


def test_uncommitted_work_is_not_discarded_where_nobody_can_be_asked(project: Place) -> None:
    shadow = made_shadow(project, "echo made > new")

    refused = ringfence(project, "workspace", "discard", shadow)
    kept = json.loads(ringfence(project, "workspace", "diff", "--json", shadow).stdout)

    assert refused.returncode == 125
    assert "1 changes are not committed" in refused.stderr and f"discard --yes {shadow}" in refused.stderr
    assert [change["path"] for change in kept] == ["new"]
    assert ringfence(project, "workspace", "discard", "--yes", shadow).returncode == 0
    assert json.loads(ringfence(project, "workspace", "list", "--json").stdout) == []


def test_a_shadow_without_changes_is_discarded_without_a_question(project: Place) -> None:
    empty = ringfence(project, "workspace", "new").stdout.strip()

    assert ringfence(project, "workspace", "discard", empty).returncode == 0


def test_a_shadow_that_cannot_be_read_is_discarded_only_by_who_says_so(project: Place) -> None:
    shadow = made_shadow(project, "echo made > new")
    (project.home / ".ringfence" / "shadows" / shadow / "shadow.json").write_text("{")

    assert ringfence(project, "workspace", "discard", shadow).returncode == 125
    assert (project.home / ".ringfence" / "shadows" / shadow).exists()
    assert ringfence(project, "workspace", "discard", "--yes", shadow).returncode == 0
    assert not (project.home / ".ringfence" / "shadows" / shadow).exists()


def test_a_diff_is_one_that_git_applies(project: Place) -> None:
    shadow = made_shadow(project, "sed -i s/line.7$/seven/ text; echo made > new; chmod +x new")
    patch = ringfence(project, "workspace", "diff", "--patch", shadow).stdout

    done = subprocess.run(["git", "apply", "-"], cwd=project.workspace, input=patch, text=True, check=False)

    assert done.returncode == 0
    assert "seven\n" in (project.workspace / "text").read_text()
    assert os.access(project.workspace / "new", os.X_OK)


def test_commit_carries_over_and_a_second_one_finds_nothing(project: Place) -> None:
    shadow = made_shadow(project, "echo made > new; echo changed > text")

    first = ringfence(project, "workspace", "commit", shadow, "new")
    second = ringfence(project, "workspace", "commit", shadow)
    third = ringfence(project, "workspace", "commit", shadow)

    assert [one.returncode for one in (first, second, third)] == [0, 0, 0]
    assert (
        "committed 1 change " in first.stderr
        and "committed 1 change " in second.stderr
        and "nothing to commit" in third.stderr
    )
    assert (project.workspace / "text").read_text() == "changed\n"


def test_hunks_are_asked_about_one_by_one(project: Place) -> None:
    shadow = made_shadow(project, "sed -i -e 's/line 3$/three/' -e 's/line 30$/thirty/' text; echo made > new")

    done = ringfence(project, "workspace", "commit", "-p", shadow, stdin="n\n?\nn\ny\n")

    text = (project.workspace / "text").read_text()
    assert done.returncode == 0, done.stderr
    assert "thirty\n" in text and "three\n" not in text
    assert not (project.workspace / "new").exists()
    assert "take it" in done.stdout  # what the letters mean, for whoever asks


def test_a_conflict_is_said_and_nothing_is_committed(project: Place) -> None:
    shadow = made_shadow(project, "echo agent > text; echo made > new")
    (project.workspace / "text").write_text("a person\n")

    done = ringfence(project, "workspace", "commit", shadow)

    assert done.returncode == 1
    assert "text" in done.stderr and "nothing was committed" in done.stderr
    assert (project.workspace / "text").read_text() == "a person\n"
    assert not (project.workspace / "new").exists()


def test_texts_that_both_sides_changed_are_merged_if_asked(project: Place) -> None:
    shadow = made_shadow(project, "sed -i 's/line 3$/three/' text")
    text = (project.workspace / "text").read_text()
    (project.workspace / "text").write_text(text.replace("line 30\n", "thirty\n"))

    refused = ringfence(project, "workspace", "commit", shadow)
    merged = ringfence(project, "workspace", "commit", "--merge", shadow)

    after = (project.workspace / "text").read_text()
    assert (refused.returncode, merged.returncode) == (1, 0), merged.stderr
    assert "three\n" in after and "thirty\n" in after


def test_a_shadow_is_saved_forked_and_worked_on_by_name(project: Place) -> None:
    shadow = made_shadow(project, "echo one > new")
    words = [("snapshot", shadow, "here"), ("fork", "here", "--name", "second")]
    for each in words:
        assert ringfence(project, "workspace", *each).returncode == 0

    changed = ringfence(project, "run", "--use-shadow", "second", "echo two > new; cat new")
    shown = ringfence(project, "workspace", "snapshots", "--json")
    restored = ringfence(project, "workspace", "restore", "--yes", shadow, "here")

    assert changed.stdout == "two\n"
    assert [one["name"] for one in json.loads(shown.stdout)] == ["here"]
    assert restored.returncode == 0
    assert ringfence(project, "run", "--use-shadow", shadow, "cat new").stdout == "one\n"
    assert ringfence(project, "workspace", "forget", "here").returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("workspace", "diff", "none"), "no shadow"),
        (("workspace", "restore", "none", "x"), "no shadow"),
        (("workspace", "fork", "none"), "none"),
        (("run", "--shadow", "--use-shadow", "x", "true"), "not both"),
        (("run", "--shadow-size", "1MB", "true"), "--shadow"),
        (("shell",), "needs a terminal"),
    ],
)
def test_a_mistake_is_said_with_its_remedy(project: Place, words: tuple[str, ...], says: str) -> None:
    done = ringfence(project, *words)

    assert done.returncode == 125
    assert says in done.stderr and "hint:" in done.stderr


def test_a_shell_on_a_shadow_is_a_terminal_of_its_own(project: Place) -> None:
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(project.workspace)
        os.execve(sys.executable, [*RINGFENCE, "shell", "--shadow"], _environment(project))
    said = b""

    def until(mark: bytes, times: int = 1) -> None:
        nonlocal said
        deadline = time.monotonic() + 60
        while said.count(mark) < times and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    said += os.read(terminal, 4096)
                except OSError:
                    return

    until(b"$ ")
    # Said by the job that bash has put in front, and by nothing that is typed: a key before that is bash's own.
    os.write(terminal, b"echo made > new; tty; sh -c 'echo job-$((40 + 2)); exec sleep 100'\n")
    until(b"/dev/pts/")
    until(b"job-42")
    os.write(terminal, b"\x03")
    until(b"$ ", 2)
    os.write(terminal, b"exit 5\n")
    until(b"workspace discard")

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(terminal)
    assert b"+ new" in said
    assert not (project.workspace / "new").exists()


def test_without_a_name_the_latest_shadow_of_this_directory_is_meant(project: Place) -> None:
    first = ringfence(project, "workspace", "new", "--name", "first").stdout.strip()
    made_last = ringfence(project, "run", "--shadow", "echo made > new; echo more > other")
    other = project.home / "elsewhere"
    other.mkdir()
    elsewhere = ringfence(project, "workspace", "new", str(other))
    assert first and made_last.returncode == elsewhere.returncode == 0

    diff = ringfence(project, "workspace", "diff")
    part = ringfence(project, "workspace", "commit", "new")
    wrong = ringfence(project, "workspace", "commit", "nonsense")
    gone = ringfence(project, "workspace", "discard", "--yes")

    assert "+ new" in diff.stdout and "+ other" in diff.stdout and f"the latest of {project.workspace}" in diff.stderr
    assert part.returncode == 0 and project.names() >= {"new", "text"} and "other" not in project.names()
    assert wrong.returncode == 125 and "neither a shadow nor a path" in wrong.stderr
    assert gone.returncode == 0 and "with 1 changes" in gone.stderr
    assert "nothing was changed" in ringfence(project, "workspace", "diff").stdout, "the first one is left"


def test_hunk_by_hunk_shows_new_and_removed_files_before_it_asks(project: Place) -> None:
    (project.workspace / "old").write_text("was here\n")
    made_shadow(project, "printf 'first\\nsecond\\n' > new; rm old; printf 'a\\0b' > binary")

    done = ringfence(project, "workspace", "commit", "-p", stdin="n\ny\ny\n")

    assert "+first\n+second\n" in done.stdout and "-was here\n" in done.stdout and "(binary)" in done.stdout
    assert project.names() == {"new", "text"}


def test_restoring_asks_before_it_overwrites_work_that_is_not_committed(project: Place) -> None:
    shadow = made_shadow(project, "echo one > new")
    assert ringfence(project, "workspace", "snapshot", shadow, "here").returncode == 0
    assert ringfence(project, "run", "--use-shadow", shadow, "echo two > new").returncode == 0

    refused = ringfence(project, "workspace", "restore", shadow, "here")
    kept = ringfence(project, "run", "--use-shadow", shadow, "cat new")
    restored = ringfence(project, "workspace", "restore", "--yes", shadow, "here")

    assert refused.returncode == 125 and "restore --yes" in refused.stderr
    assert kept.stdout == "two\n"
    assert restored.returncode == 0
    assert ringfence(project, "run", "--use-shadow", shadow, "cat new").stdout == "one\n"
