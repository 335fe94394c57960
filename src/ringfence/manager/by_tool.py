"""A sandbox by the policy's tools: for each a pipeline that judges requests as that tool, and the box behind it.

Tools that the policy grants the same share a box.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass, replace
from ringfence.engines.room import OF_A_BOX, Hold
from ringfence.errors import InvalidArgument
from ringfence.manager.configuring import home_directory
from ringfence.manager.leases import BoxHolder, Lease, OwnBoxes
from ringfence.manager.pipeline import Judge, Pipeline
from ringfence.policy.isolation import isolation_of

if TYPE_CHECKING:
    from ringfence.engines.base import Box
    from ringfence.manager.assemble import Assembly
    from ringfence.manager.parts import SandboxParts
    from ringfence.manager.reporting import Reporting
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant


@dataclass(slots=True, eq=False)
class ToolRunner:
    """One tool's."""

    assembly: Assembly
    holder: BoxHolder
    pipeline: Pipeline

    @property
    def grant(self) -> Grant:
        """What its box was made with, or will be."""
        return self.holder.lease.grant if self.holder.lease is not None else self.assembly.grant

    @property
    def terms(self) -> Terms | None:
        return self.assembly.terms


class ToolRunners:
    """All of a sandbox.

    Args:
        refusal: what is raised once it is closed.
    """

    def __init__(self, parts: SandboxParts, refusal: Callable[[], Exception]) -> None:
        self._parts = parts
        self._refusal = refusal
        self._by_tool: dict[str, ToolRunner] = {}
        self._is_closed = False
        self.hold: Hold | None = None
        """The room for its descriptors."""
        self.first = self.of(parts.reporting.who.tool)
        """That of the tool that is named, or of commands."""

    def of(self, tool: str) -> ToolRunner:
        """The runner of a tool.

        Raises:
            InvalidArgument: no policy knows it; or it needs a box of its own, and there cannot be a second one.
        """
        runner = self._by_tool.get(tool)
        if runner is None:
            runner = self._by_tool[tool] = self._make(tool)
        return runner

    def _make(self, tool: str) -> ToolRunner:
        parts = self._parts
        assembly = parts.assembly_for(tool)
        reporting = parts.reporting
        if reporting.who.tool != tool:
            reporting = replace(reporting, who=replace(reporting.who, tool=tool))
        shared = next(
            (runner.holder for runner in self._by_tool.values() if _are_alike(runner.assembly, assembly)), None
        )
        if shared is None and self._by_tool and assembly.grant.shadow is not None:
            raise InvalidArgument(
                f"the policy treats {tool} and {next(iter(self._by_tool))} differently, so that each needs a box "
                "of its own, and a shadow is in use by one box at a time",
                hint="name one of them with tool=, or use a sandbox for each, one after the other",
            )
        holder = shared if shared is not None else self._holder(assembly, reporting)
        judge = Judge(
            terms=assembly.terms,
            confirmation=parts.confirmation,
            who=reporting.who,
            home=home_directory(os.environ),
            variables=parts.variables,
        )

        async def look() -> Box | None:
            # A session's box may have stood for long before this handle first wants it.
            may_lease = parts.open is not None and isolation_of(assembly.terms) is None
            return (await holder.acquire(None)).box if may_lease else holder.box

        pipeline = Pipeline(
            assembly.grant, assembly.journal, holder.acquire, judge, reporting, holder.wall, look, parts.allowed
        )
        return ToolRunner(assembly, holder, pipeline)

    def _holder(self, assembly: Assembly, reporting: Reporting) -> BoxHolder:
        parts = self._parts
        own = OwnBoxes(assembly.grant, assembly.engine, isolation_of(assembly.terms), once=parts.once)

        def opened() -> None:
            reporting.opened(holder.usage)
            if self.hold is not None:
                self.hold.shrink(OF_A_BOX)
            lease = holder.lease
            if assembly.blueprint is not None and lease is not None and not lease.is_lent and lease.grant.network:
                assembly.blueprint.networks.belongs(lease.box.network_name, reporting.who, parts.confirmation)

        holder = BoxHolder(
            parts.open or own.open,
            # A pool has done so before it made the first of its boxes.
            prepare=assembly.journal.prepare if parts.open is None else _nothing,
            when_opened=opened,
            when_gone=lambda lease: self._look_last(reporting.who.tool, lease),
            refusal=self._refusal,
            lease=parts.lease,
        )
        if self._is_closed:
            holder.refuse()
        return holder

    async def _look_last(self, tool: str, lease: Lease) -> None:
        await self._by_tool[tool].pipeline.look_last(lease)

    @property
    def _holders(self) -> tuple[BoxHolder, ...]:
        return tuple(dict.fromkeys(runner.holder for runner in self._by_tool.values()))

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """Where calls are made; None if none was."""
        return next((holder.loop for holder in self._holders if holder.loop is not None), None)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """Those that stand."""
        return tuple(holder.box for holder in self._holders if holder.box is not None)

    @property
    def box(self) -> Box | None:
        """The first of them."""
        for runner in self._by_tool.values():
            if (box := runner.holder.box) is not None:
                return box
        return None

    @property
    def idle_seconds(self) -> float:
        """How long ago the last call ended; 0 while one runs."""
        runners = self._by_tool.values()
        if any(runner.pipeline.running for runner in runners):
            return 0.0
        return time.monotonic() - max(max(runner.holder.used, runner.pipeline.ended_at) for runner in runners)

    async def close(self) -> None:
        """End all boxes, and close the records of what ran in them."""
        self._is_closed = True
        holders = self._holders
        for holder in holders:
            holder.refuse()
        for holder in holders:
            await holder.close()
        for runner in tuple(self._by_tool.values()):
            await runner.pipeline.finish()
        for holder in holders:
            await holder.look_last()


def _nothing() -> None: ...


def _are_alike(one: Assembly, other: Assembly) -> bool:
    """Whether the boxes of two tools are the same."""
    return (
        one.engine is other.engine and one.grant == other.grant and isolation_of(one.terms) == isolation_of(other.terms)
    )
