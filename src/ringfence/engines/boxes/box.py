"""One box: PID 1 behind a wall, whichever engine built it, and the way to run things in it.

A command's pipes are made here and passed to PID 1, which reports the end only after everything that the command
started is dead, unless that may live on. An interpreter that keeps its state has a socket of its own besides; that a
call of it is over is its own word. Calls run side by side (`overlap.py` says what is whose), but for those of one
interpreter, which take turns.

    commands      one command from start to end        (commands.py)
    interpreters  what keeps its state                  (interpreters.py, context.py)
    background    what goes on while calls come and go  (background.py, process.py)
    ending        the end of each, waited for or made   (ending.py)
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.deferred import deferred
from ringfence.engines.boxes.background import Background
from ringfence.engines.boxes.commands import Commands
from ringfence.engines.boxes.control import Control
from ringfence.engines.boxes.ending import Endings, Underway
from ringfence.engines.boxes.file_servers import FileServers
from ringfence.engines.boxes.inside import Inside
from ringfence.engines.boxes.interpreters import MAIN, Interpreters
from ringfence.engines.boxes.overlap import Running
from ringfence.engines.boxes.results import Results
from ringfence.engines.boxes.spawning import Spawner, not_started
from ringfence.engines.boxes.standing import Standing
from ringfence.engines.boxes.turns import Turns
from ringfence.engines.boxes.waiting import wait_through_cancel
from ringfence.engines.descriptors import out_of_descriptors
from ringfence.engines.loops import run_there, runs_elsewhere
from ringfence.errors import Internal, RingfenceError
from ringfence.values.limits import Limit
from ringfence.values.outcome import Observed, Result, SandboxAudit, Usage
from ringfence.values.request import INTERPRETED, Request

if TYPE_CHECKING:
    from ringfence.engines.base import Agree
    from ringfence.engines.boxes.base import BoxHost
    from ringfence.engines.boxes.lineage import lineage
    from ringfence.engines.boxes.process import BoxProcess
    from ringfence.engines.boxes.standby import BoxSetting
    from ringfence.engines.networking.attaching import BoxNetwork
    from ringfence.engines.networking.inside import InsideSocketMaker
    from ringfence.limits.base import ResourceController
    from ringfence.values.files import FileOperation, Performed
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Wall
    from ringfence.values.violation import Violation
else:
    lineage = deferred("ringfence.engines.boxes.lineage", "lineage")
    InsideSocketMaker = deferred("ringfence.engines.networking.inside", "InsideSocketMaker")


class HelperBox:
    interprets = INTERPRETED
    held: frozenset[str] = frozenset()

    def __init__(
        self,
        around: BoxHost,
        grant: Grant,
        holder: ResourceController,
        wall: Wall,
        audit: SandboxAudit,
        setting: BoxSetting,
    ) -> None:
        self.audit = audit
        control = Control(around.control)
        running = Running(control)
        roots = tuple(map(os.fspath, grant.grown_roots))
        self._inside = inside = Inside(
            around=around,
            control=control,
            limits=grant.limits,
            holder=holder,
            roots=roots,
            setting=setting,
            spawner=Spawner(control, setting, around.owner),
            results=Results(holder, wall, audit),
            standing=Standing(
                holder,
                grant.limits,
                roots,
                first_pid=lambda: control.first_pid,
                is_busy=lambda: running.calls > 0,
                living=self._count_living,
                stop=self._stop_living,
            ),
            running=running,
            loop=asyncio.get_running_loop(),
            nothing=os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC),
        )
        endings = Endings(inside)
        self._background = Background(inside)
        self._commands = Commands(inside, endings, self._background.keep)
        self._interpreters = Interpreters(inside, endings)
        self._files = FileServers(control, inside.results.set_apart)
        self._turns = Turns(grant.limits.processes)
        self._ending: asyncio.Task[None] | None = None
        self._network: BoxNetwork | None = None

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return self._inside.alive

    @property
    def wall(self) -> Wall:
        return self._inside.results.wall

    def note(self, text: str) -> None:
        self._inside.results.note(text)

    @property
    def window(self) -> int:
        return self._inside.control.window

    @property
    def memory(self) -> int:
        return self._inside.control.memory

    def probe(self) -> bool:
        """Whether it stands, asked of the kernel now."""
        return not self._inside.is_closed and self._inside.control.still_there()

    def lineage(self) -> tuple[int, ...]:
        """The processes from its PID 1 up to us; empty if one of them was stopped or killed."""
        return lineage(self._inside.control.first_pid)

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._inside.control.when_lost(tell)

    async def wait_ready(self) -> None:
        """Let PID 1 confine itself; returns when the wall stands.

        Raises:
            Internal: it did not come up; the message holds what those said who built the wall.
        """
        around, control = self._inside.around, self._inside.control
        control.configure(around.configure, around.descriptors)
        try:
            await control.ready
        except Internal:
            raise Internal(around.complaints() or "the box ended before it was ready") from None
        listener = control.take_listener()
        if listener >= 0:
            try:
                self._inside.results.supervision = around.supervise(listener)
            finally:
                os.close(listener)

    def settle(self, setting: BoxSetting) -> None:
        """Use this setting from now on: an engine may have to look into a box before it knows what is in it."""
        if self._network is not None:
            env = dict(variable.split("=", 1) for variable in setting.env) | dict(self._network.variables)
            setting = replace(setting, env=tuple(f"{name}={value}" for name, value in env.items()))
        self._inside.settle(setting)

    def call_wall(self, wall: Wall) -> None:
        """Say of it, and of what runs in it, that this is the wall: an engine may add to what the one around gives."""
        self._inside.results.call_wall(wall)

    def join_network(self, network: BoxNetwork) -> None:
        """From now on the box has a network, with what that brings along; closed with the box."""
        self._inside.results.network = self._network = network
        self.settle(self._inside.setting)

    def socket_maker_inside(self, *, is_carried: bool) -> InsideSocketMaker:
        """Makes sockets of the box's network by its own PID 1, where nobody else is in it.

        Args:
            is_carried: whether a kernel of its own is between us and the box.
        """
        return InsideSocketMaker(self._inside.control, is_carried=is_carried)

    @property
    def network_name(self) -> str:
        """What whoever serves its network knows the box as; empty if it has none."""
        return "" if self._network is None else self._network.name

    @property
    def published(self) -> tuple[tuple[int, int], ...]:
        """(port inside, port of 127.0.0.1 outside)"""
        return () if self._network is None else self._network.published

    async def warm(self) -> None:
        """Start a shell and an interpreter ahead of time; returns when they wait.

        Raises:
            Internal: the box is gone.
        """
        self._inside.check_alive()
        self._commands.prepare_shell()
        if self._inside.setting.python is not None:
            await self._interpreters.warm()
        if self._inside.results.supervision is not None:  # now, instead of when a call waits for it
            self._inside.results.supervision.forget()

    async def close(self) -> None:
        """End everything; returns when nothing of it is left. From any loop, also when the box's own is gone."""
        if runs_elsewhere(self._inside.loop):
            await run_there(self._inside.loop, self.close())
            return
        if not self._inside.is_closed:
            self._let_go()
            self._ending = asyncio.get_running_loop().create_task(self._end())
        assert self._ending is not None
        if await wait_through_cancel(self._ending):
            raise asyncio.CancelledError

    def _let_go(self) -> None:
        self._files.close()
        self._inside.close()
        self._commands.close()
        if self._inside.results.supervision is not None:
            self._inside.results.supervision.close()
        self._inside.around.release()

    async def _end(self) -> None:
        if self._network is not None:
            await self._network.close()
        await self._inside.around.wait_closed()
        self._inside.holder.close()
        self._inside.control.fail(Internal("the box was closed while the command ran"))
        self._interpreters.close()
        self._background.close()

    # --- what runs in it ----------------------------------------------------------------------------------------------

    def last_seen(self, request: Request) -> tuple[tuple[Violation, ...], Observed | None]:
        return self._inside.results.last_seen(request)

    def find_program(self, names: tuple[str, ...]) -> str | None:
        return self._inside.setting.programs.find(names)

    async def run(self, request: Request) -> Result:
        if request.code is not None or request.context is not None:
            return await self._run_now(request)  # an interpreter has its pipes and processes already, and its own turns
        async with self._turns.turn():
            return await self._run_now(request)

    async def _run_now(self, request: Request) -> Result:
        inside = self._inside
        inside.check_alive()
        inside.running.call_begins()
        try:
            with Underway():
                result = await self._run(request)
        except BaseException:
            inside.running.call_ends(inside.standing)
            await inside.results.network_of_lost(request, is_alone=self._is_idle)
            raise
        inside.running.call_ends(inside.standing)
        return await inside.results.with_network(request, result, is_alone=self._is_idle)

    @property
    def _is_idle(self) -> bool:
        return not self._inside.running.calls and not self._background.living

    async def _run(self, request: Request) -> Result:
        if request.code is not None:
            return await self._interpreters.run("python", request.context or MAIN, request.code, request)
        if request.context is not None:
            return await self._interpreters.run("shell", request.context, request.command or "", request)
        try:
            return await self._commands.run(request)
        except RingfenceError:
            raise
        except OSError as fault:
            if out_of_descriptors(fault):
                raise not_started(fault, request.argv[0] if request.argv else self._inside.setting.shell) from fault
            raise

    async def start(
        self, request: Request, *, terminal: tuple[int, int] | None = None, channel: int | None = None
    ) -> BoxProcess:
        """Start a command that goes on while others run. With `terminal`, on one of that many rows and columns; with
        `channel`, a copy of that descriptor is its descriptor 9.

        Raises:
            SpawnFailed: the program could not be started; the box lives on.
            Internal: the box is gone.
        """
        self._inside.check_alive()
        return await self._background.start(request, terminal, channel)

    async def perform(
        self, operation: FileOperation, agree: Agree, data: AsyncIterator[bytes] | None = None
    ) -> Performed:
        """Read or change a file inside, as the box's user; see `FileServers.perform`."""
        self._inside.check_alive()
        return await self._files.perform(operation, agree, self._inside.limits.wall_seconds, data)

    def processes(self) -> tuple[BoxProcess, ...]:
        return self._background.processes()

    def contexts(self) -> tuple[tuple[str, str], ...]:
        """(language, name) of the interpreters that keep a state."""
        return self._interpreters.names

    def interrupt(self, name: str = MAIN, language: str = "python") -> bool:
        """Interrupt the call that runs in an interpreter; its state lives on. False if none runs."""
        return self._interpreters.interrupt(language, name)

    async def restart(self, name: str = MAIN, language: str = "python") -> None:
        """End an interpreter with all that it keeps; the next call starts a new one."""
        await self._interpreters.restart(language, name)

    def usage(self) -> Usage:
        holder = self._inside.holder
        reading = holder.read(self._inside.control.first_pid)
        return Usage(0.0, reading.cpu_seconds, holder.peak_memory_bytes(), holder.name)

    # --- what lives on between calls ----------------------------------------------------------------------------------

    def _count_living(self) -> int:
        """What goes on after the call that began it: interpreters that ran something, processes in the background."""
        return self._background.living + self._interpreters.living

    def _stop_living(self, limit: Limit) -> None:
        """Between calls, something that lives on has passed a limit; nobody can tell which."""
        self._interpreters.stop_all(limit)
        if limit is Limit.CPU:
            self._background.stop_all(limit)
