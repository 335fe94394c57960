"""The seccomp filter: which system calls a boxed command is refused, and the assembler that turns that into BPF.

Theory of operation. Everything is allowed unless a row of the profile refuses it: an allow-list breaks programs with
every new libc. The walls around files, network and processes stand without this filter; it takes away the parts of the
kernel that no build or test needs. A refusal is an errno that programs know how to handle, never a signal. Only another
architecture's calls kill, because their numbers mean other things and no row could judge them.

A filter sees the registers of a call and nothing behind a pointer. Two rules follow:

- A call whose meaning lies in memory (`clone3`, the new mount API) is refused whole, with ENOSYS, so that the C library
  falls back to the older call, whose registers can be judged.
- An argument that the kernel takes as `int` is compared on its low 32 bits only. The kernel ignores the upper half, so
  that a comparison of 64 bits is evaded by setting one bit there.

Program layout: check the architecture; find the call's number in a balanced tree of comparisons; return, or jump to the
argument checks of that call. For a number that is always allowed the kernel remembers this and skips the program.

What this does not protect against: bugs in the calls that stay allowed; whatever lies behind pointers (paths, socket
addresses, the mode of `openat2` while it is on); descriptors that the command was given or receives over a socket; a
process that was not started under the filter. It hides no file and stops no connection.
"""

import platform
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Final, NewType, TypeAlias, assert_never

from ringfence.confinement.linux.syscalls import MACHINES, X32_SYSCALL_BIT, Machine
from ringfence.errors import InitializationFailed

# --- the profile's vocabulary -----------------------------------------------------------------------------------------


class Answer(IntEnum):
    """The errno that a refused call returns. Linux's own numbers: the `errno` module has those of the building host."""

    EPERM = 1
    ENOSYS = 38
    EPROTONOSUPPORT = 93
    EAFNOSUPPORT = 97


@dataclass(frozen=True, slots=True)
class AnyBit:
    """At least one bit of `mask` is set in the argument's low word."""

    argument: int
    mask: int


@dataclass(frozen=True, slots=True)
class OneOf:
    """The argument's low word, under `mask`, is one of `values`."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class NoneOf:
    """The argument's low word is none of `values`."""

    argument: int
    values: tuple[int, ...]


