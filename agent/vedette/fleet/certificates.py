"""Keys, certificate signing requests and certificates, as PEM. Values only.

Keys are ECDSA on P-256, signatures SHA-256. A certificate signing request (PKCS #10, RFC 2986) is signed by its own
key; loading one does not check that, so ``requested_key`` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    """PKCS #8 without a passphrase."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def signing_request(name: str, key: ec.EllipticCurvePrivateKey) -> str:
    """A certificate signing request (PEM) for the public part of ``key``."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    csr = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return csr.public_bytes(Encoding.PEM).decode()


def requested_key(csr: str) -> ec.EllipticCurvePublicKey:
    """The public key of a signing request, which its own key has signed. Raises ValueError."""
    try:
        loaded = x509.load_pem_x509_csr(csr.encode())
        valid, public = loaded.is_signature_valid, loaded.public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError(f"the certificate signing request cannot be read: {error}") from error
    if not valid:
        raise ValueError("the certificate signing request is not signed by its own key")
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, ec.SECP256R1):
        raise ValueError("the certificate signing request: expects a key on P-256")
    return public


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key (its SubjectPublicKeyInfo) in hex."""
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def issued(certificate: bytes, key: ec.EllipticCurvePrivateKey, name: str, authorities: bytes) -> x509.Certificate:
    """``certificate`` (PEM), when it is for ``key`` and ``name`` and one of ``authorities`` (PEM) has signed it.

    Raises ValueError.
    """
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
        public = loaded.public_key()
    except (TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError(f"the certificate cannot be read: {error}") from error
    if public != key.public_key():
        raise ValueError("the certificate is for another key")
    names = [attribute.value for attribute in loaded.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [name]:
        raise ValueError(f"the certificate is for {', '.join(map(str, names)) or 'nobody'}, not for {name}")
    if not _signed_by_one(loaded, authorities):
        raise ValueError("the certificate is not signed by an authority that is trusted here")
    return loaded


def sign(data: bytes, key: ec.EllipticCurvePrivateKey) -> bytes:
    """An ECDSA signature, for ``signed_by``."""
    return key.sign(data, ec.ECDSA(hashes.SHA256()))


def signed_by(data: bytes, signature: bytes, certificates: bytes) -> bool:
    """Whether the key of one of ``certificates`` (PEM) has signed ``data``. Raises ValueError for PEM that is none."""
    keys: Sequence[object] = [certificate.public_key() for certificate in x509.load_pem_x509_certificates(certificates)]
    for key in keys:
        if isinstance(key, ec.EllipticCurvePublicKey):
            try:
                key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
            except InvalidSignature:
                continue
            return True
    return False


def vouched(certificate: bytes, name: str, authorities: bytes, revoked: Collection[int] = ()) -> x509.Certificate:
    """``certificate`` (PEM), when it is for ``name``, good now, signed by one of ``authorities`` (PEM), and its serial
    number is not among ``revoked``. Raises ValueError."""
    try:
        loaded = x509.load_pem_x509_certificate(certificate)
    except (TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise ValueError(f"the certificate cannot be read: {error}") from error
    names = [attribute.value for attribute in loaded.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if names != [name]:
        raise ValueError(f"the certificate is for {', '.join(map(str, names)) or 'nobody'}, not for {name}")
    if not _signed_by_one(loaded, authorities):
        raise ValueError("the certificate is not signed by an authority that is trusted here")
    if not loaded.not_valid_before_utc <= datetime.now(UTC) < loaded.not_valid_after_utc:
        raise ValueError(f"the certificate ended at {loaded.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}")
    if loaded.serial_number in revoked:
        raise ValueError("the certificate was revoked")
    return loaded


def _signed_by_one(certificate: x509.Certificate, authorities: bytes) -> bool:
    for authority in x509.load_pem_x509_certificates(authorities):
        with suppress(ValueError, TypeError, InvalidSignature):
            certificate.verify_directly_issued_by(authority)
            return True
    return False
