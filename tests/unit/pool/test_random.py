"""Thousands of random steps, in virtual time: whatever callers and members do, the pool's promises hold."""

import asyncio
import random
from collections import defaultdict

import pytest

from ringfence.errors import PoolExhausted
from ringfence.pool.plan import PoolConfig
from ringfence.pool.pool import Pool
from ringfence.pool.state import Phase
from tests.unit.pool.fakes import FakeMember, Maker, run

STEPS = 1000


class Chaos:
    """Callers, members and a machine that do anything at any time; checks every promise as it goes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.config = PoolConfig(
            min_instances=self.random.randint(0, 3),
            max_instances=self.random.randint(3, 9),
            max_age_seconds=self.random.choice([0.5, 2, 600]),
            starts_per_second=self.random.choice([5, 1000]),
            starts_at_once=self.random.randint(1, 3),
            acquire_timeout_seconds=self.random.choice([0.05, 1, 30]),
            waiting_max=self.random.choice([0, 3, 100]),
        )
        self.maker = Maker()
        self.pool = Pool(self.make, self.config)
        self.calls: list[asyncio.Task[None]] = []
        self.taken: list[FakeMember] = []
        self.owner: set[FakeMember] = set()

    async def make(self) -> FakeMember:
        self.maker.seconds = self.random.choice([0, 0.001, 0.01, 0.2])
        self.maker.close_seconds = self.random.choice([0, 0.001, 0.1, 2])
        member = await self.maker()
        if self.random.random() < 0.05:
            member.close_fault = OSError("close")
        if self.random.random() < 0.02:
            member.stands = False
        return member

    async def take(self) -> None:
        member = await self.pool.take()
        assert member not in self.owner, "handed out twice"
        assert member.closed == 0
        self.owner.add(member)
        self.taken.append(member)

    def step(self) -> None:
        match self.random.choices(
            ["take", "discard", "cancel", "lose", "deafen", "break", "mend"],
            [40, 45, 8, 5, 3, 1, 6],
        )[0]:
            case "take":
                self.calls.append(asyncio.create_task(self.take()))
            case "discard" if self.taken:
                self.pool.discard(self.taken.pop(self.random.randrange(len(self.taken))))
            case "cancel" if self.calls:
                self.random.choice(self.calls[-10:]).cancel()
            case "lose" if living := [member for member in self.maker.made if member.alive]:
                self.random.choice(living).lose()
            case "deafen" if self.pool._idle:
                self.random.choice(self.pool._idle).member.stands = False
            case "break":
                self.maker.fault = OSError("make")
            case "mend":
                self.maker.fault = None

    def check(self) -> None:
        state = self.pool.state()
        assert self.maker.most_alive <= self.config.max_instances
        alive_or_closing = len(self.maker.unclosed) + self.maker.under_way
        assert alive_or_closing <= state.members <= self.config.max_instances
        assert not (self.pool._idle and self.pool._waiters), "somebody waits beside an idle member"
        assert state.waiting == 0 or state.members == self.config.max_instances, "somebody waits beside free room"
        assert state.waiting <= self.config.waiting_max + self.config.max_instances
        assert repr(self.pool).count("\n") == 0

    async def main(self) -> None:
        try:
            await self.pool.start()
        except Exception as fault:
            assert "did not stand" in str(fault)
            return
        for _ in range(STEPS):
            self.step()
            if self.random.random() < 0.7:
                await asyncio.sleep(self.random.choice([0, 0, 0, 0.001, 0.01, 0.1, 1, 3]))
            self.check()
        self.maker.fault = None
        if self.random.random() < 0.5:
            draining = asyncio.create_task(self.pool.drain())
            for call in self.calls[-5:]:
                call.cancel()
            await asyncio.sleep(self.random.choice([0, 0.01, 1]))
            await asyncio.gather(self.pool.stop(), draining)
        await self.pool.stop()
        self.finished(await asyncio.gather(*self.calls, return_exceptions=True))

    def finished(self, answers: list[object]) -> None:
        unexpected = [
            answer
            for answer in answers
            if not (answer is None or isinstance(answer, PoolExhausted | asyncio.CancelledError))
            and str(answer) not in ("make", "a member did not stand when it had just been made")
        ]
        assert unexpected == []
        state = self.pool.state()
        assert (state.phase, state.members, state.waiting) == (Phase.STOPPED, 0, 0)
        assert self.maker.unclosed == [] and self.maker.under_way == 0
        assert state.made <= len(self.maker.made)
        assert state.hits + state.misses >= len(self.owner)
        assert state.unclosed == sum(member.close_fault is not None for member in self.maker.made)


@pytest.mark.parametrize("seed", range(12))
def test_no_order_of_events_breaks_a_promise(seed: int) -> None:
    run(Chaos(seed).main())


def test_the_random_steps_reach_every_corner() -> None:
    """Else the test above would prove less than it says."""
    seen: defaultdict[str, int] = defaultdict(int)
    for seed in range(100, 104):
        chaos = Chaos(seed)
        run(chaos.main())
        state = chaos.pool.state()
        for name in ("hits", "misses", "crashed", "replaced_for_age", "failures", "unclosed"):
            seen[name] += getattr(state, name)

    assert min(seen.values()) > 10, dict(seen)
