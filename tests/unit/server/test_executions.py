"""What listeners of an execution hear: everything, in order, or how much they missed; and who makes it wait."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from ringfence.server.executions import WINDOW_BYTES, Ended, Execution, Gap, Piece
from ringfence.values.outcome import Exited, Result
from ringfence.values.request import Stream


def _execution() -> Execution:
    return Execution(tenant="t", session_id=None, kind="command", shown="x", is_background=False)


async def _result() -> Result:
    return Result(ending=Exited(0))


async def _heard(execution: Execution, after: int = 0) -> list[Piece | Gap | Ended]:
    return [event async for event in execution.events(after)]


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.integers(0, 600))
def test_from_any_place_on_a_listener_hears_the_rest_exactly(pieces: list[bytes], after: int) -> None:
    async def scenario() -> bytes:
        execution = _execution()
        for piece in pieces:
            assert execution.hear(Stream.STDOUT, piece) is None
        execution.run(_result)
        await execution.wait()
        return b"".join(event.data for event in await _heard(execution, after) if isinstance(event, Piece))

    assert asyncio.run(scenario()) == b"".join(pieces)[after:]


def test_without_anybody_who_holds_nothing_waits_and_a_late_listener_is_told_what_it_missed() -> None:
    async def scenario() -> None:
        execution = _execution()
        said = 0
        for _ in range(40):
            assert execution.hear(Stream.STDOUT, b"x" * 65536) is None
            said += 65536
        execution.run(_result)
        await execution.wait()
        events = await _heard(execution)

        assert isinstance(events[0], Gap) and isinstance(events[-1], Ended)
        kept = sum(len(event.data) for event in events if isinstance(event, Piece))
        assert events[0].dropped_bytes + kept == said and kept <= WINDOW_BYTES

    asyncio.run(scenario())


def test_one_who_holds_loses_nothing_and_the_command_waits_for_it() -> None:
    async def scenario() -> None:
        execution = _execution()
        done = asyncio.Event()

        async def work() -> Result:
            await done.wait()
            return Result(ending=Exited(0))

        execution.run(work)
        events = execution.events(holds=True)
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        said, room = 0, None
        while room is None:
            room = execution.hear(Stream.STDOUT, b"y" * 65536)
            said += 65536
        assert said <= WINDOW_BYTES + 2 * 65536 and not room.done()
        heard = 0
        event = await first
        while heard < said:
            assert isinstance(event, Piece), "nothing is dropped"
            heard += len(event.data)
            if heard < said:
                event = await anext(events)
        last = asyncio.ensure_future(anext(events))  # who asks for more has read all of it
        await asyncio.sleep(0)
        assert room.done(), "it may write on"
        done.set()
        assert isinstance(await last, Ended)
        await events.aclose()

    asyncio.run(scenario())


def test_one_who_holds_and_goes_away_holds_no_more() -> None:
    async def scenario() -> None:
        execution = _execution()
        events = execution.events(holds=True)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        room = None
        while room is None:
            room = execution.hear(Stream.STDOUT, b"z" * 65536)
        await waiting
        await events.aclose()
        assert room.done() and execution.hear(Stream.STDOUT, b"z" * 65536) is None

    asyncio.run(scenario())
