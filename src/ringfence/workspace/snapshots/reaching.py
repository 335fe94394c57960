"""Follow a snapshot to everything that it needs: to check it, and to know what may go."""

from collections.abc import Iterable

from ringfence.workspace.snapshots.objects import Objects
from ringfence.workspace.snapshots.tree import DirectoryNode, FileNode, damaged, decode


def needed_by(objects: Objects, roots: Iterable[DirectoryNode]) -> set[str]:
    """The objects that trees are made of; trees are read, pieces of files are not.

    Raises:
        Damaged: a tree is missing or damaged, so that nobody knows what it needs.
    """
    needed: set[str] = set()
    todo = [root.digest for root in roots]
    while todo:
        digest = todo.pop()
        if digest in needed:
            continue
        needed.add(digest)
        for node in decode(objects.get(digest)).values():
            if isinstance(node, DirectoryNode):
                todo.append(node.digest)
            elif isinstance(node, FileNode):
                needed.update(piece.digest for piece in node.pieces)
    return needed


def check(objects: Objects, root: DirectoryNode, checked: set[str]) -> None:
    """Read all that a tree is made of, but for what was `checked` before.

    Raises:
        Damaged: an object is missing or damaged.
    """
    todo = [root.digest]
    while todo:
        digest = todo.pop()
        if digest in checked:
            continue
        for node in decode(objects.get(digest)).values():
            if isinstance(node, DirectoryNode):
                todo.append(node.digest)
            elif isinstance(node, FileNode):
                _check_file(objects, node, checked)
        checked.add(digest)


def _check_file(objects: Objects, node: FileNode, checked: set[str]) -> None:
    for piece in node.pieces:
        if piece.digest in checked:
            continue
        if len(objects.get(piece.digest)) != piece.length:
            raise damaged(f"the object {piece.digest} has another size than its file says")
        checked.add(piece.digest)
