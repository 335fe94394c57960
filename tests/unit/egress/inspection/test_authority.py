"""The authority: what its certificates say, that OpenSSL takes them, and that nothing of it lies in a file."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from ringfence.egress.inspection.authority import Authority
from ringfence.values.hosts import canonical_host


def handshake(authority: Authority, host: str, asked: str | None, *, trusted: bytes | None = None) -> ssl.SSLObject:
    """A client and our context, in memory; the client's side of what came of it."""
    client_context = ssl.create_default_context(cadata=(trusted or authority.certificate_pem).decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    client_context.set_alpn_protocols(["h2"])
    if asked is None:
        client_context.check_hostname = False
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=asked)
    server = authority.context_for(canonical_host(host)).wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(8):
        for side in (client, server):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    return client


@pytest.mark.parametrize(
    "host", ["example.com", "a" * 60 + ".b" * 60 + ".com", "10.1.2.3", "2001:db8::1", "_dmarc.example.com"]
)
def test_a_strict_client_accepts_the_leaf_of_a_host(host: str) -> None:
    client = handshake(Authority.make(), host, host)

    assert client.selected_alpn_protocol() == "h2"
    assert client.version() == "TLSv1.3"


@pytest.mark.parametrize("asked", ["other.example.com", "example.com.evil.org", None])
def test_a_client_that_asks_for_another_name_is_refused(asked: str | None) -> None:
    authority = Authority.make()
    handshake(authority, "example.com", "example.com")  # the same client with the right name

    with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name|callback"):
        handshake(authority, "example.com", asked)


def test_an_address_needs_no_name() -> None:
    handshake(Authority.make(), "10.1.2.3", None)


def test_another_runs_authority_is_not_trusted() -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(Authority.make(), "example.com", "example.com", trusted=Authority.make().certificate_pem)


def test_the_certificate_says_what_it_is_and_is_backdated() -> None:
    certificate = x509.load_pem_x509_certificate(Authority.make().certificate_pem)

    assert "Ringfence" in str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)
    assert certificate.not_valid_before_utc <= datetime.now(UTC) - timedelta(hours=23)
    assert timedelta(weeks=2) < certificate.not_valid_after_utc - datetime.now(UTC) < timedelta(weeks=13)
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_contexts_are_kept_up_to_a_bound_and_no_descriptor_stays_open() -> None:
    authority = Authority.make(kept=4)
    first = authority.context_for(canonical_host("host-0.example.com"))
    assert authority.context_for(canonical_host("HOST-0.example.com.")) is first
    before = len(os.listdir("/proc/self/fd"))

    for number in range(1, 12):
        authority.context_for(canonical_host(f"host-{number}.example.com"))

    assert len(os.listdir("/proc/self/fd")) == before
    assert authority.context_for(canonical_host("host-0.example.com")) is not first
    assert len(authority._contexts) == 4
