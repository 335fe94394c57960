"""Starts a box: descriptors, plan, launcher; nothing is left open or running if a step fails."""

import os
import socket
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from ringfence.confinement.base import Confiner, Descriptors, Launch, Prepared, StandIn
from ringfence.engines.boxes import helper as helpers
from ringfence.errors import InitializationFailed
from ringfence.limits import rlimits
from ringfence.limits.base import Holder
from ringfence.values.limits import Limits


@dataclass(slots=True)
class Started:
    """A launcher that runs, and our ends of what connects us to the box."""

    launcher: subprocess.Popen[bytes]
    control: socket.socket
    lifeline: socket.socket
    """Closed, it ends the box. The guardian is told over it what to look at, and asks what it may let pass."""
    complaints: int
    """Where launcher and bwrap write what went wrong."""
    launch: Launch
    configure: tuple[str, ...]
    seccomp: int
    """The filter's descriptor, kept for a wall where PID 1 applies it itself; else -1."""
    notify: int
    """The filter that stops calls to be looked at; -1 if there is none."""
    owner: tuple[int, int] | None
    """Run by root: the ids that a command runs with."""

    def let_go(self) -> None:
        """Close our ends: PID 1 sees its control socket close and exits, the launcher cleans up."""
        self.control.close()
        self.lifeline.close()
        for descriptor in (self.complaints, self.seccomp, self.notify):
            if descriptor >= 0:
                with suppress(OSError):
                    os.close(descriptor)
        self.complaints = self.seccomp = self.notify = -1


def helper() -> str:
    """Where our helper lies.

    Raises:
        InitializationFailed, InvalidConfig: one is asked for that there is not.
    """
    return helpers.path()


def start(
    confiner: Confiner,
    prepared: Prepared,
    holder: Holder,
    limits: Limits,
    stand_in: StandIn | None,
    notification: bytes = b"",
) -> Started:
    """Start the launcher. It reports through the control socket when the box is ready; until then nothing runs in it.

    Raises:
        InitializationFailed: the launcher cannot be started.
    """
    with ExitStack() as undo:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(ours.close)
        undo.callback(theirs.close)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        lifeline, lifeline_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(lifeline_end.close)
        lifeline.setblocking(False)
        complaints, complaints_end = os.pipe()
        undo.callback(os.close, complaints_end)
        keep = ExitStack()
        keep.callback(lifeline.close)
        keep.callback(os.close, complaints)
        undo.push(keep)
        chosen = helpers.choose(prepared.view, dict(prepared.env).get("PATH", ""))
        program = chosen.open()
        undo.callback(os.close, program)
        options, seccomp, plan = (memory_file(undo, name) for name in ("options", "seccomp", "plan"))
        memory = memory_file(undo, "shadow") if any(each.memory_bytes for each in prepared.view.layered) else -1
        descriptors = Descriptors(options, seccomp, program, theirs.fileno(), memory, chosen.interpreter)
        launch = confiner.wrap(prepared.view, descriptors, stand_in)
        _fill(options, os.fsencode(launch.description) or _words(launch.options))
        _fill(seccomp, launch.seccomp)
        _fill(plan, _words(_plan(launch, prepared, holder, lifeline_end.fileno())))
        passed = [theirs.fileno(), program, options, seccomp, plan, lifeline_end.fileno()]
        passed += [shared.lock for shared in prepared.shared]
        passed += [memory] if memory >= 0 else []
        try:
            launcher = subprocess.Popen(
                [*chosen.argv(program), "launch", str(plan), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints_end,
                env={},
                cwd="/",
                pass_fds=passed,
            )
        except OSError as fault:
            raise InitializationFailed(f"cannot start our helper: {fault.strerror}") from fault
        keep.pop_all()
        kept_filter = os.dup(seccomp) if launch.filter_by_helper else -1
        kept_notification = -1
        if notification and launch.explained:
            notify = memory_file(undo, "notify")
            _fill(notify, notification)
            kept_notification = os.dup(notify)
        return Started(
            launcher,
            socket.socket(fileno=ours.detach()),
            lifeline,
            complaints,
            launch,
            (
                *("umask", str(0o022), *rlimits.words(limits), *launch.configure),
                *(("notify",) if kept_notification >= 0 else ()),
            ),
            kept_filter,
            kept_notification,
            None if stand_in is None else (stand_in.uid, stand_in.gid),
        )


def _plan(launch: Launch, prepared: Prepared, holder: Holder, lifeline: int) -> Iterable[str]:
    """The guardian's duties, then the way into the wall."""
    yield from ("lifeline", str(lifeline))
    for shared in prepared.shared:
        yield from ("lock", str(shared.lock))
        for below in shared.placeholders:
            yield from ("placeholder", below)
    for group in holder.leftovers:
        yield from ("cgroup", group)
    yield "wall"
    for file in holder.joins:
        yield from ("join", file)
    yield from launch.plan


def _words(words: Iterable[str]) -> bytes:
    return os.fsencode("\0".join((*words, "")))


def memory_file(undo: ExitStack, name: str) -> int:
    descriptor = os.memfd_create(f"ringfence-{name}", os.MFD_CLOEXEC)
    undo.callback(os.close, descriptor)
    return descriptor


def _fill(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
