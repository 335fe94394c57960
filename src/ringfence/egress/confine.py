"""Puts the proxy behind a wall of its own, from inside, once everything that it needs is loaded.

It parses what hostile programs and servers send, and it holds secrets; so it may connect and accept, and read what name
resolution and TLS need, and nothing else: no programs, no writing, no looking at other processes, no privileges to be
had. In order: limits and no core file; run by root, a uid that owns nothing; no new privileges; Landlock; seccomp.

What this does not protect against: it may connect anywhere, because that is its task, and whoever takes it over has
what it has in memory.
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_SET_SECCOMP: Final = 22
_SECCOMP_FILTER: Final = 2

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_BENEATH: Final = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_SCOPE_ALL: Final = 3
_READABLE: Final = (
    # What getaddrinfo reads anew for each look-up, and what its modules are loaded from. Certificates are read before.
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/dev/urandom",
    "/dev/null",
)
NOBODY: Final = 4_000_000_123
"""A uid that nobody is given: above those of users, of services, and of the ranges for user namespaces."""

# By architecture: its number for audits, and the calls that a proxy has no use for, refused with EPERM.
_ARCHITECTURES: Final = {
    "x86_64": (0xC000003E, 0),
    "aarch64": (0xC00000B7, 1),
}
_REFUSED_CALLS: Final[tuple[tuple[str, int, int], ...]] = (
    # name, number on x86-64, number on arm64 (-1: it has none)
    ("execve", 59, 221),
    ("execveat", 322, 281),
    ("fork", 57, -1),
    ("vfork", 58, -1),
    ("ptrace", 101, 117),
    ("process_vm_readv", 310, 270),
    ("process_vm_writev", 311, 271),
    ("process_madvise", 440, 440),
    ("pidfd_getfd", 438, 438),
    ("kcmp", 312, 272),
    ("kill", 62, 129),
    ("tkill", 200, 130),
    ("rt_sigqueueinfo", 129, 138),
    ("rt_tgsigqueueinfo", 297, 240),
    ("pidfd_open", 434, 434),
    ("pidfd_send_signal", 424, 424),
    ("mount", 165, 40),
    ("umount2", 166, 39),
    ("pivot_root", 155, 41),
    ("chroot", 161, 51),
    ("open_tree", 428, 428),
    ("move_mount", 429, 429),
    ("fsopen", 430, 430),
    ("fsconfig", 431, 431),
    ("fsmount", 432, 432),
    ("mount_setattr", 442, 442),
    ("unshare", 272, 97),
    ("setns", 308, 268),
    ("init_module", 175, 105),
    ("finit_module", 313, 273),
    ("delete_module", 176, 106),
    ("kexec_load", 246, 104),
    ("kexec_file_load", 320, 294),
    ("reboot", 169, 142),
    ("bpf", 321, 280),
    ("perf_event_open", 298, 241),
    ("userfaultfd", 323, 282),
    ("io_uring_setup", 425, 425),
    ("io_uring_enter", 426, 426),
    ("io_uring_register", 427, 427),
    ("add_key", 248, 217),
    ("request_key", 249, 218),
    ("keyctl", 250, 219),
    ("personality", 135, 92),
    ("acct", 163, 89),
    ("swapon", 167, 224),
    ("swapoff", 168, 225),
    ("settimeofday", 164, 170),
    ("clock_settime", 227, 112),
    ("open_by_handle_at", 304, 265),
    ("name_to_handle_at", 303, 264),
    ("fanotify_init", 300, 262),
    ("quotactl", 179, 60),
    ("syslog", 103, 116),
    ("chmod", 90, -1),
    ("fchmod", 91, 52),
    ("fchmodat", 268, 53),
    ("chown", 92, -1),
    ("fchown", 93, 55),
    ("lchown", 94, -1),
    ("fchownat", 260, 54),
)
_EPERM: Final = 1
_CLONE: Final = (56, 220)
_CLONE3: Final = 435
_CLONE_THREAD: Final = 0x10000
_ENOSYS: Final = 38
_SOCKET: Final = (41, 198)
_FAMILIES: Final = (1, 2, 10, 16)  # UNIX (name resolution by a local service), INET, INET6, NETLINK (own addresses)


class NotConfined(OSError):
    """A part of the wall cannot be put up; nothing may be served then."""


def hide() -> None:
    """Nobody of the same user looks into this process, and it leaves no core file: before it has anything to hide."""
    _prctl(ctypes.CDLL(None, use_errno=True), _PR_SET_DUMPABLE, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def confine() -> None:
    """Put up the wall around this process, for good.

    Raises:
        NotConfined: a part of it cannot be put up, or this kernel has no means for it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    _limit()
    _prctl(libc, _PR_SET_DUMPABLE, 0)
    if os.geteuid() == 0:
        _leave_root()
        _prctl(libc, _PR_SET_DUMPABLE, 0)
    _prctl(libc, _PR_SET_NO_NEW_PRIVS, 1)
    if not _landlock(libc):
        raise NotConfined("this kernel has no Landlock, or it is switched off")
    if not _seccomp(libc):
        raise NotConfined(f"there is no filter of system calls for {platform.machine()}")


