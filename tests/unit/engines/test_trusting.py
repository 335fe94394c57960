"""Whom programs in a box trust: the machine's authorities and ours, in the two forms that clients read."""

import hashlib
import ssl
import struct

from ringfence.confinement.choose import system_bundle
from ringfence.egress.inspection.authority import Authority
from ringfence.engines.networking.java_store import PASSWORD, java_store
from ringfence.engines.networking.trusting import make_trust


def in_store(store: bytes) -> list[bytes]:
    """The certificates of a list in Java's format, read by its description."""
    magic, version, count = struct.unpack_from(">III", store)
    assert (magic, version) == (0xFEEDFEED, 2)
    at, found = 12, []
    for _ in range(count):
        assert struct.unpack_from(">I", store, at) == (2,)
        (alias,) = struct.unpack_from(">H", store, at + 4)
        at += 6 + alias + 8
        (kind,) = struct.unpack_from(">H", store, at)
        assert store[at + 2 : at + 2 + kind] == b"X.509"
        (length,) = struct.unpack_from(">I", store, at + 2 + kind)
        at += 6 + kind
        found.append(store[at : at + length])
        at += length
    checksum = hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + store[:at], usedforsecurity=False)
    assert store[at:] == checksum.digest()
    return found


def test_a_bundle_is_the_systems_with_ours_at_the_end() -> None:
    ours = Authority.make().certificate_pem

    trust = make_trust(ours)

    assert trust.bundle.startswith(system_bundle()) and trust.bundle.endswith(ours)
    assert ssl.PEM_cert_to_DER_cert(ours.decode()) in in_store(trust.java)


def test_a_java_store_holds_every_root_once_and_passes_over_a_broken_one() -> None:
    one, other = Authority.make().certificate_pem, Authority.make().certificate_pem
    broken = b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n"

    found = in_store(java_store(one + broken + one + other))

    assert found == [ssl.PEM_cert_to_DER_cert(pem.decode()) for pem in (one, other)]
