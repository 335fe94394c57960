"""What packing and unpacking share: the forms, the limits, and what is told at the end."""

from enum import StrEnum

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, PathAccessDenied
from ringfence.workspace.walking import LeftOut

ARCHIVE = "the archive"
"""What messages call it, as it has no path of its own."""


class Archive(StrEnum):
    """How files are packed into one."""

    TAR = "tar"
    TAR_GZ = "tar.gz"
    ZIP = "zip"


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much may come out of an archive, or go into one.

    An archive says of itself what it likes, so all of these are counted while it is read.
    """

    total_bytes: int = 1024 * 1024 * 1024
    """All contents together, unpacked."""
    members: int = 100_000
    ratio: float = 200.0
    """Unpacked to packed bytes. Text packs to a tenth, logs to a hundredth; a bomb is made to reach a thousand."""
    ratio_from_bytes: int = 16 * 1024 * 1024
    """Below this nobody counts the ratio: a small file of zeros is no bomb."""

    def __post_init__(self) -> None:
        if min(self.total_bytes, self.members, self.ratio, self.ratio_from_bytes) <= 0:
            raise InvalidArgument("a limit of archives is not above zero", hint="give each a value above zero")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What an upload wrote."""

    paths: tuple[str, ...]
    """Files and links, relative to the workspace, in the archive's order."""
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Packed:
    """What a download holds."""

    members: int
    total_bytes: int
    left_out: tuple[LeftOut, ...]


def over(limit: str, what: str) -> PathAccessDenied:
    return PathAccessDenied(ARCHIVE, what, rule=f"ArchiveLimits.{limit}", hint=f"raise {limit}, or send less")
