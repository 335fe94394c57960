"""What callers may give for a time, a size, input and a command; and what a wrong type says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import InvalidArgument, WrongType
from ringfence.manager.arguments import as_input, make_request
from ringfence.manager.options import SandboxOptions
from ringfence.values.request import Overflow


@pytest.mark.req("X2")
@pytest.mark.parametrize(
    ("given", "seconds"),
    [(5, 5), (0.25, 0.25), ("5", 5), ("5s", 5), ("250ms", 0.25), ("2m", 120), (timedelta(minutes=1), 60), (None, None)],
)
def test_a_timeout_is_a_number_a_text_or_a_timedelta(given: Any, seconds: float | None) -> None:
    assert make_request(command="x", timeout=given).timeout == seconds


@pytest.mark.parametrize(("given", "count"), [(1024, 1024), ("1KB", 1024), ("2 MiB", 2 * 1024**2), (None, None)])
def test_an_output_limit_is_a_number_or_a_text(given: Any, count: int | None) -> None:
    assert make_request(command="x", output_limit=given).output_limit == count


def read(given: Any) -> bytes:
    async def whole() -> bytes:
        found = as_input(given)
        if found is None or isinstance(found, bytes):
            return found or b""
        return b"".join([piece async for piece in found])

    return asyncio.run(whole())


async def slowly() -> AsyncIterator[bytes]:
    yield b"a"
    yield b"b"


@pytest.mark.req("X2")
@pytest.mark.parametrize("given", ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab"), [b"a", b"b"], iter([b"ab"])])
def test_input_is_text_bytes_or_pieces(given: Any) -> None:
    assert read(given) == b"ab"
    assert read(slowly()) == b"ab"
    assert read("ä") == "ä".encode()


def test_an_iterable_that_waits_does_not_hold_up_the_loop() -> None:
    async def body() -> bool:
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def pieces() -> Any:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(5)  # only a loop that goes on answers
            loop.call_soon_threadsafe(asked.set)
            yield b"x"

        found = as_input(pieces())
        assert found is not None and not isinstance(found, bytes)
        assert [piece async for piece in found] == [b"x"]
        await asyncio.wait_for(asked.wait(), 5)
        return True

    assert asyncio.run(body())


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"command": 3}, r"command is of type int, 3; it takes text \(use exec\(\)"),
        ({"command": ["ls", "-l"]}, r"command is of type list, \['ls', '-l'\]; it takes text \(use exec\(\)"),
        ({"argv": "ls -l"}, r"argv is of type str, 'ls -l'; it takes a sequence of texts \(use shell\(\)"),
        ({"argv": 3}, "argv is of type int"),
        ({"argv": ["ls", 3]}, "a word of argv is of type int, 3; it takes text"),
        ({"code": b"1"}, "code is of type bytes"),
        ({"command": "x", "timeout": ["5s"]}, r"timeout is of type list, \['5s'\]; it takes seconds as a number"),
        ({"command": "x", "timeout": True}, "timeout is of type bool"),
        ({"command": "x", "output_limit": 1.5}, "output_limit is of type float, 1.5; it takes bytes as a whole number"),
        ({"command": "x", "stdin": 3}, "stdin is of type int, 3; it takes text, bytes, or an iterable"),
        ({"command": "x", "cwd": 3}, "cwd is of type int, 3; it takes a path"),
        ({"command": "x", "env": [("A", "b")]}, "env is of type list"),
        ({"command": "x", "context": 3}, "context is of type int"),
        ({"command": "x", "on_output": 3}, "on_output is of type int"),
        ({"command": "x", "overflow": 3}, "overflow is of type int"),
    ],
)
def test_a_wrong_type_says_which_argument_what_it_is_and_what_is_taken(given: dict[str, Any], says: str) -> None:
    with pytest.raises(WrongType, match=says) as caught:
        make_request(**given)

    assert isinstance(caught.value, TypeError)


def test_a_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(WrongType) as caught:
        make_request(command=["x" * 10_000])  # type: ignore[arg-type]  # the test

    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("given", [{"timeout": "soon"}, {"output_limit": "lots"}, {"stdin": "\ud800"}])
def test_a_text_that_is_no_time_size_or_input_is_a_value_error_that_names_the_argument(given: dict[str, Any]) -> None:
    (name,) = given
    with pytest.raises(InvalidArgument, match=name) as caught:
        make_request(command="x", **given)

    assert isinstance(caught.value, ValueError) and caught.value.argument == name and caught.value.hint


def test_a_piece_of_input_that_is_no_bytes_is_a_wrong_type() -> None:
    with pytest.raises(WrongType, match="a piece of stdin is of type str"):
        read(["text"])


def test_what_is_given_rightly_arrives() -> None:
    made = make_request(argv=["a", "b"], cwd="d", env={"A": "b"}, overflow=Overflow.KEEP_ENDS, keep_background=True)

    assert (made.argv, made.cwd, made.env) == (("a", "b"), Path("d"), (("A", "b"),))
    assert made.overflow is Overflow.KEEP_ENDS and made.keep_background


def test_the_size_of_a_shadow_may_be_a_text() -> None:
    with pytest.raises(WrongType, match="shadow_bytes"):
        SandboxOptions(shadow_bytes=1.5)  # type: ignore[arg-type]  # the test
    with pytest.raises(InvalidArgument, match="shadow_bytes: 'lots' is not a size"):
        SandboxOptions(shadow_bytes="lots")
