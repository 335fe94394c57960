"""The messages between us and PID 1: what comes from a box is hostile to the last byte."""

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringfence.engines.boxes import protocol
from ringfence.engines.boxes.protocol import (
    BODY_MAX,
    INLINE_MAX,
    REPLY_MAX,
    VERSION,
    MessageKind,
    Received,
    Reply,
    parse,
    receive,
    send,
)
from ringfence.errors import Internal

REPLIES = {MessageKind.READY: 0, MessageKind.FAILED: 2, MessageKind.ENDED: 4, MessageKind.TERMINAL: 0}
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


def packet(kind: int, id: int, numbers: tuple[int, ...], *, version: int = VERSION, length: int | None = None) -> bytes:
    said = len(numbers) * 8 if length is None else length
    return struct.pack(f"=IIII{len(numbers)}Q", version, kind, id, said, *numbers)


def parsed(data: bytes) -> Reply | None:
    """The reply; None if it was refused as it should be. Any other exception goes through."""
    try:
        return parse(data)
    except Internal:
        return None


@pytest.mark.req("C12")
@settings(max_examples=500)
@given(st.binary(max_size=REPLY_MAX))
@example(b"")
@example(b"\0" * 16)
@example(b"\xff" * REPLY_MAX)
def test_hostile_bytes_are_a_reply_or_a_fault_of_the_box_and_nothing_else(data: bytes) -> None:
    reply = parsed(data)

    assert reply is None or (reply.kind in REPLIES and len(reply.numbers) == REPLIES[reply.kind])


@settings(max_examples=300)
@given(
    st.sampled_from([0, 1, 2]) | U32, st.integers(0, 20) | U32, U32, st.integers(0, 80) | U32, st.binary(max_size=64)
)
def test_a_header_that_nearly_fits_is_taken_only_if_everything_does(
    version: int, kind: int, id: int, length: int, body: bytes
) -> None:
    reply = parsed(struct.pack("=IIII", version, kind, id, length) + body)

    fits = version == VERSION and kind in REPLIES and length == len(body) == REPLIES[MessageKind(kind)] * 8
    assert (reply is not None) == fits


@given(st.sampled_from(sorted(REPLIES)), U32, st.data())
def test_what_a_box_says_comes_out_as_it_was_said(kind: MessageKind, id: int, data: st.DataObject) -> None:
    numbers = tuple(data.draw(st.lists(U64, min_size=REPLIES[kind], max_size=REPLIES[kind])))

    assert parse(packet(kind, id, numbers)) == Reply(kind, id, numbers)


@pytest.mark.parametrize("kind", [MessageKind.CONFIGURE, MessageKind.SPAWN, MessageKind.KILL])
def test_a_box_cannot_give_us_orders(kind: MessageKind) -> None:
    assert parsed(packet(kind, 1, ())) is None


@pytest.mark.parametrize("change", [b"", b"\0"])
def test_a_reply_with_one_byte_too_few_or_too_many_is_refused(change: bytes) -> None:
    whole = packet(MessageKind.ENDED, 1, (0, 1, 2, 3))

    assert parsed(whole) is not None
    assert parsed(whole + change if change else whole[:-1]) is None


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with ours, theirs:
        yield ours, theirs


def test_the_sender_is_known_by_the_kernel_s_word(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.send(packet(MessageKind.ENDED, 7, (1, 2, 3, 4)))

    assert receive(ours) == Received(Reply(MessageKind.ENDED, 7, (1, 2, 3, 4)), os.getpid())


def test_receiving_never_waits_and_notices_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    with pytest.raises(BlockingIOError):
        receive(ours)
    theirs.close()

    assert receive(ours) is None


def test_a_message_without_a_sender_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    theirs.send(packet(MessageKind.READY, 0, ()))

    with pytest.raises(Internal, match="sender"):
        receive(ours)


def test_descriptors_that_a_box_sends_are_not_kept(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    before = len(os.listdir("/proc/self/fd"))
    socket.send_fds(theirs, [packet(MessageKind.READY, 0, ())], [0, 1, 2])

    with suppress(Internal):
        receive(ours)

    assert len(os.listdir("/proc/self/fd")) == before


def body_of(theirs: socket.socket) -> tuple[int, bytes, int]:
    """(kind, body, descriptors that came besides the body) as PID 1 would read it."""
    data, descriptors, _, _ = socket.recv_fds(theirs, INLINE_MAX + 64, 8)
    version, kind, _, length = struct.unpack_from("=IIII", data)
    assert version == VERSION
    body = data[16:]
    count = len(descriptors)
    if length > INLINE_MAX:
        body = os.pread(descriptors[-1], length + 1, 0)
        count -= 1
    for descriptor in descriptors:
        os.close(descriptor)
    assert len(body) == length
    return kind, body, count


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("",),
        ("one", "two words", "", "ünï"),
        ("--bind", "new\nline", "quo'te\"", "st*r", "\udcff\udcfe"),
        ("x" * INLINE_MAX,),  # with its end one byte too long for a packet
        ("x" * (INLINE_MAX - 1),),
        ("x" * 1_000_000, "y"),
        tuple(f"NAME{number}=value" for number in range(10_000)),
    ],
)
def test_words_arrive_whole_and_in_order_however_long(
    pair: tuple[socket.socket, socket.socket], words: tuple[str, ...]
) -> None:
    ours, theirs = pair

    send(ours, MessageKind.SPAWN, 3, words, [0, 1, 2])

    kind, body, count = body_of(theirs)
    assert (kind, count) == (MessageKind.SPAWN, 3)
    assert body.split(b"\0")[:-1] == [os.fsencode(word) for word in words]


def test_a_message_to_a_dead_box_is_an_os_error_and_no_signal(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()

    with pytest.raises(OSError):
        send(ours, MessageKind.KILL, 1)


def test_the_numbers_are_those_of_the_helper() -> None:
    header = (protocol.__file__.split("/src/")[0]) + "/native/box.h"
    with open(header) as file:
        text = file.read()

    for kind in MessageKind:
        assert f"{kind.name} = {int(kind)}," in text
    assert f"#define PROTOCOL_VERSION {VERSION}u" in text
    assert f"#define INLINE_MAX ({INLINE_MAX // 1024}u * 1024u)" in text
    assert f"#define BODY_MAX ({BODY_MAX // 1024**2}u * 1024u * 1024u)" in text


@pytest.mark.req("C2")
def test_an_end_on_another_s_account_is_not_taken_for_a_command_s_own() -> None:
    protocol.check_own_end(Reply(MessageKind.ENDED, 1, (9, 0, 0, 0)))
    with pytest.raises(Internal, match="another command"):
        protocol.check_own_end(Reply(MessageKind.ENDED, 1, (9 | protocol.SWEPT, 0, 0, 0)))
