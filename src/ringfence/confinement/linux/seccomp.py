"""The seccomp filter: which system calls a boxed command is refused.

Theory of operation. Everything is allowed unless a row of the profile refuses it: an allow-list breaks programs with
every new libc. The walls around files, network and processes stand without this filter; it takes away the parts of the
kernel that no build or test needs. A refusal is an errno that programs know how to handle, never a signal. Only another
architecture's calls kill, because their numbers mean other things and no row could judge them.

A filter sees the registers of a call and nothing behind a pointer. Two rules follow:

- A call whose meaning lies in memory (`clone3`, the new mount API) is refused whole, with ENOSYS, so that the C library
  falls back to the older call, whose registers can be judged.
- An argument that the kernel takes as `int` is compared on its low 32 bits only. The kernel ignores the upper half, so
  that a comparison of 64 bits is evaded by setting one bit there.

What this does not protect against: bugs in the calls that stay allowed; whatever lies behind pointers (paths, socket
addresses, the mode of `openat2` while it is on); descriptors that the command was given or receives over a socket; a
process that was not started under the filter. It hides no file and stops no connection.
"""

import os
from enum import IntEnum
from functools import cache
from typing import Final

from ringfence.confinement.linux.bpf import ERRNO, AnyBit, CallRow, Condition, NoneOf, OneOf, translate
from ringfence.confinement.linux.syscalls import MACHINES
from ringfence.dataclass import dataclass
from ringfence.errors import InitializationFailed

# --- the profile's vocabulary -----------------------------------------------------------------------------------------


class Errno(IntEnum):
    """The errno that a refused call returns. Linux's own numbers: the `errno` module has those of the building host."""

    EPERM = 1
    ENOSYS = 38
    EPROTONOSUPPORT = 93
    EOPNOTSUPP = 95
    EAFNOSUPPORT = 97


@dataclass(frozen=True, slots=True)
class Denial:
    """One row of the profile: `calls` get `answer` when all of `when` hold (always, if it is empty).

    The conditions of two rows that name the same call and give different answers must exclude each other, so that the
    order of the rows means nothing.
    """

    calls: tuple[str, ...]
    answer: Errno
    reason: str
    when: tuple[Condition, ...] = ()
    inside_only: bool = False
    """Whether whoever builds boxes has to make such calls, with just these arguments, and nobody inside one may."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What differs from wall to wall and from grant to grant. The defaults suit a box with all namespaces."""

    unix_sockets: bool = True
    """`socket(AF_UNIX)`. A socket pair reaches nobody outside and always stays."""

    inet_sockets: bool = True
    """AF_INET and AF_INET6; off for a wall without a network namespace."""

    system_v_ipc: bool = True
    """Shared memory, semaphores and message queues that are found by number or name, not by path; POSIX queues too. Off
    for a wall without an IPC namespace, where they are the host's."""

    openat2: bool = True
    """Off where a set-uid file would be worth something: its mode lies behind a pointer."""

    debugging: bool = False
    """`ptrace` and `process_vm_*`, for debuggers. Since Linux 4.8 what a tracer makes of a call is filtered too."""

    own_pids: bool = True
    """Whether PID 1 is the box's first process and every other one is the box's, too. Off for a wall without a PID
    namespace, where every number but 0, which means oneself, may be somebody else's."""


# --- the profile ------------------------------------------------------------------------------------------------------

AF_UNIX: Final = 1
AF_INET: Final = 2
AF_INET6: Final = 10
AF_NETLINK: Final = 16
NETLINK_ROUTE: Final = 0
SOCK_RAW: Final = 3
SOCK_PACKET: Final = 10
SOCK_TYPE_MASK: Final = 0xF  # the rest of the type holds SOCK_CLOEXEC and SOCK_NONBLOCK

# NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. Not NEWTIME (0x80): in clone's flags the lowest byte is the
# exit signal, so clone cannot make a time namespace; only unshare and clone3 can, and both are refused whole.
CLONE_NEW_ANY: Final = 0x7E020000
CLONE_NEWUSER: Final = 0x10000000

# PER_LINUX and PER_LINUX32, each also with UNAME26 (they change what uname says), and the question "which is it now?".
# Other bits weaken the address space (ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC, MMAP_PAGE_ZERO) or wake unused kernel code.
HARMLESS_PERSONALITIES: Final = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C

