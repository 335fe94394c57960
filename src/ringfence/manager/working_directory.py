"""Where a command runs: any directory that it can enter inside, by the box's own word where the host cannot know.

What is granted lies on the host too, and is resolved there: no box is needed to refuse it. What only a box has, such as
`/tmp/x` that an earlier command made, a directory of a shadow, or a link that means something else inside, is looked up
in the box that stands. Where none stands yet, nothing has been made in it: of what is not granted, only what every box
has from the start can be entered. The kernel has the last word inside.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.deferred import deferred
from ringfence.engines.base import Box
from ringfence.errors import FileError, InvalidArgument
from ringfence.policy.decide import Place
from ringfence.policy.expanding import is_encodable
from ringfence.values.files import FileFlag, FileOperation
from ringfence.values.paths import is_below

if TYPE_CHECKING:
    from ringfence.manager.file_rules import on_host
    from ringfence.values.grant import Grant
else:
    on_host = deferred("ringfence.manager.file_rules", "on_host")

Look = Callable[[], Awaitable[Box | None]]
"""Gives the box that stands already; None if there is none."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")
"""Directories of the system that every box shows, with what is below them."""
_ITS_OWN = ("/", "/tmp", "/var/tmp", "/dev/shm")
"""Those that every box has of its own, empty when it is made."""


async def no_box() -> Box | None:
    """For whoever has none."""
    return None


def likely_place(cwd: Path | None, grant: Grant, home: str) -> Place:
    """Where it would run, as far as the host knows.

    Raises:
        FileError: there is no such directory, or it cannot be entered.
        InvalidArgument: no path can be like that.
    """
    if cwd is None:
        return Place(grant.workspace, home)
    path = _absolute(cwd, grant)
    if grant.shadow is not None and is_below(path, os.fspath(grant.workspace)):
        return Place(Path(os.path.normpath(path)), home)  # what is there only the box knows
    try:
        real = Path(path).resolve(strict=True)
        if _is_granted(os.fspath(real), grant):
            os.close(os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except (OSError, RuntimeError) as fault:
        if path in (*_ITS_OWN, home):
            return Place(Path(path), home, is_own=True)
        raise _unusable(fault.errno if isinstance(fault, OSError) and fault.errno else errno.ELOOP, cwd) from fault
    if not _is_granted(os.fspath(real), grant) and _is_in_every_box(path, os.fspath(real), home):
        return Place(Path(path), home, is_own=True)
    return Place(real, home)


async def find_place(cwd: Path | None, grant: Grant, home: str, look: Look) -> Place:
    """Where it runs: what the host does not know, or does not grant, is asked of the box that stands.

    Raises:
        As `likely_place`.
    """
    fault: FileError | None = None
    place = None
    try:
        place = likely_place(cwd, grant, home)
    except FileError as unknown:
        fault = unknown
    is_sure = place is not None and _is_granted(os.fspath(place.cwd), grant) and grant.shadow is None
    box = None if cwd is None or is_sure else await look()
    if cwd is None or box is None:
        if fault is not None:
            raise fault
        assert place is not None
        return place
    found = await _look(box, cwd, _absolute(cwd, grant))
    if isinstance(found, Path):
        return Place(found, home, is_own=True)
    if place is not None and not place.is_own and not _is_granted(os.fspath(place.cwd), grant):
        return place  # the host has it and the box does not: a rule says why
    raise found


async def _look(box: Box, cwd: Path, path: str) -> Path | FileError:
    """The real path of a directory inside, or what keeps it from being used."""
    operation = FileOperation(name="stat", path=path, flags=FileFlag.FOLLOW)
    try:
        performed = await box.perform(operation, lambda _: None)
    except FileError:
        raise  # a fault of ours, not of the path
    except OSError as fault:
        return _unusable(fault.errno or errno.EIO, cwd)
    if not performed.entries[0].is_directory:
        return _unusable(errno.ENOTDIR, cwd)
    return Path(performed.places[0])


def _absolute(cwd: Path, grant: Grant) -> str:
    """As the box names it: `/workspace` is the workspace, a relative path starts there."""
    text = os.fspath(cwd)
    if "\0" in text or not is_encodable(text):
        raise InvalidArgument("the working directory holds a NUL byte or an unpaired surrogate", argument="cwd")
    return os.path.join(grant.workspace, on_host(text, grant))


def _is_granted(path: str, grant: Grant) -> bool:
    return any(is_below(path, os.fspath(root)) for root in (*grant.writable_roots, *grant.readable))


def _is_in_every_box(path: str, real: str, home: str) -> bool:
    """Nothing on the way is the agent's: what is below the system's directories is the system's."""
    return path in (*_ITS_OWN, home) or all(any(is_below(each, top) for top in _SYSTEM) for each in (path, real))


def _unusable(number: int, cwd: Path) -> FileError:
    why = f"the working directory cannot be used: {os.strerror(number)}"
    return FileError.of(number, os.fspath(cwd), why, hint="give a directory that can be entered inside")
