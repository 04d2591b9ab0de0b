"""A certificate authority for tests, and what it signs: PEM files in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates that are good for an hour; its own is ``ca.pem``. Keys are for their owner only."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(self._sign(self._name, self._key.public_key(), ca=True))

    def issue(self, name: str, *, host: str = "127.0.0.1", expired: bool = False) -> tuple[Path, Path]:
        """Certificate and key with the common name ``name``, of a server at ``host``."""
        key = ec.generate_private_key(ec.SECP256R1())
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        files[0].write_bytes(self._sign(subject, key.public_key(), ca=False, host=host, expired=expired))
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        files[1].touch(0o600)
        files[1].write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
        return files

    def _sign(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        *,
        ca: bool,
        host: str = "127.0.0.1",
        expired: bool = False,
    ) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        names = x509.SubjectAlternativeName([name])
        usage = x509.KeyUsage(True, False, False, False, False, ca, ca, False, False)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=2))
            .not_valid_after(now + datetime.timedelta(hours=-1 if expired else 1))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(names, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)
