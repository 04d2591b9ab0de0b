"""The region's own certificate authority: keys, certificates and the list of revoked ones, as PEM. Values only.

Keys are ECDSA on P-256, signatures SHA-256, profiles those of RFC 5280: the authority may sign certificates and lists
of revoked ones and nothing below it may; a broker's certificate is good for serving under its host names only, every
other one for being a client only, so that a stolen agent's key does not make a broker. The name that the broker goes
by is the common name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vedette.fleet.certificates import new_key, sign

MAX_NAME = 64
"""Characters of a common name (RFC 5280, ub-common-name)."""
AUTHORITY_DAYS = 3650
_EARLIER = timedelta(hours=1)
"""Clocks of hosts may be so much behind ours."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs with ``key`` under the certificate ``certificate``."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls, name: str, now: datetime) -> Authority:
        """A new authority, good for AUTHORITY_DAYS."""
        key = new_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        certificate = (
            _started(subject, subject, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(True, 0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def from_pem(cls, key: bytes, certificate: bytes) -> Authority:
        """Raises ValueError when the two are not an authority's key and certificate."""
        loaded = load_pem_private_key(key, password=None)
        own_certificate = x509.load_pem_x509_certificate(certificate)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != own_certificate.public_key():
            raise ValueError("the key is not the one of the certificate")
        return cls(loaded, own_certificate)

    @property
    def name(self) -> str:
        return str(self.certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    def sign(self, data: bytes) -> bytes:
        return sign(data, self.key)

    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self, name: str, public: ec.EllipticCurvePublicKey, now: datetime, days: int, hosts: Sequence[str] = ()
    ) -> x509.Certificate:
        """A certificate for ``name``: a server's under ``hosts`` (names or addresses), without any a client's.

        It ends with the authority at the latest. Raises ValueError for a name that cannot stand in a certificate, and
        when the authority itself has ended.
        """
        ends = min(now + timedelta(days=days), self.certificate.not_valid_after_utc)
        if ends <= now:
            raise ValueError(f"the authority ended at {self.certificate.not_valid_after_utc:%Y-%m-%d}: make a new one")
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            _started(subject, self.certificate.subject, public, now, ends)
            .add_extension(x509.BasicConstraints(False, None), critical=True)
            .add_extension(x509.KeyUsage(True, False, False, False, False, False, False, False, False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(issuer, critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(list(map(_host, hosts))), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def revoked(self, serials: Iterable[tuple[int, datetime]], now: datetime) -> bytes:
        """The list of revoked certificates (serial number, since when) as PEM. It ends with the authority: a broker
        refuses everybody under a list that has ended."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - _EARLIER)
            .next_update(max(self.certificate.not_valid_after_utc, now))
        )
        for serial, since in serials:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
            builder = builder.add_revoked_certificate(entry)
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def _started(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _EARLIER)
        .not_valid_after(ends)
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
