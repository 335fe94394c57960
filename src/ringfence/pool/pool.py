"""A pool of single-use members, made ahead of time.

    made ──▶ idle ──▶ busy ──▶ closing ──▶ gone
      └──▶ handed ──▶──┘

Whoever takes a member finds an idle one and has it without the event loop being asked: a pop, a probe, some counters.
Refilling comes later, from a timer, by what `plan` says. Whoever finds none enters one queue. If there is room, a
member is made for them at once; if not, they wait for room. Whatever gets ready first goes to whoever has waited
longest, so that nobody is overtaken.

Idle members are handed out oldest first: each then waits equally long, and few ever reach the age limit. (Newest first
would leave the oldest lying until they are too old, and have them made anew for nobody.)

A member counts towards the maximum until it has closed. It is handed to one caller, ever; one that was on its way to a
caller who went away was seen by nobody, and goes to the next.

Everything here belongs to one event loop: no method may be called from another thread, and there are no locks, because
no decision is interrupted by an `await`.

What this does not protect against: a `make` that never returns holds its place until the pool stops. A `close` that
never returns is given up after `close_timeout_seconds`; what is left of that member is no longer counted.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self

from ringfence.errors import Internal, InvalidArgument, PoolExhausted
from ringfence.pool.closing import Closing
from ringfence.pool.plan import PoolConfig, PoolSnapshot, plan
from ringfence.pool.records import MemberT, PoolSlot, SlotPlace, Start, Waiter, serve_by
from ringfence.pool.state import Phase, PoolState

_AFTER_TAKING_SECONDS: Final = 0.005
"""How long refilling holds back after a hand-out, so that the caller's first steps do not compete with a start."""


