"""One box: PID 1 behind a wall, whichever engine built it, and the way to run things in it.

A command's pipes are made here and passed to PID 1, which reports the end only after everything that the command
started is dead. An interpreter that keeps its state has a socket of its own besides; that a call of it is over is its
own word. Whatever ends a piece of work early (time, a limit, the caller) is a request to PID 1: an interpreter is
interrupted first, so that its state lives on, everything else is killed. If PID 1 does not answer, the whole box goes.
So every call has an end that is ours, whatever is inside.
"""

import asyncio
import errno
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from ringfence.engines.boxes.base import Surroundings
from ringfence.engines.boxes.context import Context
from ringfence.engines.boxes.control import Control, Job
from ringfence.engines.boxes.last_command import as_last, as_program
from ringfence.engines.boxes.process import BoxProcess
from ringfence.engines.boxes.protocol import Kind, Reply
from ringfence.engines.boxes.results import Results
from ringfence.engines.boxes.spawning import Spawner, spawn_failed
from ringfence.engines.boxes.standby import COMMAND_MAX, Setting, WaitingShell, start_context, start_shell
from ringfence.engines.boxes.waiting import wait_through_cancel
from ringfence.engines.boxes.watch import Watch
from ringfence.engines.boxes.work import Work
from ringfence.engines.streams import feed
from ringfence.errors import Internal, SpawnFailed
from ringfence.limits.base import Holder
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limit
from ringfence.values.outcome import Result, SandboxAudit, Usage
from ringfence.values.request import Request

MAIN = "main"
"""The name of the first interpreter."""
_KILL_SECONDS = 3.0
"""How long PID 1 may take to kill and reap everything before the whole box is killed."""
_DEATH_SECONDS = 10.0
"""How long a box may take to die that was killed; one that somebody has frozen does not, until it is thawed."""
_INTERRUPT_SECONDS = 0.5
"""How long an interpreter may take to notice that it was interrupted before it is killed."""
_START_SECONDS = 20.0
"""How long an interpreter may take to start."""
_PAUSE_SECONDS = 0.002
"""How long after a command the next shell is started ahead of time: a box that is closed at once never starts it."""
_BETWEEN_SECONDS = 1.0
"""How often an interpreter is looked at that runs nothing for us: its threads may."""
_ENDED_KEPT = 100
_KILLED_AT_ONCE = frozenset({Limit.MEMORY, Limit.DISK, Limit.FILES})
"""Limits that an interpreter is not asked to respect first: there is no time for it."""
_AT_ONCE_SECONDS = 0.001
_SELECT_MAX = 1024
"""What select(2) takes; it is the one call that waits for less than a millisecond."""
_running = 0
"""Pieces of work under way in this process."""


