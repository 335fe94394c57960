"""nsjail around one command line: `--mode o`, quiet, with a seccomp policy that is generated here.

nsjail starts from an empty root as bwrap does. What it adds is a seccomp policy in its own language (kafel), made from
the rows of our own filter that are about whole system calls.

What this does not protect against: rows of our filter that look at arguments are left out, and so are calls that older
releases do not know; nothing is limited; run by root, the command is uid 0 outside of its namespace, too. How strong
it is depends on the release, so that every guarantee is best effort.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache

from ringfence.confinement.adapter import CommandLine, Mount, rewritten, without_marks, working_directory
from ringfence.confinement.base import Probe
from ringfence.confinement.linux.adapters.bubblewrap import GUARANTEES
from ringfence.confinement.linux.adapters.system import ENVIRONMENT, links, places
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

PROGRAM = "nsjail"
_REFUSED = (
    # Calls of our filter that every kernel since 3.17 has, by the names that kafel knows.
    *("mount", "umount2", "pivot_root", "swapon", "swapoff", "reboot", "sethostname", "setdomainname"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "acct", "quotactl", "nfsservctl"),
    *("add_key", "request_key", "keyctl", "perf_event_open", "bpf", "ptrace", "process_vm_readv", "process_vm_writev"),
    *("open_by_handle_at", "name_to_handle_at", "unshare", "setns", "iopl", "ioperm", "settimeofday", "adjtimex"),
    *("clock_settime", "clock_adjtime", "lookup_dcookie", "vhangup", "syslog"),
)


class NsjailAdapter:
    name = "nsjail"

    def probe(self) -> Probe:
        if shutil.which(PROGRAM) is None:
            return Probe(missing="nsjail is not installed", hint="install nsjail, where your distribution has it")
        return Probe(GUARANTEES | {Guarantee.KERNEL_SURFACE_REDUCED}, notes=("best effort",))

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        program = shutil.which(PROGRAM)
        if program is None:
            raise InitializationFailed("nsjail is not installed", hint=self.probe().hint)
        return program, options(command, arguments, mounts)


def options(command: str, arguments: Sequence[str], mounts: Sequence[Mount]) -> tuple[str, ...]:
    out = ["--mode", "o", "--quiet", "--hostname", "sandbox", "--time_limit", "0", "--disable_rlimits"]
    for name, value in ENVIRONMENT.items():
        out += ["--env", f"{name}={value}"]
    for path in places():
        out += ["--bindmount_ro", f"{path}:{path}"]
    for path, target in links():
        out += ["--symlink", f"{target}:{path}"]
    out += ["--tmpfsmount", "/tmp", "--bindmount", "/dev/null:/dev/null", "--bindmount", "/dev/urandom:/dev/urandom"]
    for mount in without_marks(mounts, ":", PROGRAM):  # SOURCE:TARGET is split at the first one
        out += ["--bindmount" if mount.writable else "--bindmount_ro", f"{mount.source}:{mount.target}"]
    out += ["--cwd", working_directory(mounts), "--seccomp_string", seccomp_policy()]
    return (*out, "--", *rewritten((command, *arguments), mounts))


@cache
def seccomp_policy() -> str:
    """In kafel: what is refused, and how; all else is allowed."""
    return f"POLICY ringfence {{ ERRNO(1) {{ {', '.join(_REFUSED)} }} }} USE ringfence DEFAULT ALLOW"
