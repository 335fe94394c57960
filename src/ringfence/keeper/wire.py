"""What is said between the front (native/front/handing.c), a keeper and its children, and where a keeper is found.

One message of a SOCK_SEQPACKET socket each:

    keeper -> front   ACCEPTED
    front  -> keeper  CALL + kind + the numbers of the descriptors that come along   (first: line, words, directory)
    keeper -> child   SERVE + these numbers; before them the connection              (to one that waits)
    child  -> front   READY, or NOT_ME + why                                          (on the line that came along)
    front  -> child   GO
    front  -> keeper  SIGNAL + number
    child  -> keeper  OVER + whether it can serve another
    child  -> front   EXITED + code: the answer; the child still takes its box down
    keeper -> front   STOPPED + signal, EXITED + code, KILLED + signal
    keeper -> child   PREPARE: open a box for the next call like the one that is over
    child  -> keeper  PREPARED
    anybody -> keeper STATUS or STOP; the answer is JSON
"""

import os
import stat
from typing import Final, NamedTuple

CALL: Final = b"RFCALL2\0"
KIND_BYTES: Final = 8
STATUS: Final = b"RFSTATUS"
STOP: Final = b"RFSTOP"
READY: Final = b"R"
NOT_ME: Final = b"P"
GO: Final = b"G"
SIGNAL: Final = ord("S")
ACCEPTED: Final = b"A"
STOPPED: Final = b"T"
EXITED: Final = b"E"
KILLED: Final = b"K"
SERVE: Final = b"S"
PREPARE: Final = b"M"
PREPARED: Final = b"W"
OVER: Final = b"O"

OWN_DESCRIPTORS: Final = 3
MOST_DESCRIPTORS: Final = OWN_DESCRIPTORS + 64
LONGEST_REQUEST: Final = len(CALL) + KIND_BYTES + 4 * MOST_DESCRIPTORS

SOCKET_SUFFIX: Final = ".sock"
LOCK_SUFFIX: Final = ".lock"
DIRECTORY: Final = "ringfence"


class Place(NamedTuple):
    """A directory of this user's that nobody else may enter, and a name in it."""

    directory: int
    name: str

    @property
    def socket(self) -> str:
        return self.name + SOCKET_SUFFIX

    @property
    def address(self) -> str:
        """By descriptor: nobody can put another directory in between, and it is never too long."""
        return f"/proc/self/fd/{self.directory}/{self.socket}"


def is_private(directory: int) -> bool:
    status = os.fstat(directory)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def open_directory(runtime: str | None) -> int | None:
    """The directory of this user's keepers, if there is one that is safe; `runtime` is XDG_RUNTIME_DIR."""
    top = runtime if runtime and runtime.startswith("/") else f"/run/user/{os.getuid()}"
    flags = os.O_PATH | os.O_DIRECTORY
    try:
        above = os.open(top, flags)
    except OSError:
        return None
    try:
        if not is_private(above):
            return None
        directory = os.open(DIRECTORY, flags | os.O_NOFOLLOW, dir_fd=above)
    except OSError:
        return None
    finally:
        os.close(above)
    if is_private(directory):
        return directory
    os.close(directory)
    return None
