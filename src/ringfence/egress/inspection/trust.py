"""What clients in a box trust: the system's authorities and ours, in the two forms that clients read.

Bytes only: whoever builds the box's view writes and mounts them. Ours is always added to what the system has, never
instead of it, since rustls and others take the file that they are told for all there is, and spliced connections still
end at the real server.
"""

import re
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import KeySerializationEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

JAVA_PASSWORD: Final = b"changeit"
"""Every Java's default, which protects nothing: certificates are public."""
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s.+?-----END CERTIFICATE-----", re.DOTALL)


def bundle(system_pem: bytes, authority_pem: bytes) -> bytes:
    """The file that takes the place of a system's bundle: as it was, with ours at the end."""
    if not authority_pem:
        return system_pem
    gap = b"" if not system_pem or system_pem.endswith(b"\n") else b"\n"
    return system_pem + gap + authority_pem


def java_store(system_pem: bytes, authority_pem: bytes) -> bytes:
    """The same as a PKCS#12 truststore, which Java reads since version 9 (and 8u301) in the place of `cacerts`.

    Certificates that cannot be parsed, or stand there twice, are left out: one bad root of the system's must not cost
    all of them.
    """
    entries: dict[bytes, PKCS12Certificate] = {}
    for number, block in enumerate(_CERTIFICATE.findall(bundle(system_pem, authority_pem))):
        try:
            certificate = x509.load_pem_x509_certificate(block)
            fingerprint = certificate.fingerprint(hashes.SHA256())
        except ValueError:
            continue
        entries.setdefault(fingerprint, PKCS12Certificate(certificate, f"root-{number}".encode()))
    return serialize_java_truststore(list(entries.values()), _encryption())


def _encryption() -> KeySerializationEncryption:
    # Few rounds: the password is public, and Java derives a key from it at every start.
    return PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1000).hmac_hash(hashes.SHA256()).build(JAVA_PASSWORD)
