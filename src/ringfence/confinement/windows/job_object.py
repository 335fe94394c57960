"""A Windows job object around one command line: the whole tree ends with it, and its memory and processes are bounded.

The wrapped command line is a Python program (`run_in_job.py`) that makes the job, starts the command
suspended in it, and waits. It is no wall: a job hides no file and no network. Never run by those who
test Ringfence, hence best effort in all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ringfence.confinement.adapter import CommandLine, Mount, in_place
from ringfence.confinement.base import Probe
from ringfence.confinement.windows import run_in_job
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

_GUARANTEES = frozenset({Guarantee.TREE_DIES, Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED})


class JobObjectAdapter:
    """
    Args:
        wall_seconds: after which the tree is ended.
    """

    name = "jobobject"

    def __init__(self, wall_seconds: float = 120.0, memory_bytes: int = 1 << 30, processes: int = 128) -> None:
        self._limits = (str(wall_seconds), str(memory_bytes), str(processes))

    def probe(self) -> Probe:
        if sys.platform != "win32":
            return Probe(missing="it is for Windows", hint="use bwrap on Linux")
        return Probe(_GUARANTEES, notes=("best effort", "hides neither files nor the network"))

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        missing = self.probe().missing
        if missing:
            raise InitializationFailed(f"jobobject: {missing}", hint=self.probe().hint)
        return self.command_line(command, arguments, mounts)

    def command_line(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount]) -> CommandLine:
        in_place(mounts, self.name)
        program = os.path.abspath(run_in_job.__file__)
        return sys.executable, ("-I", program, *self._limits, "--", command, *arguments)
