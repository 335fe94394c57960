"""Who uses a shadow: one process at a time, also over the life of a mount."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ringfence.errors import (
    Busy,
    NotFound,
)
from ringfence.workspace.shadow import Shadow

JOURNAL_FILE: Final = "commit.json"
_LOCK_FILE: Final = "lock"


class ShadowLock:
    """Held by the one process that uses a shadow; give `descriptor` to whatever outlives it with the mount."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go; a second time does nothing."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def lock_shadow(shadow: Shadow, *, for_recovery: bool = False) -> ShadowLock:
    """Take a shadow for this process; for recovery, also one of which a commit was interrupted.

    Raises:
        PermissionDenied: another one has it, or a commit was interrupted and nobody has recovered it.
        NotFound: it is gone.
    """
    try:
        held = locked_file(shadow.directory)
    except FileNotFoundError:
        raise NotFound(f"there is no shadow {shadow.id!r}", hint="list the shadows") from None
    except BlockingIOError:
        raise Busy(f"shadow {shadow.id} is in use", hint="end the session or command that works on it") from None
    if not shadow.directory.exists():  # discarded while we came
        held.close()
        raise NotFound(f"there is no shadow {shadow.id!r}", hint="list the shadows")
    if not for_recovery and (shadow.directory / JOURNAL_FILE).exists():
        held.close()
        raise Busy(
            f"a commit of shadow {shadow.id} was interrupted", hint="recover the store; it says what became of it"
        )
    return held


def locked_file(directory: Path) -> ShadowLock:
    """
    Raises:
        BlockingIOError: somebody else holds it.
        OSError: there is no such directory.
    """
    descriptor = os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return ShadowLock(descriptor)
