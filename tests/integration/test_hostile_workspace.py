"""A workspace that an agent has prepared, in this box or in one before it, so that a cover comes to nothing."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from ringfence import Exited
from tests.integration.stage import SECRET, Place

pytestmark = pytest.mark.req("A3")


@pytest.fixture(params=["bwrap", "unshare"], autouse=True)
def adapter(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both walls are built from the same covers; both have to hold them."""
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", request.param)


@pytest.fixture
def services(place: Place) -> Path:
    """A directory of the workspace with a secret in it, and the same secret under a name that nothing hides."""
    directory = place.workspace / "services"
    directory.mkdir()
    (directory / ".env").write_text(SECRET)
    (directory / "notes").write_text(SECRET)
    return directory


# --- a secret below a directory that the agent owns -------------------------------------------------------------------


def test_a_directory_that_was_closed_to_us_does_not_open_in_the_next_box(place: Place, services: Path) -> None:
    place.run("chmod 000 services")

    done = place.run("chmod 755 services; cat services/.env")

    assert SECRET not in done.stdout
    services.chmod(0o755)


def test_a_directory_with_a_secret_is_not_moved_to_where_nobody_looks(place: Place, services: Path) -> None:
    place.run("mkdir -p x/.git && mv services x/.git/")

    done = place.run("cat x/.git/services/.env services/.env")

    assert SECRET not in done.stdout
    assert services.is_dir()


def test_a_directory_without_one_can_be_moved_anywhere(place: Place, services: Path) -> None:
    (services / ".env").unlink()

    done = place.run("mkdir -p x/.git && mv services x/.git/ && cat x/.git/services/notes")

    assert done.stdout == SECRET


def test_files_still_move_in_and_out_of_a_directory_with_a_secret(place: Place, services: Path) -> None:
    done = place.run("python3 -c \"import os; os.rename('services/notes', 'n'); os.rename('n', 'services/notes')\"")

    assert done.ending == Exited(0), done.stderr


def test_two_boxes_cannot_play_a_secret_to_each_other_by_moving_it_during_the_walk(
    place: Place, services: Path
) -> None:
    (place.workspace / "decoy").mkdir()
    swap = (
        "python3 -c \"\nimport ctypes, os\nlibc = ctypes.CDLL(None)\nopen('begun', 'w').close()\n"
        "while not os.path.exists('enough'):\n for _ in range(1000):\n"
        "  libc.renameat2(-100, b'services', -100, b'decoy', 2)\""
    )
    running = threading.Thread(target=place.run, args=(swap,), kwargs={"timeout": 100.0})
    running.start()
    try:
        while running.is_alive() and not (place.workspace / "begun").exists():
            time.sleep(0.01)
        said = [place.run("cat services/.env decoy/.env").stdout for _ in range(15)]
        assert running.is_alive(), "nobody swapped them any more"
    finally:
        (place.workspace / "enough").touch()
        running.join()

    assert SECRET not in "".join(said)


def test_a_link_of_a_hidden_name_hides_what_it_leads_to(place: Place) -> None:
    (place.workspace / "production").write_text(SECRET)
    (place.workspace / ".env").symlink_to("production")

    assert SECRET not in place.run("cat .env production").stdout


# --- git --------------------------------------------------------------------------------------------------------------


def test_a_nested_repository_is_not_replaced_together_with_its_directory(place: Place) -> None:
    hooks = place.workspace / "sub" / ".git" / "hooks"
    hooks.mkdir(parents=True)

    place.run("mv sub old; mkdir -p sub/.git/hooks; echo evil > sub/.git/hooks/pre-commit")

    assert not (hooks / "pre-commit").exists()


@pytest.mark.parametrize("name", [".git/hooks", ".vscode"])
def test_a_link_in_a_protected_place_is_not_replaced(place: Place, name: str) -> None:
    link = place.workspace / name
    link.parent.mkdir(exist_ok=True)
    (place.workspace / "elsewhere").mkdir()
    link.symlink_to(place.workspace / "elsewhere")

    place.run(f"rm {name}; mkdir {name}; echo evil > {name}/x; echo evil > elsewhere/x")

    assert link.is_symlink()
    assert os.listdir(place.workspace / "elsewhere") == []


def test_a_git_directory_behind_a_link_is_protected(place: Place) -> None:
    (place.workspace / "store" / "hooks").mkdir(parents=True)
    (place.workspace / ".git").symlink_to("store")

    place.run("rm .git; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; echo evil > store/config")

    assert (place.workspace / ".git").is_symlink()
    assert os.listdir(place.workspace / "store" / "hooks") == []
    assert not (place.workspace / "store" / "config").exists()


def test_the_host_s_git_is_not_led_elsewhere_while_a_box_runs(repository: Place) -> None:
    lure = (
        "mkdir evil && cp -r .git/. evil/ && echo '[core]' > evil/config; echo ../evil > .git/commondir; "
        "git status >/dev/null && echo fine; cat .git/commondir"
    )

    done = repository.run(lure)

    assert done.stdout == "fine\n", done.stderr
    assert "protected .git/commondir" in {violation.rule for violation in done.violations}
    assert not (repository.workspace / ".git" / "commondir").exists()


def test_a_worktree_elsewhere_is_not_led_to_the_agent_s_configuration(repository: Place) -> None:
    repository.host("git worktree add ../other")
    place = repository.workspace / ".git" / "worktrees" / "other"
    before = (place / "commondir").read_text()

    repository.run(
        "cd .git; echo /evil > worktrees/other/commondir; echo x > worktrees/other/config.worktree; "
        "mv worktrees w; mkdir -p worktrees/other; echo /evil > worktrees/other/commondir"
    )

    assert (place / "commondir").read_text() == before
    assert not (place / "config.worktree").exists()


# --- a workspace that no later box can open ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prepare",
    [
        "python3 -c \"\nimport os\nfor _ in range(60):\n os.mkdir('d' * 100); os.chdir('d' * 100)\"",
        "mkdir .git && chmod 000 .git",
        "mkdir -p a/b && touch a/b/c && chmod 444 a",
        "mkdir -p a/.env && touch a/.env/f && ln -s a/.env/f .env.local",
        "mkfifo .env credentials.json; ln -s . secrets.json",
        "for i in $(seq 150); do mkdir -p r$i/.git; done",
        "touch $'new\\nline' $'bad\\xff' ' ' '*' ./-rf && mkdir $'.git\\n' $'\\xff'",
    ],
    ids=["deep", "closed git", "unenterable", "below hidden", "odd kinds", "many repositories", "odd names"],
)
def test_what_a_box_leaves_does_not_keep_the_next_from_opening(place: Place, prepare: str) -> None:
    assert place.run(prepare, trace="off").ending == Exited(0)  # else some of it is refused while it happens

    done = place.run("echo open")

    assert done.stdout == "open\n", done.stderr
    place.host("chmod -R u+rwx .; rm -rf ./* ./.git")
