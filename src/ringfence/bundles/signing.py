"""Signs a bundle's manifest with an Ed25519 key, and finds out whether a signature is one over exactly these bytes.

What is signed is `PREFIX` and then the bytes of `tool.json` as they lie in the bundle. The manifest holds the hash of
every other file, so that nothing in a bundle is outside of the signature. The prefix keeps a signature that was made
for something else from ever counting here.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final

from ringfence.audit.signing import key_id
from ringfence.bundles.canonical import NotCanonical, canonical, parse
from ringfence.bundles.manifest import SIGNATURE
from ringfence.bundles.reasons import Reason
from ringfence.dataclass import dataclass
from ringfence.errors import BundleRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

PREFIX: Final = b"ringfence tool bundle 1\n"
ALGORITHM: Final = "ed25519"
_SIGNATURE_BYTES: Final = 64
_SIZE_MAX: Final = 1024
_KEY: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Signature:
    key: str
    """The id of the key: the SHA-256 of its 32 bytes, in hexadecimal digits."""
    value: bytes

    def covers(self, public: bytes, manifest: bytes) -> bool:
        """Whether the holder of this key's private half has signed these bytes."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(public).verify(self.value, PREFIX + manifest)
        except (InvalidSignature, ValueError):
            return False
        return True


def sign(manifest: bytes, key: Ed25519PrivateKey) -> bytes:
    """What goes into `tool.sig`."""
    value = base64.b64encode(key.sign(PREFIX + manifest)).decode("ascii")
    return canonical({"algorithm": ALGORITHM, "key": key_id(key.public_key()), "signature": value})


def read_signature(data: bytes | None, source: str = SIGNATURE) -> Signature:
    """The signature that a bundle carries.

    Raises:
        BundleRefused: it has none, or one that cannot be read.
    """
    if data is None:
        raise BundleRefused(
            Reason.UNSIGNED, "the bundle is not signed", source=source, hint="sign it: ringfence bundle sign"
        )
    try:
        given = parse(data) if len(data) <= _SIZE_MAX else None
    except NotCanonical:
        given = None
    if isinstance(given, dict) and set(given) == {"algorithm", "key", "signature"} and given["algorithm"] == ALGORITHM:
        key, text = given["key"], given["signature"]
        if isinstance(key, str) and _KEY.fullmatch(key) and isinstance(text, str):
            try:
                value = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                value = b""
            if len(value) == _SIGNATURE_BYTES and base64.b64encode(value).decode("ascii") == text:
                return Signature(key, value)
    raise BundleRefused(Reason.BAD_SIGNATURE, "the signature cannot be read", source=source)
