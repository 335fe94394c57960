"""The head: a small file beside the log that says where the log ends.

It is the anchor against a cut tail, the way from one writer to the next, and the file that writers lock. It is shorter
than a sector and written by one call in place, so that a crash leaves the old one or the new one; a checksum tells if
that ever fails.
"""

import zlib
from typing import Final, NamedTuple, Self

from ringfence.audit.chain import GENESIS

HEAD_FILE: Final = "head"
HEAD_BYTES: Final = 256
_MARK: Final = "ringfence-head-1"
_FORM: Final = _MARK + " %d %s %d %d %d %d %d"


class Head(NamedTuple):
    """A tuple, because one is made for every record: a dataclass would take as long as the hash."""

    seq: int = 0
    """Of the last record; 0 if there is none."""
    hash: str = GENESIS
    file: int = 1
    """The number that the current file will have when it is rotated."""
    size: int = 0
    """Bytes of the current file."""
    inode: int = 0
    signed_seq: int = 0
    """Of the last checkpoint."""
    signed_at: int = 0
    """When that was, in seconds since the epoch."""

    def encode(self) -> bytes:
        text = (_FORM % self).encode("ascii")
        return (b"%b %08x" % (text, zlib.crc32(text))).ljust(HEAD_BYTES - 1) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """None if it is not one, or not whole."""
        text, _, check = data.rstrip().rpartition(b" ")
        parts = text.split(b" ")
        if len(parts) != 8 or parts[0] != _MARK.encode() or check != b"%08x" % zlib.crc32(text):
            return None
        _, seq, digest, file, size, inode, signed_seq, signed_at = parts
        return cls(
            seq=int(seq),
            hash=digest.decode("ascii"),
            file=int(file),
            size=int(size),
            inode=int(inode),
            signed_seq=int(signed_seq),
            signed_at=int(signed_at),
        )
