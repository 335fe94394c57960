"""sandbox-exec around one command line, with the profile of `seatbelt.py` as an argument: no file is left behind.

What this does not protect against: see `seatbelt.py`. The profile was never run by those who test Ringfence, hence best
effort in all of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ringfence.confinement.adapter import CommandLine, Mount, in_place, working_directory
from ringfence.confinement.base import Probe
from ringfence.confinement.macos import seatbelt
from ringfence.errors import InitializationFailed
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee

_GUARANTEES = frozenset({Guarantee.HOST_FILES_HIDDEN, Guarantee.WRITES_CONFINED, Guarantee.NETWORK_OFF})
_ENVIRONMENT = ("PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "LANG=en_US.UTF-8")


class SandboxExecAdapter:
    name = "sandbox-exec"

    def probe(self) -> Probe:
        if sys.platform != "darwin":
            return Probe(missing="it is for macOS", hint="use bwrap on Linux")
        if not os.access(seatbelt.SANDBOX_EXEC, os.X_OK):
            return Probe(missing=f"there is no {seatbelt.SANDBOX_EXEC}", hint="this release of macOS lacks it")
        return Probe(_GUARANTEES, notes=("best effort", "deprecated by its maker"))

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        missing = self.probe().missing
        if missing:
            raise InitializationFailed(f"sandbox-exec: {missing}", hint=self.probe().hint)
        return command_line(command, arguments, mounts)


def command_line(command: str, arguments: Sequence[str], mounts: Sequence[Mount]) -> CommandLine:
    shown = in_place(mounts, SandboxExecAdapter.name)
    start = Path(working_directory(shown))
    writable = tuple(Path(mount.source) for mount in shown if mount.writable)
    readable = tuple(Path(mount.source) for mount in shown if not mount.writable)
    grant = Grant(workspace=start, read_only=start not in writable, writable=writable, readable=readable)
    argv = (
        "/usr/bin/env",
        "-i",
        *_ENVIRONMENT,
        "/bin/sh",
        "-c",
        'cd "$0" && exec "$@"',
        str(start),
        command,
        *arguments,
    )
    words, _ = seatbelt.wrap(argv, grant)
    return words[0], words[1:]
