"""The few words of SSH that need no library: that a connection is refused, and why, before any keys are exchanged."""

import os
from typing import Final

BANNER: Final = b"SSH-2.0-Ringfence\r\n"
_DISCONNECT: Final = 1
_NOT_ALLOWED: Final = 1  # SSH_DISCONNECT_HOST_NOT_ALLOWED_TO_CONNECT
_BLOCK: Final = 8


def refusal(reason: str) -> bytes:
    """What a client prints as `Received disconnect ...: REASON` (RFC 4253, sections 6 and 11.1)."""
    text = reason.encode("ascii", "replace")
    payload = bytes((_DISCONNECT,)) + _NOT_ALLOWED.to_bytes(4, "big") + _string(text) + _string(b"")
    padding = _BLOCK - (5 + len(payload)) % _BLOCK
    padding += _BLOCK if padding < 4 else 0
    packet = (1 + len(payload) + padding).to_bytes(4, "big") + bytes((padding,)) + payload + os.urandom(padding)
    return BANNER + packet


def _string(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text
