"""What everything that runs in one box works with: the way to PID 1, the limits, who watches, who makes results."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ringfence.dataclass import dataclass
from ringfence.engines.boxes.overlap import Member, Running
from ringfence.engines.boxes.spawning import Spawner
from ringfence.engines.boxes.watch import Share, Watch
from ringfence.errors import Internal

if TYPE_CHECKING:
    from ringfence.engines.boxes.base import BoxHost
    from ringfence.engines.boxes.control import Control
    from ringfence.engines.boxes.results import Results
    from ringfence.engines.boxes.standby import BoxSetting
    from ringfence.engines.boxes.standing import Standing
    from ringfence.engines.boxes.work import Work
    from ringfence.limits.base import ResourceController
    from ringfence.values.limits import Limit, Limits


class Watched(Member, Protocol):
    """A call, or a process in the background, that is held to its limits."""

    limits: Limits
    is_shared: bool


@dataclass(slots=True, eq=False)
class Inside:
    around: BoxHost
    control: Control
    limits: Limits
    holder: ResourceController
    roots: tuple[str, ...]
    setting: BoxSetting
    spawner: Spawner
    results: Results
    standing: Standing
    running: Running
    loop: asyncio.AbstractEventLoop
    nothing: int
    """The input of commands that have none."""
    is_closed: bool = False

    @property
    def alive(self) -> bool:
        return not self.control.lost and not self.is_closed

    def check_alive(self) -> None:
        """Raises:
        Internal: the box is gone.
        """
        if not self.alive:
            raise Internal("the box is gone", hint="open a new one")

    def settle(self, setting: BoxSetting) -> None:
        self.setting = setting
        self.spawner = Spawner(self.control, setting, self.around.owner)

    def begin(self, work: Work) -> None:
        """From now on, what is used and seen counts for this piece of work, as far as it can be told apart."""
        self.running.enter(work)
        self.results.begin(work)
        self.standing.call_began()
        work.began = time.monotonic()

    def end(self, work: Work) -> None:
        self.running.leave(work)

    def watch(self, member: Watched, stop: Callable[[Limit], None], *, is_call: bool, has_history: bool) -> Watch:
        """Have it held to its limits. The CPU time of what goes on in the background is not looked at here: the kernel
        holds each process, and whoever watches the box between calls the sum."""

        def admit() -> None:
            member.is_shared = True

        share = Share(
            others=lambda: member.met,
            measure=lambda: self.running.measure(member),
            is_largest=lambda: self.running.is_largest(member),
            admit=admit,
            has_history=has_history,
        )
        pid = self.control.first_pid
        return Watch(self.holder, member.limits, self.roots, pid, stop, looks_at_cpu=is_call, share=share)

    def close(self) -> None:
        self.is_closed = True
        self.standing.close()
        self.control.close()
        os.close(self.nothing)
