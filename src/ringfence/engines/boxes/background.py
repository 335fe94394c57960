"""What goes on in a box while calls come and go: processes that were started so, and what calls have left running."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.deferred import deferred
from ringfence.engines.boxes.spawning import not_started, spawn_failed
from ringfence.engines.streams import Capture, Reader
from ringfence.errors import Internal, RingfenceError, SpawnFailed
from ringfence.values.guarantee import Guarantee
from ringfence.values.request import Overflow, Request, Stream

if TYPE_CHECKING:
    from ringfence.engines.boxes.control import Job
    from ringfence.engines.boxes.inside import Inside
    from ringfence.engines.boxes.process import BoxProcess
    from ringfence.engines.boxes.work import Work
    from ringfence.values.limits import Limit
    from ringfence.values.outcome import Result
else:
    BoxProcess = deferred("ringfence.engines.boxes.process", "BoxProcess")

_START_SECONDS = 20.0
"""How long a terminal may take to come."""
_ENDED_KEPT = 100
"""Of those that have ended and that nobody has waited for, so many are remembered: a session may start thousands."""


class Background:
    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._processes: dict[int, BoxProcess] = {}

    @property
    def living(self) -> int:
        return sum(process.alive for process in self._processes.values())

    def processes(self) -> tuple[BoxProcess, ...]:
        """What goes on, and what has ended and nobody has waited for yet."""
        self._forget()
        return tuple(self._processes.values())

    def stop_all(self, limit: Limit) -> None:
        """Each is watched by itself but for its CPU time, which is a sum: nobody can tell whose it was."""
        for process in self._processes.values():
            process.stop(limit)

    def close(self) -> None:
        """The box is gone; their own loop may be, too, so that none of them would hear of it."""
        for process in self._processes.values():
            process.release()

    async def start(self, request: Request, terminal: tuple[int, int] | None, channel: int | None = None) -> BoxProcess:
        """Start a command that goes on while others run.

        Args:
            channel: what it finds as its descriptor 9; a program with arguments alone, for a long line of the shell is
                read from there.

        Raises:
            SpawnFailed: the program could not be started; the box lives on.
            Internal: the box is gone.
        """
        inside, spawner = self._inside, self._inside.spawner
        inputs, outputs = -1, (-1, -1)
        try:
            with ExitStack() as theirs, ExitStack() as undo:
                descriptors: list[int] = []
                if terminal is None:
                    end, inputs = spawner.pipe()
                    theirs.callback(os.close, end)
                    undo.callback(os.close, inputs)
                    outputs, ends = spawner.outputs(theirs)
                    for descriptor in outputs:
                        undo.callback(os.close, descriptor)
                    descriptors = [end, *ends]
                    descriptors += [] if channel is None else [channel]
                argv = spawner.argv(request, descriptors, theirs)
                job = spawner.start(argv, request, descriptors, terminal)
                undo.pop_all()
        except RingfenceError:
            raise
        except OSError as fault:
            raise not_started(fault, request.argv[0] if request.argv else inside.setting.shell) from fault
        inside.results.watch_over(job)
        if job.terminal is not None:
            inputs = await self._terminal(job, argv[0])
            outputs = (os.dup(inputs), -1)
        readers = [
            _reader(descriptor, stream) for stream, descriptor in zip(Stream, outputs, strict=True) if descriptor >= 0
        ]
        process = self._add(job, request, inputs, readers, on_terminal=terminal is not None)
        await asyncio.sleep(0)  # a program that is not there says so at once
        return process

    def keep(self, work: Work) -> None:
        """A call is over, and what it has left running goes on: from now on it is a process in the background."""
        if not work.job.runs:
            for reader in work.readers:
                reader.close()
            return
        self._inside.results.watch_over(work.job)
        self._add(work.job, _as_left(work.request), -1, work.readers)

    def _add(
        self, job: Job, request: Request, inputs: int, readers: list[Reader], *, on_terminal: bool = False
    ) -> BoxProcess:
        inside = self._inside
        process = BoxProcess(
            inside.control,
            job,
            request,
            inputs,
            readers,
            inside.limits,
            inside.results.of_process,
            self._complete if inside.results.network is not None else None,
            on_terminal=on_terminal,
            kills=inside.results.memory_kills(),
        )
        inside.running.enter(process)
        if job.runs:
            watch = inside.watch(process, process.stop, is_call=False, has_history=False)
            process.watch(watch, inside.running.leave)
        else:
            inside.running.leave(process)
        self._forget()
        self._processes[job.id] = process
        inside.standing.wake()
        return process

    async def _complete(self, request: Request, result: Result) -> Result:
        """Add what the network has refused."""
        inside = self._inside
        is_alone = not inside.running.calls and not self.living
        return await inside.results.with_network(request, result, is_alone=is_alone)

    def _forget(self) -> None:
        ended = [process for process in self._processes.values() if not process.alive]
        surplus = len(ended) - _ENDED_KEPT
        for index, process in enumerate(ended):
            if process.was_waited_for or index < surplus:
                del self._processes[process.id]

    async def _terminal(self, job: Job, program: str) -> int:
        assert job.terminal is not None
        control = self._inside.control
        try:
            return await asyncio.wait_for(job.terminal, _START_SECONDS)
        except TimeoutError as fault:
            control.kill(job)
            raise Internal("PID 1 of the box did not answer in time") from fault
        except asyncio.CancelledError:
            if not job.ended.done():
                control.kill(job)
                raise
            failure = spawn_failed(job.ended.result(), program)
            if Guarantee.HOST_PROCESSES_HIDDEN not in self._inside.results.wall.guarantees:
                raise SpawnFailed(program, "there are no terminals behind this wall", hint="leave it out") from None
            raise failure from None


def _reader(descriptor: int, stream: Stream) -> Reader:
    """Until whoever it is for points it elsewhere."""
    return Reader(descriptor, stream, Capture(0, Overflow.KEEP_ENDS), None, lambda: None, lambda _: None)


def _as_left(request: Request) -> Request:
    """What was asked for, as far as it still holds for what was left running: neither its time nor its input."""
    return replace(request, timeout=None, stdin=None, on_output=None, overflow=Overflow.KEEP_ENDS)
