"""Which file system a path lies on, and whether overlayfs takes it as a layer."""

import os

from ringfence.values.paths import is_below

_UPPER = frozenset({"ext4", "ext3", "ext2", "xfs", "btrfs", "tmpfs", "f2fs", "bcachefs"})
"""These take extended attributes of users, tell the type of each name in a listing, and know whiteouts."""
_NOT_LOWER: dict[str, str] = {
    "vfat": "ignores case",
    "msdos": "ignores case",
    "exfat": "ignores case",
    "ntfs": "ignores case",
    "ntfs3": "ignores case",
    "cifs": "may ignore case, and changes without this machine",
    "smb3": "may ignore case, and changes without this machine",
    "nfs": "changes without this machine",
    "nfs4": "changes without this machine",
    "9p": "changes without this machine",
    "virtiofs": "changes without this machine",
    "fuse": "is another program's",
    "fuseblk": "is another program's",
    "overlay": "is an overlay itself, and the kernel stacks no more than two",
    "ecryptfs": "is stacked itself",
    "proc": "is the kernel's",
    "sysfs": "is the kernel's",
}


def file_system(path: str, table: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that a real path lies on; empty if nobody says."""
    best, kind = -1, ""
    with open(table, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            fields, _, tail = line.partition(" - ")
            point = _unescaped(fields.split(" ")[4])
            is_above = is_below(path, point)
            if is_above and len(point) >= best:  # the later of two on the same point covers the other
                best, kind = len(point), tail.split(" ")[0]
    return kind


def why_not_lower(kind: str) -> str:
    """Why a file system cannot lie below an overlay; empty if it can."""
    return _NOT_LOWER.get(kind, "") or _NOT_LOWER.get(kind.partition(".")[0], "")


def why_not_upper(kind: str) -> str:
    """Why changes cannot be kept on a file system by overlayfs; empty if they can."""
    return "" if kind in _UPPER else "overlayfs cannot keep changes there"


def takes_attributes(directory: str | os.PathLike[str]) -> bool:
    """Whether overlayfs could leave its marks there; some kernels have tmpfs without attributes of users."""
    try:
        os.setxattr(directory, "user.overlay.ringfence", b"")
        os.removexattr(directory, "user.overlay.ringfence")
    except OSError:
        return False
    return True


def _unescaped(text: str) -> str:
    """The kernel writes blanks, tabs, newlines and backslashes in octal."""
    for octal in ("040", "011", "012", "134"):
        text = text.replace(f"\\{octal}", chr(int(octal, 8)))
    return text
