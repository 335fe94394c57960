"""A classic-BPF interpreter, as strict as the kernel's checker, to ask a seccomp program for its verdict.

It knows the instructions that seccomp filters consist of and raises on any other, on a jump out of the program and on a
program that does not end: a program that runs here is one that the kernel accepts.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

ALLOW: Final = 0x7FFF0000
KILL_PROCESS: Final = 0x80000000
ERRNO: Final = 0x00050000

MAXIMUM_INSTRUCTIONS: Final = 4096  # BPF_MAXINSNS

_LOAD, _AND, _JUMP, _EQUAL, _GREATER, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x25, 0x35, 0x45, 0x06
_BRANCHES: Final = {_EQUAL, _GREATER, _AT_LEAST, _ANY_BIT}
_DATA_BYTES: Final = 64  # struct seccomp_data


class BadProgramError(Exception):
    """The kernel would refuse to load this."""


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded program."""

    instructions: tuple[tuple[int, int, int, int], ...]

    @classmethod
    def load(cls, encoded: bytes) -> "Program":
        """Decode and check, as the kernel does at seccomp(2)."""
        if len(encoded) % 8:
            raise BadProgramError(f"{len(encoded)} bytes are no whole number of instructions")
        instructions = tuple(struct.iter_unpack("<HBBI", encoded))
        if not 0 < len(instructions) <= MAXIMUM_INSTRUCTIONS:
            raise BadProgramError(f"{len(instructions)} instructions")
        for index, (code, yes, no, operand) in enumerate(instructions):
            if code in _BRANCHES:
                farthest = index + 1 + max(yes, no)
            elif code == _JUMP:
                farthest = index + 1 + operand
            elif code in (_LOAD, _AND):
                farthest = index + 1
                if code == _LOAD and (operand % 4 or operand >= _DATA_BYTES):
                    raise BadProgramError(f"instruction {index} loads from offset {operand}")
            elif code == _RETURN:
                farthest = index
            else:
                raise BadProgramError(f"instruction {index} has the unknown code {code:#x}")
            if farthest >= len(instructions):
                raise BadProgramError(f"instruction {index} leads out of the program")
        return cls(instructions)

    def verdict(self, arch: int, number: int, arguments: Sequence[int] = ()) -> int:
        """What the program returns for this call; missing arguments are zero."""
        data = [number & 0xFFFFFFFF, arch, 0, 0]
        for argument in (*arguments, *(0,) * (6 - len(arguments))):
            data += (argument & 0xFFFFFFFF, argument >> 32 & 0xFFFFFFFF)
        instructions = self.instructions
        accumulator = index = 0
        while True:  # ends, because every instruction leads forward and `load` saw that none leads out
            code, yes, no, operand = instructions[index]
            index += 1
            if code == _AT_LEAST:
                index += yes if accumulator >= operand else no
            elif code == _EQUAL:
                index += yes if accumulator == operand else no
            elif code == _LOAD:
                accumulator = data[operand >> 2]
            elif code == _RETURN:
                return operand
            elif code == _ANY_BIT:
                index += yes if accumulator & operand else no
            elif code == _GREATER:
                index += yes if accumulator > operand else no
            elif code == _AND:
                accumulator &= operand
            else:
                index += operand
