"""gVisor adapter: a kernel of the box's own, written in Go, between the command and the machine's.

The launcher builds the same file system as for bubblewrap. Then `runsc` becomes the wall, always rootless: as the
ordinary user, or as root's stand-in. It takes the launcher's new root as its root, read-only, and each writable
directory as a mount of its own, with all covers in place: a write has to pass gVisor's own mounts and then the host's.
/proc, /dev, /tmp and the home are gVisor's, in memory.

Nothing can be passed into that kernel, neither a descriptor nor a socket. So `ringfence-box carry` stands outside,
talks to the manager as PID 1 does, and carries everything over runsc's stdin and stdout to `ringfence-box carried`
inside (native/carry.c).

The platform, which is how gVisor gets hold of system calls, is the first that really runs a program here: systrap, else
ptrace. Never kvm: on some machines it spins forever.

What this does not protect against: faults of gVisor itself, which runs as the user, under a filter of its own; commands
of one box against each other, since gVisor has no Landlock. Refusals are not explained: nobody outside sees single
calls. If the machine runs out of memory for the box, the whole box may go and not just its command.
"""

import json
import os
import re
import resource
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ringfence.confinement.base import Descriptors, Launch, Probe, StandIn, View
from ringfence.confinement.linux import seccomp
from ringfence.confinement.linux.building import AREA, build, capture
from ringfence.confinement.linux.bwrap import profile_for
from ringfence.confinement.linux.probe import can_unshare
from ringfence.deferred import deferred_module
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

if TYPE_CHECKING:
    import shutil
    import tempfile
else:
    shutil = deferred_module("shutil")
    tempfile = deferred_module("tempfile")


GUARANTEES: Final = frozenset(Guarantee) - {
    Guarantee.MEMORY_BOUNDED,
    Guarantee.PROCESSES_BOUNDED,
    Guarantee.DENIED_AT_OPEN,  # nobody outside sees single calls
    Guarantee.NO_NATIVE_CODE,
}

VARIABLE: Final = "RINGFENCE_RUNSC_PATH"
"""The absolute path of a runsc that the system did not install."""

_PLATFORMS: Final = ("systrap", "ptrace")
_OLDEST: Final = 20230801
"""Of the version: when systrap became the default. Ones of 2022 refuse how today's `ls` and `stat` ask for a file."""
_SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_PROBE_SECONDS: Final = 20.0
_HELPER: Final = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "_native", "ringfence-box"))
_DIRECTORY: Final = "/run"
"""Below the new root: what runsc needs at hand. Inside, an empty directory covers it."""
_DIRECTORY_BYTES: Final = 64 * 1024 * 1024
_OWN_PROCESSES: Final = 2048
"""Threads of gVisor itself, and those of the host in which guest code runs, several for each of its processes. Inside,
gVisor holds the box to its own number."""
_NOBODY: Final = 65534
_INSTALL: Final = "apt-get install -t bookworm-backports runsc, or see https://gvisor.dev/docs/user_guide/install"


class GVisor:
    """The wall with a kernel of its own. Slower to start than the others, and slower with files."""

    name = "gvisor"

    def probe(self) -> Probe:
        return _probe()

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        runsc, platform = find_runsc(), _platform()
        if runsc is None or platform is None:
            raise AssertionError("wrap() before a usable probe()")
        if view.layered:
            raise InitializationFailed(
                "a shadow cannot be laid over a workspace behind gVisor yet", hint="use another wall, or no shadow"
            )
        uid, gid = (os.getuid(), os.getgid()) if stand_in is None else (stand_in.uid, stand_in.gid)
        plan = build(view, stand_in, descriptors)
        plan.step("tmpfs", _DIRECTORY, str(_DIRECTORY_BYTES), "0700", str(uid), str(gid))
        plan.step("seal", *(("captured",) if descriptors.maker >= 0 else ()))
        if stand_in is not None:
            plan.step("become", str(uid), str(gid))
        directory = AREA + _DIRECTORY
        plan.step(
            *("exec", f"/proc/self/fd/{descriptors.helper}", "carry"),
            *(str(descriptors.control), str(descriptors.options), directory),
            *_command(runsc, platform, directory, has_network=descriptors.maker >= 0),
        )
        return Launch(
            plan=plan.words(),
            options=(),
            description=_described(view, has_network=descriptors.maker >= 0),
            configure=("reaper", "filter"),
            seccomp=seccomp.assemble(profile_for(view, stand_in, debugging=False)),
            filter_by_helper=True,
            before=capture(descriptors, stand_in),
        )


def find_runsc() -> str | None:
    """The one that is named, else where the system installs programs: what PATH leads to may be the agent's."""
    named = os.environ.get(VARIABLE)
    if named:
        return named if os.path.isabs(named) and os.access(named, os.X_OK) else None
    return shutil.which("runsc", path=_SYSTEM_PATH)


def _command(runsc: str, platform: str, directory: str, *, has_network: bool = False) -> tuple[str, ...]:
    # The sockets of gVisor's own stack cannot be passed out. What it calls the host's network is the one that the
    # launcher has captured; the guest's socket calls then reach the machine's kernel, in that namespace.
    network = "host" if has_network else "none"
    return (
        *(runsc, "--rootless", f"--network={network}", f"--platform={platform}", "--ignore-cgroups"),
        # Writes go to the host's files and nowhere else, all files come by the gofer. The system's may be remembered,
        # which saves much time; what is granted is looked at anew each time, because others change it.
        *("--overlay2=none", "--directfs=false", "--file-access=exclusive", "--file-access-mounts=shared"),
        f"--dcache={_names_remembered()}",
        *(f"--root={directory}/state", "run", f"--bundle={directory}", "box"),
    )


