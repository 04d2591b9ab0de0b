"""Who this host is in its fleet: key, certificate and the authorities it trusts, in one folder.

    FOLDER/
      agent.key        made here, 0600; it never leaves the host
      agent.pem        the certificate that the region gave
      region-ca.pem    the authorities to trust
      identity.json    {"fleet", "name", "settings"}: what the region says of this host (``config/enrolled.py``)
      NAME             further files of the answer, such as the fleet's root of trust
      agent.key.next  agent.pem.next    of a renewal under way

Promises: nothing is in force before it fits: the certificate is for our key and name, and signed by an authority that
is trusted. A renewal replaces key and certificate together as far as whoever opens them through ``settle`` can see:
killed between the two renames, the next ``settle`` finishes. A key that a request has named is kept until an answer
comes, so that a request whose answer was lost can be made again, and the region knows it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import orjson
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from vedette.fleet.certificates import issued, key_pem, new_key, sign, signed_by, signing_request
from vedette.fleet.enrolment import Answer, EnrolmentRefused, Renewal, renewal_request
from vedette.system.durable import sync_path, write_whole

KEY, CERTIFICATE, AUTHORITIES, IDENTITY = "agent.key", "agent.pem", "region-ca.pem", "identity.json"
RENEW_AT = 2 / 3
"""Of a certificate's life, from when on it is renewed."""
_FILE = re.compile(r"[a-z0-9-]{1,64}\.(?:json|pem)")


class Identity:
    """The folder of one agent; one process at a time."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def settle(self) -> None:
        """Finish a renewal that was cut short. Raises OSError."""
        if self._path(CERTIFICATE, ".next").exists():
            if self._path(KEY, ".next").exists():
                self._path(KEY, ".next").rename(self._path(KEY))
            self._path(CERTIFICATE, ".next").rename(self._path(CERTIFICATE))
            sync_path(self.folder)

    @property
    def enrolled(self) -> bool:
        return self._path(CERTIFICATE).exists()

    def certificate(self) -> x509.Certificate:
        """Raises OSError, ValueError."""
        return x509.load_pem_x509_certificate(self._path(CERTIFICATE).read_bytes())

    def renew_after(self) -> datetime:
        """When the certificate should be renewed. Raises OSError, ValueError."""
        held = self.certificate()
        begins, ends = held.not_valid_before_utc, held.not_valid_after_utc
        return begins + (ends - begins) * RENEW_AT

    def expires(self) -> datetime | None:
        """When the certificate ends; None without one that can be read."""
        try:
            return self.certificate().not_valid_after_utc
        except (OSError, ValueError):
            return None

    # --- enrolment

    def request_csr(self) -> str:
        """The signing request to enrol with; the same key each time. Raises OSError, ValueError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return signing_request(self.name, self._key(KEY))

    def take(self, answer: Answer, fleet: str) -> None:
        """Put an answer in force, the certificate last. Raises EnrolmentRefused, OSError."""
        if answer.refused:
            raise EnrolmentRefused(f"the region refuses: {answer.refused}")
        certificate, authorities = answer.certificate.encode(), answer.authorities.encode()
        _fits(certificate, self._key(KEY), self.name, authorities)
        for name, text in answer.files.items():
            if not _FILE.fullmatch(name) or name in (KEY, CERTIFICATE, AUTHORITIES, IDENTITY):
                raise EnrolmentRefused(f"the answer has a file of the name {name[:80]!r}")
            write_whole(self.folder / name, text.encode(), 0o640)
        identity = {"fleet": fleet, "name": self.name, "settings": answer.settings}
        write_whole(self._path(IDENTITY), orjson.dumps(identity, option=orjson.OPT_INDENT_2) + b"\n", 0o640)
        write_whole(self._path(AUTHORITIES), authorities, 0o640)
        write_whole(self._path(CERTIFICATE), certificate, 0o640)

    # --- renewal

    def renewal_request(self) -> bytes:
        """The request for the next certificate; for the same key until it has come. Raises OSError, ValueError."""
        csr = signing_request(self.name, self._key(KEY, ".next"))
        return renewal_request(csr, sign(csr.encode(), self._key(KEY)))

    def renew(self, renewal: Renewal) -> bool:
        """Put a renewed certificate, or changed authorities, in force; whether anything changed.

        Raises EnrolmentRefused, OSError.
        """
        trusted, authorities = self._path(AUTHORITIES).read_bytes(), renewal.authorities.encode()
        if authorities != trusted:
            try:
                vouched = signed_by(authorities, renewal.signature, trusted)
            except ValueError as error:
                raise EnrolmentRefused(f"the authorities cannot be read: {error}") from error
            if not vouched:
                raise EnrolmentRefused("no authority that is trusted here has signed the new authorities")
        certificate = renewal.certificate.encode()
        is_same = certificate == self._path(CERTIFICATE).read_bytes()
        if not is_same:
            _fits(certificate, self._key(KEY, ".next"), self.name, authorities)
        if authorities != trusted:
            write_whole(self._path(AUTHORITIES), authorities, 0o640)
        if not is_same:
            write_whole(self._path(CERTIFICATE, ".next"), certificate, 0o640)
            self.settle()
        return not is_same or authorities != trusted

    def _path(self, name: str, suffix: str = "") -> Path:
        return self.folder / (name + suffix)

    def _key(self, name: str, suffix: str = "") -> ec.EllipticCurvePrivateKey:
        path = self._path(name, suffix)
        if not path.exists():
            write_whole(path, key_pem(new_key()), 0o600)
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except TypeError as error:
            raise ValueError(f"{path}: asks for a passphrase: remove it, and a new key is made") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{path}: expects a key on P-256: remove it, and a new one is made")
        return key


def _fits(certificate: bytes, key: ec.EllipticCurvePrivateKey, name: str, authorities: bytes) -> x509.Certificate:
    try:
        held = issued(certificate, key, name, authorities)
    except ValueError as error:
        raise EnrolmentRefused(str(error)) from error
    if held.not_valid_after_utc <= datetime.now(UTC):
        raise EnrolmentRefused(
            f"the certificate ended at {held.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}: is this host's clock right?"
        )
    return held