class HelperBox:
    interprets = frozenset({"python"})

    def __init__(
        self,
        around: Surroundings,
        grant: Grant,
        holder: Holder,
        wall: Wall,
        audit: SandboxAudit,
        setting: Setting,
    ) -> None:
        self._around = around
        self._grant = grant
        self._holder = holder
        self._setting = setting
        self.wall = wall
        self.audit = audit
        self._loop = asyncio.get_running_loop()
        self._nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        """The input of commands that have none."""
        self._control = Control(around.control)
        self._spawner = Spawner(self._control, setting, around.owner)
        self._results = Results(grant.limits, holder, wall, audit)
        self._turn = asyncio.Lock()
        self._roots = tuple(map(os.fspath, grant.grown_roots))
        self._shell: WaitingShell | None = None
        self._contexts: dict[tuple[str, str], Context] = {}
        self._processes: dict[int, BoxProcess] = {}
        self._preparing: asyncio.TimerHandle | None = None
        self._between: asyncio.TimerHandle | None = None
        self._closed = False
        self._ending: asyncio.Task[None] | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return not self._control.lost and not self._closed

    def note(self, text: str) -> None:
        self.wall = replace(self.wall, notes=(*self.wall.notes, text))
        self._results.wall = self.wall

    @property
    def window(self) -> int:
        return self._control.window

    @property
    def memory(self) -> int:
        return self._control.memory

    def probe(self) -> bool:
        """Whether it stands, asked of the kernel now."""
        return not self._closed and self._control.still_there()

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._control.when_lost(tell)

    async def wait_ready(self) -> None:
        """Let PID 1 confine itself; returns when the wall stands.

        Raises:
            Internal: it did not come up; the message holds what those said who built the wall.
        """
        self._control.configure(self._around.configure, self._around.descriptors)
        try:
            await self._control.ready
        except Internal:
            raise Internal(self._around.complaints() or "the box ended before it was ready") from None
        listener = self._control.take_listener()
        if listener >= 0:
            try:
                self._results.supervision = self._around.supervise(listener)
            finally:
                os.close(listener)

    def settle(self, setting: Setting) -> None:
        """Use this setting from now on: an engine may have to look into a box before it knows what is in it."""
        self._setting = setting
        self._spawner = Spawner(self._control, setting, self._around.owner)

    async def warm(self) -> None:
        """Start a shell and an interpreter ahead of time; returns when they wait.

        Raises:
            Internal: the box is gone.
        """
        if not self.alive:
            raise Internal("the box is gone", hint="open a new one")
        self._prepare_shell()
        if self._setting.python is not None:
            with suppress(Internal, SpawnFailed, TimeoutError):  # said again, with reasons, to whoever calls it
                await self._context("python", MAIN)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._let_go()
            self._ending = self._loop.create_task(self._end())
        assert self._ending is not None
        if await wait_through_cancel(self._ending):
            raise asyncio.CancelledError

    def _let_go(self) -> None:
        for timer in (self._preparing, self._between):
            if timer is not None:
                timer.cancel()
        if self._shell is not None:
            self._shell.close()
        self._control.close()
        os.close(self._nothing)
        if self._results.supervision is not None:
            self._results.supervision.close()
        self._around.let_go()

    async def _end(self) -> None:
        await self._around.wait_gone()
        self._holder.close()
        self._control.fail(Internal("the box was closed while the command ran"))
        for context in self._contexts.values():
            context.close()

    # --- what runs in it ----------------------------------------------------------------------------------------------

    def find_program(self, names: tuple[str, ...]) -> str | None:
        return self._setting.programs.find(names)

    async def run(self, request: Request) -> Result:
        global _running
        async with self._turn:
            _running += 1
            try:
                return await self._run(request)
            finally:
                _running -= 1

    async def _run(self, request: Request) -> Result:
        if not self.alive:
            raise Internal("the box is gone", hint="open a new one")
        if request.code is not None:
            return await self._run_call("python", request.context or MAIN, request.code, request)
        if request.context is not None:
            return await self._run_call("shell", request.context, request.command or "", request)
        return await self._run_command(request)

    async def start(self, request: Request, *, terminal: tuple[int, int] | None = None) -> BoxProcess:
        """Start a command that goes on while others run. With `terminal`, on one of that many rows and columns.

        Raises:
            SpawnFailed: the program could not be started; the box lives on.
            Internal: the box is gone.
        """
        if not self.alive:
            raise Internal("the box is gone", hint="open a new one")
        with ExitStack() as theirs:
            inputs: int = -1
            outputs = (-1, -1)
            descriptors: list[int] = []
            if terminal is None:
                end, inputs = self._spawner.pipe()
                theirs.callback(os.close, end)
                outputs, ends = self._spawner.outputs(theirs)
                descriptors = [end, *ends]
            argv = self._spawner.argv(request, descriptors, theirs)
            try:
                job = self._spawner.start(argv, request, descriptors, terminal)
            except BaseException:
                for descriptor in (inputs, *outputs):
                    if descriptor >= 0:
                        os.close(descriptor)
                raise
        if job.terminal is not None:
            inputs = await self._terminal(job, argv[0])
            outputs = (os.dup(inputs), -1)
        process = BoxProcess(self._control, job, request, inputs, outputs, self._grant.limits, self._results.of_process)
        process.watch(self._holder, self._roots)
        self._forget_the_oldest()
        self._processes[job.id] = process
        await asyncio.sleep(0)  # a program that is not there says so at once
        return process

    def processes(self) -> tuple[BoxProcess, ...]:
        """What was started and goes on, and what has ended and was not forgotten yet."""
        return tuple(self._processes.values())

    def _forget_the_oldest(self) -> None:
        """A session may start thousands: of those that have ended, the last ones are kept."""
        ended = [id for id, process in self._processes.items() if not process.alive]
        for id in ended[: max(0, len(ended) - _ENDED_KEPT)]:
            del self._processes[id]

    def contexts(self) -> tuple[tuple[str, str], ...]:
        """(language, name) of the interpreters that keep a state."""
        return tuple(key for key, context in self._contexts.items() if context.alive)

    def interrupt(self, name: str = MAIN, language: str = "python") -> bool:
        """Interrupt the call that runs in an interpreter; its state lives on. False if none runs."""
        context = self._contexts.get((_context_language(language), name))
        if context is None or context.busy is None:
            return False
        self._control.signal(context.job, signal.SIGINT)
        return True

    async def restart(self, name: str = MAIN, language: str = "python") -> None:
        """End an interpreter with all that it keeps; the next call starts a new one."""
        context = self._contexts.pop((_context_language(language), name), None)
        if context is not None:
            self._control.kill(context.job)
            try:
                with suppress(Internal, TimeoutError):
                    await asyncio.wait_for(asyncio.shield(context.job.ended), _KILL_SECONDS)
            finally:
                context.close()

    # --- commands -----------------------------------------------------------------------------------------------------

    def _begin(self) -> float:
        """From now on, what is used and seen counts for the piece of work that comes; returns the time."""
        self._results.begin()
        return time.monotonic()

    async def _run_command(self, request: Request) -> Result:
        begin = self._begin()
        feeder: asyncio.Task[None] | None = None
        program = as_program(request.command, self._setting.programs) if request.command is not None else None
        work = self._tell_waiting_shell(request) if program is None else None
        if work is None:
            work, stdin = self._spawn(request, program)
            if request.stdin is not None:
                feeder = self._loop.create_task(feed(stdin, request.stdin))
                feeder.add_done_callback(partial(self._on_fed, work))
        try:
            reply = await self._wait_over(work, request)
        except SpawnFailed as fault:
            if program is None or fault.why != os.strerror(errno.ENOEXEC) or request.stdin is not None:
                raise
            # A file without a word about who runs it: a shell reads it as a script.
            shell = (self._setting.shell, "-c", "--", request.command or "")
            return await self._run_command(replace(request, command=None, argv=shell))
        finally:
            if feeder is not None:
                feeder.cancel()
            was_untouched = work.shell is not None and work.shell.finish()
        if was_untouched and work.killed_for is None and self.alive:
            return await self._run_command(request)  # the shell was killed before it took the command: a new one does
        if self.alive:
            self._preparing = self._loop.call_later(_PAUSE_SECONDS, self._prepare_shell)
        assert isinstance(reply, Reply)
        return self._results.of_reply(work, reply, time.monotonic() - begin, self._timeout(request))

    def _tell_waiting_shell(self, request: Request) -> Work | None:
        """Hand the command to the shell that waits, if there is one and nothing speaks against it."""
        shell, command = self._shell, request.command
        if shell is None or command is None or request.stdin is not None or request.env:
            return None
        if request.cwd is not None and os.fspath(request.cwd) != self._setting.cwd:
            return None
        text = os.fsencode(as_last(command, self._setting.programs))
        if len(text) > COMMAND_MAX:
            return None
        self._shell = None
        if not shell.alive or not shell.tell(text):
            shell.close()
            return None
        work = Work(shell.job, shell=shell)
        work.listen(shell.take_outputs(), request, self._grant.limits.output_bytes, self._stop, self._on_fault)
        return work

    def _prepare_shell(self) -> None:
        self._preparing = None
        if self.alive and (self._shell is None or not self._shell.alive) and self._setting.shell.endswith("bash"):
            if self._shell is not None:
                self._shell.close()
                self._shell = None
            with suppress(OSError):  # then the next command gets a shell of its own
                self._shell = start_shell(self._control, self._setting, self._spawner.pipe)

    def _spawn(self, request: Request, program: tuple[str, ...] | None) -> tuple[Work, int]:
        """Ask PID 1 to start the command, or the program that a shell would become; also our end of its stdin (-1 if it
        has none)."""
        with ExitStack() as theirs, ExitStack() as undo:
            inputs, stdin = self._nothing, -1
            if request.stdin is not None:
                inputs, stdin = self._spawner.pipe()
                undo.callback(os.close, stdin)
                theirs.callback(os.close, inputs)
            outputs, ends = self._spawner.outputs(theirs)
            for descriptor in outputs:
                undo.callback(os.close, descriptor)
            descriptors = [inputs, *ends]
            argv = self._spawner.argv(request, descriptors, theirs) if program is None else list(program)
            work = Work(self._spawner.start(argv, request, descriptors))
            undo.pop_all()
            work.listen(outputs, request, self._grant.limits.output_bytes, self._stop, self._on_fault)
            return work, stdin

    async def _terminal(self, job: Job, program: str) -> int:
        assert job.terminal is not None
        try:
            return await asyncio.wait_for(job.terminal, _START_SECONDS)
        except TimeoutError as fault:
            self._control.kill(job)
            raise Internal("PID 1 of the box did not answer in time") from fault
        except asyncio.CancelledError:
            if not job.ended.done():
                self._control.kill(job)
                raise
            failure = spawn_failed(job.ended.result(), program)
            if Guarantee.HOST_PROCESSES_HIDDEN not in self.wall.guarantees:
                raise SpawnFailed(program, "there are no terminals behind this wall", hint="leave it out") from None
            raise failure from None

    # --- interpreters -------------------------------------------------------------------------------------------------

    async def _run_call(self, language: str, name: str, text: str, request: Request) -> Result:
        before = self._contexts.get((language, name))
        was_lost = before is not None and before.calls > 0 and not before.alive
        context = await self._context(language, name)
        begin = self._begin()
        code = text.encode("utf-8", "surrogateescape")
        if self._between is None:
            self._between = self._loop.call_later(_BETWEEN_SECONDS, self._look_between)
        cpu = context.cpu_seconds()
        work = Work(context.job, context=context)
        work.listen_to(context, request, self._grant.limits.output_bytes, self._stop, self._on_fault)
        work.cell = context.begin(code, self._grant.limits.output_bytes)
        said = await self._wait_over(work, request)
        reply = said
        if said is None:  # it has ended: how is the word of PID 1
            try:
                reply = await asyncio.shield(work.job.ended)
            except Internal as fault:
                reply = self._reply_of_the_dead(work, fault)
            self._drop(context)
        wall_seconds = time.monotonic() - begin
        timeout = self._timeout(request)
        work.state_was_lost = was_lost
        if isinstance(reply, Reply):
            return self._results.of_reply(work, reply, wall_seconds, timeout)
        cpu_seconds = context.cpu_seconds() - cpu
        peak = context.peak_memory_bytes(wall_seconds)
        return self._results.of_call(work, reply or 0, cpu_seconds, peak, wall_seconds, timeout)

    async def _context(self, language: str, name: str) -> Context:
        """The interpreter of that name; started if there is none.

        Raises:
            SpawnFailed: it cannot be started.
            Internal: the box is gone.
        """
        context = self._contexts.get((language, name))
        if context is not None and context.alive:
            if context.ready.done():
                return context
        else:
            if context is not None:
                self._drop(context)
            try:
                context = start_context(self._control, self._setting, self._spawner.pipe, language, name)
            except OSError as fault:
                raise Internal("the box is gone", hint="open a new one") from fault
            self._contexts[language, name] = context
        try:
            await asyncio.wait_for(asyncio.shield(context.ready), _START_SECONDS)
        except (Internal, TimeoutError) as fault:
            why = self._why_not_started(context)
            self._drop(context)
            raise why from fault
        return context

    def _look_between(self) -> None:
        """While no call runs, nobody else looks at the memory that threads of an interpreter take."""
        self._between = self._loop.call_later(_BETWEEN_SECONDS, self._look_between)
        if self._turn.locked() or Limit.MEMORY in self._holder.enforces:
            return
        if self._holder.read(self._control.first_pid).memory_bytes > self._grant.limits.memory_bytes:
            for context in tuple(self._contexts.values()):
                self._drop(context)

    def _why_not_started(self, context: Context) -> SpawnFailed:
        program = self._setting.python or "python3" if context.language == "python" else self._setting.shell
        if context.job.ended.done() and context.job.ended.exception() is None:
            reply = context.job.ended.result()
            if reply.kind is Kind.FAILED:
                return spawn_failed(reply, program)
        context.readers[1].drain()
        said = context.readers[1].capture.kept()
        last = said.decode(errors="replace").strip().splitlines()[-1:] or ["it did not start in time"]
        return SpawnFailed(program, last[0], hint="does it run by itself, inside the box?")

    def _drop(self, context: Context) -> None:
        if self._contexts.get((context.language, context.name)) is context:
            del self._contexts[context.language, context.name]
        if context.alive:
            self._control.kill(context.job)
        context.close()

    # --- the end of a piece of work -----------------------------------------------------------------------------------

    async def _wait_over(self, work: Work, request: Request) -> Reply | int | None:
        """Wait until it is over, or have it ended when its time is up or a limit is passed.

        Raises:
            SpawnFailed, Internal: see `run`; or what the caller's own callback raised.
        """
        timers: list[Watch | asyncio.TimerHandle] = []
        # Whoever feeds its input owns the pipe from its first step on, for which the event loop is needed.
        if request.stdin is not None or not self._is_over_at_once(work):
            work.hear_out()
            stop = partial(self._stop, work)
            timers.append(Watch(self._holder, self._grant.limits, self._roots, self._control.first_pid, stop))
            timers.append(self._loop.call_later(self._timeout(request), self._stop, work, Limit.WALL))
        try:
            reply: Reply | int | None = await asyncio.shield(work.over)
        except asyncio.CancelledError:
            self._stop(work, Limit.WALL)
            await wait_through_cancel(work.over)
            raise
        except Internal as fault:
            reply = self._reply_of_the_dead(work, fault)
        finally:
            for timer in timers:
                timer.cancel()
            work.hang_up()
        if isinstance(reply, Reply) and reply.kind is Kind.FAILED:
            raise spawn_failed(reply, request.argv[0] if request.argv else self._setting.shell)
        if work.fault is not None:
            raise work.fault
        return reply

    def _is_over_at_once(self, work: Work) -> bool:
        """Wait a moment right here: most small calls are over before the event loop could be asked to wait for them.

        Only where nothing else of ours runs in this process, which would have to wait too.
        """
        if _running > 1:
            return work.over.done()
        context = work.context
        descriptor = self._control.fileno() if context is None else context.fileno()
        end = time.monotonic() + (_AT_ONCE_SECONDS if context is None else _AT_ONCE_SECONDS / 2)
        while not work.over.done() and 0 <= descriptor < _SELECT_MAX:
            left = end - time.monotonic()
            if left <= 0 or not select.select((descriptor,), (), (), left)[0]:
                break
            if context is None:
                self._control.still_there()
            else:
                context.hear()
        return work.over.done()

    def _reply_of_the_dead(self, work: Work, fault: Internal) -> Reply:
        """PID 1 is gone: killed by us because it did not answer, or by the kernel for memory; anything else is raised.

        Raises:
            Internal: the box was lost for another reason.
        """
        if work.killed_for is not None or self._results.was_killed_for_memory():
            return Reply(Kind.ENDED, work.job.id, (int(signal.SIGKILL), 0, 0, 0))
        raise fault

    def _timeout(self, request: Request) -> float:
        wall = self._grant.limits.wall_seconds
        return min(request.timeout or wall, wall)

    def _stop(self, work: Work, limit: Limit) -> None:
        """Have it ended; the first reason counts."""
        if work.killed_for is not None or work.over.done():
            return
        work.killed_for = limit
        if work.cell is None or limit in _KILLED_AT_ONCE:
            self._kill(work)
            return
        self._control.signal(work.job, signal.SIGINT)
        self._loop.call_later(_INTERRUPT_SECONDS, self._kill, work)

    def _kill(self, work: Work) -> None:
        if not work.over.done():
            self._control.kill(work.job)
            self._loop.call_later(_KILL_SECONDS, self._give_up_on, work)

    def _give_up_on(self, work: Work) -> None:
        if not work.over.done() and not self._closed and self._control.first_pid:
            self._around.kill(self._control.first_pid)
            self._loop.call_later(_DEATH_SECONDS, self._write_off, work)

    def _write_off(self, work: Work) -> None:
        """It does not even die: the caller is answered, and the box is gone as far as anybody is concerned."""
        if not work.over.done() and not self._closed:
            self._control.lose(Internal("the box was killed, and does not end", hint="open a new one"))

    def _on_fed(self, work: Work, feeder: asyncio.Task[None]) -> None:
        fault = None if feeder.cancelled() else feeder.exception()
        if fault is not None:
            self._on_fault(work, fault)

    def _on_fault(self, work: Work, fault: BaseException) -> None:
        """The caller's callback or stream failed: the command is ended, and the fault raised when it is."""
        work.fault = work.fault or fault
        self._stop(work, Limit.WALL)

    def usage(self) -> Usage:
        reading = self._holder.read(self._control.first_pid)
        return Usage(0.0, reading.cpu_seconds, self._holder.peak_memory_bytes(), self._holder.name)


def _context_language(language: str) -> str:
    return "shell" if language in ("bash", "sh") else language
