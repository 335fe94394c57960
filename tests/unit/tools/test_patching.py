"""Patches: exactly, or not at all."""

import difflib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence import InvalidArgument
from ringfence.tools.patching import apply_patch

_LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "-- x\n", "\n", "++ y\n"]), max_size=12)


@settings(max_examples=300, deadline=None)
@given(_LINES, _LINES)
def test_a_diff_of_two_texts_makes_one_of_the_other(old: list[str], new: list[str]) -> None:
    patch = "".join(difflib.unified_diff(old, new, "a/f", "b/f", n=3))
    if not patch:
        return
    try:
        done, _ = apply_patch("".join(old), patch)
    except InvalidArgument:  # the same lines twice, equally near: never a guess
        return
    assert done == "".join(new)


def test_wrong_line_numbers_do_not_matter_where_the_lines_stand_once() -> None:
    patch = "--- a\n+++ b\n@@ -40,2 +40,2 @@\n two\n-three\n+3\n"

    assert apply_patch("one\ntwo\nthree\n", patch) == ("one\ntwo\n3\n", 1)


def test_a_file_without_a_last_line_end_keeps_that() -> None:
    patch = "@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+two\n\\ No newline at end of file\n"

    assert apply_patch("one", patch) == ("two", 1)


@pytest.mark.parametrize(
    ("patch", "said"),
    [
        ("@@ -1 +1 @@\n-other\n+x\n", "does not fit"),
        ("not a patch", "no unified diff"),
        ("@@ -1,2 +1,2 @@\n one\n*two\n", "no line of a diff"),
        ("--- a\n+++ a\n@@ -1 +1 @@\n-one\n+1\n--- b\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", "more than one file"),
        ("@@ -9,0 +9 @@\n+x\n", "does not have"),
    ],
)
def test_what_does_not_fit_changes_nothing(patch: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        apply_patch("one\ntwo\n", patch)


def test_two_places_equally_near_are_not_guessed_between() -> None:
    with pytest.raises(InvalidArgument, match="lines 1 and 3"):
        apply_patch("x\ny\nx\n", "@@ -2 +2 @@\n-x\n+z\n")
