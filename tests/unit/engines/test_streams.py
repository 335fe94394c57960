"""Streams: what is kept is exactly the beginning, or both ends, and moving bytes never blocks."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.engines.streams import Capture, Reader, feed
from ringfence.values.request import Overflow, Stream

PIECES = st.lists(st.binary(min_size=1, max_size=20), max_size=20)


def kept_slowly(data: bytes, limit: int, overflow: Overflow) -> bytes:
    """The reference: from the whole."""
    if len(data) <= limit:
        return data
    if overflow is Overflow.STOP:
        return data[:limit]
    tail = limit // 2
    return data[: limit - tail] + data[len(data) - tail :]


@pytest.mark.req("B6", "C9")
@given(PIECES, st.integers(1, 60), st.sampled_from(Overflow))
def test_capture_keeps_what_the_slow_way_keeps(pieces: list[bytes], limit: int, overflow: Overflow) -> None:
    capture = Capture(limit, overflow)
    going = [capture.add(piece) for piece in pieces]

    whole = b"".join(pieces)
    assert capture.kept() == kept_slowly(whole, limit, overflow)
    assert len(capture.kept()) + capture.dropped == len(whole)
    passed = len(whole) > limit and overflow is Overflow.STOP
    assert all(going) is not passed


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_smallest_limits_hold(limit: int) -> None:
    capture = Capture(limit, Overflow.KEEP_ENDS)
    for piece in (b"a", b"b", b"c", b"d"):
        capture.add(piece)

    assert capture.kept() == kept_slowly(b"abcd", limit, Overflow.KEEP_ENDS)


class Listening:
    """A reader on a real pipe, and what it said."""

    def __init__(self, limit: int = 1 << 20, overflow: Overflow = Overflow.STOP) -> None:
        ours, self.theirs = os.pipe()
        self.heard: list[tuple[Stream, bytes]] = []
        self.overflows = 0
        self.faults: list[Exception] = []
        self.reader = Reader(
            ours, Stream.STDERR, Capture(limit, overflow), self._hear, self._overflow, self.faults.append
        )
        self.reader.listen()

    def _hear(self, stream: Stream, piece: bytes) -> None:
        if piece == b"raise":
            raise ValueError(piece)
        self.heard.append((stream, piece))

    def _overflow(self) -> None:
        self.overflows += 1

    def close(self) -> None:
        self.reader.close()
        os.close(self.theirs)


def in_a_loop(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            await work()

    asyncio.run(main())


def test_output_is_heard_as_it_comes() -> None:
    async def work() -> None:
        listening = Listening()
        for piece in (b"one", b"two"):
            os.write(listening.theirs, piece)
            await asyncio.sleep(0.01)
        assert listening.heard == [(Stream.STDERR, b"one"), (Stream.STDERR, b"two")]
        assert listening.reader.capture.kept() == b"onetwo"
        listening.close()

    in_a_loop(work)


def test_a_fault_of_whoever_listens_is_handed_on_once_and_the_output_is_kept() -> None:
    async def work() -> None:
        listening = Listening()
        for piece in (b"one", b"raise", b"two"):
            os.write(listening.theirs, piece)
            await asyncio.sleep(0.01)
        assert [str(fault) for fault in listening.faults] == ["b'raise'"]
        assert listening.heard == [(Stream.STDERR, b"one")]
        assert listening.reader.capture.kept() == b"oneraisetwo"
        listening.close()

    in_a_loop(work)


def test_draining_takes_what_is_left_and_does_not_wait_for_more() -> None:
    async def work() -> None:
        listening = Listening()
        os.write(listening.theirs, b"x" * 50_000)
        listening.reader.drain()
        assert len(listening.reader.capture.kept()) == 50_000
        listening.reader.drain()
        listening.close()
        listening.reader.drain()
        listening.reader.close()

    in_a_loop(work)


@pytest.mark.req("C9")
def test_whoever_listens_hears_no_more_than_the_limit_when_it_stops() -> None:
    async def work() -> None:
        listening = Listening(limit=10)
        os.write(listening.theirs, b"x" * 25)
        await asyncio.sleep(0.01)
        assert b"".join(piece for _, piece in listening.heard) == b"x" * 10
        assert (listening.overflows, listening.reader.capture.dropped) == (1, 15)
        listening.close()

    in_a_loop(work)


def test_whoever_listens_hears_everything_when_it_keeps_the_ends() -> None:
    async def work() -> None:
        listening = Listening(limit=10, overflow=Overflow.KEEP_ENDS)
        os.write(listening.theirs, b"x" * 25)
        await asyncio.sleep(0.01)
        assert b"".join(piece for _, piece in listening.heard) == b"x" * 25
        assert (listening.overflows, len(listening.reader.capture.kept())) == (0, 10)
        listening.close()

    in_a_loop(work)


def test_the_end_of_the_pipe_closes_the_descriptor() -> None:
    async def work() -> None:
        listening = Listening()
        before = len(os.listdir("/proc/self/fd"))
        os.close(listening.theirs)
        await asyncio.sleep(0.01)
        assert len(os.listdir("/proc/self/fd")) == before - 2
        listening.reader.close()

    in_a_loop(work)


async def drained(descriptor: int, *, pause: float = 0.0) -> bytes:
    """Read a pipe to its end, slowly if asked to."""
    os.set_blocking(descriptor, False)
    data = b""
    while True:
        try:
            piece = os.read(descriptor, 16_384)
        except BlockingIOError:
            await asyncio.sleep(0.001)
            continue
        if not piece:
            os.close(descriptor)
            return data
        data += piece
        await asyncio.sleep(pause)


@pytest.mark.req("X2")
@pytest.mark.parametrize("size", [0, 1, 65_536, 300_000])
def test_input_arrives_whole_also_when_it_is_taken_slowly(size: int) -> None:
    async def work() -> None:
        theirs, ours = os.pipe()
        given = os.urandom(size)
        _, taken = await asyncio.gather(feed(ours, given), drained(theirs, pause=0.002))
        assert taken == given

    in_a_loop(work)


@pytest.mark.req("X2")
def test_input_from_a_stream_arrives_in_order() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for number in range(5):
            await asyncio.sleep(0.001)
            yield str(number).encode()

    async def work() -> None:
        theirs, ours = os.pipe()
        _, taken = await asyncio.gather(feed(ours, pieces()), drained(theirs))
        assert taken == b"01234"

    in_a_loop(work)


def test_a_command_that_stops_listening_is_no_fault() -> None:
    async def work() -> None:
        theirs, ours = os.pipe()
        os.close(theirs)
        await feed(ours, b"x" * 100_000)

    in_a_loop(work)


def test_a_cancelled_feeder_closes_its_end() -> None:
    async def work() -> None:
        theirs, ours = os.pipe()
        before = len(os.listdir("/proc/self/fd"))
        task = asyncio.create_task(feed(ours, b"x" * 1_000_000))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(os.listdir("/proc/self/fd")) == before - 1
        os.close(theirs)

    in_a_loop(work)


def test_whoever_listens_may_have_the_writer_wait() -> None:
    async def scenario() -> tuple[int, int]:
        ours, theirs = os.pipe()
        heard: list[bytes] = []
        room: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def listen(stream: Stream, piece: bytes) -> asyncio.Future[None]:
            heard.append(piece)
            return room

        capture = Capture(1 << 20, Overflow.STOP)
        reader = Reader(ours, Stream.STDOUT, capture, listen, lambda: None, lambda fault: None)
        reader.listen()
        os.write(theirs, b"a")
        await asyncio.sleep(0.02)
        os.write(theirs, b"b")
        await asyncio.sleep(0.02)
        while_held = len(heard)
        room.set_result(None)
        await asyncio.sleep(0.02)
        os.close(theirs)
        reader.close()
        return while_held, len(heard)

    assert asyncio.run(scenario()) == (1, 2)
