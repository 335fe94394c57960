"""What a child of a keeper cannot take over from its caller, and which must therefore be the same for both.

A process takes over descriptors, directory, umask, signals and environment from whoever calls. Namespaces, cgroup,
privileges, limits and the like it has from its parent; and some variables are read once, when an interpreter or one of
its modules is loaded. A keeper looks at each caller itself, in /proc and by a descriptor of the process: what a caller
says about itself is no evidence. So a process of the same user that is walled in (another root, a filter on system
calls, no new privileges, fewer capabilities, its own namespaces) cannot have a command started outside its wall.
Landlock itself is shown nowhere, only the `no_new_privs` that comes with it: where that is set for everybody, as in
containers that forbid more privileges, it tells nothing, and there is no keeper.

What this does not protect against: a confinement that the kernel does not show (Landlock without `no_new_privs`, which
takes CAP_SYS_ADMIN), and other sockets of the same user that start programs.
"""

import os
from collections.abc import Iterable
from typing import Final

VARIABLES: Final = (
    "PYTHON*",
    "LC_*",
    "LANG",
    "LANGUAGE",
    "LD_*",
    "GLIBC_TUNABLES",
    "MALLOC_*",
    "OPENSSL_*",
    "SSL_*",
    "TYPER_*",
    "_TYPER_*",
    "TERMINAL_WIDTH",
    "GITHUB_ACTIONS",
    "FORCE_COLOR",
    "PY_COLORS",
    "NO_COLOR",
    "RINGFENCE_KEEPER_*",
)
"""Read when the interpreter, the C library, OpenSSL, Typer or a keeper starts; native/front/place.c has it too."""

_EXACT: Final = frozenset(name.encode() for name in VARIABLES if not name.endswith("*"))
_PREFIXES: Final = tuple(name[:-1].encode() for name in VARIABLES if name.endswith("*"))

_STATUS: Final = (
    b"Uid:",
    b"Gid:",
    b"Groups:",
    b"CapInh:",
    b"CapPrm:",
    b"CapEff:",
    b"CapBnd:",
    b"CapAmb:",
    b"NoNewPrivs:",
    b"Seccomp:",
    b"Seccomp_filters:",
    b"Cpus_allowed:",
    b"Mems_allowed:",
)
_FILES: Final = ("cgroup", "limits", "oom_score_adj", "loginuid", "sessionid", "attr/current", "personality")
_NAMESPACES: Final = (
    "cgroup",
    "ipc",
    "mnt",
    "net",
    "pid",
    "pid_for_children",
    "time",
    "time_for_children",
    "user",
    "uts",
)

# proc(5): fields of stat after the name, counted from the state
_NICE, _POLICY = 16, 38

Surroundings = tuple[object, ...]


def shows_walls() -> bool:
    """Whether a process like this one can tell that a caller is walled in."""
    return b"NoNewPrivs:\t0" in _read("/proc/self/status").splitlines()


def image_variables(entries: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Those of a caller's variables that a running interpreter does not read again."""
    return {name: value for name, value in entries if name in _EXACT or name.startswith(_PREFIXES)}


def surroundings(process: str) -> Surroundings:
    """What /proc says of a process: a pid, or `self`.

    Raises:
        OSError: it is gone, or not ours to look at.
    """
    top = f"/proc/{process}/"
    status = tuple(line for line in _read(f"{top}status").splitlines() if line.startswith(_STATUS))
    fields = _read(f"{top}stat").rpartition(b")")[2].split()
    root = os.stat(f"{top}root/.")
    links = tuple(_link(f"{top}ns/{name}") for name in _NAMESPACES)
    files = tuple(_read_if_there(f"{top}{name}") for name in _FILES)
    return (status, fields[_NICE], fields[_POLICY], root.st_dev, root.st_ino, links, files)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 16384)
    finally:
        os.close(descriptor)


def _read_if_there(path: str) -> bytes | None:
    """None where the kernel has no such file, or it cannot be read by anybody: no security module, no audit."""
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except OSError as fault:
        if path.endswith(("attr/current", "personality")):
            return str(fault.errno).encode()
        raise


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except FileNotFoundError:  # a kind of namespace that this kernel does not have
        return None
