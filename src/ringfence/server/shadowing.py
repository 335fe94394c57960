"""Shadows of sessions: made with the session, found again after a restart, discarded with it."""

from __future__ import annotations

from contextlib import suppress

from ringfence.errors import RingfenceError
from ringfence.manager.options import SandboxOptions
from ringfence.manager.workspaces import Shadow, Workspaces


def new_shadow(options: SandboxOptions) -> Shadow:
    """
    Raises:
        InvalidArgument, PathAccessDenied, PermissionDenied, InitializationFailed: as `Workspaces.new`.
    """
    with Workspaces() as workspaces:
        return workspaces.new(options)


def find_shadow(ident: str) -> Shadow | None:
    """None if it is not there any more."""
    with suppress(RingfenceError), Workspaces() as workspaces:
        return workspaces.find(ident)
    return None


def discard_shadow(shadow: Shadow) -> None:
    """With all that was done in it; one that somebody still uses stays, for `ringfence workspace`."""
    with suppress(RingfenceError), Workspaces() as workspaces:
        workspaces.discard(shadow)
