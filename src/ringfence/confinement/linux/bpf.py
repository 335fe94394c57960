"""The assembler for seccomp programs: rows of calls, conditions on their registers, and verdicts, to BPF.

Program layout: check the architecture; find the call's number in a balanced tree of comparisons; return, or jump to the
argument checks of that call. For a number that is always allowed the kernel remembers this and skips the program.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NewType, TypeAlias, assert_never

from ringfence.confinement.linux.syscalls import X32_SYSCALL_BIT, Machine
from ringfence.dataclass import dataclass, field


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
class CallRow:
    """`calls` get `verdict` when all of `when` hold (always, if it is empty)."""

    calls: tuple[str, ...]
    verdict: int
    when: tuple[Condition, ...] = ()


# From linux/seccomp.h: what a program returns, and where it finds the call. Words are 32 bits, little endian.
ALLOW: Final = 0x7FFF0000
KILL_PROCESS: Final = 0x80000000
ERRNO: Final = 0x00050000
USER_NOTIF: Final = 0x7FC00000

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


def translate(rows: Iterable[CallRow], machine: Machine) -> bytes:
    """A program that gives each row's verdict when all of its conditions hold, and allows every other call."""
    program = _Program()
    find_number = _search(program, _steps(_verdicts(program, rows, machine), x32=machine.x32))
    native = program.load(_NUMBER, find_number)
    program.load(_ARCH, program.branch(_IF_EQUAL, machine.audit_arch, native, Return(KILL_PROCESS)))
    return program.encode()


def _verdicts(program: _Program, rows: Iterable[CallRow], machine: Machine) -> dict[int, Target]:
    """Where each number of a row leads; calls with the same checks share them."""
    checks: dict[int, tuple[tuple[tuple[Condition, ...], int], ...]] = {}
    for row in rows:
        for call in row.calls:
            if (number := machine.numbers.get(call)) is not None:
                checks[number] = (*checks.get(number, ()), (row.when, row.verdict))
    written = {key: _check(program, key) for key in dict.fromkeys(checks.values())}
    return {number: written[key] for number, key in checks.items()}


def _check(program: _Program, rows: Sequence[tuple[tuple[Condition, ...], int]]) -> Target:
    """Write the argument checks of one call: the first row whose conditions all hold decides."""
    otherwise: Target = Return(ALLOW)
    for conditions, verdict in reversed(rows):
        here: Target = Return(verdict)
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
    # The low word comes first, and it alone is looked at: the kernel ignores the upper half of an int.
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
