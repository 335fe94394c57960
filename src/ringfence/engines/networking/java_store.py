"""A list of authorities in Java's own format, JKS, which every Java takes in the place of its `cacerts`.

Not PKCS#12, though newer ones prefer it: Java opens its own list without a password and then passes over certificates
that are encrypted, while programs that name the usual password are refused by a list that has another or none. In JKS
certificates are plain and the password is only mixed into a checksum, so that both get all of them.
"""

import hashlib
import re
import ssl
import struct
from typing import Final

PASSWORD: Final = "changeit"
"""Every Java's default, which protects nothing: certificates are public."""
_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.DOTALL)
_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED: Final = 2
"""The kind of an entry: a certificate, and no key."""


def java_store(pem: bytes) -> bytes:
    """Every certificate of a bundle once; a block that is no base64 is left out."""
    found = dict.fromkeys(_decoded(pem.decode("ascii", errors="replace")))
    body = struct.pack(">III", _MAGIC, _VERSION, len(found))
    for number, certificate in enumerate(found):
        alias = _text(f"root-{number}")
        body += struct.pack(">I", _TRUSTED) + alias + bytes(8) + _text("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    checksum = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + checksum.digest()


def _decoded(pem: str) -> list[bytes]:
    found = []
    for block in _CERTIFICATE.findall(pem):
        try:
            found.append(ssl.PEM_cert_to_DER_cert(block))
        except ValueError:
            continue
    return found


def _text(text: str) -> bytes:
    data = text.encode("ascii")
    return struct.pack(">H", len(data)) + data
