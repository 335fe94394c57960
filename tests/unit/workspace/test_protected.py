"""Which names are protected, by whatever spelling."""

import pytest

from ringfence.errors import InvalidArgument
from ringfence.policy.defaults import PROTECTED
from ringfence.workspace.protected import compiled

pytestmark = pytest.mark.req("D7")

NAMES = compiled((".git/hooks", ".vscode", "/.profile", "*.rc"))


@pytest.mark.parametrize(
    ("path", "row"),
    [
        (".git/hooks", ".git/hooks"),
        (".git/hooks/pre-commit", ".git/hooks"),
        ("lib/deep/.git/hooks/x", ".git/hooks"),
        (".GIT/Hooks/x", ".git/hooks"),
        ("a/.vscode/tasks.json", ".vscode"),
        (".profile", "/.profile"),
        ("a/some.rc", "*.rc"),
        (".git", None),
        (".git/hooks2", None),
        ("x.git/hooks", None),
        ("a/.profile", None),
        (".vscode2", None),
        ("some.rc.txt", None),
        ("git/hooks\n", None),
    ],
)
def test_a_row_covers_itself_and_what_is_below_in_any_letter_case(path: str, row: str | None) -> None:
    assert NAMES.covering(path) == row


@pytest.mark.parametrize(
    ("path", "row"),
    [(".git", ".git/hooks"), ("a/.GIT", ".git/hooks"), (".git/hooks", None), (".vscode", None), ("x", None)],
)
def test_a_name_above_a_row_would_lead_it_elsewhere(path: str, row: str | None) -> None:
    assert NAMES.led_elsewhere_by(path) == row


@pytest.mark.parametrize("row", ["", "/", "..", "a/../b", "a/**/b", "nul\0"])
def test_a_row_that_names_nothing_is_an_error(row: str) -> None:
    with pytest.raises(InvalidArgument):
        compiled((row,))


def test_every_built_in_row_covers_itself() -> None:
    names = compiled(PROTECTED)

    assert [row for row in PROTECTED if names.covering(f"sub/{row}/below") != row] == []
