"""Restricts itself by Landlock and seccomp, then becomes the command. A program: SPECIFICATION COMMAND [ARGUMENT ...].

In order: variables, directory, no new privileges, every descriptor above 2 marked to close, Landlock, seccomp, exec.
What fails ends it with 126: the command never runs less confined than was asked for.
"""

import base64
import ctypes
import json
import os
import struct
import sys
from typing import Any, NoReturn

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_BENEATH = 1
_TCP = 3
_SCOPES = 3
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2


def main(told: dict[str, Any], command: str, arguments: list[str]) -> NoReturn:
    libc = ctypes.CDLL(None, use_errno=True)
    environment: dict[str, str] = told["environment"]
    os.chdir(told["directory"])
    _check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}"):
            os.set_inheritable(int(name), False)
    _restrict(libc, told)
    program = base64.b64decode(told["seccomp"])
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_of = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _check(libc.prctl(_SECCOMP, _FILTER, ctypes.c_char_p(filter_of), 0, 0), "seccomp")
    os.execvpe(command, [command, *arguments], environment)


def _restrict(libc: ctypes.CDLL, told: dict[str, Any]) -> None:
    version = told["abi"]
    if version < 1:
        raise OSError("the kernel has no Landlock")
    attributes = struct.pack("QQQ", told["handled"], _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _check(libc.syscall(_CREATE, attributes, ctypes.c_size_t(size), 0), "a ruleset")
    for path, access in told["rules"]:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # what is not there needs no rule
        rule = struct.pack("=Qi", access & told["handled"], descriptor)
        _check(libc.syscall(_ADD, ruleset, _BENEATH, rule, 0), f"a rule for {path}")
        os.close(descriptor)
    _check(libc.syscall(_RESTRICT, ruleset, 0), "restricting")
    os.close(ruleset)


def _check(value: int, what: str) -> int:
    if value < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return value


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]), sys.argv[2], sys.argv[3:])
    except FileNotFoundError as fault:
        print(f"ringfence: {fault.filename or sys.argv[2]}: not found", file=sys.stderr)
        sys.exit(127)
    except (OSError, IndexError, ValueError, KeyError) as fault:
        print(f"ringfence: the wall could not be built: {fault}", file=sys.stderr)
        sys.exit(126)
