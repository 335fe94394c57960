"""Has PID 1 start a command: its words, its pipes, and what to say when it could not be started."""

import errno
import os
from contextlib import ExitStack

from ringfence.engines.boxes.control import Control, Job
from ringfence.engines.boxes.protocol import Reply
from ringfence.engines.boxes.standby import Setting, command_words
from ringfence.errors import Internal, SpawnFailed
from ringfence.values.request import Request

_LONG_COMMAND = 100_000
"""The kernel takes at most 128 KiB for one argument; longer commands are read by the shell from a descriptor."""
_SCRIPT = ". /dev/fd/9"
_HINTS = {
    errno.ENOENT: "is it installed, and on the PATH inside?",
    errno.EACCES: "is it executable, and the directory granted?",
    errno.E2BIG: "arguments and environment are larger than the kernel takes",
    errno.EAGAIN: "the process limit is used up",
}


class Spawner:
    def __init__(self, control: Control, setting: Setting, owner: tuple[int, int] | None) -> None:
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
            return self._control.start(command_words(cwd, argv, env), descriptors, terminal=terminal)
        except OSError as fault:
            if fault.errno == errno.E2BIG:
                raise SpawnFailed(argv[0], os.strerror(errno.E2BIG), hint=_HINTS[errno.E2BIG]) from fault
            raise Internal("the box is gone", hint="open a new one") from fault

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
        err, err_end = self.pipe()
        theirs.callback(os.close, err_end)
        return (out, err), (out_end, err_end)

    def argv(self, request: Request, descriptors: list[int], undo: ExitStack) -> list[str]:
        """What to start for a request; the text of a long command is added to the descriptors."""
        if request.argv is not None:
            return list(request.argv)
        command = request.command or ""
        encoded = os.fsencode(command)
        if len(encoded) < _LONG_COMMAND:
            return [self._setting.shell, "-c", "--", command]
        script = os.memfd_create("command", os.MFD_CLOEXEC)
        undo.callback(os.close, script)
        with open(script, "wb", closefd=False) as file:
            file.write(encoded)
        os.lseek(script, 0, os.SEEK_SET)
        descriptors.append(script)
        return [self._setting.shell, "-c", _SCRIPT]


def spawn_failed(reply: Reply, program: str) -> SpawnFailed:
    """What FAILED means to a person."""
    number = reply.numbers[0]
    why = os.strerror(number) if number < 4096 else "for an unknown reason"
    return SpawnFailed(program, why, hint=_HINTS.get(number, ""))


def _last_of_each(env: tuple[str, ...]) -> tuple[str, ...]:
    """The variables with the last value that each was given."""
    return tuple({word.partition("=")[0]: word for word in env}.values())
