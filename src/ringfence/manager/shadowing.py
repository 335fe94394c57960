"""Puts a shadow in the place of a grant's workspace."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ringfence.errors import InvalidConfig
from ringfence.values.grant import Grant, Shadowing
from ringfence.workspace.shadow import Shadow, ShadowKind


def shadows_directory(environ: Mapping[str, str], home: str) -> Path:
    """Where shadows lie."""
    return Path(environ.get("RINGFENCE_SHADOWS_DIR") or os.path.join(home, ".ringfence", "shadows"))


def shadowed(grant: Grant, shadow: Shadow) -> Grant:
    """The grant, with a shadow in the place of the workspace.

    Raises:
        InvalidConfig: it is the shadow of another directory, or shows what the grant hides.
    """
    if shadow.lower != grant.workspace:
        raise InvalidConfig(
            f"shadow {shadow.id} is one of {shadow.lower}, not of {grant.workspace}", hint="give its own directory"
        )
    more = [row for row in grant.denied if row not in shadow.denied]
    if more:
        raise InvalidConfig(
            f"shadow {shadow.id} was made when {more[0]!r} was not on the blacklist", hint="make a new shadow"
        )
    return replace(grant, shadow=Shadowing(shadow.directory, is_copy=shadow.kind is ShadowKind.COPY))