# What changes an inode beside its content, mode and owner. A descriptor that is open for reading is enough, so that no
# rule for opens sees them. Some have a second number, for 32-bit programs.
INODE_CHANGES: Final = (
    *(0x40086602, 0x40046602),  # FS_IOC_SETFLAGS: chattr
    0x401C5820,  # FS_IOC_FSSETXATTR: the same flags, and the project
    *(0x40087602, 0x40047602),  # FS_IOC_SETVERSION
    *(0x40086604, 0x40046604),  # EXT4_IOC_SETVERSION
    0x6609,  # EXT4_IOC_MIGRATE: how the content is stored
    0x40806685,  # FS_IOC_ENABLE_VERITY: read-only for good
    0x800C6613,  # FS_IOC_SET_ENCRYPTION_POLICY
)

F_SETLEASE: Final = 1024

SET_ID_BITS: Final = 0o6000
# O_CREAT and the kernel's own __O_TMPFILE bit (the O_TMPFILE of programs holds O_DIRECTORY too, which says nothing).
# Without either no mode is passed, and its register holds garbage.
CREATING_FLAGS: Final = 0o100 | 0o20000000

S_IFMT: Final = 0o170000
S_IFCHR: Final = 0o020000
S_IFBLK: Final = 0o060000
RENAME_WHITEOUT: Final = 1 << 2

PRIO_USER: Final = 2
IOPRIO_WHO_USER: Final = 3

_DEVICE_REASON: Final = (
    "a device node in the workspace outlives the box; a whiteout, which needs no privilege, hides a file of the same "
    "name wherever the directory becomes a layer of an overlay"
)
_SET_ID_REASON: Final = "a set-uid or set-gid file in the workspace would outlive the box and serve the host's users"
_FIRST_REASON: Final = (
    "the box's first process cleans up: without descriptors, or its share of time, it fails in the middle"
)

_EVERYBODY_REASON: Final = f"every process of the user's, the first one too: {_FIRST_REASON}"

