"""Which path lies below which: the one place that says so."""

import pytest

from ringfence.values.paths import is_below, is_inside


@pytest.mark.req("A4")
@pytest.mark.parametrize(
    ("path", "directory", "below", "inside"),
    [
        ("/a", "/a", True, False),
        ("/a/b", "/a", True, True),
        ("/a/b", "/a/", True, True),
        ("/a/", "/a", True, False),
        ("/ab", "/a", False, False),
        ("/", "/a", False, False),
        ("/a", "/", True, True),
        ("/", "/", True, False),
        ("/a/../b", "/a", False, False),
        ("/a/./b", "/a", True, True),
        ("/a//b", "/a", True, True),
        ("/b/../a/c", "/a", True, True),
        ("/a/.git/hooks", "/a/.git", True, True),
        ("/a/..b", "/a", True, True),
        ("a/b", "a", True, True),
        (".git/x", ".git", True, True),
    ],
)
def test_a_path_is_below_a_directory_by_its_parts_and_not_by_its_letters(
    path: str, directory: str, below: bool, inside: bool
) -> None:
    assert (is_below(path, directory), is_inside(path, directory)) == (below, inside)
