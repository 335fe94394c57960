"""The end of a piece of work: waited for, or brought about when its time is up or a limit is passed.

Whatever ends it early is a request to PID 1: an interpreter is interrupted first, so that its state lives on,
everything else is killed. If PID 1 does not answer, the whole box goes. So every call has an end that is ours, whatever
is inside.
"""

from __future__ import annotations

import asyncio
import select
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from ringfence.engines.boxes.protocol import MessageKind, Reply, check_own_end
from ringfence.engines.boxes.spawning import start_failed
from ringfence.engines.boxes.waiting import wait_through_cancel
from ringfence.errors import Internal
from ringfence.values.limits import Limit

if TYPE_CHECKING:
    from ringfence.engines.boxes.inside import Inside
    from ringfence.engines.boxes.watch import Watch
    from ringfence.engines.boxes.work import Work

KILL_SECONDS = 3.0
"""How long PID 1 may take to kill and reap everything before the whole box is killed."""
_DEATH_SECONDS = 10.0
"""How long a box may take to die that was killed; one that somebody has frozen does not, until it is thawed."""
_INTERRUPT_SECONDS = 0.5
"""How long an interpreter may take to notice that it was interrupted before it is killed."""
_KILLED_AT_ONCE = frozenset({Limit.MEMORY, Limit.DISK, Limit.FILES})
"""Limits that an interpreter is not asked to respect first: there is no time for it."""
_AT_ONCE_SECONDS = 0.001
_SELECT_MAX = 1024
"""What select(2) takes; it is the one call that waits for less than a millisecond."""
_running = 0
"""Calls under way in this process."""


class Underway:
    """Counts a call of this process from here to there."""

    def __enter__(self) -> None:
        global _running
        _running += 1

    def __exit__(self, *_: object) -> None:
        global _running
        _running -= 1


class Endings:
    def __init__(self, inside: Inside) -> None:
        self._inside = inside

    async def wait_over(self, work: Work) -> Reply | int | None:
        """Wait until it is over, or have it ended when its time is up or a limit is passed.

        Raises:
            SpawnFailed, Internal: see `HelperBox.run`; or what the caller's own callback raised.
        """
        inside, request = self._inside, work.request
        timers: list[Watch | asyncio.TimerHandle] = []
        # Whoever feeds its input owns the pipe from its first step on, for which the event loop is needed.
        if (request.stdin is not None and work.context is None) or not self._is_over_at_once(work):
            work.hear_out()
            stop, has_history = partial(self.stop, work), work.context is not None
            work.watch = inside.watch(work, stop, is_call=True, has_history=has_history)
            timers.append(work.watch)
            timers.append(inside.loop.call_later(work.timeout, self.stop, work, Limit.WALL))
        try:
            reply: Reply | int | None = await asyncio.shield(work.over)
        except asyncio.CancelledError:
            self.stop(work, Limit.WALL)
            await wait_through_cancel(work.over)
            raise
        except Internal as fault:
            reply = self.reply_of_the_dead(work, fault)
        finally:
            for timer in timers:
                timer.cancel()
            work.hang_up()
        if isinstance(reply, Reply) and reply.kind is MessageKind.FAILED:
            raise start_failed(reply, request.argv[0] if request.argv else inside.setting.shell, request.cwd)
        if work.fault is not None:
            raise work.fault
        if isinstance(reply, Reply) and work.killed_for is None:
            check_own_end(reply)
        return reply

    def _is_over_at_once(self, work: Work) -> bool:
        """Wait a moment right here: most small calls are over before the event loop could be asked to wait for them.

        Only where nothing else of ours runs in this process, which would have to wait too.
        """
        if _running > 1:
            return work.over.done()
        context = work.context
        descriptor = self._inside.control.fileno() if context is None else context.fileno()
        end = time.monotonic() + (_AT_ONCE_SECONDS if context is None else _AT_ONCE_SECONDS / 2)
        while not work.over.done() and 0 <= descriptor < _SELECT_MAX:
            left = end - time.monotonic()
            if left <= 0 or not select.select((descriptor,), (), (), left)[0]:
                break
            if context is None:
                self._inside.control.still_there()
            else:
                context.hear()
        return work.over.done()

    def reply_of_the_dead(self, work: Work, fault: Internal) -> Reply:
        """PID 1 is gone: killed by us because it did not answer, or by the kernel for memory; anything else is raised.

        Raises:
            Internal: the box was lost for another reason.
        """
        if work.killed_for is not None or self._inside.results.was_killed_for_memory():
            return Reply(MessageKind.ENDED, work.job.id, (int(signal.SIGKILL), 0, 0, 0))
        raise fault

    def stop(self, work: Work, limit: Limit) -> None:
        """Have it ended; the first reason counts."""
        if work.killed_for is not None or work.over.done():
            return
        work.killed_for = limit
        if work.cell is None or limit in _KILLED_AT_ONCE:
            self._kill(work)
            return
        self._inside.control.signal(work.job, signal.SIGINT)
        self._inside.loop.call_later(_INTERRUPT_SECONDS, self._kill, work)

    def _kill(self, work: Work) -> None:
        if not work.over.done():
            self._inside.control.kill(work.job)
            self._inside.loop.call_later(KILL_SECONDS, self._give_up_on, work)

    def _give_up_on(self, work: Work) -> None:
        inside = self._inside
        if not work.over.done() and not inside.is_closed and inside.control.first_pid:
            inside.around.kill(inside.control.first_pid)
            inside.loop.call_later(_DEATH_SECONDS, self._write_off, work)

    def _write_off(self, work: Work) -> None:
        """It does not even die: the caller is answered, and the box is gone as far as anybody is concerned."""
        if not work.over.done() and not self._inside.is_closed:
            self._inside.control.lose(Internal("the box was killed, and does not end", hint="open a new one"))

    def on_fault(self, work: Work, fault: BaseException) -> None:
        """The caller's callback or stream failed: the command is ended, and the fault raised when it is."""
        work.fault = work.fault or fault
        self.stop(work, Limit.WALL)

    def when_fed(self, work: Work, feeder: asyncio.Task[None]) -> None:
        feeder.add_done_callback(partial(self._on_fed, work))

    def _on_fed(self, work: Work, feeder: asyncio.Task[None]) -> None:
        fault = None if feeder.cancelled() else feeder.exception()
        if fault is not None:
            self.on_fault(work, fault)
