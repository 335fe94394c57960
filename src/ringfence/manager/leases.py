"""A sandbox's box: leased when a call may run, kept for the calls after it, leased anew when it is lost.

Nobody leases a box before it is decided that something may run in it. What the decision says about the risk of the
call (`RouteDecision`) comes along, for where the policy isolates, it chooses the wall.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from ringfence.dataclass import dataclass, replace
from ringfence.manager import ahead
from ringfence.manager.leftovers import LeftoverSearch
from ringfence.manager.routing import explaining
from ringfence.manager.shadowing import close_box
from ringfence.policy.isolation import Isolation, isolated
from ringfence.values.outcome import Usage
from ringfence.values.risk import RouteDecision

if TYPE_CHECKING:
    from ringfence.engines.base import Box, Engine
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Wall


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A box, and what whoever runs something in it has to know about it."""

    box: Box
    grant: Grant
    """What it was made with."""
    leftovers: LeftoverSearch
    is_lent: bool = False
    """Whether somebody else closes it."""

    @classmethod
    def of(cls, box: Box, grant: Grant) -> Self:
        """A box that nobody has run anything in."""
        return cls(box, grant, LeftoverSearch(grant))

    def lent(self) -> Self:
        """The same for somebody who must not close it."""
        return replace(self, is_lent=True)


Open = Callable[[RouteDecision | None], Awaitable[Lease]]
"""Makes a lease for a call that goes there; None if that is not known."""


class OwnBoxes:
    """Opens the boxes of one sandbox by its engine. The first chooses the wall, and so of all.

    Args:
        isolation: what the policy says about isolating, if anything.
        once: whether there is one call only, so that the wall follows from that call alone.
    """

    def __init__(self, grant: Grant, engine: Engine, isolation: Isolation | None, *, once: bool) -> None:
        self.grant = grant
        self._engine = engine
        self._isolation = isolation
        self._once = once
        self._is_chosen = False
        self._leftovers = LeftoverSearch(grant)

    async def open(self, routed: RouteDecision | None) -> Lease:
        """A box: isolated, if the call, or that others may follow, asks for it."""
        why, grant = "", self.grant
        if self._isolation is not None and not self._is_chosen:
            why = self._isolation.why_from_the_start(routed, once=self._once)
            grant = isolated(grant, self._isolation.needs) if why else grant
        with explaining(why):
            before = ahead.current()
            box = await (self._engine.open(grant) if before is None else before.open(self._engine, grant))
        self.grant, self._is_chosen = grant, True
        if why and not self._once:
            box.note(f"the session is {why}")
        return Lease(box, grant, self._leftovers)


class BoxHolder:
    """Holds the lease of a sandbox.

    Args:
        open: makes one.
        prepare: called before; nothing is opened if it fails.
        when_opened: called after.
        when_gone: called when a box was closed, for what was left in it.
        refusal: what is raised once it is closed.
        lease: the one that is there already.
    """

    def __init__(
        self,
        open: Open,
        *,
        prepare: Callable[[], None],
        when_opened: Callable[[], None],
        when_gone: Callable[[Lease], Awaitable[None]],
        refusal: Callable[[], Exception],
        lease: Lease | None = None,
    ) -> None:
        self._open = open
        self._prepare = prepare
        self._when_opened = when_opened
        self._when_gone = when_gone
        self._refusal = refusal
        self._opening = asyncio.Lock()
        self._is_closed = False
        self.lease = lease
        self.used = time.monotonic()
        """When somebody last wanted it."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it was last wanted."""

    @property
    def box(self) -> Box | None:
        return self.lease.box if self.lease is not None else None

    def wall(self) -> Wall | None:
        """The one that stands, which a call cannot change."""
        return self.lease.box.wall if self.lease is not None else None

    def usage(self) -> Usage:
        return self.lease.box.usage() if self.lease is not None else Usage()

    async def acquire(self, routed: RouteDecision | None) -> Lease:
        """The lease; a new one if there is none yet, or if its box was lost.

        Args:
            routed: where the call goes that it is for.
        """
        self.loop = asyncio.get_running_loop()
        async with self._opening:
            if self._is_closed:
                raise self._refusal()
            if self.lease is not None and not self.lease.box.alive:
                lost, self.lease = self.lease, None
                await self._end(lost)
            if self.lease is None:
                self._prepare()
                lease = await self._open(routed)
                if self._is_closed:
                    if not lease.is_lent:
                        await lease.box.close()
                    raise self._refusal()
                self.lease = lease
                self._when_opened()
            self.used = time.monotonic()
            return self.lease

    def give_away(self, box: Box) -> bool:
        """Somebody else closes this box, if it is the one that is leased."""
        if self.lease is None or self.lease.box is not box:
            return False
        self.lease = self.lease.lent()
        return True

    def refuse(self) -> None:
        """Lease no more."""
        self._is_closed = True

    async def close(self) -> None:
        """End its box; returns when nothing of it is left but records."""
        self._is_closed = True
        if self.lease is not None and not self.lease.is_lent:
            await close_box(self.lease.box, self.lease.grant)

    async def look_last(self) -> None:
        """After `close`: look at what was left in the box."""
        if self.lease is not None and not self.lease.is_lent:
            await self._when_gone(self.lease)

    async def _end(self, lost: Lease) -> None:
        if not lost.is_lent:
            await close_box(lost.box, lost.grant)
            await self._when_gone(lost)
