"""Asks the kernel what it lets us do, by doing it in a child."""

import ctypes
import errno
import os
import socket
import subprocess
import time
from contextlib import ExitStack
from functools import cache
from typing import Final

from ringfence.confinement.linux.building import QUEUES

_NEW_USER = 0x1000_0000
_ALL = _NEW_USER | 0x0002_0000 | 0x2000_0000 | 0x4000_0000 | 0x0800_0000 | 0x0400_0000
"""User, mount, pid, net, ipc and uts namespaces."""
_TRIES = 40
_PAUSE_SECONDS = 0.05
_SECONDS: Final = 10
"""How long a wall may take that nothing runs behind; some milliseconds, as a rule."""
_NOBODY: Final = 65534
_INSIDE: Final = 1000
HELPER: Final = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "_native", "ringfence-box"))
"""Our program in C, which starts a wall and is PID 1 inside it (native/)."""


@cache
def can_unshare() -> str:
    """Why namespaces cannot be made by an unprivileged process here; an empty string if they can."""
    libc = ctypes.CDLL(None, use_errno=True)
    child = os.fork()
    if child == 0:
        os._exit(_unshare(libc))
    _, status = os.waitpid(child, 0)
    number = os.waitstatus_to_exitcode(status)
    return "" if number == 0 else os.strerror(number) if 0 < number < 255 else "refused"


def _unshare(libc: ctypes.CDLL) -> int:
    """0, or the error number. A process with a second thread is refused with EINVAL, and libraries of the caller may
    start one in every child for a moment: then again."""
    for _ in range(_TRIES):
        if libc.unshare(_ALL) == 0:
            return 0
        number = ctypes.get_errno()
        if number != errno.EINVAL:
            break
        time.sleep(_PAUSE_SECONDS)
    return min(number, 255) or 255


@cache
def can_build() -> str:
    """Why our helper cannot build a wall without bubblewrap here; an empty string if it can.

    It builds one, with nothing in it, and starts itself behind it: namespaces that can be made are not enough where
    what is done in them is refused, as AppArmor does on some systems.
    """
    if not os.access(HELPER, os.X_OK):
        return "our helper is missing"
    try:
        return _build()
    except (OSError, subprocess.SubprocessError) as fault:
        return str(fault)


def _build() -> str:
    with ExitStack() as undo:
        lifeline, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(lifeline.close)
        undo.callback(far.close)
        program = os.open(HELPER, os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, program)
        plan = os.memfd_create("ringfence-trial", os.MFD_CLOEXEC)
        undo.callback(os.close, plan)
        os.write(plan, "\0".join((*_trial(far.fileno(), program), "")).encode())
        trial = subprocess.Popen(
            [HELPER, "launch", str(plan), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            pass_fds=(plan, program, far.fileno()),
        )
    try:
        _, said = trial.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        trial.kill()
        trial.communicate()
        raise
    words = said.decode(errors="replace").strip().removeprefix("ringfence-box: ")
    return "" if trial.returncode == 0 else words or f"exit {trial.returncode}"


def _trial(lifeline: int, program: int) -> tuple[str, ...]:
    """A plan with one of each kind of mount that every box has (docs/box-protocol.md)."""
    own, inside = (
        ((os.getuid(), os.getgid()), (os.getuid(), os.getgid())) if os.geteuid() else ((_NOBODY,) * 2, (_INSIDE,) * 2)
    )
    ids = tuple(map(str, own))
    return (
        *("lifeline", str(lifeline), "first", "wall", "private", "take", "/usr", "take", "/dev/null", "area"),
        *("show", "0", "/usr", "device", "1", "/dev/null", "terminals", "/dev/pts"),
        *("tmpfs", "/tmp", "65536", "1777", *ids, "dir", "/proc", "dir", QUEUES, "seal"),
        *("enter", *ids, *map(str, inside), "exec", f"/proc/self/fd/{program}", "version"),
    )
