"""The authority of inspected connections: made for one run of the manager, known by nobody outside its boxes.

Its key exists in the memory of this process only, and so does the leaves' (one key for all of them: whoever has it
could make more, so that separate ones protect nothing). Python's OpenSSL loads a chain from a path alone,
which is a memfd here: no file system holds it. Certificates are valid from a day ago, because clocks in boxes and
machines are wrong by hours, and for some weeks, because a manager does not run for longer.

What this does not protect against: whoever reads the memory of this process can make certificates that this run's boxes
trust.
"""

import os
import secrets
import ssl
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ringfence.values.hosts import BadHost, Host, canonical_host

BACKDATED: Final = timedelta(days=1)
VALID: Final = timedelta(weeks=6)
LEAVES: Final = 512  # contexts kept at most: each is about 50 kB of OpenSSL's memory
_COMMON_NAME: Final = 64  # the longest that X.509 allows


class Authority:
    """Makes certificates for hosts. `Authority.make()` makes one."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, kept: int = LEAVES) -> None:
        self._key = key
        self._certificate = certificate
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key_pem = self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._kept = kept
        self._contexts: OrderedDict[str, ssl.SSLContext] = OrderedDict()

    @classmethod
    def make(cls, *, kept: int = LEAVES) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        # Eight digits, so that the authorities of two managers can be told apart where both are shown.
        title = f"Ringfence inspection (this run only) {secrets.token_hex(4)}"
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Ringfence: traffic of this sandbox is inspected"),
                x509.NameAttribute(NameOID.COMMON_NAME, title),
            ]
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATED)
            .not_valid_after(now + VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(identifier, critical=False)
            # Without it, OpenSSL 3 in strict mode (Python 3.13's default) refuses the chain.
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate, kept)

    @property
    def certificate_pem(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def context_for(self, host: Host) -> ssl.SSLContext:
        """What ends TLS for a host; it refuses a client that asks for another name."""
        kept = self._contexts.get(host.text)
        if kept is None:
            kept = self._contexts[host.text] = self._context(host)
            if len(self._contexts) > self._kept:
                self._contexts.popitem(last=False)
        else:
            self._contexts.move_to_end(host.text)
        return kept

    def leaf(self, host: Host) -> x509.Certificate:
        """A certificate for one host, by name or by address."""
        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host.text[:_COMMON_NAME])])
        name: x509.GeneralName = x509.DNSName(host.text) if host.address is None else x509.IPAddress(host.address)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._certificate.subject)
            .public_key(self._leaf_key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(max(now - BACKDATED, self._certificate.not_valid_before_utc))
            .not_valid_after(self._certificate.not_valid_after_utc)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._leaf_key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )

    def _context(self, host: Host) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        context.set_alpn_protocols(["h2", "http/1.1"])
        context.sni_callback = _only(host)
        _load(context, self.chain_pem(host))
        return context

    def chain_pem(self, host: Host) -> bytes:
        """A leaf with its key and what it was signed by, as OpenSSL loads it."""
        leaf = self.leaf(host).public_bytes(serialization.Encoding.PEM)
        return leaf + self.certificate_pem + self._leaf_key_pem


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, pem)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def _only(host: Host) -> Callable[[ssl.SSLSocket | ssl.SSLObject, str | None, ssl.SSLContext], int | None]:
    """Whoever asks for another name than the connection was judged by is told so before anything is read."""

    def check(_: ssl.SSLSocket | ssl.SSLObject, name: str | None, __: ssl.SSLContext) -> int | None:
        if name is None:  # an address has no name to send; a name has to be sent
            return None if host.address is not None else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        try:
            return None if canonical_host(name) == host else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        except BadHost:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    return check


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
