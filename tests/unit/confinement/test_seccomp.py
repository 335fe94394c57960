"""The seccomp profile, asked call by call through a BPF interpreter.

The numbers are written out here a second time, so that a wrong table fails.
"""

import itertools
import os
from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace

import pytest

from ringfence.confinement.linux import bpf, notify, seccomp
from ringfence.confinement.linux.seccomp import AnyBit, NoneOf, OneOf, Profile, assemble, refusals
from ringfence.confinement.linux.syscalls import MACHINES, Machine
from ringfence.errors import InitializationFailed
from ringfence.values.grant import Trace
from tests.support.bpf import ALLOW, ERRNO, KILL_PROCESS, BadProgramError, Program

pytestmark = pytest.mark.req("B6")

EPERM, ENOSYS, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT = 1, 38, 93, 95, 97
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, ARM = 0x40000003, 0x40000028
ANY_ARGUMENTS = [(0,) * 6, (2**64 - 1,) * 6]
HIGH_BITS = (0x1_0000_0000, 0xFFFF_FFFF_0000_0000)

# name: (x86_64, aarch64); None where the machine has no such call.
REFUSED_WITH_EPERM: dict[str, tuple[int | None, int | None]] = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "memfd_secret": (447, 447),
    "lsm_set_self_attr": (460, 460),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "create_module": (174, None),
    "query_module": (178, None),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "vhangup": (153, 58),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "uselib": (134, None),
    "nfsservctl": (180, 42),
    "sysfs": (139, None),
    "ustat": (136, None),
    "_sysctl": (156, None),
    "afs_syscall": (183, None),
}
REFUSED_WITH_ENOSYS: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "statmount": (457, 457),
    "listmount": (458, 458),
    "file_getattr": (468, 468),
    "file_setattr": (469, 469),
    "setxattrat": (463, 463),
    "getxattrat": (464, 464),
    "listxattrat": (465, 465),
    "removexattrat": (466, 466),
}
SYSTEM_V_IPC: dict[str, tuple[int | None, int | None]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
# What languages, package managers, debuggers of their own process and other sandboxes cannot live without.
MUST_STAY: dict[str, tuple[int | None, int | None]] = {
    "seccomp": (317, 277),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "memfd_create": (319, 279),
    "rseq": (334, 293),
    "pkey_mprotect": (329, 288),
    "pkey_alloc": (330, 289),
    "pkey_free": (331, 290),
    "openat2": (437, 437),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "close_range": (436, 436),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "mprotect": (10, 226),
    "read": (0, 63),
    "write": (1, 64),
    "execve": (59, 221),
    "fork": (57, None),
    "vfork": (58, None),
    "futex": (202, 98),
    "prctl": (157, 167),
    "mkdirat": (258, 34),
    "kill": (62, 129),
    "get_mempolicy": (239, 236),
    "shmdt": (67, 197),
    "connect": (42, 203),
}
WITH_CONDITIONS: dict[str, tuple[int | None, int | None]] = {
    "prlimit64": (302, 261),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "clone": (56, 220),
    "personality": (135, 92),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
    "creat": (85, None),
    "renameat2": (316, 276),
}
NUMBERS = REFUSED_WITH_EPERM | REFUSED_WITH_ENOSYS | SYSTEM_V_IPC | MUST_STAY | WITH_CONDITIONS


def number_on(machine: str, call: str) -> int | None:
    return NUMBERS[call][list(ARCH).index(machine)]


def on(*calls: str, machines: Iterable[str] = ARCH) -> list[tuple[str, str]]:
    """Every machine with each of these calls that it has."""
    return [(machine, call) for machine in machines for call in calls if number_on(machine, call) is not None]


@cache
def loaded(profile: Profile, machine: str) -> Program:
    return Program.load(assemble(profile, machine))


def ask(machine: str, call: str, *arguments: int, profile: Profile = Profile()) -> int:  # noqa: B008
    """0 if the call passes, otherwise the errno that it gets. Every call here must get one of the two."""
    number = number_on(machine, call)
    assert number is not None, f"{machine} has no {call}"
    verdict = loaded(profile, machine).verdict(ARCH[machine], number, arguments)
    if verdict == ALLOW:
        return 0
    assert verdict & 0xFFFF0000 == ERRNO, f"{call} got {verdict:#x}"
    return verdict & 0xFFFF


def answers(
    machine: str,
    calls: Iterable[str],
    arguments: tuple[int, ...] = (),
    profile: Profile = Profile(),  # noqa: B008
) -> dict[str, int]:
    return {call: ask(machine, call, *arguments, profile=profile) for _, call in on(*calls, machines=(machine,))}


def all_get(machine: str, calls: Iterable[str], answer: int) -> dict[str, int]:
    return {call: answer for _, call in on(*calls, machines=(machine,))}


ALL_PROFILES = [Profile(*switches) for switches in itertools.product((False, True), repeat=6)]


# --- calls that are refused or allowed whole --------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ARCH)
@pytest.mark.parametrize("arguments", ANY_ARGUMENTS)
def test_a_dangerous_call_gets_eperm_whatever_its_arguments(machine: str, arguments: tuple[int, ...]) -> None:
    assert answers(machine, REFUSED_WITH_EPERM, arguments) == all_get(machine, REFUSED_WITH_EPERM, EPERM)


@pytest.mark.parametrize("machine", ARCH)
@pytest.mark.parametrize("arguments", ANY_ARGUMENTS)
def test_a_call_with_an_older_substitute_gets_enosys_so_that_programs_fall_back(
    machine: str, arguments: tuple[int, ...]
) -> None:
    assert answers(machine, REFUSED_WITH_ENOSYS, arguments) == all_get(machine, REFUSED_WITH_ENOSYS, ENOSYS)


@pytest.mark.parametrize("machine", ARCH)
def test_a_call_that_no_row_names_passes(machine: str) -> None:
    """The twin of the two above: a number is refused because of its row, and its neighbours are not."""
    program = loaded(Profile(), machine)
    named = {numbers[list(ARCH).index(machine)] for numbers in NUMBERS.values()}

    refused = [n for n in range(600) if n not in named and program.verdict(ARCH[machine], n, (2**64 - 1,) * 6) != ALLOW]

    assert refused == []


@pytest.mark.parametrize("machine", ARCH)
@pytest.mark.parametrize("arguments", ANY_ARGUMENTS)
def test_what_programs_need_passes_whatever_the_arguments(machine: str, arguments: tuple[int, ...]) -> None:
    assert answers(machine, MUST_STAY, arguments) == all_get(machine, MUST_STAY, 0)


@pytest.mark.parametrize("machine", ARCH)
def test_no_profile_kills_for_a_native_call(machine: str) -> None:
    verdicts = {
        loaded(profile, machine).verdict(ARCH[machine], number, arguments)
        for profile, number, arguments in itertools.product(ALL_PROFILES, range(600), ANY_ARGUMENTS)
    }

    known = (EPERM, ENOSYS, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT)
    assert verdicts <= {ALLOW} | {ERRNO | answer for answer in known}


# --- other architectures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ARCH)
def test_a_call_of_another_architecture_kills(machine: str) -> None:
    program = loaded(Profile(), machine)
    others = {I386, ARM, 0, 0xFFFFFFFF, *ARCH.values()} - {ARCH[machine]}

    for arch, number in itertools.product(others, (0, 1, 21, 39, 102, 0x40000001)):
        assert program.verdict(arch, number) == KILL_PROCESS


@pytest.mark.parametrize("machine", ARCH)
def test_the_same_number_passes_on_the_native_architecture(machine: str) -> None:
    """21 and 102 are mount and socketcall on i386, but harmless natively: a filter of numbers alone lets them by."""
    program = loaded(Profile(), machine)

    assert {program.verdict(ARCH[machine], number) for number in (21, 102)} == {ALLOW}


@pytest.mark.parametrize("number", [0, 39, 56, 250, 272, 0x1FF, 0x3FFFFFFF, 0xBFFFFFFE])
def test_an_x32_number_kills(number: int) -> None:
    program = loaded(Profile(), "x86_64")

    assert program.verdict(ARCH["x86_64"], 0x40000000 + number) == KILL_PROCESS


@pytest.mark.parametrize("number", [0x3FFFFFFF, 0xFFFFFFFF])
def test_a_number_just_outside_the_x32_range_is_left_to_the_kernel(number: int) -> None:
    program = loaded(Profile(), "x86_64")

    assert program.verdict(ARCH["x86_64"], number) == ALLOW


# --- calls that depend on their arguments -----------------------------------------------------------------------------

CLONE_NEW = {
    "NEWNS": 0x00020000,
    "NEWCGROUP": 0x02000000,
    "NEWUTS": 0x04000000,
    "NEWIPC": 0x08000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
SIGCHLD = 17
THREAD_FLAGS = 0x3D0F00  # what glibc's pthread_create passes
VFORK_FLAGS = 0x4100 | SIGCHLD  # what posix_spawn passes


@pytest.mark.parametrize(("machine", "call"), on("clone"))
@pytest.mark.parametrize("flag", CLONE_NEW.values(), ids=CLONE_NEW)
def test_clone_cannot_make_a_namespace(machine: str, call: str, flag: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, high | flag | SIGCHLD) == EPERM


@pytest.mark.parametrize(("machine", "call"), on("clone"))
@pytest.mark.parametrize("flags", [SIGCHLD, THREAD_FLAGS, VFORK_FLAGS, 0x80 | SIGCHLD], ids=hex)
def test_clone_makes_processes_and_threads(machine: str, call: str, flags: int) -> None:
    """0x80 is CLONE_NEWTIME elsewhere; here it belongs to the exit signal."""
    assert ask(machine, call, flags) == 0


@pytest.mark.parametrize(("machine", "call"), on("ioctl"))
@pytest.mark.parametrize("request_code", [0x5412, 0x541C], ids=["TIOCSTI", "TIOCLINUX"])
def test_a_terminal_cannot_be_typed_into_even_with_high_bits_set(machine: str, call: str, request_code: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, 0, high | request_code) == EPERM


@pytest.mark.parametrize(("machine", "call"), on("ioctl"))
@pytest.mark.parametrize("request_code", [0x5401, 0x5413, 0x5411, 0x541B, 0x541D, 0x5412_0000_0000], ids=hex)
def test_other_terminal_requests_pass(machine: str, call: str, request_code: int) -> None:
    assert ask(machine, call, 0x5412, request_code, 0x5412) == 0


INODE_REQUESTS = {
    "FS_IOC_SETFLAGS": 0x40086602,
    "FS_IOC32_SETFLAGS": 0x40046602,
    "FS_IOC_FSSETXATTR": 0x401C5820,
    "FS_IOC_SETVERSION": 0x40087602,
    "FS_IOC32_SETVERSION": 0x40047602,
    "EXT4_IOC_SETVERSION": 0x40086604,
    "EXT4_IOC32_SETVERSION": 0x40046604,
    "EXT4_IOC_MIGRATE": 0x6609,
    "FS_IOC_ENABLE_VERITY": 0x40806685,
    "FS_IOC_SET_ENCRYPTION_POLICY": 0x800C6613,
}


@pytest.mark.parametrize(("machine", "call"), on("ioctl"))
@pytest.mark.parametrize("request_code", INODE_REQUESTS.values(), ids=INODE_REQUESTS)
def test_inode_flags_cannot_be_set_even_with_high_bits_set(machine: str, call: str, request_code: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, 0, high | request_code) == EOPNOTSUPP


@pytest.mark.parametrize(("machine", "call"), on("ioctl"))
@pytest.mark.parametrize("request_code", [0x80086601, 0x801C581F, 0x40049409, 0xC020660B], ids=hex)
def test_flags_can_be_read_and_files_cloned_and_mapped(machine: str, call: str, request_code: int) -> None:
    assert ask(machine, call, 0, request_code) == 0


@pytest.mark.parametrize(("machine", "call"), on("fcntl"))
def test_no_lease_is_taken_that_the_host_would_wait_for(machine: str, call: str) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, 0, high | 1024) == EPERM
    for command in (
        0,
        1,
        2,
        3,
        4,
        6,
        7,
        37,
        1025,
        1030,
        1031,
        1033,
    ):  # copies, flags, locks, F_GETLEASE, pipes, seals
        assert ask(machine, call, 1024, command, 1024) == 0


@pytest.mark.parametrize(("machine", "call"), on("personality"))
@pytest.mark.parametrize("persona", [0x0040000, 0x0400000, 0x0100000, 0x0440008, 0x1, 0x10, 0xFFFFFFFE], ids=hex)
def test_a_personality_that_weakens_the_address_space_is_refused(machine: str, call: str, persona: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, high | persona) == EPERM


@pytest.mark.parametrize(("machine", "call"), on("personality"))
@pytest.mark.parametrize("persona", [0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF, 0xFFFFFFFF_FFFFFFFF], ids=hex)
def test_a_harmless_personality_passes(machine: str, call: str, persona: int) -> None:
    assert ask(machine, call, persona) == 0


UNIX, INET, INET6, NETLINK = 1, 2, 10, 16
STREAM, DGRAM, RAW, PACKET_TYPE = 1, 2, 3, 10
CLOEXEC, NONBLOCK = 0o2000000, 0o4000
OTHER_FAMILIES = {
    "UNSPEC": 0,
    "AX25": 3,
    "APPLETALK": 5,
    "KEY": 15,
    "PACKET": 17,
    "RDS": 21,
    "CAN": 29,
    "TIPC": 30,
    "BLUETOOTH": 31,
    "ALG": 38,
    "VSOCK": 40,
    "SMC": 43,
    "XDP": 44,
    "future": 60,
    "negative": 0xFFFFFFFF,
}


@pytest.mark.parametrize(("machine", "call"), on("socket", "socketpair"))
@pytest.mark.parametrize("family", OTHER_FAMILIES.values(), ids=OTHER_FAMILIES)
def test_an_unlisted_socket_family_is_not_supported(machine: str, call: str, family: int) -> None:
    for kind, high in itertools.product((STREAM, DGRAM, RAW), (0, *HIGH_BITS)):
        assert ask(machine, call, high | family, kind) == EAFNOSUPPORT


@pytest.mark.parametrize(("machine", "call"), on("socket"))
@pytest.mark.parametrize("family", [UNIX, INET, INET6])
@pytest.mark.parametrize("kind", [STREAM, DGRAM, 5, STREAM | CLOEXEC | NONBLOCK], ids=hex)
def test_an_everyday_socket_passes(machine: str, call: str, family: int, kind: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, high | family, kind, 6) == 0


@pytest.mark.parametrize(("machine", "call"), on("socket"))
@pytest.mark.parametrize("family", [UNIX, INET, INET6])
@pytest.mark.parametrize("kind", [RAW, PACKET_TYPE, RAW | CLOEXEC, PACKET_TYPE | NONBLOCK], ids=hex)
def test_a_raw_socket_is_refused(machine: str, call: str, family: int, kind: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, family, high | kind) == EPERM


@pytest.mark.parametrize(("machine", "call"), on("socket"))
@pytest.mark.parametrize("protocol", [2, 6, 9, 12, 15, 16, 0xFFFFFFFF])
def test_netlink_beyond_the_route_protocol_is_refused(machine: str, call: str, protocol: int) -> None:
    assert ask(machine, call, NETLINK, RAW, protocol) == EPROTONOSUPPORT
    assert ask(machine, call, NETLINK, DGRAM, HIGH_BITS[0] | protocol) == EPROTONOSUPPORT


@pytest.mark.parametrize(("machine", "call"), on("socket"))
@pytest.mark.parametrize("kind", [RAW, DGRAM, RAW | CLOEXEC], ids=hex)
def test_libc_can_list_interfaces_by_route_netlink(machine: str, call: str, kind: int) -> None:
    """getifaddrs asks for a raw one, so that the refusal of raw sockets must not reach this family."""
    assert ask(machine, call, NETLINK, kind, 0) == 0


@pytest.mark.parametrize(("machine", "call"), on("socketpair"))
def test_a_unix_socket_pair_passes_under_every_profile(machine: str, call: str) -> None:
    assert {ask(machine, call, UNIX, STREAM, profile=profile) for profile in ALL_PROFILES} == {0}


MODE_ARGUMENT = {"chmod": 1, "fchmod": 1, "mknod": 1, "creat": 1, "fchmodat": 2, "fchmodat2": 2, "mknodat": 2}
FLAGS_ARGUMENT = {"open": 1, "openat": 2}
CREATE, TEMPORARY, DIRECTORY = 0o100, 0o20000000, 0o200000
SET_ID_MODES = [0o4755, 0o2755, 0o6777, 0o4000, 0o104644]


@pytest.mark.parametrize(("machine", "call"), on(*MODE_ARGUMENT))
@pytest.mark.parametrize("mode", SET_ID_MODES, ids=oct)
def test_no_call_sets_the_set_id_bits(machine: str, call: str, mode: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, *(0,) * MODE_ARGUMENT[call], high | mode) == EPERM


@pytest.mark.parametrize(("machine", "call"), on(*MODE_ARGUMENT))
@pytest.mark.parametrize("mode", [0o0, 0o755, 0o1777, 0o100644, 0o10600, 0o4755 << 32], ids=oct)
def test_an_ordinary_mode_passes(machine: str, call: str, mode: int) -> None:
    """All other registers hold set-id bits, so that the right one must be looked at."""
    arguments = [0o6000] * 6
    arguments[MODE_ARGUMENT[call]] = mode

    assert ask(machine, call, *arguments) == 0


KIND_ARGUMENT = {"mknod": 1, "mknodat": 2}


@pytest.mark.parametrize(("machine", "call"), on(*KIND_ARGUMENT))
@pytest.mark.parametrize("kind", [0o020000, 0o060000], ids=oct)
def test_no_device_node_is_made_not_even_a_whiteout(machine: str, call: str, kind: int) -> None:
    for high in (0, *HIGH_BITS, 0x10000):  # the kernel takes the mode as 16 bits
        assert ask(machine, call, *(0,) * KIND_ARGUMENT[call], high | kind | 0o600) == EPERM


@pytest.mark.parametrize(("machine", "call"), on(*KIND_ARGUMENT))
@pytest.mark.parametrize("kind", [0, 0o100000, 0o010000, 0o140000], ids=oct)
def test_plain_files_pipes_and_sockets_are_made(machine: str, call: str, kind: int) -> None:
    assert ask(machine, call, *(0,) * KIND_ARGUMENT[call], kind | 0o600) == 0


@pytest.mark.parametrize(("machine", "call"), on("renameat2"))
def test_no_rename_leaves_a_whiteout_behind(machine: str, call: str) -> None:
    for high in (0, *HIGH_BITS):
        assert {ask(machine, call, 0, 0, 0, 0, high | flags) for flags in (4, 5, 6)} == {EPERM}


@pytest.mark.parametrize(("machine", "call"), on("renameat2"))
@pytest.mark.parametrize("flags", [0, 1, 2, 8, 4 << 32], ids=hex)
def test_every_other_rename_passes(machine: str, call: str, flags: int) -> None:
    """The other registers hold the flag, so that the right one must be looked at."""
    assert ask(machine, call, 4, 4, 4, 4, flags) == 0


@pytest.mark.parametrize(("machine", "call"), on(*FLAGS_ARGUMENT))
@pytest.mark.parametrize("flags", [CREATE | 1, TEMPORARY | DIRECTORY | 2, CREATE | TEMPORARY], ids=oct)
@pytest.mark.parametrize("mode", SET_ID_MODES, ids=oct)
def test_no_file_is_created_with_set_id_bits(machine: str, call: str, flags: int, mode: int) -> None:
    for high in (0, *HIGH_BITS):
        assert ask(machine, call, *(0,) * FLAGS_ARGUMENT[call], high | flags, high | mode) == EPERM


@pytest.mark.parametrize(("machine", "call"), on(*FLAGS_ARGUMENT))
@pytest.mark.parametrize("flags", [0, 1, 2, DIRECTORY, 0o2000000, CREATE << 32], ids=oct)
def test_opening_without_creating_passes_whatever_the_mode_register_holds(machine: str, call: str, flags: int) -> None:
    assert ask(machine, call, *(0,) * FLAGS_ARGUMENT[call], flags, 0xFFFF_FFFF_FFFF_FFFF) == 0


@pytest.mark.parametrize(("machine", "call"), on(*FLAGS_ARGUMENT))
@pytest.mark.parametrize("flags", [CREATE | 1, TEMPORARY | DIRECTORY | 2], ids=oct)
def test_creating_an_ordinary_file_passes(machine: str, call: str, flags: int) -> None:
    assert ask(machine, call, *(0,) * FLAGS_ARGUMENT[call], flags, 0o1666) == 0


# --- the profile's switches -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("machine", "call"), on("socket"))
def test_unix_sockets_can_be_switched_off_alone(machine: str, call: str) -> None:
    off = Profile(unix_sockets=False)

    assert [ask(machine, call, family, STREAM, profile=off) for family in (UNIX, HIGH_BITS[0] | UNIX)] == [EPERM] * 2
    assert [ask(machine, call, family, STREAM, profile=off) for family in (INET, INET6, NETLINK)] == [0, 0, 0]


@pytest.mark.parametrize(("machine", "call"), on("socket"))
def test_inet_sockets_can_be_switched_off_alone(machine: str, call: str) -> None:
    off = Profile(inet_sockets=False)

    assert [ask(machine, call, family, DGRAM, profile=off) for family in (INET, INET6)] == [EPERM] * 2
    assert [ask(machine, call, family, DGRAM, profile=off) for family in (UNIX, NETLINK)] == [0, 0]


@pytest.mark.parametrize("machine", ARCH)
def test_system_v_ipc_passes_only_where_the_wall_has_its_own(machine: str) -> None:
    off = Profile(system_v_ipc=False)

    assert answers(machine, SYSTEM_V_IPC, profile=off) == all_get(machine, SYSTEM_V_IPC, EPERM)
    assert answers(machine, SYSTEM_V_IPC) == all_get(machine, SYSTEM_V_IPC, 0)


@pytest.mark.parametrize(("machine", "call"), on("openat2"))
def test_openat2_can_be_made_to_look_absent(machine: str, call: str) -> None:
    assert ask(machine, call, profile=Profile(openat2=False)) == ENOSYS
    assert ask(machine, call) == 0


@pytest.mark.parametrize(("machine", "call"), on("ptrace", "process_vm_readv", "process_vm_writev"))
def test_debuggers_work_only_in_a_debugging_box(machine: str, call: str) -> None:
    assert ask(machine, call) == EPERM
    assert ask(machine, call, profile=Profile(debugging=True)) == 0


@pytest.mark.parametrize(("machine", "call"), on("kcmp", "pidfd_getfd", "process_madvise", "perf_event_open"))
def test_a_debugging_box_gives_away_nothing_but_debugging(machine: str, call: str) -> None:
    assert ask(machine, call, profile=Profile(debugging=True)) == EPERM


@pytest.mark.parametrize(
    ("machine", "call"), on("prlimit64", "sched_setscheduler", "sched_setattr", "sched_setaffinity")
)
def test_the_first_process_keeps_its_limits_and_its_share(machine: str, call: str) -> None:
    assert [ask(machine, call, pid) for pid in (1, HIGH_BITS[0] | 1)] == [EPERM] * 2
    assert [ask(machine, call, pid) for pid in (0, 2, 1234)] == [0, 0, 0]


@pytest.mark.parametrize(("machine", "call"), on("setpriority", "ioprio_set"))
def test_the_first_process_keeps_its_share_among_all_of_the_user_s(machine: str, call: str) -> None:
    everybody = {"setpriority": 2, "ioprio_set": 3}[call]

    assert [ask(machine, call, everybody | high, who) for high in (0, HIGH_BITS[0]) for who in (0, 1000)] == [EPERM] * 4
    assert ask(machine, call, everybody - 2, 1) == EPERM
    assert [ask(machine, call, which, 0) for which in (everybody - 2, everybody - 1)] == [0, 0]


@pytest.mark.parametrize(
    ("machine", "call"), on("prlimit64", "sched_setscheduler", "sched_setattr", "sched_setaffinity")
)
def test_without_pids_of_its_own_a_command_limits_itself_only(machine: str, call: str) -> None:
    off = Profile(own_pids=False)

    assert [ask(machine, call, pid, profile=off) for pid in (1, 2, 1234)] == [EPERM] * 3
    assert ask(machine, call, 0, profile=off) == 0


@pytest.mark.parametrize(("machine", "call"), on("setpriority", "ioprio_set"))
def test_without_pids_of_its_own_a_command_changes_its_own_share_only(machine: str, call: str) -> None:
    off = Profile(own_pids=False)

    assert [ask(machine, call, 1, who, profile=off) for who in (1, 2, 1234)] == [EPERM] * 3
    assert ask(machine, call, 1, 0, profile=off) == 0


# --- the profile as data ----------------------------------------------------------------------------------------------


def test_every_row_names_calls_that_some_machine_has() -> None:
    """A name that no table knows is a typing error, and would silently refuse nothing."""
    strictest = Profile(*(False,) * 6)
    known = set().union(*(machine.numbers for machine in MACHINES.values()))

    refused = {call for row in refusals(strictest) for call in row.calls}
    assert refused | {row.call for row in notify.watched(Trace.FULL, named=True)} == known


def test_aarch64_lacks_only_the_calls_that_it_never_had() -> None:
    dead = {"create_module", "query_module", "uselib", "sysfs", "ustat", "_sysctl", "afs_syscall"}
    replaced_by_at_calls = {"open", "creat", "chmod", "mknod", "mkdir", "rmdir", "unlink", "rename", "link", "symlink"}
    replaced_by_at_calls |= {"chown", "lchown", "utime", "utimes", "futimesat"}
    of_the_pc = {"iopl", "ioperm", "modify_ldt"}

    assert MACHINES["x86_64"].numbers.keys() - MACHINES["aarch64"].numbers.keys() == (
        dead | replaced_by_at_calls | of_the_pc
    )


@pytest.mark.parametrize("machine", ARCH)
def test_no_two_names_share_a_number(machine: str) -> None:
    numbers = MACHINES[machine].numbers

    assert len(set(numbers.values())) == len(numbers)


def test_every_row_has_its_reason() -> None:
    assert [row.calls for row in refusals(Profile()) if not row.reason] == []


# --- the assembler ----------------------------------------------------------------------------------------------------


def test_an_unknown_machine_is_refused_and_not_left_unfiltered() -> None:
    with pytest.raises(InitializationFailed, match="riscv64"):
        assemble(machine="riscv64")


def test_the_default_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))

    assert assemble() == assemble(machine="aarch64") != assemble(machine="x86_64")


