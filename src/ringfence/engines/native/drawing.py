"""Whether a box that stands is what a new one would be now: everything that it was made from, as a value to compare.

A drawing is made by looking at the machine: the grant, the wall and what it offers, the view with all its covers, the
variables, what is mounted around what is shown, and for each path that is mounted or covered which file lies there. Two
drawings that are equal make the same box. What was remembered of the machine is looked at anew for each.

Numbers of files are given out again once a file is gone, so the files of the first drawing are held open (`Pins`) for
as long as its box waits. A cover on a file goes with the name that it lies on, and a name can be taken away and put
back: for files the time of their last change counts too, which no program can set.

What this does not protect against: what the kernel lets a new box do, as far as no path shows it (a sysctl that forbids
user namespaces from now on does not end the boxes that have them).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ringfence.confinement.choose import own_programs
from ringfence.dataclass import dataclass
from ringfence.engines.boxes import helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringfence.confinement.base import Confiner, Prepared, Probe, StandIn, View
    from ringfence.values.grant import Grant

MOST_PATHS: Final = 512
"""A view with more of them is drawn, and no box is made ahead for it: each takes a descriptor."""

Stamp = tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Drawing:
    wall: str
    offers: Probe
    grant: Grant
    owners: tuple[tuple[str, int, int], ...] | None
    """Run by root: whom the box stands for in each writable directory."""
    view: View
    env: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    programs: tuple[str | None, ...]
    """The shell and the interpreter that commands and code are run by."""
    mounts: tuple[bytes, ...]
    """What is mounted below what is shown, at it, and above."""
    stamps: tuple[tuple[str, Stamp], ...]


class Pins:
    """Holds the files of a drawing open."""

    def __init__(self, drawing: Drawing) -> None:
        self._descriptors: list[int] = []
        for path, _ in drawing.stamps:
            with suppress(OSError):
                self._descriptors.append(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC))

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()


def drawing_of(
    confiner: Confiner,
    grant: Grant,
    identity: StandIn | None,
    prepared: Prepared,
    programs: tuple[str | None, ...],
) -> Drawing | None:
    """None if there are too many paths in it."""
    view = prepared.view
    paths = tuple(dict.fromkeys((*own_programs(confiner), helper.path(), *_paths(view))))
    if len(paths) > MOST_PATHS:
        return None
    return Drawing(
        confiner.name,
        confiner.probe(),
        grant,
        None if identity is None else identity.owners,
        view,
        prepared.env,
        prepared.notes,
        programs,
        _mounts_around((*view.system, *view.readable, *(real for _, real in view.linked), *view.writable)),
        tuple((path, _stamp(path)) for path in paths),
    )


def _paths(view: View) -> Iterator[str]:
    yield from view.system
    yield from (source for _, source in view.etc)
    yield from view.readable
    yield from (real for _, real in view.linked)
    yield from view.writable
    yield from (os.path.join(cover.root, cover.below) for cover in view.covers)
    yield from view.hidden


def _stamp(path: str) -> Stamp:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns


def _mounts_around(shown: tuple[str, ...]) -> tuple[bytes, ...]:
    """Lines of the mount table, with their flags, for what is mounted below, at and above what is shown; a box has
    those that were there when it was made."""
    tops = tuple(_as_in_table(path.rstrip("/") + "/") for path in shown)
    found = []
    for line in _mount_table().splitlines():
        point = line.split(b" ", 5)[4].rstrip(b"/") + b"/"
        if point.startswith(tops) or any(top.startswith(point) for top in tops):
            found.append(line)
    return tuple(found)


def _as_in_table(path: str) -> bytes:
    """A path as the kernel writes it there."""
    name = os.fsencode(path).replace(b"\\", b"\\134")
    return name.replace(b" ", b"\\040").replace(b"\t", b"\\011").replace(b"\n", b"\\012")


def _mount_table() -> bytes:
    descriptor = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