class Pool(Generic[MemberT]):
    """Keeps members ready; see the module's docstring.

    Raises (every call that hands out a member):
        PoolExhausted: all are taken and too many wait, or waiting took too long, or the pool is not open.
        what `make` raises: no member could be made for this caller.
    """

    def __init__(self, make: Callable[[], Awaitable[MemberT]], config: PoolConfig | None = None) -> None:
        self._make = make
        self._config = config or PoolConfig()
        self._phase = Phase.NEW
        self._loop: asyncio.AbstractEventLoop
        self._clock: Callable[[], float]
        # where every member is; all four count towards the maximum
        self._idle: deque[PoolSlot[MemberT]] = deque()
        self._starts: set[Start[MemberT]] = set()
        self._held: dict[int, PoolSlot[MemberT]] = {}  # by the member's id(): members need not be hashable
        self._closing: Closing[MemberT] = Closing(
            self._config.close_timeout_seconds, self._is_gone, partial(self._note, "closing")
        )
        self._given_up: set[asyncio.Future[MemberT]] = set()  # so that none is collected before its end
        # who wants one
        self._waiters: deque[Waiter[MemberT]] = deque()
        # refilling
        self._tick_timer: asyncio.TimerHandle | None = None
        self._woken = False
        self._refilled_at = self._failed_at = float("-inf")
        self._failures_in_a_row = 0
        # what has been
        self._hits = self._misses = self._made = self._crashed = 0
        self._replaced_for_age = self._failures = 0
        self._last_fault = ""
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Pool {self.state()}>"

    @property
    def config(self) -> PoolConfig:
        return self._config

    def state(self) -> PoolState:
        """Where every member is now, and what has been."""
        handed = sum(slot.place is SlotPlace.HANDED for slot in self._held.values())
        demanded = sum(start.waiter is not None for start in self._starts)
        return PoolState(
            phase=self._phase,
            max_instances=self._config.max_instances,
            idle=len(self._idle),
            starting=len(self._starts) - demanded,
            acquiring=demanded + handed,
            busy=len(self._held) - handed,
            closing=len(self._closing),
            waiting=self._waiting,
            hits=self._hits,
            misses=self._misses,
            made=self._made,
            crashed=self._crashed,
            replaced_for_age=self._replaced_for_age,
            failures=self._failures,
            failures_in_a_row=self._failures_in_a_row,
            unclosed=self._closing.unclosed,
            last_fault=self._last_fault,
        )

    # --- opening and ending -------------------------------------------------------------------------------------------

    def open(self) -> bool:
        """Open the pool with nothing in it: the first member is made for who asks first, and more are kept ready then.

        Returns whether it was not open before.

        Raises:
            PoolExhausted: the pool was stopped before.
        """
        if self._phase is Phase.OPEN:
            return False
        if self._phase is not Phase.NEW:
            raise self._refusal()
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._phase = Phase.OPEN
        return True

    async def start(self) -> None:
        """Open the pool; returns when the members to keep ready were made, or one after the first could not be.

        With `min_instances=0` nothing is made, and nothing is known about the machine.

        Raises:
            what `make` raises: the first member could not be made. The pool is stopped then.
            PoolExhausted: the pool was stopped before.
        """
        if not self.open():
            return
        enough = self._config.min_instances
        if enough == 0:
            return
        try:
            self._refilled_at = self._clock()
            first = self._begin(None)
            await self._until(lambda: first not in self._starts)
            if self._made == 0 and self._phase is Phase.OPEN:
                raise first.fault or Internal("the first member was lost")
            await self._until(lambda: self._made >= enough or self._failures > 0 or self._phase is not Phase.OPEN)
            if self._phase is not Phase.OPEN:
                raise self._refusal()
        except BaseException:  # cancelled too: who does not get in will not come out, so nobody else would stop it
            await self.stop()
            raise

    async def wait_ready(self, count: int | None = None) -> None:
        """Wait until so many idle members are ready; the configured minimum, if not said.

        Raises:
            InvalidArgument: more than are ever kept ready.
            PoolExhausted: the pool is not open, or no longer.
        """
        enough = self._config.min_instances if count is None else count
        if enough > self._config.min_instances:
            raise InvalidArgument(f"{enough} members are never kept ready", hint="raise min_instances")
        await self._until(lambda: len(self._idle) >= enough or self._phase is not Phase.OPEN)
        if self._phase is not Phase.OPEN:
            raise self._refusal()

    async def drain(self) -> None:
        """Hand out no more and make no more; returns when what was idle is closed. Busy members may finish."""
        if self._phase in (Phase.NEW, Phase.OPEN):
            self._phase = Phase.DRAINING
            self._end_supply()
        await self._until(lambda: not self._starts)
        closing = self._closing.now()
        await self._until(lambda: not closing & self._closing.now())

    async def stop(self) -> None:
        """Close all members, busy ones too; returns when nothing is left. May be called again, at any time.

        A cancelled caller waits on all the same, which is bounded by `close_timeout_seconds`.
        """
        if self._phase is not Phase.STOPPED:
            self._phase = Phase.STOPPED
            self._end_supply()
            for slot in tuple(self._held.values()):
                self._let_go(slot)
                self._closing.begin(slot)
        cancelled: asyncio.CancelledError | None = None
        while self._members:
            try:
                await self._until(lambda: self._members == 0)
            except asyncio.CancelledError as asked:
                cancelled = asked
        if cancelled is not None:
            raise cancelled

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # --- handing out --------------------------------------------------------------------------------------------------

    async def take(self) -> MemberT:
        """Hand out a member; it is the caller's until they `discard` it."""
        slot = self._pop()
        if slot is None:
            slot = await self._answer(self._enter())
        return slot.member

    def discard(self, member: MemberT) -> None:
        """Close a member in the background; it counts until it has closed. One that is gone already is left alone."""
        slot = self._held.get(id(member))
        if slot is not None:
            self._let_go(slot)
            self._closing.begin(slot)

    def _pop(self) -> PoolSlot[MemberT] | None:
        """The fast path: the oldest idle member that stands, if there is one."""
        if self._phase is not Phase.OPEN:
            raise self._refusal()
        idle = self._idle
        while idle:
            slot = idle.popleft()
            if self._clock() >= slot.expires_at:
                self._replaced_for_age += 1
            elif self._stands(slot):
                slot.place = SlotPlace.BUSY
                self._held[id(slot.member)] = slot
                self._hits += 1
                if not self._woken:
                    self._wake(_AFTER_TAKING_SECONDS)
                return slot
            else:
                self._crashed += 1
            self._closing.begin(slot)
        self._misses += 1
        return None

    def _stands(self, slot: PoolSlot[MemberT]) -> bool:
        try:
            return not slot.lost and slot.member.probe()
        except Exception as fault:  # whatever it is: a member that cannot be asked does not stand
            self._note("asking", fault)
            return False

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _enter(self) -> Waiter[MemberT]:
        """Enter the queue, with a member being made if there is room for one."""
        room = self._members < self._config.max_instances
        most = self._config.waiting_max
        if not room and most is not None and self._waiting >= most:
            raise PoolExhausted(
                f"all {self._config.max_instances} members are taken, and {self._waiting} callers wait already",
                hint="try again later, or raise max_instances or waiting_max",
            )
        waiter: Waiter[MemberT] = Waiter(self._loop.create_future())
        waiter.late = self._loop.call_later(self._config.acquire_timeout_seconds, self._is_late, waiter)
        self._waiters.append(waiter)
        if room:
            waiter.start = self._begin(waiter)
        return waiter

    async def _answer(self, waiter: Waiter[MemberT]) -> PoolSlot[MemberT]:
        try:
            slot = await asyncio.shield(waiter.answer)  # it may be answered while this caller goes away
        except asyncio.CancelledError:
            self._leave(waiter)
            raise
        if slot.place is SlotPlace.CLOSING:  # it was ended between being handed out and this caller's turn
            raise self._refusal()
        slot.place = SlotPlace.BUSY
        return slot

    def _leave(self, waiter: Waiter[MemberT]) -> None:
        """Who waited here went away."""
        if not waiter.answer.done():
            self._withdraw(waiter)
        elif waiter.answer.exception() is None and (slot := waiter.answer.result()).place is SlotPlace.HANDED:
            self._let_go(slot)
            if self._phase is not Phase.OPEN:
                self._closing.begin(slot)
            elif self._stands(slot):
                self._put(slot)
            else:
                self._crashed += 1
                self._closing.begin(slot)

    def _withdraw(self, waiter: Waiter[MemberT]) -> None:
        """Take a waiter out of the queue. A member that is being made for it is made all the same, and kept ready."""
        self._waiters.remove(waiter)
        self._settle(waiter)
        if waiter.start is not None:
            waiter.start.waiter = None
            waiter.start = None

    def _settle(self, waiter: Waiter[MemberT]) -> None:
        if waiter.late is not None:
            waiter.late.cancel()
            waiter.late = None

    def _refuse(self, waiter: Waiter[MemberT], fault: BaseException) -> None:
        self._withdraw(waiter)
        waiter.answer.set_exception(fault)

    def _is_late(self, waiter: Waiter[MemberT]) -> None:
        seconds = self._config.acquire_timeout_seconds
        if waiter.start is None:
            why, hint = "no member became free", "try again later, or raise max_instances or acquire_timeout_seconds"
        else:
            why, hint = "no member could be made", "see why making one takes so long, or raise acquire_timeout_seconds"
        self._refuse(waiter, PoolExhausted(f"{why} within {seconds:g} s", hint=hint))

    def _put(self, slot: PoolSlot[MemberT]) -> None:
        """Give a member to whoever waits longest, or keep it ready."""
        if self._waiters:
            waiter = self._waiters.popleft()
            self._settle(waiter)
            if waiter.start is not None:  # goes on, to be kept ready
                waiter.start.waiter = None
                waiter.start = None
            slot.place = SlotPlace.HANDED
            self._held[id(slot.member)] = slot
            waiter.answer.set_result(slot)
        else:
            slot.place = SlotPlace.IDLE
            self._idle.append(slot)
        self._tell()

    def _let_go(self, slot: PoolSlot[MemberT]) -> None:
        """Take a member out of its holder's hands."""
        self._held.pop(id(slot.member), None)

    # --- making -------------------------------------------------------------------------------------------------------

    def _begin(self, waiter: Waiter[MemberT] | None) -> Start[MemberT]:
        making: asyncio.Future[MemberT]
        try:
            making = asyncio.ensure_future(self._make())
        except Exception as fault:  # from a `make` that fails before there is anything to await; told like any other
            making = self._loop.create_future()
            making.set_exception(fault)
        start = Start(making, waiter)
        self._starts.add(start)
        making.add_done_callback(partial(self._started, start))
        return start

    def _started(self, start: Start[MemberT], making: asyncio.Future[MemberT]) -> None:
        self._starts.discard(start)
        self._given_up.discard(making)
        if start.given_up is not None:
            start.given_up.cancel()
        fault = Internal("making a member was cancelled") if making.cancelled() else making.exception()
        if fault is None:
            fault = self._receive(start, making.result())
        if fault is not None and self._phase is Phase.OPEN:
            self._failed(start, fault)
        self._use_room()
        self._wake()
        self._tell()

    def _receive(self, start: Start[MemberT], member: MemberT) -> Internal | None:
        """Enter a member that was made; returns why it is no good, if it is not."""
        now = self._clock()
        slot = PoolSlot(member, now, now + self._config.max_age_seconds)
        if self._phase is not Phase.OPEN:
            self._closing.begin(slot)
            return None
        member.when_lost(partial(self._is_lost, slot))
        if not self._stands(slot):
            self._closing.begin(slot)
            # Counted as a failure to make one: made again at once, it would be made again for ever.
            return Internal("a member did not stand when it had just been made")
        self._made += 1
        self._failures_in_a_row = 0
        if self._waiters:
            serve_by(start, self._waiters[0])
        self._put(slot)
        return None

    def _failed(self, start: Start[MemberT], fault: BaseException) -> None:
        self._failures += 1
        self._failures_in_a_row += 1
        self._failed_at = self._clock()
        self._note("making", fault)
        start.fault = fault
        if start.waiter is not None:
            self._refuse(start.waiter, fault)

    def _use_room(self) -> None:
        """Make members for those who wait, as far as there is room."""
        for waiter in self._waiters:
            if self._members >= self._config.max_instances:
                return
            if waiter.start is None:
                waiter.start = self._begin(waiter)

    # --- refilling ----------------------------------------------------------------------------------------------------

    def _wake(self, after_seconds: float = 0.0) -> None:
        """Have the plan looked at soon, but never now."""
        if self._woken or self._phase is not Phase.OPEN:
            return
        self._woken = True
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        self._tick_timer = self._loop.call_later(after_seconds, self._tick)

    def _tick(self) -> None:
        self._woken = False
        self._tick_timer = None
        now = self._clock()
        idle = tuple(self._idle)
        todo = plan(
            PoolSnapshot(
                born=tuple(slot.born for slot in idle),
                refilling=sum(start.waiter is None for start in self._starts),
                members=self._members,
                refilled_at=self._refilled_at,
                failures_in_a_row=self._failures_in_a_row,
                failed_at=self._failed_at,
            ),
            self._config,
            now,
        )
        for position in todo.retire:
            self._idle.remove(idle[position])
            self._replaced_for_age += 1
            self._closing.begin(idle[position])
        for _ in range(todo.start):
            self._refilled_at = now
            self._begin(None)
        if todo.wait_seconds != float("inf"):
            self._tick_timer = self._loop.call_later(todo.wait_seconds, self._tick)

    def _is_lost(self, slot: PoolSlot[MemberT]) -> None:
        slot.lost = True
        if slot.place is SlotPlace.IDLE:
            self._idle.remove(slot)
            self._crashed += 1
            self._closing.begin(slot)
            self._wake()

    # --- closing ------------------------------------------------------------------------------------------------------

    def _is_gone(self) -> None:
        self._use_room()
        self._wake()
        self._tell()

    def _end_supply(self) -> None:
        """Make no more, keep none ready, and let nobody wait for one."""
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None
        for waiter in tuple(self._waiters):
            self._refuse(waiter, self._refusal())
        seconds = self._config.close_timeout_seconds
        for start in self._starts:
            if start.given_up is None:  # the time is for one that takes no notice of being cancelled
                start.given_up = self._loop.call_later(seconds, self._give_up_start, start)
                start.making.cancel()
        while self._idle:
            self._closing.begin(self._idle.popleft())
        self._tell()

    def _give_up_start(self, start: Start[MemberT]) -> None:
        self._closing.unclosed += 1
        seconds = self._config.close_timeout_seconds
        self._note("making", Internal(f"not ended {seconds:g} s after it was cancelled, so it was given up"))
        self._given_up.add(start.making)
        self._starts.discard(start)
        self._tell()

    # --- small things -------------------------------------------------------------------------------------------------

    @property
    def _members(self) -> int:
        return len(self._idle) + len(self._starts) + len(self._held) + len(self._closing)

    @property
    def _waiting(self) -> int:
        return sum(waiter.start is None for waiter in self._waiters)

    def _note(self, doing: str, fault: BaseException) -> None:
        self._last_fault = " ".join(f"{doing}: {type(fault).__name__}: {fault}".split())

    def _tell(self) -> None:
        self._changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    def _refusal(self) -> PoolExhausted:
        match self._phase:
            case Phase.NEW:
                return PoolExhausted("the pool is not started", hint="start it first")
            case Phase.DRAINING:
                return PoolExhausted("the pool is draining and hands out no more members", hint="use another one")
            case Phase.STOPPED:
                return PoolExhausted("the pool is stopped", hint="use another one")
            case Phase.OPEN:
                return PoolExhausted("the member was ended before it could be handed out", hint="try again")
