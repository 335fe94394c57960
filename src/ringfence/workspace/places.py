"""Where workspaces of our own making lie, and what a session's is called."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ringfence.errors import InvalidConfig, PermissionDenied

SESSIONS = "sessions"
"""The directory of those that have a name; what else lies beside it belongs to a process, and goes with it."""
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def workspaces_directory(environ: Mapping[str, str], home: str) -> Path:
    return Path(environ.get("RINGFENCE_WORKSPACES_DIR") or os.path.join(home, ".ringfence", "workspaces"))


def check_session_id(session_id: str) -> None:
    """
    Raises:
        InvalidConfig: it cannot be the name of a directory on every system.
    """
    if not _SESSION_ID.fullmatch(session_id):
        raise InvalidConfig(
            f"{session_id!r} cannot be the id of a session",
            hint="use up to 128 letters, digits, dots, dashes and underscores, a letter or digit first",
        )


def make_session_directory(session_id: str, environ: Mapping[str, str], home: str) -> Path:
    """The directory of a session's workspace; made, for its owner alone, if it is not there.

    Raises:
        InvalidConfig: the id.
        PermissionDenied: it cannot be made.
    """
    check_session_id(session_id)
    directory = workspaces_directory(environ, home) / SESSIONS / session_id
    try:
        directory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.mkdir(exist_ok=True, mode=0o700)
    except OSError as fault:
        raise PermissionDenied(
            f"no workspace can be made at {directory} ({fault.strerror})",
            hint="make it writable, or set RINGFENCE_WORKSPACES_DIR to a directory that is",
        ) from fault
    return directory
