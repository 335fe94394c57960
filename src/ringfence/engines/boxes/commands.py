"""Runs one command from start to end: by the shell that waits, if it can take it, or by one of its own."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.engines.boxes.last_command import as_last, as_program
from ringfence.engines.boxes.protocol import MessageKind, Reply
from ringfence.engines.boxes.standby import WaitingShell, start_shell
from ringfence.engines.boxes.standing import could_use
from ringfence.engines.boxes.work import Work
from ringfence.engines.streams import feed
from ringfence.errors import FileError, SpawnFailed

if TYPE_CHECKING:
    from ringfence.engines.boxes.ending import Endings
    from ringfence.engines.boxes.inside import Inside
    from ringfence.values.outcome import Result
    from ringfence.values.request import Request

_PAUSE_SECONDS = 0.002
"""How long after a command the next shell is started ahead of time: a box that is closed at once never starts it."""


class Commands:
    """
    Args:
        keep: takes over what a command has left running, where that may live on.
    """

    def __init__(self, inside: Inside, endings: Endings, keep: Callable[[Work], None]) -> None:
        self._inside = inside
        self._endings = endings
        self._keep = keep
        self._shell: WaitingShell | None = None
        self._preparing: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
        if self._shell is not None:
            self._shell.close()

    def prepare_shell(self) -> None:
        """Start a shell ahead of time, if none waits."""
        self._preparing = None
        inside = self._inside
        if inside.alive and (self._shell is None or not self._shell.alive) and inside.setting.waiting:
            if self._shell is not None:
                self._shell.close()
                self._shell = None
            with suppress(OSError):  # then the next command gets a shell of its own
                self._shell = start_shell(inside.control, inside.setting, inside.spawner.pipe)
                inside.standing.shell_started()

    async def run(self, request: Request) -> Result:
        inside, setting = self._inside, self._inside.setting
        feeder: asyncio.Task[None] | None = None
        program = as_program(request.command, setting.programs) if request.command is not None else None
        work = self._tell_waiting_shell(request) if program is None else None
        if work is None:
            work, stdin = self._spawn(request, program)
            if request.stdin is not None:
                feeder = inside.loop.create_task(feed(stdin, request.stdin))
                self._endings.when_fed(work, feeder)
        inside.begin(work)
        try:
            reply = await self._endings.wait_over(work)
        except (SpawnFailed, FileError) as fault:
            inside.results.forget(work)
            if program is None or fault.errno != errno.ENOEXEC or request.stdin is not None:
                raise
            # A file without a word about who runs it: a shell reads it as a script.
            shell = (setting.shell, "-c", "--", request.command or "")
            return await self.run(replace(request, command=None, argv=shell))
        except BaseException:
            inside.results.lost(work)
            work.abandon(inside.control)
            raise
        finally:
            inside.end(work)
            if feeder is not None:
                feeder.cancel()
            was_untouched = work.shell is not None and work.shell.finish()
        if was_untouched and work.killed_for is None and inside.alive:
            inside.results.forget(work)
            return await self.run(request)  # the shell was killed before it took the command: a new one does
        if inside.alive and self._preparing is None:
            self._preparing = inside.loop.call_later(_PAUSE_SECONDS, self.prepare_shell)
        assert isinstance(reply, Reply)
        wall_seconds = time.monotonic() - work.began
        inside.running.call_used(min(could_use(wall_seconds), sum(reply.numbers[1:3]) / 1e6))
        result = inside.results.of_reply(work, reply, wall_seconds)
        if reply.kind is MessageKind.LEFT:
            self._keep(work)
        return result

    def _tell_waiting_shell(self, request: Request) -> Work | None:
        """Hand the command to the shell that waits, if there is one and it can take it."""
        shell, command, setting = self._shell, request.command, self._inside.setting
        if shell is None or command is None or request.stdin is not None or request.env or request.keep_background:
            return None
        if request.cwd is not None and os.fspath(request.cwd) != setting.cwd:
            return None
        text = os.fsencode(as_last(command, setting.programs))
        if len(text) > setting.waiting_max:
            return None
        self._shell = None
        if not shell.alive or not shell.tell(text):
            shell.close()
            return None
        work = Work(shell.job, request, self._inside.limits, shell=shell)
        work.listen(shell.take_outputs(), self._endings.stop, self._endings.on_fault)
        return work

    def _spawn(self, request: Request, program: tuple[str, ...] | None) -> tuple[Work, int]:
        """Ask PID 1 to start the command, or the program that a shell would become; also our end of its stdin (-1 if it
        has none)."""
        inside, spawner = self._inside, self._inside.spawner
        with ExitStack() as theirs, ExitStack() as undo:
            inputs, stdin = inside.nothing, -1
            if request.stdin is not None:
                inputs, stdin = spawner.pipe()
                undo.callback(os.close, stdin)
                theirs.callback(os.close, inputs)
            outputs, ends = spawner.outputs(theirs)
            for descriptor in outputs:
                undo.callback(os.close, descriptor)
            descriptors = [inputs, *ends]
            argv = spawner.argv(request, descriptors, theirs) if program is None else list(program)
            work = Work(spawner.start(argv, request, descriptors), request, inside.limits)
            undo.pop_all()
            work.listen(outputs, self._endings.stop, self._endings.on_fault)
            return work, stdin
