"""What a snapshot says about a directory: its entries, as values and as the bytes that are kept.

One object for each directory, one for each piece of a file; each is named by the SHA-256 of its bytes. Equal
directories are therefore one object, whatever snapshot they are in, and two snapshots are compared by comparing names.

A file is the pieces of it that hold data, with what lies between them left out: a hole stays a hole.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ringfence.dataclass import dataclass
from ringfence.errors import Damaged

Attributes: TypeAlias = tuple[tuple[str, bytes], ...]
"""Extended attributes of overlay file systems, by name."""
OVERLAY_ATTRIBUTES: Final = ("user.overlay.", "trusted.overlay.")
"""How their names begin, mounted by an ordinary user and by root."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a file, and the object that holds it."""

    offset: int
    length: int
    digest: str


@dataclass(frozen=True, slots=True)
class FileNode:
    mode: int
    mtime_ns: int
    size: int
    pieces: tuple[Piece, ...]
    attributes: Attributes = ()


@dataclass(frozen=True, slots=True)
class LinkNode:
    target: bytes


@dataclass(frozen=True, slots=True)
class DirectoryNode:
    mode: int
    digest: str
    """Of the tree of what is in it."""
    attributes: Attributes = ()


@dataclass(frozen=True, slots=True)
class WhiteoutNode:
    """In the upper directory of an overlay: what has this name below is removed."""


Node: TypeAlias = FileNode | LinkNode | DirectoryNode | WhiteoutNode
Tree: TypeAlias = Mapping[bytes, Node]


def encode(tree: Tree) -> bytes:
    """The one way to write this tree."""
    rows = [[_text(name), *_row(node)] for name, node in sorted(tree.items())]
    return json.dumps(rows, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[bytes, Node]:
    """
    Raises:
        Damaged: it is no tree.
    """
    try:
        tree = {_name(row[0]): _node(row[1:]) for row in json.loads(data)}
    except (ValueError, TypeError, IndexError, KeyError) as fault:
        raise damaged(f"what should be a directory makes no sense: {fault}") from fault
    return tree


def damaged(what: str) -> Damaged:
    return Damaged(f"the snapshots are damaged: {what}", hint="`verify` says which snapshots are whole")


def _row(node: Node) -> list[Any]:
    match node:
        case FileNode():
            pieces = [[piece.offset, piece.length, piece.digest] for piece in node.pieces]
            return ["f", node.mode, node.mtime_ns, node.size, pieces, *_packed(node.attributes)]
        case LinkNode():
            return ["l", _text(node.target)]
        case DirectoryNode():
            return ["d", node.mode, node.digest, *_packed(node.attributes)]
        case WhiteoutNode():
            return ["w"]


def _node(row: list[Any]) -> Node:
    match row:
        case ["f", int(mode), int(mtime_ns), int(size), list(pieces), *rest] if size >= 0:
            return FileNode(mode, mtime_ns, size, tuple(_piece(piece, size) for piece in pieces), _unpacked(rest))
        case ["l", str(target)]:
            return LinkNode(_bytes(target))
        case ["d", int(mode), str(digest), *rest]:
            return DirectoryNode(mode, digest, _unpacked(rest))
        case ["w"]:
            return WhiteoutNode()
        case _:
            raise ValueError(f"{row!r} is not an entry")


def _piece(row: list[Any], size: int) -> Piece:
    match row:
        case [int(offset), int(length), str(digest)] if offset >= 0 and 0 < length <= size - offset:
            return Piece(offset, length, digest)
        case _:
            raise ValueError(f"{row!r} is not a piece of {size} bytes")


def _packed(attributes: Attributes) -> list[Any]:
    """Nothing at all where there are none, as in nearly every entry."""
    return [[[name, base64.b64encode(value).decode()] for name, value in attributes]] if attributes else []


def _unpacked(rest: list[Any]) -> Attributes:
    return tuple((str(name), base64.b64decode(value, validate=True)) for name, value in rest[0]) if rest else ()


def _name(text: str) -> bytes:
    name = _bytes(text)
    if not name or name in (b".", b"..") or b"/" in name or b"\0" in name:
        raise ValueError(f"{text!r} is not a name of a file")
    return name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
