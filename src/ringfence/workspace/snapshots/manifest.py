"""The one page that makes a snapshot: its name, where its tree is, and what there is to know about it.

A snapshot exists when its manifest has its name, and not before. The manifest carries a checksum of itself, and the
digest of its tree, which covers everything below.
"""

import hashlib
import json
from typing import Any

from ringfence.dataclass import dataclass
from ringfence.workspace.snapshots.tree import DirectoryNode, damaged
from ringfence.workspace.walking import LeftOut

_FORMAT = 1
_LEFT_OUT_SHOWN = 1000
"""An agent may make as many fifos as it likes; so many are named, the others counted."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that was saved."""

    name: str
    parent: str | None
    """The one that it was made after, as whoever saved it said."""
    saved_at: float
    """Seconds since the epoch."""
    files: int
    total_bytes: int
    new_bytes: int
    """What it cost, beyond what was kept already."""
    left_out: tuple[LeftOut, ...]
    left_out_more: int
    """How many more were left out than are named."""
    overlay: bool
    """Whether whiteouts and attributes of an overlay were kept."""
    root: DirectoryNode


def first_of(left_out: list[LeftOut]) -> tuple[tuple[LeftOut, ...], int]:
    return tuple(left_out[:_LEFT_OUT_SHOWN]), max(0, len(left_out) - _LEFT_OUT_SHOWN)


def encode(snapshot: Snapshot) -> bytes:
    fields = {
        "format": _FORMAT,
        "name": snapshot.name,
        "parent": snapshot.parent,
        "saved_at": snapshot.saved_at,
        "files": snapshot.files,
        "total_bytes": snapshot.total_bytes,
        "new_bytes": snapshot.new_bytes,
        "left_out": [[item.path, item.why] for item in snapshot.left_out],
        "left_out_more": snapshot.left_out_more,
        "overlay": snapshot.overlay,
        "mode": snapshot.root.mode,
        "tree": snapshot.root.digest,
        "attributes": [[name, value.hex()] for name, value in snapshot.root.attributes],
    }
    return json.dumps(fields | {"check": _check(fields)}, indent=1).encode()


def decode(data: bytes, name: str) -> Snapshot:
    """
    Raises:
        Damaged: it is not a manifest of that snapshot.
    """
    try:
        fields: dict[str, Any] = json.loads(data)
        check = fields.pop("check")
        if fields["format"] != _FORMAT or fields["name"] != name or check != _check(fields):
            raise ValueError("its checksum is wrong")
        attributes = tuple((str(key), bytes.fromhex(value)) for key, value in fields["attributes"])
        return Snapshot(
            name=name,
            parent=fields["parent"],
            saved_at=float(fields["saved_at"]),
            files=int(fields["files"]),
            total_bytes=int(fields["total_bytes"]),
            new_bytes=int(fields["new_bytes"]),
            left_out=tuple(LeftOut(path, why) for path, why in fields["left_out"]),
            left_out_more=int(fields["left_out_more"]),
            overlay=bool(fields["overlay"]),
            root=DirectoryNode(int(fields["mode"]), str(fields["tree"]), attributes),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise damaged(f"the manifest of {name!r} makes no sense: {fault}") from fault


def _check(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
