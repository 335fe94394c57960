"""Say what differs between two snapshots; directories whose trees are the same object are not looked into."""

import os
from collections.abc import Iterator
from enum import StrEnum

from ringfence.dataclass import dataclass
from ringfence.workspace.names import join
from ringfence.workspace.snapshots.objects import Objects
from ringfence.workspace.snapshots.tree import DirectoryNode, FileNode, Node, decode


class DifferenceKind(StrEnum):
    """What became of a path."""

    ADDED = "added"
    REMOVED = "removed"
    CONTENT = "content"
    """Of a file, or where a link leads."""
    MODE = "mode"
    KIND = "kind"
    """A file became a directory, or the like."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs at one path between two snapshots."""

    path: str
    kind: DifferenceKind


def changes(objects: Objects, old: DirectoryNode, new: DirectoryNode) -> tuple[Difference, ...]:
    """All differences but times, sorted by path.

    Raises:
        Damaged: an object is missing or damaged.
    """
    found: list[Difference] = []
    todo: list[tuple[bytes, DirectoryNode | None, DirectoryNode | None]] = [(b"", old, new)]
    while todo:
        path, before, after = todo.pop()
        if before is not None and after is not None and before.digest == after.digest:
            continue
        left = decode(objects.get(before.digest)) if before is not None else {}
        right = decode(objects.get(after.digest)) if after is not None else {}
        for name in left.keys() | right.keys():
            below = join(path, name)
            one, other = left.get(name), right.get(name)
            found += (Difference(os.fsdecode(below), kind) for kind in _differences(one, other))
            if isinstance(one, DirectoryNode) or isinstance(other, DirectoryNode):
                todo.append((below, _directory(one), _directory(other)))
    return tuple(sorted(found, key=lambda change: change.path))


def _differences(one: Node | None, other: Node | None) -> Iterator[DifferenceKind]:
    if one is None:
        yield DifferenceKind.ADDED
    elif other is None:
        yield DifferenceKind.REMOVED
    elif type(one) is not type(other):
        yield DifferenceKind.KIND
    elif isinstance(one, FileNode) and isinstance(other, FileNode):
        if (one.size, one.pieces) != (other.size, other.pieces):
            yield DifferenceKind.CONTENT
        elif (one.mode, one.attributes) != (other.mode, other.attributes):
            yield DifferenceKind.MODE
    elif isinstance(one, DirectoryNode) and isinstance(other, DirectoryNode):
        if (one.mode, one.attributes) != (other.mode, other.attributes):
            yield DifferenceKind.MODE
    elif one != other:
        yield DifferenceKind.CONTENT


def _directory(node: Node | None) -> DirectoryNode | None:
    return node if isinstance(node, DirectoryNode) else None
