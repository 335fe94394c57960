"""Old contents of the host's files that a shadow changed, kept as the base for a merge.

Overlayfs keeps none: once the host has written a file anew, what the shadow began from is gone. So somebody has to keep
it before: `keep_bases` copies, for every text that the shadow has changed and the host has not yet, what the host has.
It costs as much as the change is large. Call it when a session ends, and there is a base for all that the host changes
from then on. What the host changed before that cannot be merged, and the conflict says so.
"""

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ringfence.values.change import Change
from ringfence.workspace.layers import Layers, open_layers
from ringfence.workspace.patch import is_text_change
from ringfence.workspace.shadow import Shadow


def keep_bases(shadow: Shadow, found: Iterable[Change]) -> int:
    """Keep what the host has of the texts that changed; returns how many are newly kept. Needs the shadow's lock."""
    with open_layers(shadow) as layers:
        return sum(_keep(layers, change) for change in found if is_text_change(change))


def base_of(layers: Layers, path: str) -> bytes | None:
    """What the shadow began from; None if it was not kept."""
    try:
        return _place(layers.shadow, path).read_bytes()
    except FileNotFoundError:
        return None


def forget_base(layers: Layers, path: str) -> None:
    """For a path of which the shadow has no change any more, or one that has another base now."""
    with suppress(FileNotFoundError):
        _place(layers.shadow, path).unlink()


def _keep(layers: Layers, change: Change) -> bool:
    place = _place(layers.shadow, change.path)
    status = layers.lower.status(change.path)
    if place.exists() or status is None or not layers.knows(change.path, status):
        return False
    content = layers.lower.read(change.path)
    after = layers.lower.status(change.path)
    if after is None or after.st_ctime_ns != status.st_ctime_ns:
        return False  # written while it was read
    place.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = place.with_suffix(".tmp")
    temporary.write_bytes(content)
    os.rename(temporary, place)
    return True


def _place(shadow: Shadow, path: str) -> Path:
    return shadow.directory / "base" / hashlib.blake2b(os.fsencode(path), digest_size=20).hexdigest()
