"""Texts are found and replaced across every border, and nothing is held back that need not be."""

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.secrets.forms import replacements, spellings
from ringfence.egress.secrets.scrubbing import Scrubber
from ringfence.egress.secrets.streams import Replacer, Watcher, replace_all, replaced

TOKEN = b'ghp_0123456789abcdefghijABCDEFGHIJ+/="&'
STAND_IN = b"ghp_" + b"q" * (len(TOKEN) - 4)


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(borders)]


async def joined(stream: AsyncIterator[bytes]) -> bytes:
    return b"".join([chunk async for chunk in stream])


_needles = st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=5, unique=True)


@given(st.data(), _needles, st.lists(st.integers(0, 500), max_size=12))
def test_pieces_come_out_as_the_whole_does(data: st.DataObject, needles: list[bytes], places: list[int]) -> None:
    parts = data.draw(st.lists(st.one_of(st.sampled_from(needles), st.binary(max_size=5)), max_size=12))
    whole = b"".join(parts)
    pairs = [(needle, bytes([65 + index]) * len(needle)) for index, needle in enumerate(needles)]
    replacer = Replacer(pairs)

    out = b"".join(replacer.feed(chunk) for chunk in cut(whole, places)) + replacer.flush()

    assert out == replace_all(pairs, whole)
    assert len(out) == len(whole)


def test_every_border_of_a_placeholder_is_crossed() -> None:
    value, placeholder = b"real-value-of-16", b"sham-value-of-16"
    text = b"before " + placeholder + b" after"
    for border in range(len(text) + 1):
        replacer = Replacer([(placeholder, value)])
        assert replacer.feed(text[:border]) + replacer.feed(text[border:]) + replacer.flush() == (
            b"before " + value + b" after"
        )


def test_nothing_is_held_back_that_is_no_beginning() -> None:
    replacer = Replacer([(b"secret", b"sham..")])

    assert replacer.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert replacer.feed(b"sec") == b""
    assert replacer.is_holding
    assert replacer.feed(b"ond") == b"second"


def test_what_is_held_back_goes_on_when_the_stream_is_quiet() -> None:
    async def run() -> list[bytes]:
        gate = asyncio.Event()
        got: list[bytes] = []

        async def slow() -> AsyncIterator[bytes]:
            yield b"message that ends in sec"
            await asyncio.wait_for(gate.wait(), 10)  # the other side answers only to a whole message
            yield b"more"

        async for chunk in replaced(slow(), Replacer([(b"secret", b"sham..")]), linger_seconds=0.05):
            got.append(chunk)
            if b"".join(got).endswith(b"in sec"):
                gate.set()
        return got

    assert asyncio.run(run()) == [b"message that ends in ", b"sec", b"more"]


def test_a_stream_that_is_left_early_leaves_no_task() -> None:
    async def run() -> int:
        async def slow() -> AsyncIterator[bytes]:
            yield b"sec"
            await asyncio.sleep(60)

        stream = replaced(slow(), Replacer([(b"secret", b"sham..")]), linger_seconds=0.01)
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        return len(asyncio.all_tasks())

    assert asyncio.run(run()) == 1


@given(st.lists(st.integers(0, 200), max_size=6), st.binary(max_size=60), st.binary(max_size=60))
def test_a_watcher_sees_a_text_over_any_border(places: list[int], before: bytes, after: bytes) -> None:
    data = before + b"CANARY-0123456789" + after
    watcher = Watcher([("key", b"canary-0123456789")])

    seen = [watcher.feed(chunk) for chunk in cut(data, places)]

    assert "key" in seen


@given(st.binary(min_size=8, max_size=64), st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_base64_is_found_at_every_alignment(value: bytes, before: bytes, after: bytes, url_safe: bool) -> None:
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    text = encode(before + value + after)

    assert any(form in text for form in spellings(value)[1:])


@given(st.binary(min_size=8, max_size=80))
def test_what_is_written_instead_is_as_long(value: bytes) -> None:
    for stand_in in (b"x" * len(value), b"", b"other length altogether"):
        for old, new in replacements(value, stand_in):
            assert len(old) == len(new)


def test_base64_of_the_value_becomes_base64_of_the_placeholder() -> None:
    pairs = replacements(TOKEN, STAND_IN)
    for user in (b"", b"u", b"us", b"use"):
        scrubbed = replace_all(pairs, base64.b64encode(user + b":" + TOKEN + b":tail"))
        again = base64.b64decode(scrubbed)
        assert TOKEN not in again
        assert STAND_IN[1:-1] in again  # the letters at both ends hold bits of their neighbours


@given(st.lists(st.integers(0, 2000), max_size=20))
def test_values_are_scrubbed_from_streams_in_every_spelling(places: list[int]) -> None:
    spelled = [
        TOKEN,
        base64.b64encode(b"x-access-token:" + TOKEN),
        base64.urlsafe_b64encode(b"ab" + TOKEN),
        quote(TOKEN, safe="").encode(),
        TOKEN.replace(b'"', b'\\"'),
        TOKEN.replace(b"&", b"&amp;").replace(b'"', b"&quot;"),
    ]
    page = b"<p>" + b"</p><p>".join(spelled) + b"</p>"
    scrubber = Scrubber()
    scrubber.learn(TOKEN, STAND_IN)

    out = asyncio.run(joined(scrubber.scrub_body(pieces(*cut(page, places)))))

    assert len(out) == len(page)
    assert b"0123456789abcdefghij" not in out
    assert not any(form in out for form in spellings(TOKEN))
    assert STAND_IN in out


def test_without_the_scrubber_the_value_would_come_back() -> None:
    scrubber = Scrubber()

    assert scrubber.scrub(b"echo " + TOKEN) == b"echo " + TOKEN
    scrubber.learn(TOKEN, STAND_IN)
    assert scrubber.scrub(b"echo " + TOKEN) == b"echo " + STAND_IN


def test_old_values_stay_scrubbed_and_are_in_no_repr() -> None:
    scrubber = Scrubber()
    for number in range(3):
        scrubber.learn(b"value-number-%d" % number, b"sham--number-x")

    assert scrubber.scrub(b"value-number-0 value-number-2") == b"sham--number-x sham--number-x"
    assert "value-number" not in repr(scrubber)