Condition: TypeAlias = AnyBit | OneOf | NoneOf


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row of the profile: `calls` get `answer` when all of `when` hold (always, if it is empty).

    The conditions of two rows that name the same call and give different answers must exclude each other, so that the
    order of the rows means nothing.
    """

    calls: tuple[str, ...]
    answer: Answer
    reason: str
    when: tuple[Condition, ...] = ()


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

# PER_LINUX and PER_LINUX32, each also with UNAME26 (they change what uname says), and the question "which is it now?".
# Other bits weaken the address space (ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC, MMAP_PAGE_ZERO) or wake unused kernel code.
HARMLESS_PERSONALITIES: Final = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

TIOCSTI: Final = 0x5412
TIOCLINUX: Final = 0x541C

SET_ID_BITS: Final = 0o6000
# O_CREAT and the kernel's own __O_TMPFILE bit (the O_TMPFILE of programs holds O_DIRECTORY too, which says nothing).
# Without either no mode is passed, and its register holds garbage.
CREATING_FLAGS: Final = 0o100 | 0o20000000

_SET_ID_REASON: Final = "a set-uid or set-gid file in the workspace would outlive the box and serve the host's users"

_ALWAYS: Final = (
    Refusal(
        ("unshare", "setns"),
        Answer.EPERM,
        "a new namespace brings back capabilities and much of the kernel's surface, an old one leads out of the box",
    ),
    Refusal(
        ("clone",),
        Answer.EPERM,
        "the same namespaces by the other door; threads and forks pass",
        when=(AnyBit(0, CLONE_NEW_ANY),),
    ),
    Refusal(("clone3",), Answer.ENOSYS, "its flags lie behind a pointer; libc falls back to clone"),
    Refusal(
        ("mount", "umount2", "pivot_root", "chroot"),
        Answer.EPERM,
        "taking a mount away uncovers what it hides, a new root escapes the view",
    ),
    Refusal(
        ("open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
        Answer.ENOSYS,
        "mounting in small steps, with the options behind pointers; mount(8) falls back to mount(2)",
    ),
    Refusal(
        ("statmount", "listmount"),
        Answer.ENOSYS,
        "describe mounts and the host's paths behind them; programs fall back to /proc/self/mountinfo",
    ),
    Refusal(
        ("file_getattr", "file_setattr"),
        Answer.ENOSYS,
        "inode flags such as immutable hinder the clean-up; refused as a pair, so that programs see an older kernel",
    ),
    Refusal(
        ("keyctl", "add_key", "request_key"),
        Answer.EPERM,
        "keyrings know no namespace: the launcher's keys could be read; request_key starts a program outside",
    ),
    Refusal(("bpf",), Answer.EPERM, "loads programs into the kernel; its verifier is a classic way out"),
    Refusal(("perf_event_open",), Answer.EPERM, "watches the kernel and other processes; a long record of holes"),
    Refusal(("userfaultfd",), Answer.EPERM, "stops the kernel in mid-copy, which makes its races winnable"),
    Refusal(
        ("io_uring_setup", "io_uring_enter", "io_uring_register"),
        Answer.EPERM,
        "its operations never pass a filter; an errno, because node probes for it at start and lives on without",
    ),
    Refusal(
        ("kcmp", "pidfd_getfd", "process_madvise", "process_mrelease"),
        Answer.EPERM,
        "reach into another process: compare its pointers, take its descriptors, drop its pages",
    ),
    Refusal(("memfd_secret",), Answer.EPERM, "memory that neither the supervisor nor a crash dump can look into"),
    Refusal(("lsm_set_self_attr",), Answer.EPERM, "changes the security label that the host may have put on the box"),
    Refusal(
        ("init_module", "finit_module", "delete_module", "create_module", "query_module"),
        Answer.EPERM,
        "kernel modules",
    ),
    Refusal(("kexec_load", "kexec_file_load", "reboot"), Answer.EPERM, "replace or stop the running kernel"),
    Refusal(
        ("open_by_handle_at", "name_to_handle_at", "lookup_dcookie"),
        Answer.EPERM,
        "name files by number, past every mount and path check",
    ),
    Refusal(("fanotify_init",), Answer.EPERM, "watches a whole file system, beyond what the box can see of it"),
    Refusal(
        ("settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
        Answer.EPERM,
        "the clock is the host's; libc reads it by other calls",
    ),
    Refusal(
        ("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "vhangup", "sethostname", "setdomainname"),
        Answer.EPERM,
        "administration of the machine",
    ),
    Refusal(("syslog",), Answer.EPERM, "the kernel's log tells addresses and what the neighbours do"),
    Refusal(("iopl", "ioperm"), Answer.EPERM, "port I/O speaks to the hardware"),
    Refusal(("modify_ldt",), Answer.EPERM, "16-bit segments: rarely used and often broken kernel code"),
    Refusal(
        ("mbind", "set_mempolicy", "set_mempolicy_home_node", "migrate_pages", "move_pages"),
        Answer.EPERM,
        "placing memory on nodes serves no build, can starve neighbours and shows physical layout",
    ),
    Refusal(
        ("uselib", "nfsservctl", "sysfs", "ustat", "_sysctl", "afs_syscall"),
        Answer.EPERM,
        "dead interfaces: nothing new uses them, old kernels still answer",
    ),
    Refusal(
        ("personality",),
        Answer.EPERM,
        "switches off address randomisation or makes data executable",
        when=(NoneOf(0, HARMLESS_PERSONALITIES),),
    ),
    Refusal(
        ("ioctl",),
        Answer.EPERM,
        "type into, or paste to, the terminal of the person who started the box",
        when=(OneOf(1, (TIOCSTI, TIOCLINUX)),),
    ),
    Refusal(
        ("socket",),
        Answer.EAFNOSUPPORT,
        "families outside this list are not namespaced (AF_VSOCK reaches the hypervisor) or load seldom tested modules",
        when=(NoneOf(0, (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)),),
    ),
    Refusal(
        ("socket",),
        Answer.EPROTONOSUPPORT,
        "libc lists network interfaces by the route protocol; the others are administration (audit, netfilter, crypto)",
        when=(OneOf(0, (AF_NETLINK,)), NoneOf(2, (NETLINK_ROUTE,))),
    ),
    Refusal(
        ("socket",),
        Answer.EPERM,
        # AF_NETLINK is left out: there a raw socket is the same as a datagram one, and libc asks for raw.
        "raw packets; AF_INET with SOCK_PACKET is AF_PACKET by its old name",
        when=(OneOf(0, (AF_UNIX, AF_INET, AF_INET6)), OneOf(1, (SOCK_RAW, SOCK_PACKET), SOCK_TYPE_MASK)),
    ),
    Refusal(
        ("socketpair",),
        Answer.EAFNOSUPPORT,
        "the kernel makes both sockets, of any family, before it finds that the family has no pairs",
        when=(NoneOf(0, (AF_UNIX,)),),
    ),
    Refusal(("chmod", "fchmod", "mknod", "creat"), Answer.EPERM, _SET_ID_REASON, when=(AnyBit(1, SET_ID_BITS),)),
    Refusal(("fchmodat", "fchmodat2", "mknodat"), Answer.EPERM, _SET_ID_REASON, when=(AnyBit(2, SET_ID_BITS),)),
    Refusal(("open",), Answer.EPERM, _SET_ID_REASON, when=(AnyBit(1, CREATING_FLAGS), AnyBit(2, SET_ID_BITS))),
    Refusal(("openat",), Answer.EPERM, _SET_ID_REASON, when=(AnyBit(2, CREATING_FLAGS), AnyBit(3, SET_ID_BITS))),
)

_WITHOUT_UNIX_SOCKETS: Final = Refusal(
    ("socket",),
    Answer.EPERM,
    "a path that the box can see is enough to connect to a service of the host, even on a read-only mount",
    when=(OneOf(0, (AF_UNIX,)),),
)
_WITHOUT_INET_SOCKETS: Final = Refusal(
    ("socket",),
    Answer.EPERM,
    "without a network namespace the host's network is the only one there is",
    when=(OneOf(0, (AF_INET, AF_INET6)),),
)
_WITHOUT_SYSTEM_V_IPC: Final = Refusal(
    (
        *("shmget", "shmat", "shmctl"),
        *("semget", "semop", "semtimedop", "semctl"),
        *("msgget", "msgsnd", "msgrcv", "msgctl"),
        *("mq_open", "mq_unlink"),
    ),
    # Using an object is refused beside making one, because its number can be guessed. Letting go (shmdt) is harmless.
    Answer.EPERM,
    "without an IPC namespace these belong to the host's processes",
)
_WITHOUT_OPENAT2: Final = Refusal(
    ("openat2",), Answer.ENOSYS, f"its mode lies behind a pointer: {_SET_ID_REASON}; programs fall back to openat"
)
_WITHOUT_DEBUGGING: Final = Refusal(
    ("ptrace", "process_vm_readv", "process_vm_writev"),
    Answer.EPERM,
    "read and steer another process, such as the box's first one, which holds the box together",
)


def refusals(profile: Profile) -> tuple[Refusal, ...]:
    """All rows that hold under `profile`."""
    optional = (
        (profile.unix_sockets, _WITHOUT_UNIX_SOCKETS),
        (profile.inet_sockets, _WITHOUT_INET_SOCKETS),
        (profile.system_v_ipc, _WITHOUT_SYSTEM_V_IPC),
        (profile.openat2, _WITHOUT_OPENAT2),
        (profile.debugging, _WITHOUT_DEBUGGING),
    )
    return (*_ALWAYS, *(row for allowed, row in optional if not allowed))


def assemble(profile: Profile = Profile(), machine: str | None = None) -> bytes:  # noqa: B008  frozen, so safe to share
    """Return the filter as an array of `struct sock_filter`, ready for bwrap's `--seccomp` or for seccomp(2).

    Args:
        profile: what differs from the usual box.
        machine: as `platform.machine()` says it, which is also the default.

    Raises:
        InitializationFailed: there is no number table for this machine, so nothing could be filtered.
    """
    return _assemble(profile, machine or platform.machine())


@cache
def _assemble(profile: Profile, machine_name: str) -> bytes:
    machine = MACHINES.get(machine_name)
    if machine is None:
        raise InitializationFailed(
            f"no seccomp filter for the machine {machine_name!r}",
            hint=f"use one of {', '.join(MACHINES)}, or an engine that brings its own kernel",
        )
    return _translate(refusals(profile), machine)


# --- the assembler ----------------------------------------------------------------------------------------------------

# From linux/seccomp.h: what a program returns, and where it finds the call. Words are 32 bits, little endian.
ALLOW: Final = 0x7FFF0000
KILL_PROCESS: Final = 0x80000000
ERRNO: Final = 0x00050000

_NUMBER: Final = 0
_ARCH: Final = 4
_ARGUMENTS: Final = 16
_ARGUMENT_BYTES: Final = 8

# From linux/bpf_common.h: class | size or operation | operand.
_LOAD: Final = 0x20  # LD | W | ABS
_AND: Final = 0x54  # ALU | AND | K
_JUMP: Final = 0x05  # JMP | JA
_IF_EQUAL: Final = 0x15  # JMP | JEQ | K
_IF_AT_LEAST: Final = 0x35  # JMP | JGE | K
_IF_ANY_BIT: Final = 0x45  # JMP | JSET | K
_RETURN: Final = 0x06  # RET | K

_FARTHEST_BRANCH: Final = 255  # a conditional jump has 8 bits per branch, an unconditional one 32

_NO_CALL: Final = 0xFFFFFFFF  # what a tracer writes to skip a call; the kernel answers ENOSYS by itself

Label = NewType("Label", int)
"""An instruction, counted from the program's end."""


