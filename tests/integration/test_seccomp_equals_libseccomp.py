"""Our assembler against libseccomp, the reference: the same rows must give the same verdict for every call.

libseccomp gets the rows by *name* and resolves them with its own tables, which proves the number tables too. Its rules
know no "none of these" and look at each argument once, so a condition is spelled out as the masked comparisons whose
union it is. Both programs run in the same interpreter; that it agrees with the kernel is shown by the last tests, which
install our filter in a child and make real calls.
"""

import ctypes
import errno
import itertools
import json
import os
import platform
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, assert_never

import pytest

from ringfence.confinement.linux.seccomp import (
    AnyBit,
    Condition,
    Denial,
    NoneOf,
    OneOf,
    Profile,
    assemble,
    refusals,
)
from ringfence.confinement.linux.syscalls import MACHINES
from tests.support.bpf import ALLOW, KILL_PROCESS, Program

pytestmark = pytest.mark.req("B6")

PROFILES = {
    "default": Profile(),
    "everything off": Profile(unix_sockets=False, inet_sockets=False, system_v_ipc=False, openat2=False),
    "unix sockets off": Profile(unix_sockets=False),
    "inet sockets off": Profile(inet_sockets=False),
    "debugging": Profile(debugging=True),
    "other processes' numbers": Profile(own_pids=False),
}
ALL_NUMBERS = range(601)
LOW_WORD = 0xFFFFFFFF
I386, ARM, S390X = 0x40000003, 0x40000028, 0x80000016

# --- libseccomp by ctypes ---------------------------------------------------------------------------------------------

_ACT_BADARCH = 2  # enum scmp_filter_attr
_MASKED_EQ = 7  # enum scmp_compare
_UNKNOWN_NAME = -1  # __NR_SCMP_ERROR


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operation", ctypes.c_int),
        ("mask", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    )


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp.so.2 is not installed, so there is nothing to compare with")
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_init.argtypes = (ctypes.c_uint32,)
    lib.seccomp_release.argtypes = (ctypes.c_void_p,)
    lib.seccomp_attr_set.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32)
    lib.seccomp_arch_native.restype = ctypes.c_uint32
    lib.seccomp_arch_add.argtypes = lib.seccomp_arch_remove.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    lib.seccomp_syscall_resolve_name.argtypes = (ctypes.c_char_p,)
    lib.seccomp_syscall_resolve_name_arch.argtypes = (ctypes.c_uint32, ctypes.c_char_p)
    lib.seccomp_rule_add_array.argtypes = (
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(_Comparison),
    )
    lib.seccomp_export_bpf.argtypes = (ctypes.c_void_p, ctypes.c_int)
    return lib


def native_machine(lib: ctypes.CDLL) -> str:
    return next(name for name, machine in MACHINES.items() if machine.audit_arch == lib.seccomp_arch_native())


def must(result: int) -> None:
    """libseccomp returns a negative errno."""
    assert result == 0, errno.errorcode.get(-result, result)


def masked_comparisons(condition: Condition) -> list[_Comparison]:
    """Comparisons of which at least one holds exactly when the condition does."""
    match condition:
        case AnyBit(argument, mask):
            pairs = [(bit, bit) for bit in (1 << place for place in range(32)) if mask & bit]
        case OneOf(argument, values, mask):
            pairs = [(mask, value) for value in values]
        case NoneOf(argument, values):
            pairs = list(prefixes_without(values))
        case _:
            assert_never(condition)
    return [_Comparison(argument, _MASKED_EQ, mask, value) for mask, value in pairs]