def test_the_same_filter_is_built_once() -> None:
    assert assemble(Profile(debugging=True), "x86_64") is assemble(Profile(debugging=True), "x86_64")


@pytest.mark.parametrize("machine", ARCH)
def test_the_tree_is_balanced(machine: str) -> None:
    """A call that is allowed whole costs two loads, the arch check, the tree's depth and the return."""
    program = loaded(Profile(), machine)
    arch = ARCH[machine]

    def length(number: int) -> int:
        index = steps = accumulator = 0
        while True:
            code, yes, no, operand = program.instructions[index]
            steps += 1
            if code == 0x06:
                return steps
            if code == 0x20:
                accumulator, index = (arch if operand == 4 else number), index + 1
            elif code == 0x05:
                index += 1 + operand
            else:
                taken = accumulator == operand if code == 0x15 else accumulator >= operand
                index += 1 + (yes if taken else no)

    assert max(length(number) for numbers in MUST_STAY.values() for number in numbers if number is not None) <= 13


def many_rows(count: int) -> list[seccomp.Denial]:
    """Rows that agree in nothing, so that the program grows far beyond the reach of a branch."""
    return [
        seccomp.Denial(
            (f"call{number}",),
            list(seccomp.Errno)[number % 4],
            "test",
            when=(OneOf(number % 6, (number, 7000 + number), 0xFFFF), NoneOf((number + 1) % 6, (1, 2, number)))
            if number % 3
            else (AnyBit(number % 6, 1 << number % 32),),
        )
        for number in range(count)
    ]


