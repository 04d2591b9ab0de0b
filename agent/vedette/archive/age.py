"""Encryption to the owner's public key, in the format of age (age-encryption.org/v1), by ``pyrage``.

The host has the public key alone: it encrypts and cannot read. The owner opens a segment with ``age -d -i FILE`` or
gives the file of the identity to ``vedette logs --identity``. Files go through in pieces, so that other threads run in
between.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO

from vedette.system.installation import bring, running

NO_AGE = "archive.recipient: encryption needs pyrage, which is not installed: {}"


def encrypt(source: IO[bytes], sink: IO[bytes], recipient: str) -> None:
    """Raises OSError, also for a ``recipient`` that is no key."""
    try:
        import pyrage
    except ImportError as error:
        raise OSError(NO_AGE.format(bring("archive", running()))) from error
    try:
        pyrage.encrypt_io(source, sink, [pyrage.x25519.Recipient.from_str(recipient)])
    except (pyrage.RecipientError, pyrage.EncryptError) as error:
        raise OSError(f"archive.recipient: {error}") from error


def decrypt(source: IO[bytes], sink: IO[bytes], identity: Path) -> None:
    """``identity``: a file as ``age-keygen`` writes it. Raises OSError."""
    try:
        import pyrage
    except ImportError as error:
        how = bring("archive", running())
        raise OSError(f"--identity: decryption needs pyrage, which is not installed: {how}") from error
    try:
        lines = [line.strip() for line in identity.read_text().splitlines()]
        keys = [pyrage.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
        if not keys:
            raise OSError(f"{identity}: holds no identity (AGE-SECRET-KEY-1…)")
        pyrage.decrypt_io(source, sink, keys)
    except (pyrage.IdentityError, pyrage.DecryptError, UnicodeDecodeError) as error:
        raise OSError(f"{identity}: {error}") from error