@dataclass(frozen=True, slots=True)
class Return:
    """A verdict as the target of a jump; the assembler places the instruction where it is in reach."""

    value: int


Target: TypeAlias = Label | Return


@dataclass(slots=True)
class _Program:
    """A BPF program that is written from its last instruction to its first.

    BPF jumps forward only. Written backwards, every target exists when a jump to it is written, its distance is known,
    and one that is out of reach gets a stepping stone right behind the jump.
    """

    _backwards: list[bytes] = field(default_factory=list)
    _returns: dict[int, Label] = field(default_factory=dict)

    def load(self, offset: int, then: Target) -> Label:
        self._put_next(then)
        return self._emit(_LOAD, offset)

    def mask(self, bits: int, then: Target) -> Label:
        self._put_next(then)
        return self._emit(_AND, bits)

    def branch(self, operation: int, operand: int, yes: Target, no: Target) -> Label:
        at_yes = self._within_reach(yes, spare=1)  # one, because `no` may put a stepping stone in between
        at_no = self._within_reach(no)
        return self._emit(operation, operand, self._distance(at_yes), self._distance(at_no))

    def encode(self) -> bytes:
        return b"".join(reversed(self._backwards))

    def _emit(self, code: int, operand: int, yes: int = 0, no: int = 0) -> Label:
        self._backwards.append(struct.pack("<HBBI", code, yes, no, operand))
        return Label(len(self._backwards) - 1)

    def _distance(self, label: Label) -> int:
        """How many instructions one that is written now has to skip to arrive at `label`."""
        return len(self._backwards) - label - 1

    def _put_next(self, target: Target) -> None:
        """Make sure that an instruction that is written now falls through to `target`."""
        if isinstance(target, Return) or self._distance(target) > 0:
            self._place(target)

    def _within_reach(self, target: Target, spare: int = 0) -> Label:
        known = self._returns.get(target.value) if isinstance(target, Return) else target
        if known is not None and self._distance(known) + spare <= _FARTHEST_BRANCH:
            return known
        return self._place(target)

    def _place(self, target: Target) -> Label:
        """Write an instruction that leads to `target`: the verdict itself, or a long jump."""
        if isinstance(target, Return):
            label = self._emit(_RETURN, target.value)
            self._returns[target.value] = label
            return label
        return self._emit(_JUMP, self._distance(target))