def verdicts(rows: list[seccomp.Denial]) -> list[bpf.CallRow]:
    return [bpf.CallRow(row.calls, bpf.ERRNO | row.answer, row.when) for row in rows]


@pytest.mark.parametrize("count", [0, 1, 2, 60, 61, 62, 63, 64, 65, 250, 380])
def test_a_program_longer_than_a_branch_can_reach_is_still_right(count: int) -> None:
    rows = many_rows(count)
    numbers = {f"call{number}": 2 * number for number in range(count)}
    program = Program.load(bpf.translate(verdicts(rows), Machine(1, numbers)))

    for number, row in enumerate(rows):
        refused, passing = [0] * 6, [0] * 6
        for condition in row.when:
            match condition:
                case AnyBit(argument, mask):
                    refused[argument], passing[argument] = mask, 0xFFFFFFFF ^ mask
                case OneOf(argument, values):
                    refused[argument], passing[argument] = 0x50000 | values[1], 6999
                case NoneOf(argument):
                    refused[argument], passing[argument] = 0, 1
        assert program.verdict(1, 2 * number, refused) == ERRNO | row.answer
        assert program.verdict(1, 2 * number, passing) == ALLOW
        assert program.verdict(1, 2 * number + 1, refused) == ALLOW
    assert program.verdict(2, 0) == KILL_PROCESS


