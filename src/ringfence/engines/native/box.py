"""One box of the native engine: PID 1 behind a wall, and the way to run commands in it.

A command's pipes are made here and passed to PID 1. PID 1 reports the end only after everything that the command
started is dead, so that both pipes are at their end by then. Whatever ends a command early (time, a limit, the
caller) is a request to PID 1 to kill everything; if it does not answer, the whole box goes.
"""

import asyncio
import errno
import os
import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ringfence.engines.native import protocol
from ringfence.engines.native.classify import Evidence, classify, violations
from ringfence.engines.native.protocol import Kind, Reply
from ringfence.engines.native.starting import Started
from ringfence.engines.native.watch import Watch
from ringfence.engines.streams import Capture, Reader, feed
from ringfence.errors import Internal, SpawnFailed
from ringfence.limits.base import Holder
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limit
from ringfence.values.outcome import Result, SandboxAudit, Usage
from ringfence.values.request import Request, Stream

_KILL_SECONDS = 3.0
"""How long PID 1 may take to kill and reap everything before the whole box is killed."""
_LONG_COMMAND = 100_000
"""The kernel takes at most 128 KiB for one argument; longer commands are read by the shell from a descriptor."""
_SCRIPT = ". /dev/fd/9"
_HINTS = {
    errno.ENOENT: "is it installed, and on the PATH inside?",
    errno.EACCES: "is it executable, and the directory granted?",
    errno.E2BIG: "arguments and environment are larger than the kernel takes",
    errno.EAGAIN: "the process limit is used up",
}


@dataclass(slots=True)
class _Job:
    id: int
    ended: asyncio.Future[Reply]
    """Resolved when everything that the command started is dead, or when it could not be started."""
    killed_for: Limit | None = None
    fault: BaseException | None = None
    """What the caller's own callback or stream raised."""
    readers: list[Reader] = field(default_factory=list)


