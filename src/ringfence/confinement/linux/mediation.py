"""What the guardian needs to mediate opens: which files are denied, whatever they are called.

A rule names paths; a hard link gives the same file another. So every file that the blacklist matches when the box is
made is also known by its device and number (native/broker.c compares them at each open). Files that come later are held
by the names that they have when they are opened, and cannot be renamed or linked away from them.

What this does not protect against: a hard link to a file in a denied directory that nobody lists for us, such as
another user's; a link that the host makes, during the run, to a file that the host made denied during the run.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ringfence.confinement.base import How, View
from ringfence.errors import PermissionDenied
from ringfence.policy.globs import compiled

if TYPE_CHECKING:
    from ringfence.values.grant import Grant

_FILES_MAX: Final = 50_000
_MIN_KERNEL: Final = (5, 14)  # the first that hands a descriptor in and answers in one step


def why_not() -> str:
    """Why opens cannot be mediated on this kernel; an empty string if they can."""
    return "" if is_kernel(_MIN_KERNEL) else f"it needs Linux 5.14, and this is {os.uname().release}"


def is_kernel(version: tuple[int, int]) -> bool:
    """Whether this is that version of Linux, or a later one."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return found is not None and (int(found[1]), int(found[2])) >= version


def mediation_words(grant: Grant, view: View) -> Iterator[str]:
    """Words for the guardian: docs/box-protocol.md.

    Raises:
        PermissionDenied: there are more denied files than can be kept apart.
    """
    yield "strict"
    known: dict[tuple[int, int], str] = {}
    for path in _denied_places(grant, view):
        for file, info in _files(path):
            known.setdefault((info.st_dev, info.st_ino), file)
            if len(known) > _FILES_MAX:
                raise PermissionDenied(
                    f"there are more than {_FILES_MAX} denied files, too many to know each by its number",
                    hint=f"what is it that has left them? One is {file!r}",
                )
    for (device, inode), file in known.items():
        yield from ("inode", str(device), str(inode), file)


def _denied_places(grant: Grant, view: View) -> Iterator[str]:
    for cover in view.covers:
        if cover.how is How.HIDE:
            yield os.path.join(cover.root, cover.below)
    yield from view.hidden
    yield from compiled(grant.denied).literals


def _files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """The regular file at a path, or all those below it; no link is followed."""
    waiting = [path]
    while waiting:
        place = waiting.pop()
        try:
            info = os.lstat(place)
            if stat.S_ISREG(info.st_mode):
                yield place, info
            elif stat.S_ISDIR(info.st_mode):
                waiting += (entry.path for entry in os.scandir(place))
        except OSError:
            continue  # it is not there, or we may not look; then the box, which is no more than we, may not either
