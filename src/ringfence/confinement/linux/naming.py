"""Whether a directory tells names apart by their bytes alone.

Where the guardian makes the names of a box (native/make.c), it refuses the protected ones by comparing names. In a
directory that takes `.VSCODE` for `.vscode`, or ignores characters that do not show, the file system alone knows which
names are the same: there a placeholder is put under the name, and a mount over it.

What this does not protect against: a directory that the host makes insensitive to case while the box runs.
"""

import ctypes
import fcntl
import os
import struct
from functools import cache
from typing import Final

_SENSITIVE: Final = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4: unless the directory says otherwise
        0x58465342,  # xfs: unless it was made with names that ignore case
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs: unless the directory says otherwise
        0x858458F6,  # ramfs
        0x794C7630,  # overlayfs: as its layers
        0xF2F52010,  # f2fs: unless the directory says otherwise
    }
)
"""File systems, by their magic numbers. Of others, such as FUSE, NFS or vfat, it depends on who serves them."""
_GET_FLAGS: Final = 0x80086601 if struct.calcsize("l") == 8 else 0x80046601  # FS_IOC_GETFLAGS
_CASEFOLD: Final = 0x40000000  # FS_CASEFOLD_FL


def keeps_names(directory: int) -> bool:
    """Args:
    directory: a descriptor, also one that was opened with O_PATH.
    """
    try:
        opened = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except OSError:
        return False
    try:
        return _file_system(opened) in _SENSITIVE and not _folds_case(opened) and not _finds_itself_swapped(opened)
    finally:
        os.close(opened)


def _folds_case(directory: int) -> bool:
    flags = bytearray(8)
    try:
        fcntl.ioctl(directory, _GET_FLAGS, flags)
    except OSError:
        return False  # it has no such flags
    return bool(int.from_bytes(flags[:4], "little") & _CASEFOLD)


def _finds_itself_swapped(directory: int) -> bool:
    """Whether one of its first names is found in the other case, too."""
    with os.scandir(directory) as entries:
        name = next((entry.name for entry in entries if entry.name.swapcase() != entry.name), None)
    if name is None:
        return False
    try:
        one = os.stat(name, dir_fd=directory, follow_symlinks=False)
        two = os.stat(name.swapcase(), dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _file_system(directory: int) -> int:
    """The magic number of its file system, 0 if that is not known."""
    into = ctypes.create_string_buffer(512)  # struct statfs, which begins with it
    if _libc().fstatfs(directory, into):
        return 0
    return ctypes.c_ulong.from_buffer(into).value & 0xFFFFFFFF
