"""The built-in lists hold what they promise, and stay short."""

import pytest

from ringfence.policy.defaults import BLACKLIST, PROTECTED
from ringfence.policy.globs import PathRules

REQUIRED = (
    "~/.ssh ~/.aws ~/.gnupg ~/.config/gcloud ~/.azure /etc/passwd /etc/shadow **/.env **/.envrc **/.env.local "
    "**/credentials.json **/secrets.json"
)


@pytest.mark.req("A3")
def test_the_built_in_blacklist_is_the_required_one_in_its_order() -> None:
    assert tuple(REQUIRED.split()) == BLACKLIST


def test_each_missing_protected_path_costs_a_mount_so_the_list_stays_short() -> None:
    assert len(PROTECTED) <= 26


def test_protected_paths_stay_below_the_directory_that_they_are_relative_to() -> None:
    for path in PROTECTED:
        assert not path.startswith("/")
        assert not {"", ".", ".."} & set(path.split("/")), path


def test_no_path_is_both_protected_and_hidden() -> None:
    hidden = PathRules(row for row in BLACKLIST if not row.startswith("~"))

    assert [path for path in PROTECTED if hidden.matches(f"/w/{path}")] == []


@pytest.mark.parametrize("path", [".git/hooks", ".git/config", ".bashrc", ".vscode", ".claude", ".mcp.json"])
def test_what_the_host_would_run_later_is_protected(path: str) -> None:
    assert path in PROTECTED


def test_git_can_still_commit_because_its_objects_and_index_are_not_protected() -> None:
    rules = PathRules(f"/w/{path}" for path in PROTECTED)

    assert [
        rules.matches(f"/w/.git/{name}") for name in ("index", "HEAD", "objects/ab", "refs/heads/main", "logs")
    ] == ([None] * 5)