def _translate(rows: Iterable[Refusal], machine: Machine) -> bytes:
    program = _Program()
    find_number = _search(program, _steps(_verdicts(program, rows, machine), x32=machine.x32))
    native = program.load(_NUMBER, find_number)
    program.load(_ARCH, program.branch(_IF_EQUAL, machine.audit_arch, native, Return(KILL_PROCESS)))
    return program.encode()


def _verdicts(program: _Program, rows: Iterable[Refusal], machine: Machine) -> dict[int, Target]:
    """Where each refused number leads; calls with the same checks share them."""
    checks: dict[int, tuple[tuple[tuple[Condition, ...], Answer], ...]] = {}
    for row in rows:
        for call in row.calls:
            if (number := machine.numbers.get(call)) is not None:
                checks[number] = (*checks.get(number, ()), (row.when, row.answer))
    written = {key: _check(program, key) for key in dict.fromkeys(checks.values())}
    return {number: written[key] for number, key in checks.items()}


def _check(program: _Program, rows: Sequence[tuple[tuple[Condition, ...], Answer]]) -> Target:
    """Write the argument checks of one call: the first row whose conditions all hold answers."""
    otherwise: Target = Return(ALLOW)
    for conditions, answer in reversed(rows):
        here: Target = Return(ERRNO | answer)
        for condition in reversed(conditions):
            here = _test(program, condition, yes=here, no=otherwise)
        otherwise = here
    return otherwise