def prefixes_without(values: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The words other than `values`, as the fewest blocks of (mask, value): the way a route table covers a range."""
    pending = [(0, 32, tuple(values))]
    while pending:
        start, free_bits, inside = pending.pop()
        if not inside:
            yield LOW_WORD >> free_bits << free_bits, start
        elif free_bits:
            upper = start | 1 << free_bits - 1
            pending.append((start, free_bits - 1, tuple(value for value in inside if value < upper)))
            pending.append((upper, free_bits - 1, tuple(value for value in inside if value >= upper)))


def reference(lib: ctypes.CDLL, rows: Iterable[Denial], machine: str) -> Program:
    """Build the same policy with libseccomp. Calls newer than the library go by number, which works natively only."""
    arch, native = MACHINES[machine].audit_arch, lib.seccomp_arch_native()
    context = lib.seccomp_init(ALLOW)
    try:
        must(lib.seccomp_attr_set(context, _ACT_BADARCH, KILL_PROCESS))
        if arch != native:
            must(lib.seccomp_arch_add(context, arch))
            must(lib.seccomp_arch_remove(context, native))
        for row in rows:
            for call, choice in itertools.product(
                row.calls, itertools.product(*(masked_comparisons(condition) for condition in row.when))
            ):
                number = lib.seccomp_syscall_resolve_name(call.encode())
                if number == _UNKNOWN_NAME:
                    if arch != native:
                        continue
                    number = MACHINES[machine].numbers[call]
                comparisons = (_Comparison * len(choice))(*choice)
                result = lib.seccomp_rule_add_array(context, 0x50000 | row.answer, number, len(choice), comparisons)
                assert result in (0, -errno.EEXIST), (call, errno.errorcode.get(-result, result))
        return exported(lib, context)
    finally:
        lib.seccomp_release(context)


def exported(lib: ctypes.CDLL, context: int) -> Program:
    descriptor = os.memfd_create("filter")
    try:
        must(lib.seccomp_export_bpf(context, descriptor))
        return Program.load(os.pread(descriptor, 8 * 4096 + 1, 0))
    finally:
        os.close(descriptor)


# --- what is asked ----------------------------------------------------------------------------------------------------


def telling_values(condition: Condition) -> set[int]:
    """Words at which a wrong comparison would show: the values, their neighbours, single bits."""
    match condition:
        case AnyBit(mask=mask):
            words = {0, mask, LOW_WORD, LOW_WORD ^ mask, *(1 << place for place in range(32))}
        case OneOf(values=values, mask=mask):
            words = {0, LOW_WORD, *values, *(value | LOW_WORD ^ mask for value in values)}
            words |= {value + step & LOW_WORD for value in values for step in (-1, 1)}
        case NoneOf(values=values):
            words = {*values, *(value + step & LOW_WORD for value in values for step in (-1, 1))}
            words |= {value ^ 1 << place for value in values for place in range(32)}
        case _:
            assert_never(condition)
    return words


def argument_vectors(rows: Iterable[Denial], call: str) -> set[tuple[int, ...]]:
    """Every combination of telling values of the call's arguments, with the upper halves clear and set."""
    values: list[set[int]] = [{0} for _ in range(6)]
    for row in rows:
        if call in row.calls:
            for condition in row.when:
                values[condition.argument] |= telling_values(condition)
    low = set(itertools.product(*values))
    # The whole product with the upper halves set would take a minute and tell no more than a part of it.
    sample = random.Random(call).sample(sorted(low), min(len(low), 2000))
    return low | {tuple(word | 0xDEAD_BEEF << 32 for word in vector) for vector in sample}


def common_vectors() -> list[tuple[int, ...]]:
    chance = random.Random("seccomp")
    return [
        (0,) * 6,
        (2**64 - 1,) * 6,
        (1, 2, 3, 4, 5, 6),
        *(tuple(chance.getrandbits(64) >> chance.choice((0, 32, 48, 60)) for _ in range(6)) for _ in range(12)),
    ]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PROFILES.values(), ids=list(PROFILES))
def profile(request: pytest.FixtureRequest) -> Profile:
    assert isinstance(request.param, Profile)
    return request.param


# --- the proof --------------------------------------------------------------------------------------------------------


def differences(
    ours: Program, theirs: Program, arch: int, numbers: Iterable[int], vectors: Iterable[tuple[int, ...]]
) -> list[tuple[str, ...]]:
    return [
        (hex(number), *map(hex, vector))
        for number, vector in itertools.product(numbers, vectors)
        if ours.verdict(arch, number, vector) != theirs.verdict(arch, number, vector)
    ]


def names_unknown_to(lib: ctypes.CDLL) -> set[str]:
    return {call for call in MACHINES["x86_64"].numbers if lib.seccomp_syscall_resolve_name(call.encode()) == -1}


def test_every_number_is_the_one_that_libseccomp_knows(library: ctypes.CDLL, machine: str) -> None:
    table = MACHINES[machine]
    names = set().union(*(other.numbers for other in MACHINES.values())) - names_unknown_to(library)

    theirs = {name: library.seccomp_syscall_resolve_name_arch(table.audit_arch, name.encode()) for name in names}

    assert {name: number for name, number in theirs.items() if number >= 0} == {
        name: number for name, number in table.numbers.items() if name in names
    }


def test_few_names_are_newer_than_libseccomp(library: ctypes.CDLL) -> None:
    """So that the exceptions which other tests make for them stay few, and are these."""
    assert names_unknown_to(library) <= {
        *("fchmodat2", "statmount", "listmount", "lsm_set_self_attr"),
        *("open_tree_attr", "file_getattr", "file_setattr"),
        *("setxattrat", "getxattrat", "listxattrat", "removexattrat"),
    }


def numbers_missing_in_reference(lib: ctypes.CDLL, machine: str) -> set[int]:
    if machine == native_machine(lib):
        return set()
    return {MACHINES[machine].numbers[name] for name in names_unknown_to(lib)}


