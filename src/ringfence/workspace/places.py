"""Where workspaces of our own making and their snapshots lie, and what may be the name of one."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ringfence.errors import InvalidArgument, PermissionDenied

SESSIONS = "sessions"
"""The directory of those that have a name; what else lies beside it belongs to a process, and goes with it."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def workspaces_directory(environ: Mapping[str, str], home: str) -> Path:
    return Path(environ.get("RINGFENCE_WORKSPACES_DIR") or os.path.join(home, ".ringfence", "workspaces"))


def snapshots_directory(environ: Mapping[str, str], home: str) -> Path:
    return Path(environ.get("RINGFENCE_SNAPSHOTS_DIR") or os.path.join(home, ".ringfence", "snapshots"))


def check_name(name: str, what: str) -> None:
    """
    Raises:
        InvalidArgument: it cannot be the name of a file on every system.
    """
    if not _PLAIN_NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} cannot be the {what}",
            hint="use up to 128 letters, digits, dots, dashes and underscores, a letter or digit first",
        )


def make_session_directory(session_id: str, environ: Mapping[str, str], home: str) -> Path:
    """The directory of a session's workspace; made, for its owner alone, if it is not there.

    While the session runs, its name leads to the workspace of its boxes.

    Raises:
        InvalidArgument: the id.
        PermissionDenied: it cannot be made.
    """
    check_name(session_id, "id of a session")
    directory = workspaces_directory(environ, home) / SESSIONS / session_id
    try:
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(exist_ok=True, mode=0o700)
    except OSError as fault:
        raise PermissionDenied(
            f"no workspace can be made at {directory} ({fault.strerror})",
            hint="make it writable, or set RINGFENCE_WORKSPACES_DIR to a directory that is",
        ) from fault
    return directory.resolve() if directory.is_symlink() else directory
