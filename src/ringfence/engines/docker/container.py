"""The container of a box, as the daemon is told to make it. Pure: everything that hardens it is on this page.

What is not said here is not given: no network, no capability, no device beyond those that every container has, no
writable file but in the workspace and in sized memory, no socket of the daemon, no log, no restart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringfence.dataclass import dataclass
from ringfence.engines.docker.mounts import CONTROL, HELPER, PINS, Mount
from ringfence.errors import InvalidArgument

if TYPE_CHECKING:
    from ringfence.engines.docker.daemon import Image
    from ringfence.values.limits import Limits

HOME = "/home/agent"
_SMALLEST_MEMORY = 6 * 1024 * 1024
"""What the daemon takes at least."""
_PERIOD_MICROSECONDS = 100_000
"""The kernel's own default: long enough to cost nothing, short enough that nobody notices the pauses."""
_SMALLEST_QUOTA = 1000
"""What the kernel takes at least."""
_PROCESSES_OF_A_USER = 32768
"""Counts all that this uid runs on the machine, so it cannot hold a box: PidsLimit does. As many as pids used to be."""
_MASKED = (
    "/proc/acpi",  # the daemon's own list, which ours replaces
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys",  # devices, control groups and firmware of the host: nothing that a build or a test needs
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_ROOT_S = "rw,nosuid,nodev,noexec,size=1m,mode=0755,notmpcopyup"
"""For /run of Podman, which would otherwise put one there that anybody may fill."""
_NOBODY_S = "nosuid,nodev,noexec,size=1m,mode=0000"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan:
    image: Image
    uid: int
    gid: int
    becomes: tuple[int, int] | None = None
    """The uid and gid that it has inside, if it is to make a user namespace of its own.

    Whoever is uid 0, if only of a rootless daemon's user namespace, needs a capability to map that uid. It stays behind
    in that namespace when the first process leaves it, before anybody else's code runs.
    """
    mounts: tuple[Mount, ...]
    seccomp: str
    """The filter as text for Docker, as the path of a file for Podman: neither takes the other."""
    limits: Limits
    labels: tuple[tuple[str, str], ...]
    cores: float | None = None
    """How many may be busy at once; None for all."""
    runtime: str = ""
    """By which runtime; empty for the daemon's default."""
    is_carried: bool = False
    """Whether our way in is its stdin and stdout, because nothing else leads into it."""
    empty: tuple[str, ...] = ()
    """Directories that the runtime brings along and that have to be empty."""
    own_processes: int = 1
    """How many of the runtime's and of our own count like those of the box."""
    for_podman: bool = False
    has_network: bool = False
    """Whether our first process makes listeners on low ports, of a network that nobody else is in."""


def container_config(plan: ContainerPlan) -> dict[str, Any]:
    """What `POST /containers/create` takes.

    Raises:
        InvalidArgument: a limit is below what the daemon takes.
    """
    limits = plan.limits
    if limits.memory_bytes < _SMALLEST_MEMORY:
        raise InvalidArgument(
            f"a memory limit of {limits.memory_bytes} bytes is less than Docker takes",
            hint="give at least 6MB, or use the native engine",
        )
    return {
        "Image": plan.image.id,
        "Entrypoint": [HELPER, "carried"] if plan.is_carried else [HELPER, "connect", CONTROL, *_own_users(plan)],
        "Cmd": [],
        "User": f"{plan.uid}:{plan.gid}",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "NetworkDisabled": True,
        "AttachStdin": plan.is_carried,
        "AttachStdout": plan.is_carried,
        "AttachStderr": plan.is_carried,
        "OpenStdin": plan.is_carried,
        "StdinOnce": plan.is_carried,  # its stdin ends when we do, and so does it
        "Tty": False,
        "StopSignal": "SIGKILL",  # our first process heeds no other, and a daemon that restarts would wait for it
        "Healthcheck": {"Test": ["NONE"]},  # or the image's own would be run beside us
        "Labels": dict(plan.labels),
        "HostConfig": {
            "AutoRemove": True,
            "NetworkMode": "none",
            **({"Sysctls": {"net.ipv4.ip_unprivileged_port_start": "0"}} if plan.has_network else {}),
            "IpcMode": "private",
            "CgroupnsMode": "private",
            "Privileged": False,
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            **({"CapAdd": ["SETFCAP"]} if plan.becomes is not None and plan.uid == 0 else {}),
            "SecurityOpt": _security(plan),
            "MaskedPaths": list(_MASKED),
            "ReadonlyPaths": list(_READ_ONLY),
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,  # memory and swap together: no swap
            **({"Runtime": plan.runtime} if plan.runtime else {}),
            **_cores(plan.cores),
            "PidsLimit": limits.processes + plan.own_processes,
            "Ulimits": _ulimits(plan),
            "ShmSize": limits.tmp_bytes,
            "Tmpfs": _memory_file_systems(plan),
            "Mounts": [mount.as_json() for mount in plan.mounts],
            "LogConfig": {"Type": "none"},
            "RestartPolicy": {"Name": "no"},
            "Init": False,
        },
    }


def _own_users(plan: ContainerPlan) -> list[str]:
    return [] if plan.becomes is None else [str(number) for number in plan.becomes]


def _security(plan: ContainerPlan) -> list[str]:
    options = ["no-new-privileges:true", f"seccomp={plan.seccomp}"]
    # Podman does not look at MaskedPaths, nor at ReadonlyPaths, for which it has the same list of its own.
    return [*options, f"mask={':'.join(_MASKED)}"] if plan.for_podman else options


def _cores(cores: float | None) -> dict[str, int]:
    """A share of each period. Not NanoCpus, which says the same and is refused for more cores than there are."""
    if cores is None:
        return {}
    return {"CpuPeriod": _PERIOD_MICROSECONDS, "CpuQuota": max(_SMALLEST_QUOTA, int(cores * _PERIOD_MICROSECONDS))}


def _ulimits(plan: ContainerPlan) -> list[dict[str, Any]]:
    """No core files; the others are set by the first process."""
    given = {"core": 0}
    if plan.for_podman:  # or it raises both to its own numbers, which it may not where it is root of a container
        given |= {"nofile": plan.limits.open_files, "nproc": _PROCESSES_OF_A_USER}
    return [{"Name": name, "Soft": most, "Hard": most} for name, most in given.items()]


def _memory_file_systems(plan: ContainerPlan) -> dict[str, str]:
    size = plan.limits.tmp_bytes
    out: dict[str, str] = {}
    anybody_s = f"rw,exec,nosuid,nodev,size={size},mode=1777"
    own = f"rw,exec,nosuid,nodev,size={size},mode=0755,uid={plan.uid},gid={plan.gid}"
    if plan.for_podman:
        # It fills what is in memory from the image, unless told not to, and gives it to nobody but root: then to all,
        # who are the box's own user.
        anybody_s = own = f"{anybody_s},notmpcopyup"
        out["/run"] = _ROOT_S
    # A volume of the image would be a directory on the host's disk that no limit of ours watches.
    out |= {volume: own for volume in plan.image.volumes}
    if any(mount.target.startswith(f"{PINS}/") for mount in plan.mounts):
        # Where the image's root is the box's own user, only what is read-only stays closed to it.
        out[PINS] = f"{'rw' if plan.becomes is None else 'ro'},{_NOBODY_S}"
    out |= {place: f"ro,{_NOBODY_S}" for place in plan.empty}
    out |= {"/tmp": anybody_s, "/var/tmp": anybody_s, HOME: own}
    taken = {mount.target for mount in plan.mounts}
    return {place: options for place, options in out.items() if place not in taken}