def test_every_number_gets_the_same_verdict(library: ctypes.CDLL, machine: str, profile: Profile) -> None:
    ours, theirs = Program.load(assemble(profile, machine)), reference(library, refusals(profile), machine)
    numbers = set(ALL_NUMBERS) - numbers_missing_in_reference(library, machine)

    assert differences(ours, theirs, MACHINES[machine].audit_arch, numbers, common_vectors()) == []


def test_calls_newer_than_libseccomp_get_the_verdict_that_they_have_natively(
    library: ctypes.CDLL, machine: str, profile: Profile
) -> None:
    """libseccomp takes a bare number for its own machine only; these numbers are the same everywhere."""
    native = native_machine(library)
    rows = refusals(profile)
    ours, theirs = Program.load(assemble(profile, machine)), reference(library, rows, native)

    for name in names_unknown_to(library):
        number = MACHINES[native].numbers[name]
        for vector in {*argument_vectors(rows, name), *common_vectors()}:
            assert ours.verdict(MACHINES[machine].audit_arch, number, vector) == theirs.verdict(
                MACHINES[native].audit_arch, number, vector
            )


def test_every_argument_check_gets_the_same_verdict(library: ctypes.CDLL, machine: str, profile: Profile) -> None:
    table, rows = MACHINES[machine], refusals(profile)
    ours, theirs = Program.load(assemble(profile, machine)), reference(library, rows, machine)
    calls = {call for row in rows if row.when for call in row.calls if call in table.numbers}

    for call in calls - names_unknown_to(library):
        vectors = argument_vectors(rows, call)
        assert differences(ours, theirs, table.audit_arch, [table.numbers[call]], vectors) == [], call


def test_foreign_architectures_and_strange_numbers_get_the_same_verdict(library: ctypes.CDLL, machine: str) -> None:
    ours, theirs = Program.load(assemble(machine=machine)), reference(library, refusals(Profile()), machine)
    edges = (0x3FFFFFFF, 0x40000000, 0x40000001, 0x7FFFFFFF, 0x80000000, 0xBFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)
    numbers = {*ALL_NUMBERS, *(0x40000000 + number for number in ALL_NUMBERS), *edges}
    numbers -= numbers_missing_in_reference(library, machine)

    for arch in (*(other.audit_arch for other in MACHINES.values()), I386, ARM, S390X, 0, LOW_WORD):
        assert differences(ours, theirs, arch, numbers, [(0,) * 6]) == []


@pytest.mark.parametrize("spoilt", ["a row less", "a wrong answer", "a wider mask"])
def test_the_comparison_notices_a_wrong_policy(library: ctypes.CDLL, machine: str, spoilt: str) -> None:
    """The twin of the proofs above, which are worth nothing if they cannot fail."""
    rows = list(refusals(Profile()))
    index = next(i for i, row in enumerate(rows) if row.calls == ("clone",))
    clone = rows.pop(index)
    if spoilt == "a wrong answer":
        rows.append(Denial(("clone",), type(clone.answer).ENOSYS, clone.reason, clone.when))
    elif spoilt == "a wider mask":
        rows.append(Denial(("clone",), clone.answer, clone.reason, (AnyBit(0, 0x7E020080),)))
    ours, theirs = Program.load(assemble(machine=machine)), reference(library, rows, machine)
    table = MACHINES[machine]

    vectors = argument_vectors(refusals(Profile()), "clone")

    assert differences(ours, theirs, table.audit_arch, [table.numbers["clone"]], vectors) != []


# --- the kernel's own word --------------------------------------------------------------------------------------------

Call = tuple[str, tuple[int | bytes | None, ...]]