def _test(program: _Program, condition: Condition, *, yes: Target, no: Target) -> Target:
    match condition:
        case AnyBit(argument, mask):
            test: Target = program.branch(_IF_ANY_BIT, mask, yes, no)
        case OneOf(argument, values, mask):
            test = _compare(program, values, yes, no)
            if mask != 0xFFFFFFFF:
                test = program.mask(mask, test)
        case NoneOf(argument, values):
            test = _compare(program, values, no, yes)
        case _:
            assert_never(condition)
    # The low word comes first, and it alone is looked at: see the module's theory.
    return program.load(_ARGUMENTS + _ARGUMENT_BYTES * argument, test)


def _compare(program: _Program, values: Sequence[int], found: Target, not_found: Target) -> Target:
    test = not_found
    for value in reversed(values):
        test = program.branch(_IF_EQUAL, value, found, test)
    return test


def _steps(verdicts: dict[int, Target], *, x32: bool) -> list[tuple[int, Target]]:
    """The verdicts as a step function over all numbers: each entry holds from its number up to the next entry's."""
    points: dict[int, Target] = {0: Return(ALLOW)}
    for number, target in sorted(verdicts.items()):
        points[number] = target
        points[number + 1] = Return(ALLOW)
    if x32:
        points[X32_SYSCALL_BIT] = Return(KILL_PROCESS)
        points[_NO_CALL] = Return(ALLOW)
    steps: list[tuple[int, Target]] = []
    for number, target in points.items():
        if not steps or steps[-1][1] != target:
            steps.append((number, target))
    return steps


def _search(program: _Program, steps: Sequence[tuple[int, Target]]) -> Target:
    """Write the balanced tree that finds the step which holds the loaded number."""
    if len(steps) == 1:
        return steps[0][1]
    middle = len(steps) // 2
    high = _search(program, steps[middle:])
    low = _search(program, steps[:middle])
    return program.branch(_IF_AT_LEAST, steps[middle][0], yes=high, no=low)
