"""The authorities of a region's folder: one that signs, and those before it that are still trusted.

    FOLDER/ca.pem  ca.key           signs
    FOLDER/former/N.pem  N.key      still trusted; their keys sign the lists of revoked certificates

Promises: killed anywhere, the next ``open`` has the authority of before or the new one, whole. Two overlap until
``retire``: a certificate is good as long as the authority that signed it is trusted.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from vedette.fleet.certificates import key_pem
from vedette.region.authority import Authority
from vedette.region.sign import read_private
from vedette.system.durable import sync_path, write_whole


@dataclass(slots=True)
class Authorities:
    """``newest`` signs; ``former`` are still trusted, newest first."""

    folder: Path
    newest: Authority
    former: list[Authority]

    @classmethod
    def open(cls, folder: Path, now: datetime) -> Authorities:
        """Those of ``folder``, or a new one. Raises ValueError for files that are none, PermissionError, OSError."""
        key, cert = folder / "ca.key", folder / "ca.pem"
        _settle(folder)
        if not key.exists() and not cert.exists():
            return cls(folder, _new(folder, now), [])
        numbers = sorted((int(path.stem) for path in (folder / "former").glob("*.pem")), reverse=True)
        former = [_load(folder / "former" / f"{number}.key", folder / "former" / f"{number}.pem") for number in numbers]
        return cls(folder, _load(key, cert), former)

    def pem(self) -> bytes:
        """All that are trusted, the newest first."""
        return b"".join(authority.pem() for authority in (self.newest, *self.former))

    def vouch(self) -> bytes:
        """The signature of ``pem`` by the oldest that is trusted: every member knows that one."""
        return [self.newest, *self.former][-1].sign(self.pem())

    def rotate(self, now: datetime) -> None:
        """Make a new authority, which signs from now on."""
        place = self.folder / "former"
        place.mkdir(mode=0o700, exist_ok=True)
        number = 1 + max((int(path.stem) for path in place.glob("*.pem")), default=0)
        write_whole(place / f"{number}.key", key_pem(self.newest.key), 0o600)
        write_whole(place / f"{number}.pem", self.newest.pem(), 0o644)
        self.former.insert(0, self.newest)
        self.newest = _new(self.folder, now)

    def retire(self) -> None:
        """Trust the newest alone."""
        for path in sorted((self.folder / "former").glob("*")):
            path.unlink()
        self.former = []

    def signed(self, certificate: Path) -> bool:
        """Whether the newest authority signed the certificate in a file."""
        try:
            held = x509.load_pem_x509_certificate(certificate.read_bytes())
            held.verify_directly_issued_by(self.newest.certificate)
        except (OSError, ValueError, TypeError, InvalidSignature):
            return False
        return True

    def revoked(self, serials: Iterable[tuple[int, datetime]], now: datetime) -> bytes:
        """A list of revoked certificates by each authority, as PEM."""
        revoked = list(serials)
        return b"".join(authority.revoked(revoked, now) for authority in (self.newest, *self.former))


def _new(folder: Path, now: datetime) -> Authority:
    authority = Authority.create(f"vedette region {secrets.token_hex(4)}", now)
    write_whole(folder / "ca.key.next", key_pem(authority.key), 0o600)
    write_whole(folder / "ca.pem.next", authority.pem(), 0o644)
    _settle(folder)
    return authority


def _settle(folder: Path) -> None:
    """Finish what ``_new`` began: the certificate is written after the key, and renamed after it."""
    if (folder / "ca.pem.next").exists():
        if (folder / "ca.key.next").exists():
            (folder / "ca.key.next").rename(folder / "ca.key")
        (folder / "ca.pem.next").rename(folder / "ca.pem")
        sync_path(folder)


def _load(key: Path, cert: Path) -> Authority:
    try:
        return Authority.from_pem(read_private(key), cert.read_bytes())
    except (ValueError, TypeError) as error:
        raise ValueError(f"{key} and {cert} are no authority's key and certificate: {error}") from error
