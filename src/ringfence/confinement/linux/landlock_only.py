"""The wall without namespaces: Landlock and seccomp on a subreaper. For unprivileged containers that refuse namespaces.

The host's file system stays as it is; Landlock says what of it can be opened. seccomp refuses every socket but pairs,
and System V shared memory. The helper adopts orphans and kills by walking its children.

What this does not protect against: names, sizes, modes and links of host files can be seen; modes, owners and times
of files that the same user owns outside can be changed (Landlock has no right for that); protected paths and
blacklisted names inside a writable directory are not covered; host processes can be seen in /proc, though not
signalled or read; there is no private /tmp, home or loopback. So it does not guarantee HOST_NAMES_HIDDEN,
WRITES_CONFINED, PROTECTED_PATHS or HOST_PROCESSES_HIDDEN, and is used only by a caller that asks for less than those.
"""

import os
from functools import cache

from ringfence.confinement.base import Descriptors, Launch, Probe, StandIn, View
from ringfence.confinement.linux import landlock, seccomp
from ringfence.confinement.linux.host import ETC
from ringfence.confinement.linux.landlock import DEVICES, ON_FILES, READ, WRITE, Right
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

_MIN_ABI = 6
"""The first that keeps signals and abstract sockets inside the domain."""
GUARANTEES = frozenset(
    {
        Guarantee.HOST_FILES_HIDDEN,
        Guarantee.NETWORK_OFF,
        Guarantee.KERNEL_SURFACE_REDUCED,
        Guarantee.NEVER_ROOT,
        Guarantee.TREE_DIES,
    }
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class LandlockOnly:
    name = "landlock"

    def probe(self) -> Probe:
        return _probe()

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        if stand_in is not None or view.covers or view.hidden or view.layered:
            raise InitializationFailed(
                "the landlock wall cannot be used by root, nor for a workspace in which something has to be covered",
                hint="run as an ordinary user in a directory without git, .env and the like, or install bubblewrap",
            )
        if descriptors.maker >= 0:
            raise InitializationFailed(
                "the landlock wall has no network of its own, so that nothing could be let through to some hosts only",
                hint="use a wall that makes namespaces (bwrap, unshare), or no network; `ringfence doctor` says which "
                "work here",
            )
        profile = seccomp.Profile(unix_sockets=False, inet_sockets=False, system_v_ipc=False, own_pids=False)
        return Launch(
            plan=("exec", *descriptors.init_argv),
            options=(),
            configure=("reaper", *_rules(view), "filter"),
            seccomp=seccomp.assemble(profile),
            filter_by_helper=True,
        )


def _rules(view: View) -> tuple[str, ...]:
    behind = dict(view.linked)
    rules: dict[str, Right] = {behind.get(path, path): READ for path in (*view.system, *view.readable)}
    rules |= {os.path.realpath(path): READ for path, _ in view.links if os.path.isdir(path)}
    rules |= {source: READ for _, source in view.etc}
    rules |= {os.path.realpath(f"/etc/{name}"): READ for name, _ in view.texts if name in ETC}
    rules |= {"/proc": READ} | dict.fromkeys(_DEVICES, DEVICES) | dict.fromkeys(view.writable, WRITE)
    masked = [(path, access if os.path.isdir(path) else access & ON_FILES) for path, access in rules.items()]
    return landlock.words(masked, version=landlock.abi(), tcp=True, scoped=True)


@cache
def _probe() -> Probe:
    if os.geteuid() == 0:
        return Probe(missing="cannot be used by root", hint="run as an ordinary user")
    if landlock.abi() < _MIN_ABI:
        return Probe(
            missing=f"needs Landlock ABI {_MIN_ABI}, the kernel has {landlock.abi()}",
            hint="boot a kernel of at least 6.12 with landlock among its LSMs",
        )
    return Probe(GUARANTEES)
