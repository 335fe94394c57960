"""Parse paths that nobody vouches for into names, without asking the file system anything.

What comes out is text that was looked at, not a place: where a path leads only the kernel knows (`beneath`).
"""

import os
from typing import TypeAlias

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument

PathText: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]

ALIAS = "/workspace"
"""What the workspace is called inside every box, so that a path seen there works here."""

_LONGEST_PATH = 4095
"""PATH_MAX without the closing NUL."""
_LONGEST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Asked:
    """A path that was parsed and is relative to the workspace."""

    text: str
    """As the caller gave it."""
    relative: bytes

    @property
    def names(self) -> tuple[bytes, ...] | None:
        """The path as spelled, with `..` taken as text; None when it then climbs above the root. Never used to open."""
        return climb((), self.relative)


def parse(path: PathText) -> tuple[str, bytes]:
    """Return the path as text, for messages, and as bytes, for the kernel.

    Raises:
        InvalidArgument: it is empty, too long, or nothing that a path can be.
    """
    raw = os.fspath(path)
    text = os.fsdecode(raw)
    shown = repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "...")
    try:
        data = os.fsencode(raw)
    except UnicodeEncodeError as error:
        raise InvalidArgument("the path is not text that a file name can hold", source=shown) from error
    if not data:
        raise InvalidArgument("the path is empty", source=shown, hint="use . for the workspace itself")
    if b"\0" in data:
        raise InvalidArgument("the path holds a NUL byte", source=shown)
    if len(data) > _LONGEST_PATH:
        raise InvalidArgument(f"the path is longer than {_LONGEST_PATH} bytes", source=shown)
    return text, data


def split(path: bytes) -> tuple[bytes, ...]:
    """The names in a path; `.` and doubled slashes name nothing."""
    return tuple(name for name in path.split(b"/") if name not in (b"", b"."))


def join(*parts: bytes) -> bytes:
    return b"/".join(part for part in parts if part)


def climb(start: tuple[bytes, ...], path: bytes) -> tuple[bytes, ...] | None:
    """Where `path` leads from `start` if nothing on the way is a link; None when it climbs above the root."""
    kept = list(start)
    for name in split(path):
        if name != b"..":
            kept.append(name)
        elif kept:
            kept.pop()
        else:
            return None
    return tuple(kept)


def strip(prefix: tuple[bytes, ...], path: bytes) -> bytes | None:
    """Return what follows `prefix` in an absolute path, compared by whole names; None if it is not below."""
    rest = path
    for expected in prefix:
        name, _, rest = _without_dots(rest).partition(b"/")
        if name != expected:
            return None
    return rest.lstrip(b"/") or b"."


def _without_dots(path: bytes) -> bytes:
    """Drop leading slashes and `.`, which name nothing."""
    path = path.lstrip(b"/")
    while path.startswith(b"./"):
        path = path[2:].lstrip(b"/")
    return path