def _limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _leave_root() -> None:
    try:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    except OSError as fault:
        raise NotConfined(f"uid 0 cannot be left: {fault.strerror}") from fault


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise NotConfined(f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def _landlock(libc: ctypes.CDLL) -> bool:
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    handled = (1 << 13) - 1
    handled |= (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0) | (1 << 15 if version >= 5 else 0)
    attributes = struct.pack("=QQQ", handled, 0, _SCOPE_ALL if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        raise NotConfined(f"Landlock: {os.strerror(ctypes.get_errno())}")
    try:
        for path in (*_READABLE, *filter(os.path.isdir, sys.path)):  # Python loads some of itself late
            _readable(libc, ruleset, path)
        if libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0:
            raise NotConfined(f"Landlock: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(ruleset)
    return True


def _readable(libc: ctypes.CDLL, ruleset: int, path: str) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # not on this machine
    try:
        rights = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE
        rule = struct.pack("=Qi", rights, opened)
        if libc.syscall(_LANDLOCK_ADD, ruleset, _BENEATH, rule, 0) != 0:
            raise NotConfined(f"Landlock, {path}: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(opened)


def _seccomp(libc: ctypes.CDLL) -> bool:
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return False
    program = filter_program(*known)
    buffer = ctypes.create_string_buffer(program, len(program))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))

    given = Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(given), 0, 0) != 0:
        raise NotConfined(f"seccomp: {os.strerror(ctypes.get_errno())}")
    return True


def filter_program(architecture: int, column: int) -> bytes:
    """The filter, in BPF: another architecture is killed; the calls above are refused; the rest is allowed."""
    load, equal, at_least, any_bit, ret = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill, refuse = 0x7FFF0000, 0x80000000, 0x00050000
    out = [(load, 0, 0, 4), (equal, 1, 0, architecture), (ret, 0, 0, kill), (load, 0, 0, 0)]
    out += [(at_least, 0, 1, 0x40000000), (ret, 0, 0, kill)]  # the x32 calls of x86-64
    for _, on_x86, on_arm in _REFUSED_CALLS:
        number = (on_x86, on_arm)[column]
        if number >= 0:
            out += [(equal, 0, 1, number), (ret, 0, 0, refuse | _EPERM)]
    # clone3 has its flags in memory, which a filter cannot read: "no such call", and the C library takes clone.
    out += [(equal, 0, 1, _CLONE3), (ret, 0, 0, refuse | _ENOSYS)]
    # Threads, for look-ups, but no processes.
    out += [(equal, 0, 4, _CLONE[column]), (load, 0, 0, 16), (any_bit, 0, 1, _CLONE_THREAD)]
    out += [(ret, 0, 0, allow), (ret, 0, 0, refuse | _EPERM)]
    families = [(equal, len(_FAMILIES) - index, 0, family) for index, family in enumerate(_FAMILIES)]
    out += [(equal, 0, len(families) + 3, _SOCKET[column]), (load, 0, 0, 16), *families]
    out += [(ret, 0, 0, refuse | _EPERM), (ret, 0, 0, allow)]
    out += [(ret, 0, 0, allow)]
    return b"".join(struct.pack("<HBBI", code, yes, no, operand) for code, yes, no, operand in out)
