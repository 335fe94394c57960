"""The kernel's calls that Python has no function for. Each raises OSError when it fails.

Numbers are those of x86_64 and aarch64; on another machine, or in an interpreter of 32 bits, nothing starts.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

from .words import die_because

_MACHINES = {"x86_64": {"keyctl": 250, "pivot_root": 155}, "aarch64": {"keyctl": 219, "pivot_root": 41}}
"""Calls whose number depends on the machine; newer ones are the same everywhere."""
_OPEN_TREE, _MOVE_MOUNT, _CLOSE_RANGE, _OPENAT2, _MOUNT_SETATTR = 428, 429, 436, 437, 442
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
PR_SET_SECCOMP, PR_CAPBSET_DROP = 22, 24

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC = 1, 2, 4, 8, 4096, 16384
MS_PRIVATE, MS_SLAVE = 1 << 18, 1 << 19
MNT_DETACH = 2
TREE_CLONE, TREE_RECURSIVE, EMPTY_PATH = 1, 0x8000, 0x1000
MOVE_FROM_EMPTY_PATH, MOVE_TO_EMPTY_PATH = 4, 0x40
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 0x00100000
RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 4, 8
AT_FDCWD = -100
O_PATH = 0o10000000

RLIMIT_CPU = 0
RLIM_INFINITY = (1 << 64) - 1

_RULE_PATH_BENEATH = 1
_MODE_FILTER = 2
_JOIN_SESSION_KEYRING = 1
_SFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_SIGSET_BYTES = 128
_EVERY = 0xFFFFFFFF

if sys.platform != "linux" or os.uname().machine not in _MACHINES or sys.maxsize < 1 << 32:
    die_because(f"there are no numbers for this machine's calls ({os.uname().machine})")
_numbers = _MACHINES[os.uname().machine]
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def _call(name: str, *arguments: object) -> int:
    """Call a function of the C library; an `int` is passed as a whole register."""
    passed = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result = int(getattr(_libc, name)(*passed))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def prctl(option: int, value: int) -> None:
    _call("prctl", option, value, 0, 0, 0)


def close_range(first: int, last: int = _EVERY) -> None:
    _call("syscall", _CLOSE_RANGE, first, last, 0)


# --- namespaces and mounts --------------------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    _call("unshare", flags)


def set_hostname(name: bytes) -> None:
    _call("sethostname", name, len(name))


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    _call("mount", source, target, kind, flags, data)


def unmount(path: bytes) -> None:
    _call("umount2", path, MNT_DETACH)


def pivot_to_here() -> None:
    """Make the working directory the root, and let the old one go."""
    _call("syscall", _numbers["pivot_root"], b".", b".")
    _call("umount2", b".", MNT_DETACH)


def open_how(directory: int, path: bytes, flags: int, resolve: int) -> int:
    how = struct.pack("=3Q", flags | os.O_CLOEXEC, 0, resolve)
    return _call("syscall", _OPENAT2, directory, path, how, len(how))


def open_tree(directory: int, path: bytes, flags: int) -> int:
    """A copy of the mounts at a path, not attached anywhere yet."""
    return _call("syscall", _OPEN_TREE, directory, path, flags | TREE_CLONE | os.O_CLOEXEC)


def move_mount(tree: int, directory: int, path: bytes, flags: int = 0) -> None:
    _call("syscall", _MOVE_MOUNT, tree, b"", directory, path, flags | MOVE_FROM_EMPTY_PATH)


def mount_setattr(directory: int, path: bytes, flags: int, set: int, propagation: int = 0, userns: int = 0) -> None:
    attributes = struct.pack("=4Q", set, 0, propagation, userns)
    _call("syscall", _MOUNT_SETATTR, directory, path, flags, attributes, len(attributes))


def join_new_keyring() -> None:
    _call("syscall", _numbers["keyctl"], _JOIN_SESSION_KEYRING, None)


# --- what a process confines itself with ------------------------------------------------------------------------------


def hard_limit(resource: int) -> int:
    """What a resource is limited to, as the kernel's own number."""
    limit = ctypes.create_string_buffer(16)
    _call("getrlimit", resource, limit)
    return int(struct.unpack("=2Q", limit.raw)[1])


def set_limit(resource: int, value: int) -> None:
    _call("setrlimit", resource, struct.pack("=2Q", value, value))


def create_ruleset(size: int, fs: int, net: int = 0, scoped: int = 0) -> int:
    """A Landlock ruleset; `size` says how much of it the kernel knows."""
    rules = struct.pack("=3Q", fs, net, scoped)
    if size > len(rules):
        die_because("no ruleset has that size")
    return _call("syscall", _CREATE_RULESET, rules, size, 0)


def add_rule(rules: int, access: int, path: bytes) -> None:
    parent = os.open(path, O_PATH | os.O_CLOEXEC)
    _call("syscall", _ADD_RULE, rules, _RULE_PATH_BENEATH, struct.pack("=Qi", access, parent), 0)
    os.close(parent)


def restrict_self(rules: int) -> None:
    _call("syscall", _RESTRICT_SELF, rules, 0)


def apply_filter(instructions: bytes, count: int) -> None:
    program = _Program(count, instructions)
    _call("prctl", PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0)


# --- processes --------------------------------------------------------------------------------------------------------


def signal_file(number: int) -> int:
    """A descriptor that becomes readable when a signal, which has to be blocked, has come."""
    mask = ctypes.create_string_buffer(((1 << (number - 1)).to_bytes(8, sys.byteorder)), _SIGSET_BYTES)
    return _call("signalfd", -1, mask, _SFD_FLAGS)


def execvpe(argv: list[bytes], env: list[bytes]) -> None:
    """Become a program, looked for on the PATH that `env` holds; returns never, or raises."""
    arguments, variables = _vector(argv), _vector(env)
    ctypes.c_void_p.in_dll(_libc, "environ").value = ctypes.addressof(variables)  # where execvpe looks for PATH
    _call("execvpe", argv[0], arguments, variables)


def _vector(words: list[bytes]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*words, None)
