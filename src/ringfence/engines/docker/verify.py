"""Looks at a container's first process before anything runs in it: is it as confined as the daemon was told to make it?

A daemon takes names and gives its word. Names can be swapped while it looks them up, and a daemon can be configured to
ignore what it is told. So the kernel is asked: what is mounted where, from which place of which file system, writable
or not; whose process it is, with which capabilities, filter and namespaces. What does not fit ends the box.

What this does not protect against: a daemon that is hostile. Whoever runs it is root on this machine.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ringfence.dataclass import dataclass
from ringfence.engines.docker.identity import parse_map
from ringfence.engines.docker.mounts import PINS, Mount
from ringfence.errors import InitializationFailed
from ringfence.values.paths import is_below, is_inside

_NETWORK_FILES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
"""The daemon puts its own over these; they belong to root inside."""
_KERNEL = ("/dev", "/proc", "/sys")
NAMESPACES = ("net", "ipc", "uts", "mnt", "cgroup")
_SAME_MACHINE = "the daemon has to run on this machine, in a pid namespace that we can see"
_ROOT_S = re.compile(r"^Uid:\t0\t0\t0\t0$", re.MULTILINE)
"""In /proc/PID/status. Whose the directory is says nothing: one that may not be traced is root's there."""
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountSeen:
    """One line of a mount table."""

    device: str
    root: str
    """Which directory of that file system."""
    point: str
    writable: bool
    kind: str


def parse_mountinfo(text: str) -> tuple[MountSeen, ...]:
    """The mounts of a table, lower ones first."""
    found = []
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        words = fields.split(" ")
        found.append(
            MountSeen(
                words[2], _unescape(words[3]), _unescape(words[4]), "rw" in words[5].split(","), rest.split(" ", 1)[0]
            )
        )
    return tuple(found)


def locate(path: str, table: Iterable[MountSeen]) -> tuple[str, str]:
    """(device, place in its file system) of a path, by a mount table in which it can be reached."""
    best: MountSeen | None = None
    for mounted in table:
        top = mounted.point.rstrip("/")
        if is_below(path, top) and (best is None or len(mounted.point) >= len(best.point)):
            best = mounted
    if best is None:
        return "", ""
    below = path[len(best.point.rstrip("/")) :]
    return best.device, (best.root.rstrip("/") + below) or "/"


def prove(
    pid: int,
    wanted: Mapping[str, tuple[str, str, bool]],
    memory: tuple[str, ...],
    uid: int,
    gid: int,
    namespaces: tuple[str, ...] = NAMESPACES,
    own_users: tuple[int, int] | None = None,
) -> None:
    """Look at everything.

    Args:
        wanted: by target, as `expected` gives it.
        memory: where file systems in memory were asked for.
        namespaces: which ones have to be its own.
        own_users: the uid and gid that it has inside, if it is to be the only user of a user namespace of its own. To a
            rootless daemon's containers the image belongs to the box's user, so that nothing of it may be writable.

    Raises:
        InitializationFailed: something is not as ordered, or cannot be looked at.
    """
    first = "the container's first process"
    check_process(_look(pid, "status", first), uid, gid)
    table = parse_mountinfo(_look(pid, "mountinfo", first))
    check_mounts(table, wanted, memory)
    check_namespaces(pid, namespaces, must_see=own_users is not None)
    if own_users is not None:
        check_users(pid, own_users, (uid, gid))
        check_routes(pid)
        check_unwritable(table, wanted, memory)


def expected(mounts: Iterable[Mount]) -> dict[str, tuple[str, str, bool]]:
    """(device, place, writable) by target, as our own mount table has it at this moment."""
    table = parse_mountinfo(Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))
    return {mount.target: (*locate(mount.source, table), mount.writable) for mount in mounts}


def prove_gvisor(pid: int, container: str, wanted: Mapping[str, tuple[str, str, bool]]) -> None:
    """Look at what gVisor shows to a container: the mounts of its gofer, the process through which all files come.

    What is writable, and what runs with which rights, is decided inside gVisor, where nobody outside can look.

    Raises:
        InitializationFailed: something is not as ordered, or cannot be looked at.
    """
    table = parse_mountinfo(_look(_gofer(container), "mountinfo", "what gVisor shows to the container"))
    top = {mounted.point: mounted for mounted in table}
    _check_places(top, wanted)
    _check_unasked(top, wanted, ())
    check_namespaces(pid, ("net", "mnt"))