@pytest.mark.parametrize("in_between", range(250, 260))
def test_a_stepping_stone_for_one_branch_does_not_push_the_other_out_of_reach(in_between: int) -> None:
    program = bpf._Program()
    far = rest = program.load(0, bpf.Return(1))
    for _ in range(in_between):
        rest = program.load(0, rest)
    program.load(4, program.branch(0x15, 7, far, bpf.Return(2)))

    loaded_program = Program.load(program.encode())

    assert [loaded_program.verdict(arch, 0) for arch in (7, 8)] == [1, 2]


def test_an_instruction_skips_what_was_written_between_it_and_its_successor() -> None:
    program = bpf._Program()
    successor = program.branch(0x15, 0, bpf.Return(2), bpf.Return(1))
    program.branch(0x15, 1, bpf.Return(2), bpf.Return(2))
    program.load(0, successor)

    assert Program.load(program.encode()).verdict(0, 1) == 1


def test_the_long_programs_really_use_stepping_stones() -> None:
    """The twin of the test above, which proves nothing if all targets are near."""
    numbers = {f"call{number}": 2 * number for number in range(250)}
    program = Program.load(bpf.translate(verdicts(many_rows(250)), Machine(1, numbers)))

    assert any(code == 0x05 and operand > 255 for code, _, _, operand in program.instructions)


@pytest.mark.parametrize(
    "encoded",
    [b"", b"\x06\0\0\0", b"\x20\0\0\0\0\0\0\0", b"\x15\0\0\x01\0\0\0\0\x06\0\0\0\0\0\0\0", b"\x99\0\0\0\0\0\0\0"],
    ids=["empty", "half an instruction", "no return", "jump out", "unknown code"],
)
def test_the_interpreter_refuses_what_the_kernel_would(encoded: bytes) -> None:
    with pytest.raises(BadProgramError):
        Program.load(encoded)