def _names_remembered() -> int:
    """How many names runsc keeps in mind, for all mounts together. Each holds descriptors of the host, out of a login's
    1,024; left alone, it remembers 1,000 for each mount, and then nothing can be opened any more."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(64, min(1000, soft // 4))


def _described(view: View, *, has_network: bool = False) -> str:
    """The container's description as text.

    Raises:
        InitializationFailed: a name is no UTF-8, and JSON can hold no other.
    """
    text = json.dumps(_description(view, has_network=has_network), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as fault:
        name = fault.object[max(0, fault.start - 40) : fault.end]
        raise InitializationFailed(
            f"gVisor takes only paths that are UTF-8, and this is none: ...{name!r}",
            hint="rename it, or use another wall",
        ) from fault
    return text


def _description(view: View, *, has_network: bool) -> dict[str, Any]:
    """The container, in the words of the OCI."""
    size = f"size={view.tmp_bytes}"
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        {"destination": "/dev/net", "type": "tmpfs", "source": "tmpfs", "options": ["mode=0", "size=4k"]},  # tunnels
        {"destination": "/dev/shm", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777", size]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777", size]},
        {"destination": _DIRECTORY, "type": "tmpfs", "source": "tmpfs", "options": ["mode=755", "size=1m"]},
        _bind(f"{_DIRECTORY}/ringfence-box", "ro"),
    ]
    if view.home not in view.readable:
        mounts.append({"destination": view.home, "type": "tmpfs", "source": "tmpfs", "options": ["mode=755", size]})
    granted = [(path, "ro") for path in view.readable] + [(path, "rw") for path in view.writable]
    mounts += [_bind(path, how) for path, how in sorted(granted, key=lambda each: (each[0].count("/"), each[0]))]
    namespaces = ("pid", "ipc", "uts", "mount", *(() if has_network else ("network",)))
    return {
        "ociVersion": "1.0.0",
        "root": {"path": AREA, "readonly": True},
        "hostname": "sandbox",
        "process": {
            # Root of gVisor's own kernel, without a capability; to the machine it is whoever runs runsc.
            "user": {"uid": 0, "gid": 0},
            "args": [f"{_DIRECTORY}/ringfence-box", "carried"],
            "env": [],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {},
        },
        "mounts": mounts,
        "linux": {"namespaces": [{"type": name} for name in namespaces]},
    }


def _bind(path: str, how: str) -> dict[str, Any]:
    return {"destination": path, "type": "bind", "source": AREA + path, "options": ["rbind", how]}


# --- probing ----------------------------------------------------------------------------------------------------------


@cache
def _probe() -> Probe:
    runsc = find_runsc()
    if runsc is None:
        named = os.environ.get(VARIABLE)
        return Probe(
            missing=f"{VARIABLE} is {named!r}" if named else "gVisor is not installed: no runsc", hint=_INSTALL
        )
    version = _version(runsc)
    if version is None:
        return Probe(missing=f"{runsc} does not say its version", hint=_INSTALL)
    if version < _OLDEST:
        return Probe(missing=f"this runsc is of {version}; `ls` does not work in it", hint=_INSTALL)
    if not os.access(_HELPER, os.X_OK):
        return Probe(missing="our native helper is missing", hint="install Ringfence again")
    problem = can_unshare()
    if problem:
        return Probe(missing=f"no user namespaces ({problem})", hint="allow unprivileged user namespaces")
    if _platform() is None:
        return Probe(missing=f"runsc runs nothing here by {' or '.join(_PLATFORMS)}", hint="run `runsc do true`")
    return Probe(
        GUARANTEES, notes=(f"gVisor of {version}, by {_platform()}",), own_processes=_OWN_PROCESSES, supervised=False
    )


def _version(runsc: str) -> int | None:
    try:
        said = subprocess.run([runsc, "--version"], capture_output=True, text=True, timeout=10, check=False, env={})
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"\b(20\d{6})\b", said.stdout)
    return int(found[1]) if found else None


@cache
def _platform() -> str | None:
    """The first by which a program of ours really runs, as it will: rootless, and not as root."""
    runsc = find_runsc()
    return None if runsc is None else next((name for name in _PLATFORMS if _runs(runsc, name)), None)


def _runs(runsc: str, platform: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="ringfence-gvisor-") as directory:
        root = os.path.join(directory, "root")
        os.makedirs(os.path.join(root, "proc"))
        shutil.copy(_HELPER, os.path.join(root, "box"))
        description = {
            "ociVersion": "1.0.0",
            "root": {"path": root, "readonly": True},
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["/box", "version"], "cwd": "/", "env": []},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "network"}]},
        }
        with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
            json.dump(description, file)
        os.mkdir(os.path.join(directory, "state"))
        who: dict[str, Any] = {}
        if os.geteuid() == 0:
            who = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            for path, names, files in os.walk(directory):
                for name in (".", *names, *files):
                    os.chown(os.path.join(path, name), _NOBODY, _NOBODY)
        try:
            done = subprocess.run(
                _command(runsc, platform, directory),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PROBE_SECONDS,
                check=False,
                env={},
                cwd="/",
                **who,
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return done.returncode == 0 and done.stdout.strip().isdigit()
