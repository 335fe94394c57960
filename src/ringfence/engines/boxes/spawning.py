"""Has PID 1 start a command: its words, its pipes, and what to say when it could not be started."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.engines.boxes.protocol import Manner, Reply, Step
from ringfence.engines.boxes.standby import BoxSetting, command_words
from ringfence.engines.descriptors import hint, out_of_descriptors
from ringfence.errors import FileError, Internal, SpawnFailed

if TYPE_CHECKING:
    from ringfence.engines.boxes.control import Control, Job
    from ringfence.values.request import Request

_LONG_COMMAND = 100_000
"""The kernel takes at most 128 KiB for one argument; longer commands are read by the shell from a descriptor."""
_SCRIPT = ". /dev/fd/9"
_ERRNO_END = 4096  # the kernel's own numbers end here (MAX_ERRNO)
_HINTS = {
    errno.ENOENT: "is it installed, and on the PATH inside?",
    errno.EACCES: "is it executable, and the directory granted?",
    errno.E2BIG: "arguments and environment are larger than the kernel takes",
    errno.EAGAIN: "the process limit is used up",
    errno.EMFILE: "the limit of open files is used up: raise `ulimit -n`, or do less at once",
}


class Spawner:
    def __init__(self, control: Control, setting: BoxSetting, owner: tuple[int, int] | None) -> None:
        self._control = control
        self._setting = setting
        self._owner = owner
        self._usual_env = _last_of_each((*setting.env, f"PWD={setting.cwd}"))
        """The variables of a command that asks for nothing else."""

    def start(
        self, argv: list[str], request: Request, descriptors: list[int], terminal: tuple[int, int] | None = None
    ) -> Job:
        """Have it started.

        Raises:
            SpawnFailed: it is longer than a box takes.
            Internal: the box is gone.
        """
        cwd, env = self._setting.cwd, self._usual_env
        if request.cwd is not None or request.env:
            cwd = cwd if request.cwd is None else os.fspath(request.cwd)
            env = _last_of_each((*env, f"PWD={cwd}", *(f"{name}={value}" for name, value in request.env)))
        try:
            manner = Manner.KEEPS if request.keep_background else Manner.PLAIN
            return self._control.start(command_words(cwd, argv, env), descriptors, manner, terminal=terminal)
        except OSError as fault:
            raise not_started(fault, argv[0]) from fault

    def pipe(self) -> tuple[int, int]:
        """A pipe that the command may open again by name, as /dev/stderr, also where its uid is not ours."""
        ours, theirs = os.pipe()
        if self._owner is not None:
            os.fchown(ours, *self._owner)
        return ours, theirs

    def outputs(self, theirs: ExitStack) -> tuple[tuple[int, int], tuple[int, int]]:
        """Pipes for stdout and stderr: (our ends, theirs, which the stack closes)."""
        out, out_end = self.pipe()
        theirs.callback(os.close, out_end)
        try:
            err, err_end = self.pipe()
        except BaseException:
            os.close(out)
            raise
        theirs.callback(os.close, err_end)
        return (out, err), (out_end, err_end)

    def argv(self, request: Request, descriptors: list[int], undo: ExitStack) -> list[str]:
        """What to start for a request; the text of a long command is added to the descriptors."""
        if request.argv is not None:
            return list(request.argv)
        command = request.command or ""
        encoded = os.fsencode(command)
        starters, shell = self._setting.starters, self._setting.shell
        if len(encoded) < _LONG_COMMAND:
            return [*((shell, "-c", "--") if starters is None else starters.line), command]
        script = os.memfd_create("command", os.MFD_CLOEXEC)
        undo.callback(os.close, script)
        with open(script, "wb", closefd=False) as file:
            file.write(encoded)
        os.lseek(script, 0, os.SEEK_SET)
        descriptors.append(script)
        return [*((shell, "-c", _SCRIPT) if starters is None else starters.script)]


def not_started(fault: OSError, program: str) -> SpawnFailed | Internal:
    """What it means that PID 1 could not even be asked."""
    if fault.errno == errno.E2BIG:
        return SpawnFailed(program, os.strerror(errno.E2BIG), number=errno.E2BIG, hint=_HINTS[errno.E2BIG])
    if out_of_descriptors(fault):
        return SpawnFailed(program, os.strerror(errno.EMFILE), number=fault.errno, hint=hint())
    return Internal("the box is gone", hint="open a new one")


def start_failed(reply: Reply, program: str, cwd: Path | None) -> SpawnFailed | FileError:
    """What FAILED means to a person: about the program, or about the directory that it was to start in."""
    number, step = reply.numbers
    if step == Step.DIRECTORY and cwd is not None and 0 < number < _ERRNO_END:
        why = f"the working directory cannot be used: {os.strerror(number)}"
        return FileError.of(number, os.fspath(cwd), why, hint="give a directory that can be entered inside")
    return spawn_failed(reply, program)


def spawn_failed(reply: Reply, program: str) -> SpawnFailed:
    """What FAILED means to a person."""
    number = reply.numbers[0]
    if number >= _ERRNO_END:
        return SpawnFailed(program, "for an unknown reason")
    return SpawnFailed(program, os.strerror(number), number=number, hint=_HINTS.get(number, ""))


def _last_of_each(env: tuple[str, ...]) -> tuple[str, ...]:
    """The variables with the last value that each was given."""
    return tuple({word.partition("=")[0]: word for word in env}.values())
