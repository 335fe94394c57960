"""The wall without bubblewrap: Landlock and seccomp on PID 1, with namespaces of its own where the kernel gives them.

For machines without bubblewrap, and for unprivileged containers, where user namespaces are refused. The host's file system stays as it
is; Landlock says what of it can be opened. Without a network namespace seccomp refuses all sockets but pairs; without a pid
namespace the helper is a subreaper and kills by walking its children.

What this does not protect against: names, sizes, modes and links of host files can be seen; modes, owners and times of files that
the same user owns outside can be changed (Landlock has no right for that); protected paths and blacklisted names inside a
writable directory are not covered. So it does not guarantee HOST_NAMES_HIDDEN, WRITES_CONFINED or PROTECTED_PATHS, and is used
only where a grant asks for less than those.
"""

import os
from functools import cache

from ringfence.confinement.base import Descriptors, Launch, Probe, StandIn, View
from ringfence.confinement.linux import landlock, seccomp
from ringfence.confinement.linux.landlock import DEVICES, ON_FILES, READ, WRITE, Right
from ringfence.confinement.linux.probe import can_unshare
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

_MIN_ABI = 3
"""The first that knows truncation; below it a file could be emptied without a right."""
ALWAYS = frozenset(
    {
        Guarantee.HOST_FILES_HIDDEN,
        Guarantee.NETWORK_OFF,
        Guarantee.KERNEL_SURFACE_REDUCED,
        Guarantee.NEVER_ROOT,
        Guarantee.TREE_DIES,
    }
)
WITH_NAMESPACES = frozenset({Guarantee.OWN_LOOPBACK, Guarantee.HOST_PROCESSES_HIDDEN})
_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Plain:
    def __init__(self, *, with_namespaces: bool) -> None:
        self._with_namespaces = with_namespaces
        self.name = "unshare" if with_namespaces else "landlock"

    def probe(self) -> Probe:
        return _probe(with_namespaces=self._with_namespaces)

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        if stand_in is not None:
            raise InitializationFailed(
                f"the {self.name} wall cannot be used by root: it cannot give a workspace to another uid",
                hint="run as an ordinary user, or install bubblewrap",
            )
        profile = seccomp.Profile(
            unix_sockets=self._with_namespaces, inet_sockets=self._with_namespaces, system_v_ipc=self._with_namespaces
        )
        enter = ("namespaces",) if self._with_namespaces else ()
        return Launch(
            plan=(*enter, "exec", f"/proc/self/fd/{descriptors.helper}", "init", str(descriptors.control)),
            options=(),
            configure=(*(() if self._with_namespaces else ("reaper",)), *self._rules(view), "filter"),
            seccomp=seccomp.assemble(profile),
            filter_by_helper=True,
        )

    def _rules(self, view: View) -> tuple[str, ...]:
        rules: list[tuple[str, Right]] = [(path, READ) for path in (*view.system, *view.readable)]
        rules += [(os.path.realpath(path), READ) for path, _ in view.links if os.path.isdir(path)]
        rules += [(source, READ) for _, source in view.etc]
        rules += [("/proc", READ), *((path, DEVICES) for path in _FILES)]
        rules += [(path, WRITE) for path in view.writable]
        unique = dict(rules)
        masked = [(path, access if os.path.isdir(path) else access & ON_FILES) for path, access in unique.items()]
        return landlock.words(masked, version=landlock.abi(), tcp=not self._with_namespaces, scoped=True)


@cache
def _probe(*, with_namespaces: bool) -> Probe:
    if os.geteuid() == 0:
        return Probe(missing="cannot be used by root", hint="run as an ordinary user")
    if landlock.abi() < _MIN_ABI:
        return Probe(
            missing=f"needs Landlock ABI {_MIN_ABI}, the kernel has {landlock.abi()}",
            hint="boot a kernel of at least 6.2 with landlock among its LSMs",
        )
    if with_namespaces:
        problem = can_unshare()
        if problem:
            return Probe(missing=f"no user namespaces ({problem})", hint="allow unprivileged user namespaces")
        return Probe(ALWAYS | WITH_NAMESPACES)
    return Probe(ALWAYS)
