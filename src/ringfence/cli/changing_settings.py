"""Shows the change to another program's settings, and makes it when asked: `mcp install`, `hook install`."""

import os
import shutil
import sys

from ringfence.agents.settings_files import Change, write_change
from ringfence.cli.say import print_note


def show_or_write(change: Change, *, write: bool, note: str = "") -> None:
    """
    Raises:
        PermissionDenied: it cannot be written.
    """
    if not change.is_needed:
        print_note(f"{change.path} says so already")
        return
    print(change.diff, end="")
    if not write:
        print_note(f"nothing was written; --write changes {change.path}")
    else:
        kept = write_change(change)
        print_note(f"written: {change.path}" + (f"; before: {kept}" if kept is not None else ""))
    if note:
        print_note(note)


def own_program(name: str = "ringfence") -> list[str]:
    """Ourselves, by a path that does not depend on the client's PATH.

    Where there is no such program, the interpreter, told not to look for modules in the directory that it is started
    in: that is the project, where an agent could put some.
    """
    typed = shutil.which(sys.argv[0]) if os.path.basename(sys.argv[0]).startswith("ringfence") else None
    for beside in (typed, sys.executable):
        program = os.path.join(os.path.dirname(os.path.abspath(beside)), name) if beside else ""
        if os.access(program, os.X_OK):
            return [program]
    return [sys.executable, "-P", "-m", "ringfence.cli.app"]
