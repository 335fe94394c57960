"""What stands around PID 1 of a native box: its launcher, the guardian in it, and the supervisor that they serve."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from ringfence.confinement.choose import notification_rules
from ringfence.deferred import deferred
from ringfence.engines.aside import aside
from ringfence.engines.boxes.waiting import Child, wait_child
from ringfence.engines.native.explain import Explainer
from ringfence.engines.native.supervisor import Supervisor
from ringfence.values.grant import Grant, Trace

if TYPE_CHECKING:
    from ringfence.confinement.base import View
    from ringfence.engines.boxes.base import Supervision
    from ringfence.engines.native.starting import Started
    from ringfence.engines.networking.socket_maker import LauncherSocketMaker
else:
    LauncherSocketMaker = deferred("ringfence.engines.networking.socket_maker", "LauncherSocketMaker")


class NativeHost:
    def __init__(self, started: Started, grant: Grant, view: View) -> None:
        self._started = started
        self._grant = grant
        self._view = view
        self.control = started.control
        self.configure = started.configure
        self.owner = started.owner
        self.maker = None if started.maker is None else LauncherSocketMaker(started.maker)
        self._explainer: Explainer | None = None
        self._rules: tuple[str, ...] = ()

    async def prepare(self) -> None:
        """While the wall is being built, find what the guardian has to be told, and what it will ask; where opens are
        mediated, that is every denied file."""
        if self._started.notify < 0:
            return
        rules = partial(notification_rules, self._grant, self._view, self.owner)
        self._rules = await aside(rules) if self._grant.mediate_opens else rules()
        self._explainer = Explainer(self._grant, self._view, () if self.maker is None else self.maker.ports)

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(each for each in (self._started.seccomp, self._started.notify) if each >= 0)

    @property
    def launcher(self) -> Child:
        return self._started.launcher

    def complaints(self) -> str:
        """What launcher and bwrap said."""
        os.set_blocking(self._started.complaints, False)
        with suppress(OSError):
            return os.read(self._started.complaints, 4096).decode(errors="replace").strip()
        return ""

    def supervise(self, listener: int) -> Supervision:
        reads = self._grant.trace is Trace.FULL
        quiet = self._grant.trace is Trace.OFF and not self._grant.mediate_opens
        shared = () if self._grant.shadow is not None else tuple(map(os.fspath, self._grant.writable_roots))
        if self._explainer is None:
            raise AssertionError("supervise() before prepare(), or without a filter that stops calls")
        supervisor = Supervisor(self._started.lifeline, self._explainer, reads=reads, roots=shared, quiet=quiet)
        supervisor.attach(listener, self._rules)
        return supervisor

    def kill(self, first_pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(first_pid, signal.SIGKILL)

    def release(self) -> None:
        if self.maker is not None:
            self.maker.close()
        self._started.release()

    async def wait_closed(self) -> None:
        """When the launcher has ended, so has everything in the box."""
        await wait_child(self.launcher)