_ALWAYS: Final = (
    Denial(
        ("unshare", "setns"),
        Errno.EPERM,
        "a new namespace brings back capabilities and much of the kernel's surface, an old one leads out of the box",
    ),
    Denial(
        ("clone",),
        Errno.EPERM,
        "the same namespaces by the other door; threads and forks pass",
        when=(AnyBit(0, CLONE_NEW_ANY),),
    ),
    Denial(("clone3",), Errno.ENOSYS, "its flags lie behind a pointer; libc falls back to clone"),
    Denial(
        ("mount", "umount2", "pivot_root", "chroot"),
        Errno.EPERM,
        "taking a mount away uncovers what it hides, a new root escapes the view",
    ),
    Denial(
        ("open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
        Errno.ENOSYS,
        "mounting in small steps, with the options behind pointers; mount(8) falls back to mount(2)",
    ),
    Denial(
        ("statmount", "listmount"),
        Errno.ENOSYS,
        "describe mounts and the host's paths behind them; programs fall back to /proc/self/mountinfo",
    ),
    Denial(
        ("file_getattr", "file_setattr"),
        Errno.ENOSYS,
        "inode flags such as immutable hinder the clean-up; refused as a pair, so that programs see an older kernel",
    ),
    Denial(
        ("setxattrat", "removexattrat", "getxattrat", "listxattrat"),
        Errno.ENOSYS,
        "change a file, even its mode by an access list, past those who look at setxattr, which programs fall back to; "
        "reading is refused with it, so that programs see an older kernel",
    ),
    Denial(
        ("keyctl", "add_key", "request_key"),
        Errno.EPERM,
        "keyrings know no namespace: the launcher's keys could be read; request_key starts a program outside",
    ),
    Denial(("bpf",), Errno.EPERM, "loads programs into the kernel; its verifier is a classic way out"),
    Denial(("perf_event_open",), Errno.EPERM, "watches the kernel and other processes; a long record of holes"),
    Denial(("userfaultfd",), Errno.EPERM, "stops the kernel in mid-copy, which makes its races winnable"),
    Denial(
        ("io_uring_setup", "io_uring_enter", "io_uring_register"),
        Errno.EPERM,
        "its operations never pass a filter; an errno, because node probes for it at start and lives on without",
    ),
    Denial(
        ("kcmp", "pidfd_getfd", "process_madvise", "process_mrelease"),
        Errno.EPERM,
        "reach into another process: compare its pointers, take its descriptors, drop its pages",
    ),
    Denial(("memfd_secret",), Errno.EPERM, "memory that neither the supervisor nor a crash dump can look into"),
    Denial(("lsm_set_self_attr",), Errno.EPERM, "changes the security label that the host may have put on the box"),
    Denial(
        ("init_module", "finit_module", "delete_module", "create_module", "query_module"),
        Errno.EPERM,
        "kernel modules",
    ),
    Denial(("kexec_load", "kexec_file_load", "reboot"), Errno.EPERM, "replace or stop the running kernel"),
    Denial(
        ("open_by_handle_at", "name_to_handle_at", "lookup_dcookie"),
        Errno.EPERM,
        "name files by number, past every mount and path check",
    ),
    Denial(("fanotify_init",), Errno.EPERM, "watches a whole file system, beyond what the box can see of it"),
    Denial(
        ("settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
        Errno.EPERM,
        "the clock is the host's; libc reads it by other calls",
    ),
    Denial(
        ("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "vhangup", "sethostname", "setdomainname"),
        Errno.EPERM,
        "administration of the machine",
    ),
    Denial(("syslog",), Errno.EPERM, "the kernel's log tells addresses and what the neighbours do"),
    Denial(("iopl", "ioperm"), Errno.EPERM, "port I/O reaches the hardware"),
    Denial(("modify_ldt",), Errno.EPERM, "16-bit segments: rarely used and often broken kernel code"),
    Denial(
        ("mbind", "set_mempolicy", "set_mempolicy_home_node", "migrate_pages", "move_pages"),
        Errno.EPERM,
        "placing memory on nodes serves no build, can starve neighbours and shows physical layout",
    ),
    Denial(
        ("uselib", "nfsservctl", "sysfs", "ustat", "_sysctl", "afs_syscall"),
        Errno.EPERM,
        "dead interfaces: nothing new uses them, old kernels still answer",
    ),
    Denial(
        ("personality",),
        Errno.EPERM,
        "switches off address randomisation or makes data executable",
        when=(NoneOf(0, HARMLESS_PERSONALITIES),),
    ),
    Denial(
        ("ioctl",),
        Errno.EPERM,
        "type into, or paste to, the terminal of the person who started the box",
        when=(OneOf(1, (TIOCSTI, TIOCLINUX)),),
    ),
    Denial(
        ("ioctl",),
        Errno.EOPNOTSUPP,  # as file systems without such flags answer, which chattr's callers live with
        "inode flags such as immutable outlive the box and hinder the clean-up; by a hard link they are set on a file "
        "outside, since a descriptor for reading is enough",
        when=(OneOf(1, INODE_CHANGES),),
    ),
    Denial(
        ("fcntl",),
        Errno.EPERM,
        "a lease on a file that the host has too, in the workspace or by a hard link, makes its opens there wait",
        when=(OneOf(1, (F_SETLEASE,)),),
    ),
    Denial(
        ("socket",),
        Errno.EAFNOSUPPORT,
        "families outside this list are not namespaced (AF_VSOCK reaches the hypervisor) or load seldom tested modules",
        when=(NoneOf(0, (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)),),
    ),
    Denial(
        ("socket",),
        Errno.EPROTONOSUPPORT,
        "libc lists network interfaces by the route protocol; the others are administration (audit, netfilter, crypto)",
        when=(OneOf(0, (AF_NETLINK,)), NoneOf(2, (NETLINK_ROUTE,))),
    ),
    Denial(
        ("socket",),
        Errno.EPERM,
        # AF_NETLINK is left out: there a raw socket is the same as a datagram one, and libc asks for raw.
        "raw packets; AF_INET with SOCK_PACKET is AF_PACKET by its old name",
        when=(OneOf(0, (AF_UNIX, AF_INET, AF_INET6)), OneOf(1, (SOCK_RAW, SOCK_PACKET), SOCK_TYPE_MASK)),
    ),
    Denial(
        ("socketpair",),
        Errno.EAFNOSUPPORT,
        "the kernel makes both sockets, of any family, before it finds that the family has no pairs",
        when=(NoneOf(0, (AF_UNIX,)),),
    ),
    Denial(
        ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity"),
        Errno.EPERM,
        # Others of the box's processes pass: a session's commands may end each other anyway, and psutil sets its own
        # limits by its own number.
        _FIRST_REASON,
        when=(OneOf(0, (1,)),),
    ),
    Denial(("setpriority", "ioprio_set"), Errno.EPERM, _FIRST_REASON, when=(OneOf(1, (1,)),)),
    Denial(("setpriority",), Errno.EPERM, _EVERYBODY_REASON, when=(OneOf(0, (PRIO_USER,)),)),
    Denial(("ioprio_set",), Errno.EPERM, _EVERYBODY_REASON, when=(OneOf(0, (IOPRIO_WHO_USER,)),)),
    Denial(("chmod", "fchmod", "mknod", "creat"), Errno.EPERM, _SET_ID_REASON, when=(AnyBit(1, SET_ID_BITS),)),
    Denial(("fchmodat", "fchmodat2", "mknodat"), Errno.EPERM, _SET_ID_REASON, when=(AnyBit(2, SET_ID_BITS),)),
    Denial(
        ("mknod",),
        Errno.EPERM,
        _DEVICE_REASON,
        when=(OneOf(1, (S_IFCHR, S_IFBLK), S_IFMT),),
        inside_only=True,  # a shadow hides files by whiteouts
    ),
    Denial(
        ("mknodat",),
        Errno.EPERM,
        _DEVICE_REASON,
        when=(OneOf(2, (S_IFCHR, S_IFBLK), S_IFMT),),
        inside_only=True,  # a shadow hides files by whiteouts
    ),
    Denial(
        ("renameat2",),
        Errno.EPERM,  # as kernels before 5.8 answer without CAP_MKNOD
        f"RENAME_WHITEOUT leaves such a node behind, and Landlock does not look at it: {_DEVICE_REASON}",
        when=(AnyBit(4, RENAME_WHITEOUT),),
    ),
    Denial(("open",), Errno.EPERM, _SET_ID_REASON, when=(AnyBit(1, CREATING_FLAGS), AnyBit(2, SET_ID_BITS))),
    Denial(("openat",), Errno.EPERM, _SET_ID_REASON, when=(AnyBit(2, CREATING_FLAGS), AnyBit(3, SET_ID_BITS))),
)

_WITHOUT_UNIX_SOCKETS: Final = Denial(
    ("socket",),
    Errno.EPERM,
    "a path that the box can see is enough to connect to a service of the host, even on a read-only mount",
    when=(OneOf(0, (AF_UNIX,)),),
)
_WITHOUT_INET_SOCKETS: Final = Denial(
    ("socket",),
    Errno.EPERM,
    "without a network namespace the host's network is the only one there is",
    when=(OneOf(0, (AF_INET, AF_INET6)),),
)
_WITHOUT_SYSTEM_V_IPC: Final = Denial(
    (
        *("shmget", "shmat", "shmctl"),
        *("semget", "semop", "semtimedop", "semctl"),
        *("msgget", "msgsnd", "msgrcv", "msgctl"),
        *("mq_open", "mq_unlink"),
    ),
    # Using an object is refused beside making one, because its number can be guessed. Letting go (shmdt) is harmless.
    Errno.EPERM,
    "without an IPC namespace these belong to the host's processes",
)
_WITHOUT_OPENAT2: Final = Denial(
    ("openat2",),
    Errno.ENOSYS,
    f"its mode lies behind a pointer: {_SET_ID_REASON}; programs fall back to openat",
)
_OTHERS_REASON: Final = "without a PID namespace these may be the box's first process, or the host's"
_WITHOUT_OWN_PIDS: Final = (
    Denial(
        ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setattr", "sched_setaffinity"),
        Errno.EPERM,
        _OTHERS_REASON,
        when=(NoneOf(0, (0,)),),
    ),
    Denial(("setpriority", "ioprio_set"), Errno.EPERM, _OTHERS_REASON, when=(NoneOf(1, (0,)),)),
)
_WITHOUT_DEBUGGING: Final = Denial(
    ("ptrace", "process_vm_readv", "process_vm_writev"),
    Errno.EPERM,
    "read and steer another process, such as the box's first one, which holds the box together",
)


def refusals(profile: Profile) -> tuple[Denial, ...]:
    """All rows that hold under `profile`."""
    optional = (
        (profile.unix_sockets, (_WITHOUT_UNIX_SOCKETS,)),
        (profile.inet_sockets, (_WITHOUT_INET_SOCKETS,)),
        (profile.system_v_ipc, (_WITHOUT_SYSTEM_V_IPC,)),
        (profile.openat2, (_WITHOUT_OPENAT2,)),
        (profile.debugging, (_WITHOUT_DEBUGGING,)),
        (profile.own_pids, _WITHOUT_OWN_PIDS),
    )
    return (*_ALWAYS, *(row for allowed, rows in optional if not allowed for row in rows))


def assemble(profile: Profile = Profile(), machine: str | None = None) -> bytes:  # noqa: B008  frozen, so safe to share
    """Return the filter as an array of `struct sock_filter`, ready for bwrap's `--seccomp` or for seccomp(2).

    Args:
        profile: what differs from the usual box.
        machine: as `uname -m` says it, which is also the default.

    Raises:
        InitializationFailed: there is no number table for this machine, so nothing could be filtered.
    """
    return _assemble(profile, machine or os.uname().machine)


@cache
def _assemble(profile: Profile, machine_name: str) -> bytes:
    machine = MACHINES.get(machine_name)
    if machine is None:
        raise InitializationFailed(
            f"no seccomp filter for the machine {machine_name!r}",
            hint=f"use one of {', '.join(MACHINES)}, or an engine that brings its own kernel",
        )
    rows = (CallRow(row.calls, ERRNO | row.answer, row.when) for row in refusals(profile))
    return translate(rows, machine)
