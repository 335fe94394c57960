"""Starts a box: descriptors, plan, launcher; nothing is left open or running if a step fails."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from ringfence.confinement.base import Confiner, Descriptors, Launch, Prepared, StandIn
from ringfence.dataclass import dataclass
from ringfence.engines.boxes import helper
from ringfence.engines.boxes.waiting import Child
from ringfence.engines.descriptors import out_of_descriptors
from ringfence.errors import InitializationFailed
from ringfence.limits import rlimits

if TYPE_CHECKING:
    from ringfence.engines.native.zygote import Zygote
    from ringfence.limits.base import ResourceController
    from ringfence.values.limits import Limits

FIRST_DESCRIPTOR = 10
"""What a plan for a zygote calls the first of its descriptors; the same number is in native/zygote.c."""


@dataclass(slots=True)
class Started:
    """A launcher that runs, and our ends of what connects us to the box."""

    launcher: Child
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
    maker: socket.socket | None = None
    """The way to the socket maker of the box, if it has one."""
    resumes: bool = False
    """Whether PID 1 has an interpreter that stands ready."""

    def release(self) -> None:
        """Close our ends: PID 1 sees its control socket close and exits, the launcher cleans up."""
        self.control.close()
        self.lifeline.close()
        if self.maker is not None:
            self.maker.close()
        for descriptor in (self.complaints, self.seccomp, self.notify):
            if descriptor >= 0:
                with suppress(OSError):
                    os.close(descriptor)
        self.complaints = self.seccomp = self.notify = -1


def start(
    confiner: Confiner,
    prepared: Prepared,
    holder: ResourceController,
    limits: Limits,
    stand_in: StandIn | None,
    notification: bytes = b"",
    *,
    has_network: bool = False,
    zygote: Zygote | None = None,
) -> Started:
    """Start the launcher. It reports through the control socket when the box is ready; until then nothing runs in it.

    Args:
        zygote: whom the launcher is forked from, instead of being started.

    Raises:
        OSError: no descriptor is left, or the zygote is gone.
        InitializationFailed: the launcher cannot be started.
    """
    with ExitStack() as undo:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(ours.close)
        undo.callback(theirs.close)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        keep = undo.enter_context(ExitStack())
        lifeline, lifeline_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        keep.callback(lifeline.close)
        undo.callback(lifeline_end.close)
        lifeline.setblocking(False)
        complaints, complaints_end = os.pipe()
        keep.callback(os.close, complaints)
        undo.callback(os.close, complaints_end)
        executable = helper.path()
        program = os.open(executable, os.O_RDONLY | os.O_CLOEXEC)
        undo.callback(os.close, program)
        options, seccomp, plan = (memory_file(undo, name) for name in ("options", "seccomp", "plan"))
        memory = memory_file(undo, "shadow") if any(each.memory_bytes for each in prepared.view.layered) else -1
        maker, maker_end = _maker_pair(undo, keep) if has_network else (None, -1)
        files = tuple(memory_file(undo, "file") for _ in prepared.view.files)
        for descriptor, (_, content) in zip(files, prepared.view.files, strict=True):
            _fill(descriptor, content)
        passed = [theirs.fileno(), program, options, seccomp, lifeline_end.fileno()]
        passed += [shared.lock for shared in prepared.shared]
        passed += [each for each in (memory, maker_end, *files) if each >= 0]
        number = _numbers(passed, zygote)
        descriptors = Descriptors(
            number(options),
            number(seccomp),
            number(program),
            number(theirs.fileno()),
            number(memory),
            number(maker_end),
            tuple(map(number, files)),
        )
        launch = confiner.wrap(prepared.view, descriptors, stand_in)
        _fill(options, os.fsencode(launch.description) or _words(launch.options))
        _fill(seccomp, launch.seccomp)
        _fill(plan, _words(_plan(launch, prepared, holder, lifeline_end.fileno(), number)))
        # All that may fail for want of a descriptor comes before there is a process.
        kept_filter = _kept(seccomp, keep) if launch.filter_by_helper else -1
        kept_notification = -1
        if notification and confiner.probe().supervised:
            notify = memory_file(undo, "notify")
            _fill(notify, notification)
            kept_notification = _kept(notify, keep)
        if zygote is not None:
            launcher: Child = zygote.launch(complaints_end, plan, passed)
        else:
            launcher = _launch(executable, plan, complaints_end, passed)
        keep.pop_all()
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
            maker,
            zygote is not None,
        )


def _launch(executable: str, plan: int, complaints: int, passed: Iterable[int]) -> Child:
    try:
        return subprocess.Popen(
            [executable, "launch", str(plan), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={},
            cwd="/",
            pass_fds=(plan, *passed),
        )
    except OSError as fault:
        if out_of_descriptors(fault):
            raise
        raise InitializationFailed(f"cannot start our helper: {fault.strerror}") from fault


def _numbers(passed: Iterable[int], zygote: Zygote | None) -> Callable[[int], int]:
    """How the launcher finds a descriptor of ours: by the same number, or by the place that a zygote gives it."""
    if zygote is None:
        return lambda descriptor: descriptor
    places = {descriptor: FIRST_DESCRIPTOR + 1 + place for place, descriptor in enumerate(passed)}  # after the plan
    return lambda descriptor: places.get(descriptor, -1)


def _maker_pair(undo: ExitStack, keep: ExitStack) -> tuple[socket.socket, int]:
    """Our end of the way to the socket maker of a box, and the number of the other one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keep.callback(ours.close)
    undo.callback(theirs.close)
    ours.setblocking(False)
    return ours, theirs.fileno()


def _kept(descriptor: int, keep: ExitStack) -> int:
    """A copy that stays open when the first one is closed."""
    copy = os.dup(descriptor)
    keep.callback(os.close, copy)
    return copy


def _plan(
    launch: Launch, prepared: Prepared, holder: ResourceController, lifeline: int, number: Callable[[int], int]
) -> Iterable[str]:
    """The guardian's duties, then the way into the wall."""
    yield from ("lifeline", str(number(lifeline)))
    if launch.is_first:
        yield "first"
    for shared in prepared.shared:
        yield from ("lock", str(number(shared.lock)))
        for below in shared.placeholders:
            yield from ("placeholder", below)
    for group in holder.leftovers:
        yield from ("cgroup", group)
    yield "wall"
    yield from launch.before
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