class NativeBox:
    def __init__(
        self,
        started: Started,
        grant: Grant,
        holder: Holder,
        wall: Wall,
        audit: SandboxAudit,
        env: dict[str, str],
        shell: str,
    ) -> None:
        self._started = started
        self._grant = grant
        self._holder = holder
        self._env = env
        self._shell = shell
        self.wall = wall
        self.audit = audit
        self._job: _Job | None = None
        self._count = 0
        self._turn = asyncio.Lock()
        self._ready: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._first_pid = 0
        self._kills = 0
        self._roots = tuple(map(os.fspath, grant.writable_roots))
        self._loop = asyncio.get_running_loop()
        self._lost = False
        self._closed = False
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._loop.add_reader(started.control.fileno(), self._on_message)

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        return not self._lost and not self._closed

    async def wait_ready(self) -> None:
        """Let PID 1 confine itself; returns when the wall stands.

        Raises:
            Internal: it did not come up; the message holds what launcher and bwrap said.
        """
        descriptors = [self._started.seccomp] if self._started.seccomp >= 0 else []
        with suppress(OSError):
            protocol.send(self._started.control, Kind.CONFIGURE, 0, self._started.configure, descriptors)
        try:
            await self._ready
        except Internal:
            raise Internal(self._complaints() or "the box ended before it was ready") from None

    def _complaints(self) -> str:
        os.set_blocking(self._started.complaints, False)
        with suppress(OSError):
            return os.read(self._started.complaints, 4096).decode(errors="replace").strip()
        return ""

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._started.control.fileno())
            self._started.let_go()
            descriptor = os.pidfd_open(self._started.launcher.pid)
            self._loop.add_reader(descriptor, self._on_gone, descriptor)
        if await _wait_through_cancel(self._gone):
            raise asyncio.CancelledError

    def _on_gone(self, descriptor: int) -> None:
        """The launcher has ended, and with it everything in the box."""
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._started.launcher.wait()
        self._holder.close()
        self._fail(Internal("the box was closed while the command ran"))
        self._gone.set_result(None)

    def _on_message(self) -> None:
        try:
            received = protocol.receive(self._started.control)
        except BlockingIOError:
            return
        except Internal as fault:
            self._lose(fault)
            return
        if received is None:
            self._lose(Internal("the box is gone"))
            return
        reply, sender = received
        if reply.kind is Kind.READY:
            self._first_pid = sender
            _settle(self._ready, reply)
        elif self._job is not None and reply.id == self._job.id:
            _settle(self._job.ended, reply)

    def _lose(self, fault: Internal) -> None:
        self._lost = True
        self._loop.remove_reader(self._started.control.fileno())
        self._fail(fault)

    def _fail(self, fault: Internal) -> None:
        waiting = self._ready if self._job is None else self._job.ended
        if not waiting.done():
            waiting.set_exception(fault)
            waiting.exception()  # looked at, so that nobody complains when no one waits for it

    # --- commands -----------------------------------------------------------------------------------------------------

    async def run(self, request: Request) -> Result:
        async with self._turn:
            if not self.alive:
                raise Internal("the box is gone", hint="open a new one")
            return await self._run(request)

    async def _run(self, request: Request) -> Result:
        limits = self._grant.limits
        timeout = min(request.timeout or limits.wall_seconds, limits.wall_seconds)
        self._count += 1
        job = self._job = _Job(self._count, self._loop.create_future())
        self._holder.start_command()
        watch = Watch(self._holder, limits, self._roots, self._first_pid, partial(self._stop, job))
        begin = time.monotonic()
        timer = self._loop.call_later(timeout, self._stop, job, Limit.WALL)
        feeder: asyncio.Task[None] | None = None
        try:
            stdin = self._spawn(job, request)
            if request.stdin is not None:
                feeder = self._loop.create_task(feed(stdin, request.stdin))
                feeder.add_done_callback(partial(self._on_fed, job))
            reply = await self._wait_ended(job, request)
        except asyncio.CancelledError:
            self._stop(job, Limit.WALL)
            await _wait_through_cancel(job.ended)
            raise
        finally:
            timer.cancel()
            watch.cancel()
            if feeder is not None:
                feeder.cancel()
            for reader in job.readers:
                reader.drain()
                reader.close()
            self._job = None
        if job.fault is not None:
            raise job.fault
        return self._result(job, reply, time.monotonic() - begin, timeout)

    def _spawn(self, job: _Job, request: Request) -> int:
        """Ask PID 1 to start the command; returns our end of its stdin (-1 if it has none)."""
        cwd = os.fspath(request.cwd or self._grant.workspace)
        env = self._env | dict(request.env)
        with ExitStack() as theirs:
            stdin = -1
            if request.stdin is None:
                inputs = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            else:
                inputs, stdin = self._pipe()
            theirs.callback(os.close, inputs)
            descriptors = [inputs]
            for stream in Stream:
                ours, end = self._pipe()
                theirs.callback(os.close, end)
                descriptors.append(end)
                capture = Capture(self._grant.limits.output_bytes, request.overflow)
                job.readers.append(
                    Reader(
                        ours,
                        stream,
                        capture,
                        request.on_output,
                        on_overflow=lambda: self._stop(job, Limit.OUTPUT),
                        on_fault=partial(self._on_fault, job),
                    )
                )
            argv = self._argv(request, descriptors, theirs)
            words = [cwd, str(len(argv)), str(len(env)), *argv, *(f"{name}={value}" for name, value in env.items())]
            try:
                protocol.send(self._started.control, Kind.SPAWN, job.id, words, descriptors)
            except OSError as fault:
                if stdin >= 0:
                    os.close(stdin)
                if fault.errno == errno.E2BIG:
                    raise SpawnFailed(argv[0], os.strerror(errno.E2BIG), hint=_HINTS[errno.E2BIG]) from fault
                raise Internal("the box is gone", hint="open a new one") from fault
            return stdin

    def _pipe(self) -> tuple[int, int]:
        """A pipe that the command may open again by name, as /dev/stderr, also where its uid is not ours."""
        ours, theirs = os.pipe()
        if self._started.owner is not None:
            os.fchown(ours, *self._started.owner)
        return ours, theirs

    def _argv(self, request: Request, descriptors: list[int], undo: ExitStack) -> list[str]:
        if request.argv is not None:
            return list(request.argv)
        command = request.command or ""
        encoded = os.fsencode(command)
        if len(encoded) < _LONG_COMMAND:
            return [self._shell, "-c", command]
        script = os.memfd_create("command", os.MFD_CLOEXEC)
        undo.callback(os.close, script)
        with open(script, "wb", closefd=False) as file:
            file.write(encoded)
        os.lseek(script, 0, os.SEEK_SET)
        descriptors.append(script)
        return [self._shell, "-c", _SCRIPT]

    async def _wait_ended(self, job: _Job, request: Request) -> Reply:
        try:
            reply = await asyncio.shield(job.ended)
        except Internal:
            # PID 1 is gone: killed by us because it did not answer, or by the kernel for memory.
            if job.killed_for is not None or self._holder.memory_kills() > self._kills:
                return Reply(Kind.ENDED, job.id, (int(signal.SIGKILL), 0, 0, 0))
            raise
        if reply.kind is Kind.FAILED:
            number = reply.numbers[0]
            program = request.argv[0] if request.argv else self._shell
            why = os.strerror(number) if number < 4096 else "for an unknown reason"
            raise SpawnFailed(program, why, hint=_HINTS.get(number, ""))
        return reply

    def _stop(self, job: _Job, limit: Limit) -> None:
        """Have everything killed; the first reason counts."""
        if job.killed_for is not None or job.ended.done():
            return
        job.killed_for = limit
        with suppress(OSError):
            protocol.send(self._started.control, Kind.KILL_ALL, job.id)
        self._loop.call_later(_KILL_SECONDS, self._give_up_on, job)

    def _on_fed(self, job: _Job, feeder: asyncio.Task[None]) -> None:
        fault = None if feeder.cancelled() else feeder.exception()
        if fault is not None:
            self._on_fault(job, fault)

    def _on_fault(self, job: _Job, fault: BaseException) -> None:
        """The caller's callback or stream failed: the command is ended, and the fault raised when it is."""
        job.fault = job.fault or fault
        self._stop(job, Limit.WALL)

    def _give_up_on(self, job: _Job) -> None:
        if not job.ended.done() and not self._closed and self._first_pid:
            with suppress(ProcessLookupError):
                os.kill(self._first_pid, signal.SIGKILL)

    def _result(self, job: _Job, reply: Reply, wall_seconds: float, timeout: float) -> Result:
        status, user, system, peak_kib = reply.numbers
        kills, self._kills = self._kills, self._holder.memory_kills()
        evidence = Evidence(
            status=status & 0xFFFF,
            killed_for=job.killed_for,
            memory_kills=self._kills - kills,
            cpu_seconds=(user + system) / 1e6,
        )
        limits = self._grant.limits
        ending = classify(evidence, limits, timeout)
        out, err = (reader.capture for reader in job.readers)
        return Result(
            ending=ending,
            stdout_bytes=out.kept(),
            stderr_bytes=err.kept(),
            stdout_dropped=out.dropped,
            stderr_dropped=err.dropped,
            usage=Usage(
                wall_seconds=wall_seconds,
                cpu_seconds=evidence.cpu_seconds,
                peak_memory_bytes=max(self._holder.peak_memory_bytes(), min(peak_kib, 1 << 40) * 1024),
                measured_by=f"{self._holder.name}, wait4",
            ),
            violations=violations(evidence, ending, limits),
            wall=self.wall,
            audit=self.audit,
        )

    def usage(self) -> Usage:
        reading = self._holder.read(self._first_pid)
        return Usage(0.0, reading.cpu_seconds, self._holder.peak_memory_bytes(), self._holder.name)


async def _wait_through_cancel(future: asyncio.Future[Any]) -> bool:
    """Wait for what must not be left half done; returns whether somebody asked us to stop meanwhile."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            cancelled = True
    return cancelled


def _settle(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)
