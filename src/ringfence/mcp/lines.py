"""Standard input and output as lines of the protocol, one message a line. Imports no SDK.

Descriptor 1 belongs to the protocol alone: `claim_standard_streams` keeps it for us and lets everything else that
prints do so on stderr; whoever reads stdin finds it empty.
"""

import os
from dataclasses import dataclass, field
from typing import Final

LONGEST_LINE: Final = 16 * 1024 * 1024
"""Bytes of one message: a file that a model writes is far smaller."""
PIECE: Final = 256 * 1024


def claim_standard_streams() -> tuple[int, int]:
    """Input and output of the protocol, as descriptors that nobody else knows. Call it once."""
    private_in, private_out = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return private_in, private_out


@dataclass(slots=True)
class Lines:
    """Cuts pieces into lines of bounded length."""

    longest: int = LONGEST_LINE
    _kept: bytearray = field(default_factory=bytearray)
    _is_skipping: bool = False

    def add(self, piece: bytes) -> list[bytes | None]:
        """The lines that are whole now; None for one that is too long."""
        found: list[bytes | None] = []
        while piece:
            line, newline, piece = piece.partition(b"\n")
            if not self._is_skipping:
                self._kept += line
                if len(self._kept) > self.longest:
                    self._kept.clear()
                    self._is_skipping = True
                    found.append(None)
            if newline and not self._is_skipping:
                found.append(bytes(self._kept))
                self._kept.clear()
            if newline:
                self._is_skipping = False
        return found
