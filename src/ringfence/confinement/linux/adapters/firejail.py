"""firejail around one command line, where it is installed.

firejail subtracts from the host's file system instead of building one up, and shows everything where it is: homes,
/root, /mnt and /media are hidden, everything else is read-only, and the mounts are let through.

What this does not protect against: what lies elsewhere (/etc, /opt, /tmp, /var) can be read; firejail itself is a
set-uid program with a history of faults; nothing is limited.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Sequence

from ringfence.confinement.adapter import CommandLine, Mount, in_place, without_marks, working_directory
from ringfence.confinement.base import Probe
from ringfence.confinement.linux.adapters.system import ENVIRONMENT
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

_GUARANTEES = frozenset(
    {Guarantee.NETWORK_OFF, Guarantee.OWN_LOOPBACK, Guarantee.HOST_PROCESSES_HIDDEN, Guarantee.KERNEL_SURFACE_REDUCED}
)
_HIDDEN = ("/home", "/root", "/mnt", "/media")


class FirejailAdapter:
    name = "firejail"

    def probe(self) -> Probe:
        if shutil.which(self.name) is None:
            return Probe(missing="firejail is not installed", hint="apt-get install firejail")
        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            return Probe(missing="firejail does not work for a user without a name", hint="use bwrap")
        return Probe(_GUARANTEES, notes=("best effort",))

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        program = shutil.which(self.name)
        if program is None:
            raise InitializationFailed("firejail is not installed", hint=self.probe().hint)
        # firejail stays inside as PID 1 and can be looked at by its user, so that it gets no variables, either.
        return "/usr/bin/env", ("-i", f"PATH={ENVIRONMENT['PATH']}", program, *options(command, arguments, mounts))


def options(command: str, arguments: Sequence[str], mounts: Sequence[Mount]) -> tuple[str, ...]:
    shown = without_marks(in_place(mounts, FirejailAdapter.name), "*?[$", FirejailAdapter.name)
    out = [
        "--quiet",
        "--noprofile",
        "--net=none",
        "--caps.drop=all",
        "--nonewprivs",
        "--noroot",
        "--seccomp",
        "--nodbus",
    ]
    out += ["--private-dev", "--nosound", "--x11=none", "--read-only=/"]
    out += [f"--read-write={mount.source}" for mount in shown if mount.writable]
    sources = [mount.source for mount in shown]
    if any(each.startswith("/var/tmp/") for each in sources):
        out.append("--keep-var-tmp")  # else it is one of firejail's own, and the mount is not there
    for path in _HIDDEN:
        # Who hides a directory hides all below it; a whitelist hides all but what it names.
        below = [f"--whitelist={each}" for each in sources if each.startswith(path + "/")]
        out += below or [f"--blacklist={path}"]
    variables = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    start = working_directory(shown)
    clean = ("/usr/bin/env", "-i", f"--chdir={start}", *variables, "/usr/bin/setsid", "--wait")
    return (*out, "--", *clean, command, *arguments)
