"""What commands that work on shadows have in common: making one, and saying what was changed in it."""

import os
from pathlib import Path

from ringfence.cli.say import note
from ringfence.manager.assemble import Judged
from ringfence.manager.workspaces import Shadow, Workspaces


def make_shadow(workspaces: Workspaces, project: Path | None, judged: Judged) -> Shadow:
    shadow = workspaces.new(project or Path(os.getcwd()), judged=judged)
    if shadow.why:
        note(f"the shadow is a copy: {shadow.why}")
    return shadow


def say_what_changed(workspaces: Workspaces, shadow: Shadow) -> None:
    found = workspaces.changes(shadow)
    if not found:
        workspaces.discard(shadow)
        note("nothing was changed; the shadow is gone")
