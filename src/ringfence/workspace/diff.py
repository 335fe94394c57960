"""What is different in a shadow, from what was touched alone: the cost is that of the change, not of the project.

Each touched name is compared with what the host has now. Same kind, mode, link target and bytes: no change. What was
removed and what was added with the same bytes is one renamed file; a directory that was renamed shows as its files. A
removed directory shows with everything that was in it, since that is what goes.

The content of what the blacklist hides is read on neither side.
"""

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator

from ringfence.dataclass import replace
from ringfence.errors import PermissionDenied, RingfenceError
from ringfence.values.change import Change, ChangeKind, Node, NodeKind
from ringfence.workspace.both_trees import SPECIAL, TouchedPath
from ringfence.workspace.layers import Layers, open_layers
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.tree import Tree, same_bytes

_LOOKED_AT_BYTES = 8000
"""Where git looks for a NUL that makes a file a binary one."""
_CHUNK_BYTES = 1024 * 1024


def changes(shadow: Shadow) -> tuple[Change, ...]:
    """Everything that is different, by path.

    Raises:
        PermissionDenied: the project or the shadow cannot be read.
        PathAccessDenied: more was touched than can be looked at.
        Damaged: the shadow was not kept as it has to be.
    """
    with open_layers(shadow) as layers:
        return compare(layers)


def compare(layers: Layers) -> tuple[Change, ...]:
    """The same, of layers that are open."""
    found: dict[str, Change] = {}
    try:
        for touched in layers.touched():
            for change in _readable(layers, touched):
                found.setdefault(change.path, change)
        paired = _with_renames(layers, found.values())
    except RingfenceError:
        raise
    except OSError as fault:
        raise PermissionDenied(f"cannot read shadow {layers.shadow.id}: {fault}") from fault
    return tuple(sorted(paired, key=lambda change: change.path))


def is_binary(start: bytes) -> bool:
    return b"\0" in start[:_LOOKED_AT_BYTES]


def _readable(layers: Layers, touched: TouchedPath) -> Iterator[Change]:
    """The same as `_compared`; what may not be read stops nothing but itself."""
    try:
        yield from tuple(_compared(layers, touched))
    except RingfenceError:
        raise
    except PermissionError:
        new = None if touched.status is None else layers.upper.node(touched.path, touched.status)
        yield _change(touched, layers.lower.node(touched.path), new, refused="one side of it cannot be read")


def _compared(layers: Layers, touched: TouchedPath) -> Iterator[Change]:
    path = touched.path
    is_hidden = layers.denying(path) is not None
    old = None if is_hidden else layers.lower.node(path)
    new = None if touched.status is None else layers.upper.node(path, touched.status)
    if touched.refused:
        yield _change(touched, old, new, refused=touched.refused)
    elif new is None:
        if old is not None:
            refused = SPECIAL if old.kind is NodeKind.SPECIAL else ""
            yield _change(touched, old, None, is_binary=_looks_binary(layers.lower, path, old), refused=refused)
    elif old is None or old.kind is not new.kind:
        refused = ""
        if old is not None and old.is_directory:
            for below in layers.gone(path):
                if below.path == path:
                    refused = below.refused
                else:
                    yield from _compared(layers, below)
        is_file = new.kind is NodeKind.FILE
        binary = _looks_binary(layers.upper, path, new)
        yield _change(touched, old, new, is_content=is_file, is_binary=binary, refused=refused)
    else:
        differs, binary = _content(layers, path, old, new)
        if differs or old.target != new.target or (old.mode != new.mode and new.kind is not NodeKind.LINK):
            yield _change(touched, old, new, is_content=differs, is_binary=binary)


def _change(
    touched: TouchedPath,
    old: Node | None,
    new: Node | None,
    *,
    is_content: bool = False,
    is_binary: bool = False,
    refused: str = "",
) -> Change:
    kind = ChangeKind.CHANGED
    if new is None:
        kind = ChangeKind.REMOVED
    elif old is None:
        kind = ChangeKind.ADDED
    return Change(
        kind=kind,
        path=touched.path,
        old=old,
        new=new,
        is_content=is_content,
        is_binary=is_binary,
        began_on_host=touched.from_host,
        refused=refused,
        stamp=touched.stamp,
    )


def _content(layers: Layers, path: str, old: Node, new: Node) -> tuple[bool, bool]:
    """Whether two files differ, and whether one of them is a binary one."""
    if new.kind is not NodeKind.FILE:
        return False, False
    with layers.lower.opened(path) as one, layers.upper.opened(path) as other:
        if old.size_bytes == new.size_bytes and same_bytes(one, other):
            return False, is_binary(os.pread(other, _LOOKED_AT_BYTES, 0))
        return True, is_binary(os.pread(one, _LOOKED_AT_BYTES, 0)) or is_binary(os.pread(other, _LOOKED_AT_BYTES, 0))


def _looks_binary(tree: Tree, path: str, node: Node) -> bool:
    if node.kind is not NodeKind.FILE:
        return False
    with tree.opened(path) as descriptor:
        return is_binary(os.read(descriptor, _LOOKED_AT_BYTES))


# --- renames ----------------------------------------------------------------------------------------------------------


def _with_renames(layers: Layers, found: Iterable[Change]) -> list[Change]:
    every = list(found)
    removed, added = _by_size(every, ChangeKind.REMOVED), _by_size(every, ChangeKind.ADDED)
    pairs: dict[str, Change] = {}
    sources: set[str] = set()
    for size in removed.keys() & added.keys():
        left = defaultdict(list)
        for change in removed[size]:
            left[_digest(layers.lower, change.path)].append(change)
        for change in added[size]:
            if candidates := left.get(_digest(layers.upper, change.path)):
                source = _likeliest(candidates, change.path)
                candidates.remove(source)
                sources.add(source.path)
                pairs[change.path] = replace(
                    change, kind=ChangeKind.RENAMED, source=source.path, old=source.old, is_content=False
                )
    return [pairs.get(change.path, change) for change in every if change.path not in sources]


def _by_size(found: list[Change], kind: ChangeKind) -> dict[int, list[Change]]:
    """Files that could be one end of a rename; all empty files are alike, so none of them is."""
    sizes: defaultdict[int, list[Change]] = defaultdict(list)
    for change in found:
        node = change.new or change.old
        if change.kind is kind and not change.refused and node and node.kind is NodeKind.FILE and node.size_bytes:
            sizes[node.size_bytes].append(change)
    return sizes


def _likeliest(candidates: list[Change], path: str) -> Change:
    """Of several files with the same bytes, the one that keeps its name."""
    name = os.path.basename(path)
    return next((change for change in candidates if os.path.basename(change.path) == name), candidates[0])


def _digest(tree: Tree, path: str) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    with tree.opened(path) as descriptor:
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()
