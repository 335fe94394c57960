"""What stands around PID 1 of a native box: its launcher, the guardian in it, and the supervisor that they serve."""

import os
import signal
import subprocess
from contextlib import suppress

from ringfence.confinement.base import View
from ringfence.confinement.choose import notification_rules
from ringfence.engines.boxes.base import Supervision
from ringfence.engines.boxes.waiting import wait_child
from ringfence.engines.native.explain import Explainer
from ringfence.engines.native.starting import Started
from ringfence.engines.native.supervisor import Supervisor
from ringfence.values.grant import Explain, Grant


class NativeSurroundings:
    def __init__(self, started: Started, grant: Grant, view: View) -> None:
        self._started = started
        self._grant = grant
        self._view = view
        self.control = started.control
        self.configure = started.configure
        self.owner = started.owner

    @property
    def descriptors(self) -> tuple[int, ...]:
        return tuple(each for each in (self._started.seccomp, self._started.notify) if each >= 0)

    @property
    def launcher(self) -> subprocess.Popen[bytes]:
        return self._started.launcher

    def complaints(self) -> str:
        """What launcher and bwrap said."""
        os.set_blocking(self._started.complaints, False)
        with suppress(OSError):
            return os.read(self._started.complaints, 4096).decode(errors="replace").strip()
        return ""

    def supervise(self, listener: int) -> Supervision:
        reads = self._grant.explain is Explain.FULL
        supervisor = Supervisor(self._started.lifeline, Explainer(self._grant, self._view), reads=reads)
        supervisor.attach(listener, notification_rules(self._grant, self._view, self.owner))
        return supervisor

    def kill(self, first_pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(first_pid, signal.SIGKILL)

    def let_go(self) -> None:
        self._started.let_go()

    async def wait_gone(self) -> None:
        """When the launcher has ended, so has everything in the box."""
        await wait_child(self.launcher)
