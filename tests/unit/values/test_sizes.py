"""Sizes and durations: what people write, and nothing that only looks like it."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidArgument
from ringfence.values.sizes import parse_duration, parse_size, show_seconds, show_size


@pytest.mark.req("B4")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("1b", 1),
        ("512MB", 512 << 20),
        ("512 mib", 512 << 20),
        ("512M", 512 << 20),
        ("1.5 GiB", 3 << 29),
        (" 2g ", 2 << 30),
        ("1T", 1 << 40),
        ("0", 0),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str | int, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "1e3", "1.MB", ".5", "nan", "inf", "1 0", "5 M B", "5PB", "0x10", "1\n2", "9" * 400]
)
def test_what_only_looks_like_a_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a size") as caught:
        parse_size(text)

    assert "512MB" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "expected"), [(30, 30.0), ("30", 30.0), ("30s", 30.0), ("1.5m", 90.0), ("250ms", 0.25), ("2 H", 7200.0)]
)
def test_a_duration_is_read_as_people_write_it(text: str | float, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1s", "1e3", "nan", "inf", "1d", "30 sec", "1m30s", "9" * 400])
def test_what_only_looks_like_a_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a duration"):
        parse_duration(text)


@given(st.integers(0, 2**62))
def test_a_whole_number_of_bytes_is_read_exactly(count: int) -> None:
    assert parse_size(str(count)) == count


@given(st.text())
def test_any_text_is_a_size_or_an_error_of_ours(text: str) -> None:
    with suppress(InvalidArgument):
        assert parse_size(text) >= 0


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (1 << 41, "2.0 TiB")],
)
def test_a_size_is_shown_for_people(count: int, shown: str) -> None:
    assert show_size(count) == shown


def test_seconds_are_shown_for_people() -> None:
    assert (show_seconds(0.0123), show_seconds(2)) == ("12.3 ms", "2.00 s")
