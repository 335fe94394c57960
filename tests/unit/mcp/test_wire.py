"""Lines of bounded length, and what is a message."""

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from ringfence.mcp.lines import Lines
from ringfence.mcp.wire import read_message


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b""))), st.integers(1, 9))
def test_lines_are_the_same_however_they_are_cut_into_pieces(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    reader = Lines(longest=8)

    found = [line for start in range(0, len(data), size) for line in reader.add(data[start : start + size])]

    assert found == [line if len(line) <= 8 else None for line in lines]


def test_no_more_of_a_long_line_is_kept_than_the_limit_and_a_piece() -> None:
    reader = Lines(longest=100)

    found = [line for _ in range(1000) for line in reader.add(b"x" * 50)]

    assert found == [None] and reader.add(b"\nnext\n") == [b"next"]


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"{", -32700, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc": "2.0", "id": true, "method": "x"}', -32600, None),
        (b'{"jsonrpc": "2.0", "id": null, "method": "x"}', -32600, None),
        (b'{"jsonrpc": "1.0", "id": "a", "method": "x"}', -32600, "a"),
    ],
)
def test_what_is_no_message_has_an_answer(line: bytes, code: int, number: object) -> None:
    answer = read_message(line)

    assert isinstance(answer, types.JSONRPCError)
    assert (answer.error.code, answer.id) == (code, number)


@pytest.mark.parametrize(
    "line", [b'{"jsonrpc": "2.0", "id": 1, "method": "x"}', b'{"jsonrpc": "2.0", "method": "notifications/x"}']
)
def test_a_message_is_one(line: bytes) -> None:
    assert isinstance(read_message(line), SessionMessage)
