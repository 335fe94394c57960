"""The interpreters and shells of a box that keep their state: started when they are first called, each one call at a
time."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ringfence.deferred import deferred
from ringfence.engines.boxes.ending import KILL_SECONDS, Endings
from ringfence.engines.boxes.protocol import MessageKind, Reply
from ringfence.engines.boxes.spawning import not_started, spawn_failed
from ringfence.engines.boxes.standby import start_context
from ringfence.engines.boxes.standing import could_use
from ringfence.engines.boxes.work import Work
from ringfence.errors import Internal, SpawnFailed

if TYPE_CHECKING:
    from ringfence.engines.boxes.context import Context
    from ringfence.engines.boxes.inside import Inside
    from ringfence.engines.boxes.kept_shell import shell_lines
    from ringfence.values.limits import Limit
    from ringfence.values.outcome import Result
    from ringfence.values.request import Request
else:
    shell_lines = deferred("ringfence.engines.boxes.kept_shell", "shell_lines")

MAIN = "main"
"""The name of the first interpreter."""
_START_SECONDS = 20.0
"""How long an interpreter may take to start."""
_FLOODED = "between two calls, an interpreter said more than anybody reads; it was made to wait"

Key = tuple[str, str]
"""Language and name."""


class Interpreters:
    def __init__(self, inside: Inside, endings: Endings) -> None:
        self._inside = inside
        self._endings = endings
        self._contexts: dict[Key, Context] = {}
        self._turns: dict[Key, asyncio.Lock] = {}
        self._lost: dict[Key, Limit] = {}
        """Those that were ended between two calls, and why."""

    @property
    def names(self) -> tuple[Key, ...]:
        return tuple(key for key, context in self._contexts.items() if context.alive)

    @property
    def living(self) -> int:
        """How many live on that ran something."""
        return sum(context.alive and context.calls > 0 for context in self._contexts.values())

    def close(self) -> None:
        for context in self._contexts.values():
            context.close()

    def interrupt(self, language: str, name: str) -> bool:
        context = self._contexts.get((_language(language), name))
        if context is None or context.busy is None:
            return False
        self._inside.control.signal(context.job, signal.SIGINT)
        return True

    async def restart(self, language: str, name: str) -> None:
        key = _language(language), name
        self._lost.pop(key, None)
        context = self._contexts.pop(key, None)
        if context is not None:
            self._inside.control.kill(context.job)
            try:
                with suppress(Internal, TimeoutError):
                    await asyncio.wait_for(asyncio.shield(context.job.ended), KILL_SECONDS)
            finally:
                context.close()

    def stop_all(self, limit: Limit) -> None:
        """Between calls, something that lives on has passed a limit, and nobody can tell which: all that ran something
        are ended."""
        for key, context in tuple(self._contexts.items()):
            if context.calls > 0:
                self._lost[key] = limit
                self._drop(context)

    async def warm(self) -> None:
        with suppress(Internal, SpawnFailed, TimeoutError):  # said again, with reasons, to whoever calls it
            await self._context(("python", MAIN))

    async def run(self, language: str, name: str, text: str, request: Request) -> Result:
        """One call; calls of one interpreter take turns, in the order in which they came."""
        key = (language, name)
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            return await self._run(key, text, request)

    async def _run(self, key: Key, text: str, request: Request) -> Result:
        inside = self._inside
        inside.check_alive()
        code = text.encode("utf-8", "surrogateescape")
        lines = None if key[0] == "python" else await shell_lines(code, request, inside.setting.shell)
        before = self._contexts.get(key)
        was_lost = before is not None and before.calls > 0 and not before.alive
        context = await self._context(key)
        await context.clear()
        if context.was_flooded:
            inside.results.note(_FLOODED)
        work = Work(context.job, request, inside.limits, context=context, lost_for=self._lost.pop(key, None))
        inside.begin(work)
        try:
            inside.standing.wake()
            cpu = context.cpu_seconds()
            work.listen_to(context, self._endings.stop, self._endings.on_fault)
            directory = b"" if request.cwd is None or lines is not None else os.fsencode(request.cwd)
            work.cell = context.begin(code if lines is None else lines, work.limits.output_bytes, directory)
            reply = await self._endings.wait_over(work)
            if reply is None:  # it has ended: how is the word of PID 1
                reply = await self._end_of(work)
                self._drop(context)
        except BaseException:
            inside.results.lost(work)
            raise
        finally:
            inside.end(work)
        wall_seconds = time.monotonic() - work.began
        work.state_was_lost = was_lost or work.lost_for is not None
        at_most = could_use(wall_seconds) if work.watch is None else work.watch.cpu_seconds_at_most()
        inside.running.call_used(at_most)
        if isinstance(reply, Reply):
            return inside.results.of_reply(work, reply, wall_seconds)
        peak = context.peak_memory_bytes(wall_seconds)
        return inside.results.of_call(work, reply, context.cpu_seconds() - cpu, peak, wall_seconds)

    async def _end_of(self, work: Work) -> Reply:
        try:
            return await asyncio.shield(work.job.ended)
        except Internal as fault:
            return self._endings.reply_of_the_dead(work, fault)

    async def _context(self, key: Key) -> Context:
        """The interpreter of that name; started if there is none.

        Raises:
            SpawnFailed: it cannot be started.
            Internal: the box is gone.
        """
        inside, (language, name) = self._inside, key
        context = self._contexts.get(key)
        if context is not None and context.alive:
            if context.ready.done():
                return context
        else:
            if context is not None:
                self._drop(context)
            try:
                context = start_context(inside.control, inside.setting, inside.spawner.pipe, language, name)
            except OSError as fault:
                raise not_started(fault, inside.setting.python or language) from fault
            self._contexts[key] = context
        try:
            await asyncio.wait_for(asyncio.shield(context.ready), _START_SECONDS)
        except (Internal, TimeoutError) as fault:
            why = self._why_not_started(context)
            self._drop(context)
            raise why from fault
        inside.standing.interpreter_started()
        return context

    def _why_not_started(self, context: Context) -> SpawnFailed:
        setting = self._inside.setting
        program = setting.python or "python3" if context.language == "python" else setting.shell
        if context.job.ended.done() and context.job.ended.exception() is None:
            reply = context.job.ended.result()
            if reply.kind is MessageKind.FAILED:
                return spawn_failed(reply, program)
        context.readers[1].drain()
        said = context.readers[1].capture.kept()
        last = said.decode(errors="replace").strip().splitlines()[-1:] or ["it did not start in time"]
        return SpawnFailed(program, last[0], hint="does it run by itself, inside the box?")

    def _drop(self, context: Context) -> None:
        if self._contexts.get((context.language, context.name)) is context:
            del self._contexts[context.language, context.name]
        if context.alive:
            self._inside.control.kill(context.job)
        context.close()


def _language(language: str) -> str:
    return "shell" if language in ("bash", "sh") else language