# Arguments with which the call does nothing even where it is let through.
REAL_CALLS: dict[Call, int] = {
    ("unshare", (0,)): errno.EPERM,
    ("clone3", (None, 0)): errno.ENOSYS,
    ("mount", (b"none", b"/nonexistent", b"tmpfs", 0, None)): errno.EPERM,
    ("fsopen", (None, 0)): errno.ENOSYS,
    ("open_tree_attr", (-1, None, 0, None, 0)): errno.ENOSYS,
    ("statmount", (None, None, 0, 0)): errno.ENOSYS,
    ("keyctl", (0, -3, 0)): errno.EPERM,
    ("bpf", (0, None, 0)): errno.EPERM,
    ("io_uring_setup", (1, None)): errno.EPERM,
    ("ptrace", (0x4206, 0x7FFFFFFF, 0, 0)): errno.EPERM,
    ("kcmp", (0x7FFFFFFF, 0x7FFFFFFF, 0, 0, 0)): errno.EPERM,
    ("personality", (0x0040000,)): errno.EPERM,
    ("ioctl", (-1, 0x5412, None)): errno.EPERM,
    ("ioctl", (-1, 0x5412 | 1 << 32, None)): errno.EPERM,
    ("fchmod", (-1, 0o4755)): errno.EPERM,
    ("openat", (-100, b"/nonexistent/file", os.O_CREAT, 0o4755)): errno.EPERM,
    ("socket", (40, 1, 0)): errno.EAFNOSUPPORT,
    ("socket", (2, 3, 1)): errno.EPERM,
    ("socket", (16, 3, 15)): errno.EPROTONOSUPPORT,
    ("socketpair", (30, 1, 0, None)): errno.EAFNOSUPPORT,
}
# The harmless forms of the same calls, and the answer of the call itself.
REAL_PASSES: dict[Call, int] = {
    ("ioctl", (-1, 0x5413, None)): errno.EBADF,
    ("fchmod", (-1, 0o755)): errno.EBADF,
    ("openat", (-100, b"/nonexistent/file", os.O_CREAT, 0o755)): errno.ENOENT,
    ("openat", (-100, b"/nonexistent/file", 0, 0o6000)): errno.ENOENT,
    ("openat2", (-1, b"file", None, 0)): errno.EINVAL,
    ("personality", (0xFFFFFFFF,)): 0,
    ("socket", (2, 1, 0)): 0,
    ("socket", (1, 1, 0)): 0,
    ("socket", (16, 3, 0)): 0,
}
# Those that an unprivileged process may make everywhere, also in a container with a filter of its own.
UNFILTERED: dict[Call, int] = {
    ("ioctl", (-1, 0x5412, None)): errno.EBADF,
    ("fchmod", (-1, 0o4755)): errno.EBADF,
    ("openat", (-100, b"/nonexistent/file", os.O_CREAT, 0o4755)): errno.ENOENT,
    ("ptrace", (0x4206, 0x7FFFFFFF, 0, 0)): errno.ESRCH,
    ("socket", (16, 3, 15)): 0,
}

here_only = pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() not in MACHINES, reason="the filter is for other machines"
)

only_x86_64 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="only x86_64 has a second ABI behind the same gate"
)


def real_call(call: Call) -> int:
    """Make the call and return its errno, or 0."""
    name, arguments = call
    libc = ctypes.CDLL(None, use_errno=True)
    number = MACHINES[platform.machine()].numbers[name]
    ctypes.set_errno(0)
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return ctypes.get_errno() if libc.syscall(ctypes.c_long(number), *words) == -1 else 0


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(encoded: bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    program = _FilterProgram(len(encoded) // 8, encoded)
    seccomp_number = {"x86_64": 317, "aarch64": 277}[platform.machine()]
    no_new_privileges, set_mode_filter = 38, 1
    refused = libc.prctl(no_new_privileges, 1, 0, 0, 0)
    if refused or libc.syscall(seccomp_number, set_mode_filter, 0, ctypes.byref(program)):
        raise OSError(ctypes.get_errno(), "the kernel does not take the filter")


def in_child(work: Callable[[], Any]) -> tuple[Any, int]:
    """Run `work` in a forked child; return what it returned (None if it died) and the wait status."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return (json.loads(answer) if answer else None), status


def errnos(calls: Iterable[Call], encoded: bytes | None) -> dict[Call, int]:
    calls = list(calls)

    def work() -> list[int]:
        if encoded is not None:
            install(encoded)
        return [real_call(call) for call in calls]

    answers, status = in_child(work)
    assert status == 0
    return dict(zip(calls, answers, strict=True))


@here_only
@pytest.mark.parametrize("calls", [REAL_CALLS, REAL_PASSES], ids=["refused", "let through"])
def test_the_kernel_answers_as_the_rows_say(calls: dict[Call, int]) -> None:
    assert errnos(calls, assemble()) == calls


@here_only
def test_the_same_calls_get_through_without_the_filter() -> None:
    assert errnos(UNFILTERED, None) == UNFILTERED


@here_only
@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_processes_and_threads_can_be_made_under_the_filter(profile: Profile) -> None:
    program = "import threading; t = threading.Thread(target=print, args=('alive',)); t.start(); t.join()"

    def work() -> str:
        install(assemble(profile))
        return subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout

    assert in_child(work) == ("alive\n", 0)


def x32_getpid() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return 0 if libc.syscall(ctypes.c_long(0x40000000 + 39)) != -1 else ctypes.get_errno()


@only_x86_64
def test_an_x32_call_kills_the_process() -> None:
    def work() -> int:
        install(assemble())
        return x32_getpid()

    answer, status = in_child(work)

    assert answer is None
    assert os.WTERMSIG(status) == signal.SIGSYS


@only_x86_64
def test_an_x32_call_kills_nobody_without_the_filter() -> None:
    """Most kernels are built without x32 and say so."""
    answer, status = in_child(x32_getpid)

    assert answer in (0, errno.ENOSYS)
    assert status == 0
