"""Where the files of a named session lie: the directory of `AgentWorkspace(session_id)` is its boxes' workspace.

A new session takes a box that waits, whose workspace lies among those of this process. While the session lives, its
directory is a link to that workspace; at its end the two are exchanged, so that the files stay under the session's name
and whoever has the directory open has it still. A process that dies leaves the link; the next one exchanges them before
it removes what the dead one left. A session whose directory is there already gets a box over that.

Names that cannot be a file's have no such directory: the files of those sessions go with them.
"""

import os
from contextlib import suppress
from pathlib import Path

from ringfence.errors import Busy, InvalidArgument
from ringfence.workspace.places import SESSIONS, check_name
from ringfence.workspace.swapping import exchange


class SessionPlaces:
    """
    Args:
        directory: that of all workspaces.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory / SESSIONS

    def existing(self, session_id: str) -> Path | None:
        """The session's directory, if it is there already.

        Raises:
            Busy: another process runs the session.
        """
        place = self._place(session_id)
        if place is None or not os.path.lexists(place):
            return None
        if place.is_symlink():
            if not place.exists():
                place.unlink(missing_ok=True)  # what it led to is gone for good
                return None
            raise Busy(
                f"the session {session_id!r} runs in another process, or in another pool of this one",
                hint="end it there first, or choose another id",
            )
        return place

    def lead(self, session_id: str, workspace: Path) -> None:
        """Let the session's name lead to a workspace, for as long as the session lives."""
        place = self._place(session_id)
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.symlink(workspace, place)

    def settle(self, session_id: str, workspace: Path) -> bool:
        """The session is over, and its files stay under its name; False if its name did not lead to them."""
        place = self._place(session_id)
        return place is not None and _leads(place, workspace) and _settle(place, workspace)

    def forget(self, session_id: str, workspace: Path) -> None:
        """The session is over, and there are no files."""
        place = self._place(session_id)
        if place is not None and _leads(place, workspace):
            with suppress(OSError):
                os.unlink(place)

    def _place(self, session_id: str) -> Path | None:
        try:
            check_name(session_id, "id of a session")
        except InvalidArgument:
            return None
        return self._directory / session_id


def settle_abandoned(directory: Path, own: Path) -> None:
    """What a dead process left: sessions whose files still lie in its own directory get them under their names.

    Args:
        own: the dead process's directory, which the caller holds locked.
    """
    with suppress(FileNotFoundError), os.scandir(directory / SESSIONS) as entries:
        for entry in entries:
            if not entry.is_symlink():
                continue
            workspace = Path(os.readlink(entry.path))
            if workspace.parent == own:
                _settle(Path(entry.path), workspace)


def _leads(place: Path, workspace: Path) -> bool:
    try:
        return os.readlink(place) == os.fspath(workspace)
    except OSError:
        return False  # not there, or a directory


def _settle(place: Path, workspace: Path) -> bool:
    if not os.path.isdir(workspace):
        with suppress(OSError):
            os.unlink(place)  # it leads nowhere
        return False
    try:
        exchange(place, workspace)  # at once: at no moment is there neither
        os.unlink(workspace)
    except OSError:
        try:  # a file system that cannot exchange
            os.unlink(place)
            os.rename(workspace, place)
        except OSError:
            return False
    return True
