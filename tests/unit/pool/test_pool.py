"""The pool: ready members at once, fair waiting, nothing leaks, nothing is handed out twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ringfence.errors import InvalidArgument, PoolExhausted
from ringfence.pool.plan import PoolConfig
from ringfence.pool.pool import Pool
from ringfence.pool.records import SlotPlace
from tests.unit.pool.fakes import FakeMember, Maker, run


@asynccontextmanager
async def a_pool(maker: Maker, **config: Any) -> AsyncIterator[Pool[FakeMember]]:
    """A started pool; after it, whatever was made is closed, once."""
    async with Pool(maker, PoolConfig(**config)) as pool:
        yield pool
    assert [member for member in maker.made if member.closed > 1] == []
    assert pool.state().members == 0


def begin(pool: Pool[FakeMember], count: int = 1) -> list[asyncio.Task[FakeMember]]:
    return [asyncio.create_task(pool.take()) for _ in range(count)]


async def settle(seconds: float = 0.0) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
    if seconds:
        await asyncio.sleep(seconds)


async def until_handed(pool: Pool[FakeMember], maker: Maker) -> None:
    """Returns when a member that is being made was handed to a caller, and the caller has not noticed."""
    await settle()
    assert maker.under_way == 1
    await asyncio.sleep(maker.seconds)
    while not any(slot.place is SlotPlace.HANDED for slot in pool._held.values()):
        await asyncio.sleep(0)


# --- starting ---------------------------------------------------------------------------------------------------------


def test_starting_waits_for_the_members_to_keep_ready() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=3) as pool:
            assert pool.state().idle == 3
            assert pool.config.min_instances == 3
        assert maker.unclosed == []

    run(main())


def test_a_machine_on_which_none_can_be_made_is_told_at_once() -> None:
    async def main() -> None:
        maker = Maker()
        maker.fault = OSError("no such wall")
        pool = Pool(maker)

        with pytest.raises(OSError, match="no such wall"):
            await pool.start()

        assert maker.calls == 1
        assert "stopped" in repr(pool)
        assert "no such wall" in repr(pool)

    run(main())


def test_a_make_that_fails_before_it_can_be_awaited_is_told_like_any_other() -> None:
    def broken() -> Any:
        raise OSError("not even a coroutine")

    async def main() -> None:
        with pytest.raises(OSError, match="not even"):
            await Pool(broken).start()

    run(main())


def test_a_later_failure_does_not_hold_up_the_start() -> None:
    async def main() -> None:
        maker = Maker()

        async def only_once() -> FakeMember:
            if maker.made:
                raise OSError("enough")
            return await maker()

        async with Pool(only_once, PoolConfig(min_instances=3)) as pool:
            state = pool.state()
            assert (state.idle, state.failures) == (1, 1)
        assert maker.unclosed == []

    run(main())


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def main() -> None:
        maker = Maker(seconds=1)
        pool = Pool(maker, PoolConfig(min_instances=3))
        starting = asyncio.create_task(pool.start())
        await asyncio.sleep(1.5)

        starting.cancel()

        with pytest.raises(asyncio.CancelledError):
            await starting
        assert maker.made and maker.unclosed == []
        assert maker.under_way == 0

    run(main())


def test_a_pool_that_is_not_started_says_so() -> None:
    async def main() -> None:
        with pytest.raises(PoolExhausted, match="not started"):
            await Pool(Maker()).take()

    run(main())


# --- taking -----------------------------------------------------------------------------------------------------------


def test_an_idle_member_is_handed_out_without_asking_the_loop() -> None:
    async def main() -> None:
        async with a_pool(Maker()) as pool:
            taking = pool.take()
            with pytest.raises(StopIteration) as got:  # the coroutine runs to its end in one step
                taking.send(None)
            assert isinstance(got.value.value, FakeMember)
            assert (pool.state().hits, pool.state().misses) == (1, 0)

    run(main())


def test_the_oldest_is_handed_out_first() -> None:
    async def main() -> None:
        async with a_pool(Maker(), min_instances=3) as pool:
            assert [(await pool.take()).number for _ in range(3)] == [0, 1, 2]

    run(main())


def test_what_was_taken_is_refilled_in_the_background_at_the_bounded_rate() -> None:
    async def main() -> None:
        maker = Maker(seconds=0.001)
        async with a_pool(maker, min_instances=4, max_instances=20, starts_per_second=10) as pool:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(1)
            for _ in range(4):
                await pool.take()
            assert maker.calls == 4
            begun = loop.time()
            await pool.wait_ready()
            assert 0.3 <= loop.time() - begun < 0.5
            assert maker.most_under_way == 1

    run(main())


def test_a_refill_is_not_begun_before_the_caller_had_a_moment_with_its_member() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker) as pool:
            await asyncio.sleep(1)
            await pool.take()
            await settle(0.004)
            assert pool.state().starting == 0
            await settle(0.002)
            assert pool.state().starting == 1

    run(main())


def test_an_empty_pool_makes_one_for_the_caller() -> None:
    async def main() -> None:
        async with a_pool(Maker(), min_instances=0) as pool:
            task = begin(pool)[0]
            await settle()
            assert (pool.state().acquiring, pool.state().starting) == (1, 0)
            assert isinstance(await task, FakeMember)
            state = pool.state()
            assert (state.busy, state.hits, state.misses, state.hit_rate) == (1, 0, 1, 0.0)

    run(main())


def test_a_failure_to_make_one_is_the_callers_and_nobody_elses() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=0) as pool:
            maker.fault = OSError("disk full")
            with pytest.raises(OSError, match="disk full"):
                await pool.take()
            assert pool.state().last_fault == "making: OSError: disk full"
            maker.fault = None
            assert (await pool.take()).alive

    run(main())


def test_a_refill_under_way_serves_who_waited_longest() -> None:
    async def main() -> None:
        maker = Maker(seconds=1)
        async with a_pool(maker, min_instances=1, max_instances=4) as pool:
            await pool.take()
            await settle(0.5)  # the refill is half done
            first, second = begin(pool, 2)
            await settle(0.6)
            assert first.done() and not second.done()
            await second
            assert maker.calls == 4  # the start that was begun for the first is kept ready
            await settle(1)
            assert pool.state().idle == 1

    run(main())


def test_a_failed_start_is_told_to_whoever_it_was_left_for() -> None:
    async def main() -> None:
        delays = iter([(3.0, OSError("slow and broken")), (1.0, None)])
        maker = Maker()

        async def make() -> FakeMember:
            seconds, fault = next(delays)
            await asyncio.sleep(seconds)
            if fault is not None:
                raise fault
            return await maker()

        async with Pool(make, PoolConfig(min_instances=0)) as pool:
            first, second = begin(pool, 2)
            assert (await first).alive  # by the start that was begun for the second
            with pytest.raises(OSError, match="slow and broken"):
                await second

    run(main())


def test_a_member_that_does_not_stand_when_made_is_a_failure_and_no_endless_loop() -> None:
    async def main() -> None:
        maker = Maker()

        async def make() -> FakeMember:
            member = await maker()
            member.stands = False
            return member

        async with Pool(make, PoolConfig(min_instances=0)) as pool:
            with pytest.raises(Exception, match="did not stand"):
                await pool.take()
            assert len(maker.made) == 1
        assert maker.unclosed == []

    run(main())


def test_an_idle_member_that_fails_its_probe_is_not_handed_out() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=2) as pool:
            maker.made[0].stands = False
            assert (await pool.take()) is maker.made[1]
            assert pool.state().crashed == 1
            await settle()
            assert maker.made[0].closed == 1

    run(main())


def test_a_probe_that_raises_counts_as_no() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=2) as pool:
            maker.made[0].probe = lambda: 1 / 0  # type: ignore[assignment, return-value]
            assert (await pool.take()) is maker.made[1]
            assert "ZeroDivisionError" in pool.state().last_fault

    run(main())


# --- full -------------------------------------------------------------------------------------------------------------


def test_callers_wait_in_order_while_all_are_taken() -> None:
    async def main() -> None:
        async with a_pool(Maker(), min_instances=0, max_instances=2) as pool:
            out = [await pool.take() for _ in range(2)]
            tasks = begin(pool, 3)
            await settle()
            assert pool.state().waiting == 3
            assert "3 waiting" in repr(pool)
            order = []
            for task in tasks:
                pool.discard(out.pop(0))
                await asyncio.wait(tasks[len(order) :], return_when=asyncio.FIRST_COMPLETED)
                assert task.done()
                order.append(task)
                out.append(task.result())

    run(main())


def test_a_member_counts_until_it_has_closed() -> None:
    async def main() -> None:
        maker = Maker()
        maker.close_seconds = 5
        async with a_pool(maker, min_instances=0, max_instances=1) as pool:
            loop, begun = asyncio.get_running_loop(), asyncio.get_running_loop().time()
            pool.discard(await pool.take())
            assert pool.state().closing == 1
            await pool.take()
            assert loop.time() - begun >= 5
        assert maker.most_alive == 1

    run(main())


def test_waiting_ends_with_a_clear_error_when_it_took_too_long() -> None:
    async def main() -> None:
        async with a_pool(Maker(), min_instances=0, max_instances=1, acquire_timeout_seconds=7) as pool:
            await pool.take()
            with pytest.raises(PoolExhausted, match=r"became free within 7 s.*max_instances"):
                await pool.take()
            assert pool.state().waiting == 0

    run(main())


def test_a_make_that_takes_too_long_is_told_as_that() -> None:
    async def main() -> None:
        async with a_pool(Maker(seconds=20), min_instances=0, acquire_timeout_seconds=7) as pool:
            with pytest.raises(PoolExhausted, match="could be made within 7 s"):
                await pool.take()
            await settle(15)
            assert pool.state().idle == 1  # what was made for nobody is kept

    run(main())


def test_one_caller_too_many_is_refused_at_once() -> None:
    async def main() -> None:
        async with a_pool(Maker(), min_instances=0, max_instances=1, waiting_max=2) as pool:
            await pool.take()
            waiting = begin(pool, 2)
            await settle()
            with pytest.raises(PoolExhausted, match=r"all 1 members are taken, and 2 callers wait"):
                pool.take().send(None)
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)

    run(main())


def test_a_refill_that_fails_makes_room_for_who_waits() -> None:
    async def main() -> None:
        maker = Maker(seconds=1)
        async with a_pool(maker, min_instances=1, max_instances=2) as pool:
            await pool.take()
            await settle(0.5)
            maker.fault = OSError("once")
            task = begin(pool)[0]  # the pool is full: one busy, one starting
            await settle()
            assert pool.state().waiting == 1
            await settle(0.6)
            maker.fault = None
            assert (await task).alive

    run(main())


# --- callers who go away ----------------------------------------------------------------------------------------------


def test_a_member_made_for_a_caller_who_went_away_is_kept() -> None:
    async def main() -> None:
        maker = Maker(seconds=1)
        async with a_pool(maker, min_instances=0) as pool:
            task = begin(pool)[0]
            await settle(0.5)
            task.cancel()
            await settle(0.6)
            assert (pool.state().idle, maker.calls) == (1, 1)
            assert (await pool.take()) is maker.made[0]

    run(main())


def test_a_member_on_its_way_to_a_caller_who_goes_away_goes_to_the_next() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=0, max_instances=1) as pool:
            out = await pool.take()
            first, second = begin(pool, 2)
            await settle()
            pool.discard(out)
            await until_handed(pool, maker)
            assert not first.done()

            first.cancel()  # it was handed the member, and has not woken up

            assert (await second) is maker.made[1]
            assert first.cancelled()
            assert len(maker.made) == 2

    run(main())


# --- losses, failures, age --------------------------------------------------------------------------------------------


def test_a_lost_idle_member_is_noticed_at_once_closed_and_replaced() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=2) as pool:
            maker.made[0].lose()
            assert (pool.state().idle, pool.state().crashed) == (1, 1)
            await pool.wait_ready()
            assert maker.made[0].closed == 1
            assert len(maker.made) == 3

    run(main())


def test_repeated_failures_are_tried_again_ever_more_rarely_and_shown() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=1) as pool:
            maker.fault = OSError("disk\nfull")
            await pool.take()
            await asyncio.sleep(3600)
            assert 100 < maker.calls < 140  # about one in half a minute
            state = pool.state()
            assert (state.failures, state.idle) == (maker.calls - 1, 0)
            assert "times in a row: making: OSError: disk full" in repr(pool)
            maker.fault = None
            await pool.wait_ready()
            assert pool.state().failures_in_a_row == 0
            assert "in a row" not in repr(pool)

    run(main())


def test_members_are_replaced_before_they_are_too_old_and_the_pool_is_never_empty() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=2, max_age_seconds=10) as pool:
            for _ in range(500):
                await asyncio.sleep(0.1)
                assert pool.state().idle >= 2
            assert pool.state().replaced_for_age == pytest.approx(2 * 50 / 9, abs=2)
            assert pool.state().crashed == 0
            assert len(maker.unclosed) == 2

    run(main())


def test_a_member_that_is_too_old_is_not_handed_out_even_if_nobody_looked() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=1, max_age_seconds=10) as pool:
            asyncio.get_running_loop()._skipping.now += 11  # type: ignore[attr-defined]
            assert (await pool.take()) is maker.made[1]
            assert pool.state().replaced_for_age == 1

    run(main())


def test_a_close_that_raises_is_noted_and_the_pool_goes_on() -> None:
    async def main() -> None:
        async with a_pool(Maker(), min_instances=0, max_instances=1) as pool:
            member = await pool.take()
            member.close_fault = OSError("busy mount")
            pool.discard(member)
            await pool.take()
            assert pool.state().unclosed == 1
            assert pool.state().last_fault == "closing: OSError: busy mount"

    run(main())


@pytest.mark.parametrize("ignores_cancel", [False, True])
def test_a_close_that_hangs_is_given_up_and_the_pool_goes_on(ignores_cancel: bool) -> None:
    async def main() -> None:
        async with a_pool(
            Maker(), min_instances=0, max_instances=1, close_timeout_seconds=5, acquire_timeout_seconds=60
        ) as pool:
            member = await pool.take()
            member.close_seconds, member.ignores_cancel = 100, ignores_cancel
            pool.discard(member)
            await pool.take()
            assert pool.state().unclosed == 1
            assert "not done after 5 s" in pool.state().last_fault
            member.ignores_cancel = False
            await asyncio.sleep(200)

    run(main())


def test_discarding_twice_closes_once() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=0) as pool:
            member = await pool.take()
            pool.discard(member)
            pool.discard(member)
            await settle()
            pool.discard(member)
            assert member.closed == 1

    run(main())


def test_draining_closes_the_idle_ones_and_lets_the_busy_ones_finish() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=3) as pool:
            taken, other = await pool.take(), await pool.take()
            await pool.drain()
            assert (taken.closed, other.closed, pool.state().idle, pool.state().busy) == (0, 0, 0, 2)
            with pytest.raises(PoolExhausted, match="draining"):
                await pool.take()
            await asyncio.sleep(100)
            assert len(maker.unclosed) == 2
            pool.discard(taken)
            await settle()
            assert taken.closed == 1
            await pool.drain()

    run(main())


def test_stopping_closes_everything_and_answers_who_waits() -> None:
    async def main() -> None:
        maker = Maker()
        maker.close_seconds = 3
        pool = Pool(maker, PoolConfig(min_instances=1, max_instances=2))
        await pool.start()
        await pool.take()
        await pool.take()
        waiting = begin(pool, 3)
        ready = asyncio.create_task(pool.wait_ready())
        await settle()

        await asyncio.gather(pool.stop(), pool.stop())

        assert maker.unclosed == []
        for task in waiting:
            with pytest.raises(PoolExhausted, match="the pool is stopped"):
                await task
        with pytest.raises(PoolExhausted, match="stopped"):
            await ready
        with pytest.raises(PoolExhausted, match="stopped"):
            await pool.take()
        with pytest.raises(PoolExhausted, match="stopped"):
            await pool.start()
        await pool.stop()
        await pool.drain()

    run(main())


def test_a_caller_who_stops_the_pool_and_is_cancelled_still_waits_for_the_end() -> None:
    async def main() -> None:
        maker = Maker()
        maker.close_seconds = 3
        pool = Pool(maker)
        await pool.start()
        stopping = asyncio.create_task(pool.stop())
        await settle()
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        assert maker.unclosed == []

    run(main())


def test_stopping_is_bounded_when_closing_and_making_hang() -> None:
    async def main() -> None:
        async def stubborn() -> FakeMember:
            if len(maker.made) == 1:
                for _ in range(3):
                    try:
                        await asyncio.sleep(1000)
                    except asyncio.CancelledError:
                        continue
            return await maker()

        maker = Maker()
        pool = Pool(stubborn, PoolConfig(min_instances=1, close_timeout_seconds=5))
        await pool.start()
        hanging = await pool.take()
        hanging.close_seconds, hanging.ignores_cancel = 50, True
        await settle(1)
        assert pool.state().starting == 1
        begun = asyncio.get_running_loop().time()

        draining = asyncio.create_task(pool.drain())
        await settle(1)
        await pool.stop()
        await draining

        assert asyncio.get_running_loop().time() - begun <= 10
        await settle(10)
        assert pool.state().unclosed == 2
        assert pool.state().members == 0
        await asyncio.sleep(5000)
        assert maker.unclosed == []  # what is made in spite of all is closed in spite of all

    run(main())


def test_stopping_does_not_wait_for_members_that_are_still_being_made() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=1) as pool:
            maker.seconds = 20
            await pool.take()
            task = begin(pool)[0]
            await settle(1)
            assert maker.under_way == 2
            begun = asyncio.get_running_loop().time()
            await pool.stop()
            assert asyncio.get_running_loop().time() == begun
            assert maker.under_way == 0
            with pytest.raises(PoolExhausted, match="stopped"):
                await task
            assert pool.state().failures == 0

    run(main())


def test_a_pool_that_was_never_started_can_be_stopped() -> None:
    async def main() -> None:
        pool = Pool(Maker())
        await pool.stop()
        with pytest.raises(PoolExhausted, match="stopped"):
            await pool.start()

    run(main())


def test_a_member_on_its_way_when_the_pool_stops_reaches_nobody() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=0) as pool:
            task = asyncio.create_task(pool.take())
            await until_handed(pool, maker)
            await pool.stop()
            with pytest.raises(PoolExhausted, match="the pool is stopped"):
                await task
            assert maker.unclosed == []

    run(main())


def test_a_member_on_its_way_to_a_caller_who_goes_away_is_not_kept_by_a_draining_pool() -> None:
    async def main() -> None:
        maker = Maker()
        async with a_pool(maker, min_instances=0) as pool:
            task = begin(pool)[0]
            await until_handed(pool, maker)
            draining = asyncio.create_task(pool.drain())
            task.cancel()
            await draining
            await settle()
            assert maker.unclosed == []

    run(main())


# --- seeing -----------------------------------------------------------------------------------------------------------


def test_the_repr_says_it_all_in_one_line() -> None:
    async def main() -> None:
        async with a_pool(Maker(seconds=1), min_instances=2) as pool:
            assert repr(pool) == "<Pool idle=2 of 10>"
            await pool.take()
            await settle(0.1)
            assert repr(pool) == "<Pool idle=1 starting=1 busy=1 of 10, hits 100%>"
        assert repr(pool) == "<Pool stopped, idle=0 of 10, hits 100%>"

    run(main())


def test_nobody_waits_for_more_ready_members_than_there_will_be() -> None:
    async def main() -> None:
        async with a_pool(Maker(), min_instances=2) as pool:
            await pool.wait_ready(1)
            with pytest.raises(InvalidArgument, match="3 members are never kept ready"):
                await pool.wait_ready(3)

    run(main())


# --- opened without a member ------------------------------------------------------------------------------------------


def test_an_opened_pool_makes_nothing_before_somebody_asks_and_keeps_some_ready_from_then_on() -> None:
    async def main() -> None:
        maker = Maker()
        pool = Pool(maker, PoolConfig(min_instances=2, max_instances=4))
        assert pool.open() and not pool.open()
        await settle(1000)
        assert maker.made == []
        pool.discard(await pool.take())
        await pool.wait_ready()
        assert pool.state().idle == 2
        await pool.stop()
        with pytest.raises(PoolExhausted):
            pool.open()

    run(main())


def test_a_pool_that_was_never_opened_can_be_stopped() -> None:
    async def main() -> None:
        pool = Pool(Maker(), PoolConfig())
        await pool.drain()
        await pool.stop()
        assert pool.state().members == 0

    run(main())