def _gofer(container: str) -> int:
    """Which process it is; of root, as everybody can call a process of his own whatever he likes."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            program, *words = Path(f"/proc/{name}/cmdline").read_text(errors="replace").split("\0")
            is_its = program == "runsc-gofer" and any(word.endswith(container) for word in words)
            if is_its and _ROOT_S.search(Path(f"/proc/{name}/status").read_text()):
                return int(name)
    raise InitializationFailed(
        "the process through which gVisor reaches the container's files is not to be seen", hint=_SAME_MACHINE
    )


def _look(pid: int, file: str, whom: str) -> str:
    """What the kernel says of a process.

    Raises:
        InitializationFailed: it cannot be asked.
    """
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="surrogateescape")
    except OSError as fault:
        raise InitializationFailed(f"{whom} cannot be looked at ({fault.strerror})", hint=_SAME_MACHINE) from fault


def check_mounts(
    table: Iterable[MountSeen], wanted: Mapping[str, tuple[str, str, bool]], memory: Iterable[str]
) -> None:
    """Compare what is mounted with what was meant.

    Raises:
        InitializationFailed: they differ.
    """
    top = {mounted.point: mounted for mounted in table}  # the last at a place covers those before it
    _check_places(top, wanted)
    for target, (*_, writable) in wanted.items():
        if top[target].writable and not writable:
            raise _differs(f"{target} is writable")
    for place in memory:
        if place not in wanted and (place not in top or top[place].kind != "tmpfs"):
            raise _differs(f"{place} is not in memory")
    if "/sys" in top and top["/sys"].kind != "tmpfs":
        raise _differs("/sys shows the host's devices and control groups")
    root = top.get("/")
    if root is None or root.writable:
        raise _differs("the image's root is writable")
    _check_unasked(top, wanted, memory)


def _check_places(top: Mapping[str, MountSeen], wanted: Mapping[str, tuple[str, str, bool]]) -> None:
    """Whether each shows what was meant, and not what has taken its name since."""
    for target, (device, place, _) in wanted.items():
        found = top.get(target)
        if found is None or (found.device, found.root) != (device, place):
            what = "nothing" if found is None else f"{found.root} of device {found.device}"
            raise _differs(f"{target} shows {what}, not {place} of device {device}")


def _check_unasked(
    top: Mapping[str, MountSeen], wanted: Mapping[str, tuple[str, str, bool]], memory: Iterable[str]
) -> None:
    fine = (*_KERNEL, *(target for target, (*_, writable) in wanted.items() if writable))
    known = {"/", *wanted, *memory, *_NETWORK_FILES}
    for point in top:
        if point not in known and not any(is_below(point, each) for each in fine):
            raise _differs(f"{point} is mounted, which nobody asked for")


def check_process(status: str, uid: int, gid: int) -> None:
    """Look at /proc/PID/status of the first process.

    Raises:
        InitializationFailed: it may do more than it should.
    """
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in status.splitlines())}
    if set(fields.get("Uid", ())) != {str(uid)} or set(fields.get("Gid", ())) != {str(gid)}:
        raise _differs(f"it runs as {fields.get('Uid')}, {fields.get('Gid')}")
    if set(fields.get("Groups", ())) - {str(gid)}:
        raise _differs(f"it is in the groups {fields['Groups']}")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        if int((fields.get(name) or ["1"])[0], 16):
            raise _differs(f"it has capabilities ({name})")
    if fields.get("NoNewPrivs") != ["1"]:
        raise _differs("it may gain privileges")
    if fields.get("Seccomp") != ["2"]:
        raise _differs("no filter is on its system calls")
    inside = fields.get("NSpid", [])
    if len(inside) < 2 or inside[-1] != "1":
        raise _differs("it is not the first of a pid namespace of its own")


def check_users(pid: int, inside: tuple[int, int], outside: tuple[int, int]) -> None:
    """Whether a process is alone in its user namespace, with these ids.

    Raises:
        InitializationFailed: others are in it, or it cannot be looked at.
    """
    for name, own, ours in zip(("uid_map", "gid_map"), inside, outside, strict=True):
        try:
            found = parse_map(Path(f"/proc/{pid}/{name}").read_text())
        except OSError as fault:
            raise _differs(f"its {name} cannot be read ({fault.strerror})") from fault
        if found != ((own, ours, 1),):
            raise _differs(f"it is not alone in its user namespace ({name}: {found})")


def check_routes(pid: int) -> None:
    """Whether a process is where no packet can leave. A rootless daemon has a network namespace of its own, with a way
    out, so that it is not enough to be in another one than ours.

    Raises:
        InitializationFailed: there is a route, or it cannot be looked at.
    """
    try:
        _, *routes = Path(f"/proc/{pid}/net/route").read_text().splitlines()
        more = Path(f"/proc/{pid}/net/ipv6_route")
        routes += more.read_text().splitlines() if more.exists() else []
    except (OSError, ValueError) as fault:
        raise _differs("its routes cannot be looked at") from fault
    for route in routes:
        if "lo" not in route.split():
            raise _differs(f"a packet could leave it ({' '.join(route.split())})")


def check_unwritable(
    table: Iterable[MountSeen], wanted: Mapping[str, tuple[str, str, bool]], memory: Iterable[str]
) -> None:
    """Nothing may be writable but what was granted, what is in memory, and what the kernel shows.

    Raises:
        InitializationFailed: says what is.
    """
    fine = {*(target for target, (*_, writable) in wanted.items() if writable), *memory} - {PINS}
    for point, mounted in {each.point: each for each in table}.items():
        is_fine = point in fine or any(is_below(point, top) for top in _KERNEL)
        if mounted.writable and not is_fine and not _is_below_writable(point, wanted):
            raise _differs(f"{point} is writable")


def _is_below_writable(point: str, wanted: Mapping[str, tuple[str, str, bool]]) -> bool:
    """Whether it came along with what was granted for writing: what is wanted itself has been looked at already."""
    return point not in wanted and any(
        writable and is_inside(point, target) for target, (*_, writable) in wanted.items()
    )


def check_namespaces(pid: int, names: Iterable[str] = NAMESPACES, *, must_see: bool = False) -> None:
    """Each namespace has to be another than ours. Only root may look at those of a process that may not be traced; for
    others the daemon's word has to do.

    Args:
        must_see: we may look, because it is in a user namespace that belongs to us.

    Raises:
        InitializationFailed: one is ours, or cannot be seen where it must.
    """
    for name in names:
        if must_see and not _namespace(pid, name):
            raise _differs(f"its {name} namespace is not to be seen")
        if shares(pid, name):
            raise _differs(f"its {name} namespace is the host's")


def shares(pid: int, name: str) -> bool:
    """Whether a process is known to be in the same namespace of that kind as we are."""
    seen = _namespace(pid, name)
    return bool(seen) and seen == _namespace("self", name)


def _namespace(process: int | str, name: str) -> str:
    """Which one it is in; empty if we may not know."""
    try:
        return os.readlink(f"/proc/{process}/ns/{name}")
    except OSError:
        return ""


def is_first_process(status: str, said_pid: int) -> bool:
    """Whether /proc/PID/status is of the first process of a pid namespace, and has that number in the one around it,
    which is the daemon's."""
    lines = (line.partition(":") for line in status.splitlines())
    numbers = next((value.split() for name, _, value in lines if name == "NSpid"), [])
    return numbers[-2:] == [str(said_pid), "1"]


def belongs_to(cgroup: str, container: str) -> bool:
    """Whether /proc/PID/cgroup says that a process is of this container."""
    return any(container in line.rpartition(":")[2] for line in cgroup.splitlines())


def _differs(what: str) -> InitializationFailed:
    return InitializationFailed(
        f"the container is not as it was ordered: {what}",
        hint="does something else work in the workspace, or is the daemon set up to add to containers? Try again",
    )


def _unescape(text: str) -> str:
    """A mount table writes blanks and the like as three octal digits of a byte each."""
    if "\\" not in text:
        return text
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), os.fsencode(text)))
