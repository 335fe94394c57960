"""Hunks, choosing among them, and merging: on any two or three texts."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidArgument
from ringfence.workspace.lines import hunks, mark_of, matches, split_lines, take_hunks
from ringfence.workspace.merge import merged

pytestmark = pytest.mark.req("D7")

lines = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"\n", b"\r\n", b"x"]), max_size=30)
texts = lines.map(b"".join)


@given(texts)
def test_lines_put_together_are_the_text(text: bytes) -> None:
    assert b"".join(split_lines(text)) == text


@given(texts, texts)
def test_matches_are_equal_apart_and_in_order(old: bytes, new: bytes) -> None:
    one, other = split_lines(old), split_lines(new)
    at = here = 0
    for match in matches(one, other):
        assert match.old >= at and match.new >= here
        assert one[match.old : match.old + match.length] == other[match.new : match.new + match.length]
        at, here = match.old + match.length, match.new + match.length
    assert (at, here) == (len(one), len(other))


@given(texts, texts)
def test_all_hunks_make_the_new_text_and_none_the_old(old: bytes, new: bytes) -> None:
    every = range(len(hunks(old, new)))

    assert take_hunks(old, new, every) == new
    assert take_hunks(old, new, ()) == old
    assert bool(every) == (old != new)


@given(texts, texts, st.data())
def test_hunks_that_are_taken_are_gone_and_the_others_are_left(old: bytes, new: bytes, data: st.DataObject) -> None:
    count = len(hunks(old, new))
    chosen = data.draw(st.sets(st.integers(0, count - 1)) if count else st.just(set()))

    middle = take_hunks(old, new, chosen)

    assert len(hunks(middle, new)) <= count - len(chosen) or count == len(chosen)
    assert take_hunks(middle, new, range(len(hunks(middle, new)))) == new


def test_a_hunk_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="no hunk 1"):
        take_hunks(b"a\n", b"b\n", {0, 1})


def test_the_mark_tells_old_from_new() -> None:
    assert len({mark_of(b"a", b"b"), mark_of(b"b", b"a"), mark_of(b"a", b"c"), mark_of(b"ab", b"")}) == 4


def test_large_texts_without_a_common_line_do_not_take_long() -> None:
    old = b"".join(b"old %d\n" % (number % 7) for number in range(50_000))
    new = b"".join(b"new %d\n" % (number % 7) for number in range(50_000))
    begin = time.perf_counter()

    assert len(hunks(old, new)) == 1
    assert time.perf_counter() - begin < 5


# --- merging ----------------------------------------------------------------------------------------------------------


@given(texts, texts)
def test_what_one_side_did_alone_is_the_result(base: bytes, side: bytes) -> None:
    assert merged(base, base, side) == side
    assert merged(base, side, base) == side
    assert merged(base, side, side) == side


@given(texts, texts, texts)
def test_both_orders_give_the_same(base: bytes, ours: bytes, theirs: bytes) -> None:
    assert merged(base, ours, theirs) == merged(base, theirs, ours)


unique = st.lists(st.integers(0, 10_000), unique=True, min_size=9, max_size=30).map(
    lambda numbers: [b"%d\n" % number for number in numbers]
)


@given(unique, st.data())
def test_changes_that_are_apart_are_both_in_the_result(base: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(base) - 5))
    second = data.draw(st.integers(first + 2, len(base) - 1))
    ours, theirs, both = list(base), list(base), list(base)
    ours[first] = both[first] = b"ours\n"
    theirs[second] = both[second] = b"theirs\n"

    assert merged(b"".join(base), b"".join(ours), b"".join(theirs)) == b"".join(both)


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        (b"a\nb\nc\n", b"a\nX\nc\n", b"a\nY\nc\n"),  # the same line
        (b"a\nb\nc\n", b"X\nb\nc\n", b"a\nY\nc\n"),  # lines that touch: nobody knows the order
        (b"a\n", b"a\nX\n", b"a\nY\n"),  # both at the end
        (b"a\nb\nc\n", b"a\nc\n", b"a\nY\nc\n"),  # one removed what the other changed
        (b"a\0\n1\n2\n3\n", b"b\0\n1\n2\n3\n", b"a\0\n1\n2\n4\n"),  # no text
    ],
)
def test_changes_that_meet_are_not_merged(base: bytes, ours: bytes, theirs: bytes) -> None:
    assert merged(base, ours, theirs) is None
