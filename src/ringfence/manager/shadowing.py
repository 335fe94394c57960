"""Puts a shadow in the place of a grant's workspace, and keeps what was done in it when its box goes."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.deferred import deferred, deferred_module
from ringfence.errors import InvalidArgument, PermissionDenied
from ringfence.values.grant import Grant, Shadowing

if TYPE_CHECKING:
    from ringfence.engines.base import Box
    from ringfence.workspace import shadow as shadows
    from ringfence.workspace.absorbing import absorb
    from ringfence.workspace.shadow import Shadow
else:
    absorb = deferred("ringfence.workspace.absorbing", "absorb")
    shadows = deferred_module("ringfence.workspace.shadow")


def shadows_directory(environ: Mapping[str, str], home: str) -> Path:
    """Where shadows lie."""
    return Path(environ.get("RINGFENCE_SHADOWS_DIR") or os.path.join(home, ".ringfence", "shadows"))


def shadowed(grant: Grant, shadow: Shadow, memory_bytes: int = 0) -> Grant:
    """The grant, with a shadow in the place of the workspace.

    Args:
        memory_bytes: if not 0, changes are kept in memory of this size while a box stands.

    Raises:
        InvalidArgument: it is the shadow of another directory, or shows what the grant hides.
    """
    if shadow.lower != grant.workspace:
        raise InvalidArgument(
            f"shadow {shadow.id} is one of {shadow.lower}, not of {grant.workspace}", hint="give its own directory"
        )
    more = [row for row in grant.denied if row not in shadow.denied]
    if more:
        raise InvalidArgument(
            f"shadow {shadow.id} was made when {more[0]!r} was not on the blacklist", hint="make a new shadow"
        )
    is_copy = shadow.kind is shadows.ShadowKind.COPY
    if is_copy and memory_bytes:
        raise InvalidArgument(
            f"shadow {shadow.id} is a copy ({shadow.why}), and a copy has no size", hint="leave the size out"
        )
    return replace(grant, shadow=Shadowing(shadow.directory, is_copy, memory_bytes))


async def close_box(box: Box, grant: Grant) -> None:
    """Close a box; a shadow's changes that were kept in memory are on disk afterwards.

    Raises:
        PermissionDenied: the disk did not take them.
    """
    memory = os.dup(box.memory) if box.memory >= 0 and grant.shadow is not None else -1
    try:
        await box.close()
        if memory >= 0 and grant.shadow is not None:
            await asyncio.shield(asyncio.to_thread(_keep, grant.shadow, memory))
    finally:
        if memory >= 0:
            os.close(memory)


def _keep(shadow: Shadowing, memory: int) -> None:
    try:
        with open(shadow.directory / "lock", "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            absorb(memory, shadow.upper)
    except OSError as fault:
        raise PermissionDenied(
            f"what was changed in shadow {shadow.directory.name} could not be kept: {fault}",
            hint="make room on the disk; what was in memory is lost",
        ) from fault
