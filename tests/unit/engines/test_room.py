"""Room for descriptors: who may open some, who waits, who is told that it took too long."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from ringfence.engines.room import DescriptorRoom, Hold
from ringfence.errors import Busy

LIMIT = 100
"""Of which an eighth is spare."""


def a_room(open_now: int = 5) -> DescriptorRoom:
    return DescriptorRoom(limit=lambda: LIMIT, count_open=lambda: open_now)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_finds_room_does_not_wait() -> None:
    room = a_room()
    holds = [room.take_now(20) for _ in range(5)]
    assert [hold is not None for hold in holds] == [True] * 4 + [False]


def test_the_first_one_has_its_way_whatever_the_limit_is() -> None:
    room = a_room(open_now=99)
    hold = room.take_now(1000)
    assert hold is not None
    assert room.take_now(1) is None


def test_what_others_of_the_process_have_open_counts() -> None:
    counted = [0]
    room = DescriptorRoom(limit=lambda: LIMIT, count_open=lambda: counted[0])
    hold = room.take_now(10)
    counted[0] = 80
    assert room.take_now(45) is None
    counted[0] = 10
    other = room.take_now(45)
    assert hold is not None and other is not None


def test_who_waits_is_served_in_the_order_of_coming() -> None:
    async def main() -> None:
        room, served = a_room(), []
        first = room.take_now(80)
        assert first is not None

        async def want(number: int) -> None:
            hold = await room.take(40, "a test")
            served.append(number)
            hold.give_back()

        tasks = [asyncio.create_task(want(number)) for number in range(20)]
        await settle()
        assert room.waiting == 20 and not served
        first.give_back()
        await asyncio.gather(*tasks)
        assert served == list(range(20)) and room.held == 0 and room.waiting == 0

    run(main())


def test_a_small_one_does_not_overtake_who_waits() -> None:
    async def main() -> None:
        room = a_room()
        hold = room.take_now(60)
        assert hold is not None
        waiting = asyncio.create_task(room.take(50, "a test"))
        await settle()
        assert room.take_now(1) is None
        hold.give_back()
        (await waiting).give_back()

    run(main())


def test_waiting_too_long_says_what_for_and_what_would_help() -> None:
    async def main() -> None:
        room = a_room()
        hold = room.take_now(80)
        with pytest.raises(Busy, match=r"no room for another box within 0.01 s.*100 open files") as told:
            await room.take(40, "another box", seconds=0.01)
        assert "ulimit -n" in told.value.hint
        assert hold is not None and room.waiting == 0
        hold.give_back()
        assert room.held == 0

    run(main())


def test_who_is_cancelled_keeps_nothing_also_when_it_was_being_served() -> None:
    async def main() -> None:
        room = a_room()
        hold = room.take_now(80)
        assert hold is not None
        before, served = (asyncio.create_task(room.take(40, "a test")) for _ in range(2))
        await settle()
        before.cancel()
        await settle()
        hold.give_back()
        served.cancel()  # its turn has come, and it has not run since
        await asyncio.wait((before, served))
        assert before.cancelled() and served.cancelled() and room.held == 0 and room.waiting == 0

    run(main())


def test_a_hold_is_given_back_once_and_also_when_it_is_forgotten() -> None:
    room = a_room()
    hold: Hold | None = room.take_now(30)
    other = room.take_now(20)
    assert hold is not None and other is not None
    hold.shrink(10)
    assert room.held == 30
    hold.give_back()
    hold.give_back()
    hold.shrink(1)
    assert room.held == 20
    del other
    assert room.held == 0


def test_who_waits_on_another_loop_is_served_too() -> None:
    room = a_room()
    hold = room.take_now(80)
    assert hold is not None
    got: list[int] = []

    async def want() -> None:
        (await room.take(40, "a test")).give_back()
        got.append(1)

    threads = [threading.Thread(target=lambda: run(want())) for _ in range(8)]
    for thread in threads:
        thread.start()
    while room.waiting < len(threads):
        time.sleep(0.001)
    hold.give_back()
    for thread in threads:
        thread.join(30)
    assert len(got) == len(threads) and room.held == 0


def test_a_loop_that_was_closed_does_not_keep_the_others_from_being_served() -> None:
    room = a_room()
    hold = room.take_now(80)
    assert hold is not None
    gone = asyncio.new_event_loop()
    lost = gone.create_task(room.take(40, "a test"))
    gone.run_until_complete(asyncio.sleep(0))
    assert room.waiting == 1
    gone.close()

    async def main() -> None:
        waiting = asyncio.create_task(room.take(40, "a test"))
        await settle()
        assert hold is not None
        hold.give_back()
        (await waiting).give_back()

    run(main())
    assert room.held == 0
    lost._log_destroy_pending = False  # type: ignore[attr-defined]  # nobody can end it: its loop is closed
    lost.get_coro().close()  # type: ignore[union-attr]


def test_where_nothing_runs_that_would_make_room_waiting_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who holds everything and asks for more waits for himself; while a call runs, its end may be the answer."""
    monkeypatch.setattr("ringfence.engines.room.QUIET_SECONDS", 0.05)

    async def main() -> None:
        room = a_room()
        held = room.take_now(80)
        began = time.monotonic()
        with pytest.raises(Busy, match=r"no room for another sandbox within 0\.05 s in which nothing ran"):
            await room.take(30, "another sandbox", seconds=20)
        assert time.monotonic() - began < 10
        room.call_begins()
        waiting = asyncio.create_task(room.take(30, "another sandbox", seconds=20))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert held is not None
        held.give_back()
        (await waiting).give_back()
        room.call_ends()

    run(main())
