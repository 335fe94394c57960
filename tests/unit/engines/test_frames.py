"""What an interpreter says: whatever the bytes, frames or a fault of the box, and no more memory than they take."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringfence.engines import frames
from ringfence.engines.frames import FRAME_MAX, Frames, parts, read_done, read_error, read_shown
from ringfence.errors import Internal

KINDS = ("ready", "display", "result", "error", "done")
FRAME = st.tuples(st.sampled_from(KINDS), st.binary(max_size=40))
NOISE = st.lists(
    st.sampled_from(
        [*(kind.encode() for kind in KINDS), b" ", b"\n", b"0", b"1", b"5", b"99999999", b"-1", b"\0", b"\xb2"]
    )
    | st.binary(max_size=8),
    max_size=20,
).map(b"".join)
"""Bytes that look a little like frames."""


def encoded(kind: str, body: bytes) -> bytes:
    return b"%s %d\n%s" % (kind.encode(), len(body), body)


def fed(pieces: list[bytes]) -> tuple[list[tuple[str, bytes]], bool]:
    """The frames that come out, and whether it broke off; any other exception goes through."""
    reader, found = Frames(), []
    try:
        for piece in pieces:
            found.extend(reader.feed(piece))
    except Internal:
        return found, True
    return found, False


@pytest.mark.req("C12")
@settings(max_examples=200)
@given(st.binary(max_size=200) | NOISE)
@example(b"done 1\n0")
@example(b"done 01\n0")
@example(b" 0\n")
@example(b"done \xc2\xb2\n")
@example(b"\n" * 100)
@example(b"done 999999999\n")
@example(b"x" * 64)
def test_any_bytes_give_frames_that_are_their_beginning_or_a_fault(data: bytes) -> None:
    found, _ = fed([data])

    rest = data
    for kind, body in found:
        header, _, after = rest.partition(b"\n")
        assert header.split(b" ")[0].decode() == kind and int(header.split(b" ")[1]) == len(body)
        assert after[: len(body)] == body
        rest = after[len(body) :]


@settings(max_examples=120)
@given(st.lists(FRAME, max_size=6), NOISE, st.data())
def test_it_does_not_matter_how_the_bytes_come(
    frames_: list[tuple[str, bytes]], tail: bytes, data: st.DataObject
) -> None:
    whole = b"".join(encoded(kind, body) for kind, body in frames_) + tail
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    pieces = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    at_once, piecewise, bytewise = fed([whole]), fed(pieces), fed([whole[n : n + 1] for n in range(len(whole))])

    assert at_once[0][: len(frames_)] == frames_
    assert piecewise == bytewise == at_once


def test_a_frame_that_could_never_end_is_a_fault_at_its_header() -> None:
    for header in (b"result %d\n" % (FRAME_MAX + 1), b"result 9999999999\n", b"result -1\n", b"nonsense 1\n"):
        assert fed([header]) == ([], True)
    assert fed([b"result %d\n" % FRAME_MAX]) == ([], False)


def test_no_more_is_kept_than_has_come() -> None:
    tracemalloc.start()
    try:
        reader = Frames()
        for _ in range(200):
            list(reader.feed(b"display 1000\n" + b"x" * 1000))
        list(reader.feed(b"display 1000000\n" + b"x" * 1000))
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


def test_feeding_one_large_frame_in_pieces_does_not_cost_its_square() -> None:
    reader = Frames()
    list(reader.feed(b"result %d\n" % (4 << 20)))
    for _ in range(255):
        assert list(reader.feed(b"x" * (16 << 10))) == []
    ((kind, body),) = reader.feed(b"x" * (16 << 10))
    assert (kind, len(body)) == ("result", 4 << 20)


# --- parts ------------------------------------------------------------------------------------------------------------


@settings(max_examples=120)
@given(st.binary(max_size=200) | NOISE)
def test_any_body_is_parts_or_a_fault(body: bytes) -> None:
    try:
        found = parts(body)
    except Internal:
        return
    assert sum(map(len, found.values())) <= len(body)


@settings(max_examples=80)
@given(
    st.dictionaries(
        st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20),
        st.binary(max_size=30),
        max_size=8,
    )
)
def test_parts_come_back_as_they_were(given_parts: dict[str, bytes]) -> None:
    body = b"".join(encoded(name, data) for name, data in given_parts.items())

    assert parts(body) == given_parts


def test_too_many_parts_and_names_that_are_no_text_are_faults() -> None:
    for body in (b"a 0\n" * 33, b"\xff 0\n", b"a 5\nxx", b"a", b"a 0", b"x" * 200 + b" 0\n"):
        with pytest.raises(Internal):
            parts(body)


def test_text_is_text_and_the_rest_stays_bytes() -> None:
    body = encoded("text/html", b"<b>\xc3\xa9\xff</b>") + encoded("image/png", b"\x89PNG") + encoded("a/b+json", b"{}")

    shown = read_shown(body, is_value=True)

    assert shown.html == "<b>é\N{REPLACEMENT CHARACTER}</b>" and shown.png == b"\x89PNG" and shown.is_value
    assert shown.get("a/b+json") == "{}"


@settings(max_examples=100)
@given(st.binary(max_size=100) | NOISE)
def test_errors_and_codes_are_read_or_are_faults(body: bytes) -> None:
    for read in (read_error, lambda data: read_done(data, b"c"), lambda data: read_shown(data, is_value=False)):
        try:
            read(body)
        except Internal:
            continue


@pytest.mark.parametrize(("body", "code"), [(b"0", 0), (b"255", 255), (b"130", 130), (b"256", 0), (b"007", 7)])
def test_a_code_is_what_a_process_could_exit_with(body: bytes, code: int) -> None:
    assert read_done(b"c " + body, b"c") == code


@pytest.mark.parametrize("body", [b"", b"-1", b"1000", b"1.", b"x", "²".encode()])
def test_a_code_that_cannot_be_is_a_fault(body: bytes) -> None:
    with pytest.raises(Internal):
        read_done(b"c " + body, b"c")


@pytest.mark.parametrize("body", [b"0", b"", b"d 0", b"cc 0", b"c c 0", b"0 c"])
def test_an_end_of_another_call_answers_nobody(body: bytes) -> None:
    assert read_done(body, b"c") is None


def test_an_error_without_its_parts_is_an_empty_one() -> None:
    assert str(read_error(encoded("type", b"E"))) == "E"
    assert read_error(b"") == frames.CodeError("", "", "")
