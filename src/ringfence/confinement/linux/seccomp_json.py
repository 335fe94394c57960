"""The seccomp filter in the JSON that Docker, Podman and Kubernetes read.

It is made from the same rows as the native filter, so that the two cannot drift apart: `deploy/seccomp.json` is this
module's output, as a test sees to. Every rule carries its row's reason in `comment`.

Theory of operation. Docker hands the rules to libseccomp, whose language is poorer than ours. It compares a register
with one value, under a mask, and all comparisons of a rule have to hold. So a condition becomes the masked comparisons
of which exactly one holds when it does, and a row with conditions becomes one rule for each choice among them. Masks
cover 32 bits: what the kernel ignores in the upper half is not looked at here either. No rule compares one register
twice: runc would read such a pair as "one or the other".

No architecture is named beside the machine's own, so that libseccomp kills 32-bit and x32 calls, as the native filter
does. Kubernetes ignores `archMap`, with the same outcome: without a list only the machine's own architecture passes.

What this does not protect against: what the native filter does not (see `seccomp`); and calls that the container
engine's libseccomp does not know by name. runc skips those without a word; with Debian 12's libseccomp these are
`NEWER_THAN_LIBSECCOMP`. Where they matter, the box's first process applies the native filter as well.
"""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, assert_never

from ringfence.confinement.linux.bpf import AnyBit, Condition, NoneOf, OneOf
from ringfence.confinement.linux.seccomp import CLONE_NEWUSER, Denial, Profile, refusals
from ringfence.dataclass import replace

_LOW_WORD: Final = 0xFFFFFFFF
_WORD_BITS: Final = 32

ARCHITECTURES: Final = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
"""The machines of `syscalls.MACHINES`, by libseccomp's names."""

NEWER_THAN_LIBSECCOMP: Final = frozenset(
    {
        "fchmodat2",
        "file_getattr",
        "file_setattr",
        "getxattrat",
        "listmount",
        "listxattrat",
        "lsm_set_self_attr",
        "open_tree_attr",
        "removexattrat",
        "setxattrat",
        "statmount",
    }
)
"""Names of our rows that libseccomp 2.5.4 (Debian 12) does not know."""

NEEDED_OUTSIDE: Final[Mapping[str, str]] = {
    "unshare": "the launcher makes the namespaces of a box",
    "clone": "bubblewrap makes them so",
    "mount": "the launcher builds the file system of a box, in a mount namespace of its own",
    "umount2": "and takes the old root away",
    "pivot_root": "and enters the new one",
    "open_tree": "and takes hold of what is granted before the view changes",
    "move_mount": "and puts it in its place",
    "mount_setattr": "and makes it read-only, with everything below it",
    "sethostname": "bubblewrap gives the box a name of its own",
    "keyctl": "the launcher joins a fresh session keyring, so that the manager's keys stay out of the box",
    "process_vm_readv": "the supervisor reads the path that a refused call names",
}
"""What whoever builds a box must call, and nobody inside one may."""


def docker_profile(profile: Profile = Profile(), *, makes_users: bool = False) -> dict[str, Any]:  # noqa: B008  frozen, so safe to share
    """The profile as Docker's `seccomp=` option takes it, as plain data.

    Args:
        makes_users: let the first process make a user namespace, and nothing else of that kind. It has to apply the
            native filter afterwards, which refuses that too.
    """
    rows = refusals(profile)
    return _document(itertools.chain.from_iterable(map(_but_users, rows)) if makes_users else rows)


def _but_users(row: Denial) -> Iterator[Denial]:
    others = tuple(call for call in row.calls if call != "unshare")
    if others:
        yield replace(row, calls=others)
    if others != row.calls:
        yield replace(row, calls=("unshare",), when=(NoneOf(0, (CLONE_NEWUSER,)),))


def manager_profile() -> dict[str, Any]:
    """For the container that a manager runs in, when its boxes are native ones: the same without `NEEDED_OUTSIDE`.

    What this container may do, its boxes may not: each has the native filter on top of this one.
    """
    rows = (
        replace(row, calls=tuple(call for call in row.calls if call not in NEEDED_OUTSIDE))
        for row in refusals(Profile())
        if not row.inside_only
    )
    return _document(row for row in rows if row.calls)


def render(document: dict[str, Any]) -> str:
    """A profile as text: one line for each rule, so that a change of one row shows as such."""
    document = dict(document)
    rules = document.pop("syscalls")
    head = json.dumps(document, indent=2).removesuffix("\n}")
    lines = ",\n".join(f"    {json.dumps(rule)}" for rule in rules)
    return f'{head},\n  "syscalls": [\n{lines}\n  ]\n}}\n'


def _document(rows: Iterable[Denial]) -> dict[str, Any]:
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "archMap": [{"architecture": name, "subArchitectures": []} for name in ARCHITECTURES],
        "syscalls": [rule for row in rows for rule in _rules(row)],
    }


def _rules(row: Denial) -> Iterator[dict[str, Any]]:
    for choice in itertools.product(*(_comparisons(condition) for condition in row.when)):
        yield {
            "names": list(row.calls),
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": int(row.answer),
            "comment": row.reason,
            "args": list(choice),
        }


def _comparisons(condition: Condition) -> list[dict[str, Any]]:
    match condition:
        case AnyBit(argument, mask):
            blocks: Iterable[tuple[int, int]] = _lowest_set_bits(mask)
        case OneOf(argument, values, mask):
            blocks = ((mask, value & mask) for value in values)
        case NoneOf(argument, values):
            blocks = _blocks_without(frozenset(values))
        case _:
            assert_never(condition)
    return [{"index": argument, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"} for mask, value in blocks]


def _lowest_set_bits(mask: int) -> Iterator[tuple[int, int]]:
    """(mask, value) for each bit: it is set, and those of the mask below it are not. Exactly one holds if any is."""
    for place in range(_WORD_BITS):
        bit = 1 << place
        if mask & bit:
            yield mask & (bit - 1) | bit, bit


def _blocks_without(values: frozenset[int], free_bits: int = _WORD_BITS, start: int = 0) -> Iterator[tuple[int, int]]:
    """The words other than `values`, as blocks of (mask, value): halve what holds one of them, keep what holds none."""
    if not any(value >> free_bits == start >> free_bits for value in values):
        yield _LOW_WORD >> free_bits << free_bits, start
    elif free_bits:
        yield from _blocks_without(values, free_bits - 1, start)
        yield from _blocks_without(values, free_bits - 1, start | 1 << (free_bits - 1))


if __name__ == "__main__":
    sys.stdout.write(render(manager_profile() if sys.argv[1:] == ["manager"] else docker_profile()))
